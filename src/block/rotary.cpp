// SPDX-License-Identifier: Apache-2.0
// Rotary frequencies base^(-2i / dim) (Su et al., arXiv 2104.09864, section 3.4.2), and Llama 3's scaling of them: long
// wavelengths divided by the factor, short ones kept, a linear blend in (original length / wavelength) between (The
// Llama 3 herd of models, arXiv 2407.21783, and Meta's published model code).
#include "block/rotary.hpp"

#include <cmath>

#include "base/sizes.hpp"

namespace mdlm {

std::vector<double> rotary_frequencies(const Config &c) {
    std::vector<double> f;
    for (int64_t i = 0; i < c.rotary_dim / 2; ++i) {
        double w = std::pow(c.rotary_base, -2.0 * double(i) / double(c.rotary_dim));
        if (c.use_rope_scaling) {
            const double wavelength = 2.0 * M_PI / w, original = double(c.rope_original_max_position);
            const double low = c.rope_low_freq_factor, high = c.rope_high_freq_factor;
            const double share = (original / wavelength - low) / (high - low);
            const double smooth = share < 0.0 ? 0.0 : share > 1.0 ? 1.0 : share;
            w = (1.0 - smooth) * w / c.rope_scaling_factor + smooth * w;
        }
        f.push_back(w);
    }
    return f;
}

int64_t rotary_table_bytes(const Config &c, int64_t positions) {
    if (c.position_embedding_type != MDLM_POSITION_ROPE) return 0;
    return mul(2, rounded(mul(mul(positions, c.rotary_dim / 2), size_of(wide(c.params_dtype)))));
}

void fill_rotary_table(const Config &c, int64_t positions, Device &device, char *table) {
    const std::vector<double> f = rotary_frequencies(c);
    const DType type = wide(c.params_dtype);
    const int64_t n = static_cast<int64_t>(f.size()), half = rotary_table_bytes(c, positions) / 2;
    std::vector<char> all(static_cast<size_t>(2 * half));
    for (int64_t p = 0; p < positions; ++p)
        for (int sine = 0; sine < 2; ++sine) {
            for (int64_t i = 0; i < n; ++i) {
                const double angle = double(p) / c.seq_len_interpolation_factor * f[i];
                store(type, all.data() + sine * half + p * n * size_of(type), i,
                      sine != 0 ? std::sin(angle) : std::cos(angle));
            }
        }
    device.upload(table, all.data(), all.size());
}

}  // namespace mdlm
