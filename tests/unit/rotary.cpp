// SPDX-License-Identifier: Apache-2.0
// The table of cos and sin: plain, with positions divided, and with Llama 3's scaling written as its branches say.
#include <doctest/doctest.h>

#include <cmath>
#include <vector>

#include "block/rotary.hpp"
#include "mdlm/mdlm.h"

namespace {

mdlm::Config config_of(std::initializer_list<std::pair<const char *, const char *>> settings) {
    mdlm_config c = MDLM_CONFIG_INIT;
    for (auto [key, value] : {std::pair{"num_layers", "1"}, {"hidden_size", "256"}, {"num_attention_heads", "2"}})
        REQUIRE(mdlm_config_set(&c, key, value) == MDLM_OK);
    for (auto [key, value] : settings) REQUIRE(mdlm_config_set(&c, key, value) == MDLM_OK);
    return mdlm::resolve(c);
}

}  // namespace

TEST_CASE("rotary frequencies are base^(-2i/dim) over the channels that turn") {
    const auto half = mdlm::rotary_frequencies(config_of({{"rotary_percent", "0.5"}, {"rotary_base", "500000"}}));
    REQUIRE(half.size() == 32);  // 128 channels a head, half of them in pairs
    for (size_t i = 0; i < half.size(); ++i)
        CHECK(half[i] == doctest::Approx(std::pow(500000.0, -double(i) / 32.0)).epsilon(1e-14));
}

TEST_CASE("Llama 3's scaling divides long wavelengths, keeps short ones and blends between") {
    const auto plain = mdlm::rotary_frequencies(config_of({{"rotary_base", "500000"}}));
    const auto scaled = mdlm::rotary_frequencies(config_of({{"rotary_base", "500000"},
                                                            {"use_rope_scaling", "true"},
                                                            {"rope_scaling_factor", "8"},
                                                            {"rope_low_freq_factor", "1"},
                                                            {"rope_high_freq_factor", "4"},
                                                            {"rope_original_max_position", "8192"}}));
    REQUIRE(plain.size() == 64);
    int kept = 0, divided = 0, blended = 0;
    for (size_t i = 0; i < plain.size(); ++i) {
        const double wavelength = 2.0 * std::acos(-1.0) / plain[i];
        double expected = plain[i];
        if (wavelength > 8192.0 / 1.0) {
            expected = plain[i] / 8.0;
            ++divided;
        } else if (wavelength >= 8192.0 / 4.0) {
            const double smooth = (8192.0 / wavelength - 1.0) / (4.0 - 1.0);
            expected = (1.0 - smooth) * plain[i] / 8.0 + smooth * plain[i];
            ++blended;
        } else {
            ++kept;
        }
        CHECK(scaled[i] == doctest::Approx(expected).epsilon(1e-14));
    }
    CHECK(kept > 20);
    CHECK(divided > 20);
    CHECK(blended >= 3);
}

TEST_CASE("the table has cos and sin of position / factor * frequency") {
    const auto device = mdlm::make_reference_device();
    const mdlm::Config c = config_of({{"seq_len_interpolation_factor", "4"}, {"params_dtype", "f64"}});
    const auto f = mdlm::rotary_frequencies(c);
    const int64_t positions = 9, bytes = mdlm::rotary_table_bytes(c, positions);
    std::vector<double> table(static_cast<size_t>(bytes) / 8, NAN);
    mdlm::fill_rotary_table(c, positions, *device, reinterpret_cast<char *>(table.data()));
    for (int64_t p = 0; p < positions; ++p)
        for (size_t i = 0; i < f.size(); ++i) {
            const size_t at = static_cast<size_t>(p) * f.size() + i;
            CHECK(table[at] == doctest::Approx(std::cos(double(p) / 4.0 * f[i])).epsilon(1e-14));
            CHECK(table[table.size() / 2 + at] == doctest::Approx(std::sin(double(p) / 4.0 * f[i])).epsilon(1e-14));
        }
    CHECK(mdlm::rotary_table_bytes(config_of({{"position_embedding_type", "none"}}), 9) == 0);
}
