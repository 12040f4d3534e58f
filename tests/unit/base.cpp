// SPDX-License-Identifier: Apache-2.0
// Element types, Philox, dropout and size arithmetic.
#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <string>

#include "base/dtype.hpp"
#include "base/philox.hpp"
#include "base/sizes.hpp"
#include "support/random.hpp"

using namespace mdlm;

namespace {

constexpr int64_t most = std::numeric_limits<int64_t>::max();

// The value of a 16-bit float with so many exponent and mantissa bits, from the definition. Not for infinity and NaN.
double decoded(uint32_t bits, int exponent_bits, int mantissa_bits) {
    const uint32_t mantissa = bits & ((1u << mantissa_bits) - 1), exponent = (bits & 0x7fffu) >> mantissa_bits;
    const int bias = (1 << (exponent_bits - 1)) - 1;
    const double whole =
        exponent == 0 ? std::ldexp(double(mantissa), 1 - bias - mantissa_bits)
                      : std::ldexp(double(mantissa + (1u << mantissa_bits)), int(exponent) - bias - mantissa_bits);
    return (bits & 0x8000u) != 0 ? -whole : whole;
}

// For every pair of neighbours: their middle goes to the even one, and the double next to the middle to the side it
// lies on. A value that is rounded to float on the way fails the latter.
template <class Round>
void check_rounding(Round &&round, int exponent_bits, int mantissa_bits) {
    const uint32_t infinity = ((1u << exponent_bits) - 1) << mantissa_bits;
    int64_t wrong = 0;
    for (uint32_t bits = 0; bits < infinity; ++bits) {
        const double low = decoded(bits, exponent_bits, mantissa_bits);
        const double past = std::ldexp(1.0, 1 << (exponent_bits - 1));  // where the number after the largest would be
        const double high = bits + 1 == infinity ? past : decoded(bits + 1, exponent_bits, mantissa_bits);
        const double middle = low + (high - low) / 2;
        for (const uint32_t sign : {0u, 0x8000u}) {
            const double s = sign != 0 ? -1.0 : 1.0;
            wrong += round(s * low) != (bits | sign);
            wrong += round(s * middle) != ((bits + (bits & 1u)) | sign);
            wrong += round(s * std::nextafter(middle, 0.0)) != (bits | sign);
            wrong += round(s * std::nextafter(middle, HUGE_VAL)) != ((bits + 1) | sign);
        }
    }
    CHECK(wrong == 0);
    CHECK(round(HUGE_VAL) == infinity);
    CHECK(round(-HUGE_VAL) == (infinity | 0x8000u));
    CHECK(round(1e300) == infinity);
    CHECK(round(-1e-320) == 0x8000u);
    CHECK((round(std::nan("")) & 0x7fffu) > infinity);
    CHECK((round(-std::nan("")) & 0x7fffu) > infinity);
}

TEST_CASE("bf16: a double is rounded once, to nearest even") {
    check_rounding([](double v) { return uint32_t(bf16(v).bits); }, 8, 7);
}
TEST_CASE("f16: a double is rounded once, to nearest even") {
    check_rounding([](double v) { return uint32_t(f16(v).bits); }, 5, 10);
}

TEST_CASE("bf16: a float is rounded to nearest even") {
    CHECK(bf16(1.0f).bits == 0x3f80);
    CHECK(bf16(1.00390625f).bits == 0x3f80);  // 1 + 2^-8: the middle, to even
    CHECK(bf16(1.01171875f).bits == 0x3f82);  // 1 + 3 * 2^-8
    CHECK(bf16(std::nextafter(1.00390625f, 2.0f)).bits == 0x3f81);
    CHECK(bf16(std::numeric_limits<float>::max()).bits == 0x7f80);
    CHECK(bf16(-0.0f).bits == 0x8000);
    // A NaN whose only set bits are cut off must not become infinity, nor wrap.
    CHECK((bf16(std::bit_cast<float>(0x7f800001u)).bits & 0x7fff) > 0x7f80);
    CHECK((bf16(std::bit_cast<float>(0xffffffffu)).bits & 0x7fff) > 0x7f80);
}

TEST_CASE("bf16 and f16: all bit patterns come back") {
    int64_t wrong = 0;
    for (uint32_t bits = 0; bits <= 0xffffu; ++bits) {
        for (const DType type : {DType::bf16, DType::f16}) {
            const bool half = type == DType::f16;
            const uint32_t infinity = half ? 0x7c00u : 0x7f80u;
            const auto in = uint16_t(bits);
            uint16_t out = 0;
            const double value = load(type, &in, 0);
            store(type, &out, 0, value);
            if ((bits & 0x7fffu) > infinity) {
                wrong += !std::isnan(value) || (out & 0x7fffu) <= infinity;
            } else if ((bits & 0x7fffu) == infinity) {
                wrong += !std::isinf(value) || std::signbit(value) != (bits >> 15 != 0) || out != in;
            } else {
                wrong += value != decoded(bits, half ? 5 : 8, half ? 10 : 7) ||
                         std::signbit(value) != (bits >> 15 != 0) || out != in;
            }
        }
    }
    CHECK(wrong == 0);
}

TEST_CASE("dtype: load and store by index, sizes and names") {
    for (const DType type : {DType::f32, DType::bf16, DType::f16, DType::f64}) {
        alignas(8) unsigned char memory[4 * 8] = {};
        store(type, memory, 2, -1.5);
        CHECK(load(type, memory, 2) == -1.5);
        CHECK(load(type, memory, 1) == 0.0);
        CHECK(load(type, memory, 3) == 0.0);
        CHECK(wide(type) == (type == DType::f64 ? DType::f64 : DType::f32));
    }
    CHECK(size_of(DType::f64) == 8);
    CHECK(size_of(DType::f32) == 4);
    CHECK(size_of(DType::bf16) == 2);
    CHECK(size_of(DType::f16) == 2);
    CHECK(std::string(name_of(DType::bf16)) == "bf16");
}

TEST_CASE("philox: the known answers of Random123") {
    using Four = std::array<uint32_t, 4>;
    CHECK(philox4x32(0, Four{0, 0, 0, 0}) == Four{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
    CHECK(philox4x32(~uint64_t{0}, Four{~0u, ~0u, ~0u, ~0u}) == Four{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
    CHECK(philox4x32(0x299f31d0a4093822, Four{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}) ==
          Four{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

TEST_CASE("dropout: share, scale, words and places") {
    Dropout d;
    CHECK(d.factor(123) == 1.0f);
    d.on = true;
    d.threshold = uint32_t(0.25 * 4294967296.0);
    d.scale = float(1.0 / 0.75);
    DrawState drawn;
    drawn.seed = 9;
    d.draw = &drawn;
    int64_t dropped = 0, wrong = 0;
    const int64_t count = 40000;
    for (uint64_t i = 0; i < uint64_t(count); ++i) {
        const bool keeps = philox4x32(9, {uint32_t(i / 4), 0, 0, 0})[i % 4] >= 0x40000000u;
        wrong += d.keeps(i) != keeps || d.factor(i) != (keeps ? d.scale : 0.0f);
        dropped += !keeps;
    }
    CHECK(wrong == 0);
    CHECK(std::fabs(double(dropped) / double(count) - 0.25) < 0.01);
    // Indices past 2^34 use the second word of the counter.
    const uint64_t far = uint64_t{5} << 34;
    CHECK(d.four(far / 4) == philox4x32(9, {0, 5, 0, 0}));
    drawn.micro_batch = 0x1234;
    d.where = Dropout::place(0xabc, Site::mlp_output);
    CHECK(d.last_word() == 0xabc21234u);
}

mdlm_status status_of(int64_t (*f)(int64_t, int64_t), int64_t a, int64_t b) {
    try {
        f(a, b);
        return MDLM_OK;
    } catch (const Error &e) {
        return e.status();
    }
}

TEST_CASE("sizes: at the limit, one under, one over") {
    CHECK(add(most - 1, 1) == most);
    CHECK(add(most, 0) == most);
    CHECK(status_of(add, most, 1) == MDLM_ERROR_OVERFLOW);
    CHECK(mul(most, 1) == most);
    CHECK(mul(most / 2, 2) == most - 1);
    CHECK(mul(most, 0) == 0);
    CHECK(status_of(mul, most / 2 + 1, 2) == MDLM_ERROR_OVERFLOW);
    CHECK(status_of(mul, int64_t{1} << 32, int64_t{1} << 31) == MDLM_ERROR_OVERFLOW);
    CHECK(mul(int64_t{1} << 31, int64_t{1} << 31) == int64_t{1} << 62);

    CHECK(ceil_div(0, 4) == 0);
    CHECK(ceil_div(8, 4) == 2);
    CHECK(ceil_div(9, 4) == 3);
    CHECK(ceil_div(most, 2) == most / 2 + 1);  // does not overflow on the way

    CHECK(rounded(0) == 0);
    CHECK(rounded(1) == granule);
    CHECK(rounded(granule) == granule);
    CHECK(rounded(granule + 1) == 2 * granule);
    CHECK(rounded(most - granule + 1) == most - granule + 1);
    CHECK_THROWS_AS(rounded(most - granule + 2), Error);
    CHECK_THROWS_AS(rounded(most), Error);
}

TEST_CASE("errors: one line with the numbers, cut at 511 bytes, kept per thread") {
    try {
        mul(most, 3);
        FAIL("expected an error");
    } catch (const Error &e) {
        CHECK(std::string(e.what()).find("9223372036854775807 * 3") != std::string::npos);
    }
    const std::string text(600, 'x');
    try {
        fail(MDLM_ERROR_FORMAT, "%s", text.c_str());
    } catch (const Error &e) {
        CHECK(e.status() == MDLM_ERROR_FORMAT);
        CHECK(std::string(e.what()) == text.substr(0, 511));
    }
    set_last_error(text.c_str());
    CHECK(std::string(last_error()) == text.substr(0, 511));
    set_last_error(nullptr);
    CHECK(std::string(last_error()).empty());
}

}  // namespace
