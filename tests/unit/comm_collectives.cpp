// SPDX-License-Identifier: Apache-2.0
// What collectives compute, on groups of threads. The expected values are worked out here, from bits.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "support/rank_cases.hpp"
#include "support/ranks.hpp"
#include "support/rig.hpp"
#include "support/split_mix.hpp"

using namespace mdlm_test;

namespace {

// A floating-point format as numbers.
struct Format {
    mdlm_dtype dtype;
    int bytes, fraction, exponent;  // bits of the two
    int bias() const { return (1 << (exponent - 1)) - 1; }
};
constexpr Format formats[] = {
    {MDLM_DTYPE_F32, 4, 23, 8}, {MDLM_DTYPE_BF16, 2, 7, 8}, {MDLM_DTYPE_F16, 2, 10, 5}, {MDLM_DTYPE_F64, 8, 52, 11}};

uint64_t bits_at(const Format &f, const void *data, int64_t i) {
    uint64_t bits = 0;
    std::memcpy(&bits, static_cast<const char *>(data) + i * f.bytes, static_cast<size_t>(f.bytes));
    return bits;
}

double value_of(const Format &f, uint64_t bits) {
    const auto exponent = static_cast<int>(bits >> f.fraction) & ((1 << f.exponent) - 1);
    const auto fraction = static_cast<double>(bits & ((uint64_t{1} << f.fraction) - 1));
    const double sign = (bits >> (f.fraction + f.exponent) & 1) != 0 ? -1 : 1;
    if (exponent == (1 << f.exponent) - 1) return fraction != 0 ? std::nan("") : sign * HUGE_VAL;
    if (exponent == 0) return sign * std::ldexp(fraction, 1 - f.bias() - f.fraction);
    return sign * std::ldexp(fraction + std::ldexp(1.0, f.fraction), exponent - f.bias() - f.fraction);
}

// The nearest number of the format, ties to the even one.
double rounded(const Format &f, double v) {
    if (v == 0 || !std::isfinite(v)) return v;
    const int least = 1 - f.bias(), exponent = std::max(std::ilogb(v), least);
    const double step = std::ldexp(1.0, exponent - f.fraction), near = std::nearbyint(v / step) * step;
    return std::fabs(near) >= std::ldexp(1.0, f.bias() + 1) ? std::copysign(HUGE_VAL, v) : near;
}

// Sums run in float32 (float64 for f64) from rank 0 on and are rounded once.
double expected(const Format &f, mdlm_reduce_op op, const std::vector<double> &of_ranks) {
    if (op == MDLM_REDUCE_MAX) {
        double most = of_ranks[0];
        for (const double v : of_ranks) most = std::isnan(most) || std::isnan(v) ? std::nan("") : std::max(most, v);
        return most;
    }
    if (f.dtype == MDLM_DTYPE_F64) {
        double sum = of_ranks[0];
        for (size_t r = 1; r < of_ranks.size(); ++r) sum += of_ranks[r];
        return sum;
    }
    auto sum = static_cast<float>(of_ranks[0]);
    for (size_t r = 1; r < of_ranks.size(); ++r) sum += static_cast<float>(of_ranks[r]);
    return rounded(f, sum);
}

// Numbers of moderate size and both signs, with zeros, a few infinities and NaNs between them; the same whoever asks.
uint64_t drawn(const Format &f, int rank, int64_t i) {
    Random random(static_cast<uint64_t>(i) * 64 + static_cast<uint64_t>(rank) + 1);
    const uint64_t word = random.next(), top = (uint64_t{1} << f.exponent) - 1;
    uint64_t exponent = static_cast<uint64_t>(f.bias()) - 6 + word % 12;
    uint64_t fraction = random.next() & ((uint64_t{1} << f.fraction) - 1);
    if (i % 89 == 7 && (i / 89 + rank) % 3 == 0) exponent = top, fraction = 0;  // infinite
    if (i % 101 == 5 && (i / 101 + rank) % 4 == 0) exponent = top, fraction = uint64_t{1} << (f.fraction - 1);  // NaN
    if (i % 13 == 3) exponent = 0, fraction = 0;
    return (word >> 63) << (f.fraction + f.exponent) | exponent << f.fraction | fraction;
}

std::vector<char> filled(const Format &f, int rank, int64_t first, int64_t count) {
    std::vector<char> data(static_cast<size_t>(count * f.bytes) + 1);
    for (int64_t i = 0; i < count; ++i) {
        const uint64_t bits = drawn(f, rank, first + i);
        std::memcpy(data.data() + i * f.bytes, &bits, static_cast<size_t>(f.bytes));
    }
    return data;
}

bool same_number(double a, double b) {
    return (std::isnan(a) && std::isnan(b)) || (a == b && (a != 0 || std::signbit(a) == std::signbit(b)));
}

// Elements [first, first + count) of the reduction are in data, with nothing written behind them.
std::string check_reduced(const Format &f, mdlm_reduce_op op, const std::vector<char> &data, int64_t first,
                          int64_t count, int size) {
    std::vector<double> parts(static_cast<size_t>(size));
    for (int64_t i = 0; i < count; ++i) {
        for (int r = 0; r < size; ++r) parts[static_cast<size_t>(r)] = value_of(f, drawn(f, r, first + i));
        const double want = expected(f, op, parts), have = value_of(f, bits_at(f, data.data(), i));
        // Of zeros with two signs either is the largest.
        if (same_number(want, have) || (op == MDLM_REDUCE_MAX && want == 0 && have == 0)) continue;
        return "element " + std::to_string(i) + " of " + std::to_string(count) + ", dtype " + std::to_string(f.dtype) +
               ", op " + std::to_string(op) + ": " + std::to_string(have) + ", expected " + std::to_string(want);
    }
    return data[static_cast<size_t>(count * f.bytes)] == 77 ? "" : "written behind the end";
}

// All ranks have the same bits, NaN's too.
std::string same_everywhere(mdlm_comm *comm, int size, const std::vector<char> &data) {
    const uint64_t mine = fnv(data.data(), data.size());
    std::vector<uint64_t> all(static_cast<size_t>(size));
    EXPECT_OK(mdlm_comm_all_gather(comm, &mine, all.data(), 1, MDLM_DTYPE_F64, 0));
    for (const uint64_t one : all) EXPECT(one == mine);
    return "";
}

std::string all_reduce(mdlm_comm *comm, int rank, int size, const Format &f, mdlm_reduce_op op, int64_t count,
                       bool in_place) {
    const std::vector<char> send = filled(f, rank, 0, count);
    std::vector<char> from = send, to(send.size());
    std::vector<char> &out = in_place ? from : to;
    out.back() = 77;
    EXPECT_OK(mdlm_comm_all_reduce(comm, from.data(), out.data(), count, f.dtype, op, 0));
    EXPECT(in_place || from == send);
    if (const std::string wrong = check_reduced(f, op, out, 0, count, size); !wrong.empty())
        return "all_reduce: " + wrong;
    return same_everywhere(comm, size, out);
}

std::string reduce_scatter(mdlm_comm *comm, int rank, int size, const Format &f, mdlm_reduce_op op, int64_t count) {
    const std::vector<char> send = filled(f, rank, 0, count * size), from = send;
    std::vector<char> to(static_cast<size_t>(count * f.bytes) + 1, 77);
    EXPECT_OK(mdlm_comm_reduce_scatter(comm, from.data(), to.data(), count, f.dtype, op, 0));
    EXPECT(from == send);
    const std::string wrong = check_reduced(f, op, to, rank * count, count, size);
    return wrong.empty() ? "" : "reduce_scatter: " + wrong;
}

// Bits, which need be no numbers.
std::string all_gather(mdlm_comm *comm, int rank, int size, const Format &f, int64_t count) {
    const auto bytes = static_cast<size_t>(count * f.bytes);
    const auto noise = [&](int of, size_t i) {
        return static_cast<char>(Random(i * 8 + static_cast<size_t>(of)).next());
    };
    std::vector<char> from(bytes + 1), to(bytes * static_cast<size_t>(size) + 1, 77);
    for (size_t i = 0; i < bytes; ++i) from[i] = noise(rank, i);
    EXPECT_OK(mdlm_comm_all_gather(comm, from.data(), to.data(), count, f.dtype, 0));
    for (int r = 0; r < size; ++r)
        for (size_t i = 0; i < bytes; ++i) EXPECT(to[static_cast<size_t>(r) * bytes + i] == noise(r, i));
    EXPECT(to.back() == 77);
    return "";
}

}  // namespace

std::string mdlm_test::collectives(mdlm_comm *comm, int rank, int size) {
    int32_t is = -1, of = -1;
    EXPECT_OK(mdlm_comm_rank(comm, &is, &of));
    EXPECT(is == rank);
    EXPECT(of == size);
    EXPECT_OK(mdlm_comm_rank(comm, nullptr, nullptr));
    for (const Format &f : formats)
        for (const int64_t count : {0, 1, 5, 1000, 20001}) {
            if (count > 1000 && size > 2 && f.dtype != MDLM_DTYPE_BF16) continue;
            for (const mdlm_reduce_op op : {MDLM_REDUCE_SUM, MDLM_REDUCE_MAX}) {
                for (const int in_place : {0, 1, 2})  // on no rank, on all, on every other one
                    if (std::string wrong = all_reduce(comm, rank, size, f, op, count,
                                                       in_place == 1 || (in_place == 2 && rank % 2 == 0));
                        !wrong.empty())
                        return wrong;
                if (std::string wrong = reduce_scatter(comm, rank, size, f, op, count); !wrong.empty()) return wrong;
            }
            if (std::string wrong = all_gather(comm, rank, size, f, count); !wrong.empty()) return wrong;
        }
    EXPECT_OK(mdlm_comm_all_reduce(comm, nullptr, nullptr, 0, MDLM_DTYPE_F32, MDLM_REDUCE_SUM, 0));
    return "";
}

TEST_CASE("collectives of a group of threads") {
    for (const int size : {1, 2, 3, 4, 7}) {
        CAPTURE(size);
        const std::string wrong = on_threads(size, [](Rank &r) { return collectives(r.comm, r.rank, r.size); });
        CHECK(wrong == "");
    }
}

TEST_CASE("collectives: many, by more ranks than cores") {
    const std::string wrong = on_threads(24, [](Rank &r) -> std::string {
        float mine[3] = {static_cast<float>(r.rank), 1, 0};
        for (int i = 0; i < 50; ++i) {
            float sum[3];
            mine[2] = static_cast<float>(i);
            EXPECT_OK(mdlm_comm_all_reduce(r.comm, mine, sum, 3, MDLM_DTYPE_F32, MDLM_REDUCE_SUM, 0));
            EXPECT(sum[0] == static_cast<float>(r.size * (r.size - 1) / 2));
            EXPECT(sum[1] == static_cast<float>(r.size));
            EXPECT(sum[2] == static_cast<float>(i * r.size));
        }
        return "";
    });
    CHECK(wrong == "");
}
