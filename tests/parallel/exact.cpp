// SPDX-License-Identifier: Apache-2.0
// Where every sum of a linear is exact, a group computes the bits of one rank.
//
// Weights are signed permutations with powers of two: each row and each column has at most one element that is not 0. A
// product with such a weight, and with its transpose, rounds nothing whatever the other factor is; cut in parts, at
// most one part of any sum over ranks is not 0. All else (norms, attention, activations, dropout, biases, whole
// residual streams) is computed token by token or head by head, so y and dx may not differ in a bit.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <numeric>

#include "cases.hpp"
#include "support/hold.hpp"
#include "support/repro.hpp"
#include "support/split_mix.hpp"
#include "whole_step.hpp"

namespace parallel {
namespace {

using mdlm_test::hold;
using mdlm_test::Random;

uint64_t seed_of(const std::string &name) {
    uint64_t hash = 0xcbf29ce484222325u;
    for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
    return hash;
}

// Vectors (norms and biases) are any numbers of few bits.
Values parameter(const std::string &name, int64_t rows, int64_t columns) {
    Random r(seed_of(name));
    Values values(static_cast<size_t>(rows * columns), 0.0);
    if (columns == 1) {
        const double middle = name.ends_with("norm.weight") ? 1.0 : 0.0;
        for (double &v : values) v = middle + static_cast<double>(r.in(-20, 20)) / 64;
        return values;
    }
    std::vector<int64_t> order(static_cast<size_t>(std::max(rows, columns)));
    std::iota(order.begin(), order.end(), 0);
    for (size_t i = order.size(); i > 1; --i)
        std::swap(order[i - 1], order[static_cast<size_t>(r.in(0, static_cast<int64_t>(i) - 1))]);
    for (int64_t i = 0; i < std::max(rows, columns); ++i) {
        const int64_t j = order[static_cast<size_t>(i)], row = rows >= columns ? i : j,
                      column = rows >= columns ? j : i;
        if (row < rows && column < columns)
            values[static_cast<size_t>(row * columns + column)] =
                std::ldexp(r.percent(50) ? 1 : -1, static_cast<int>(r.in(-1, 1)));
    }
    return values;
}

// qkv is (heads + 2 groups) d = 48 = h rows and fc1 48, so that all of q, k, v, gate and up are there.
struct Model {
    const char *name;
    Settings settings;
    std::vector<int32_t> documents;
    int64_t batch;
};
const std::vector<Model> &models() {
    static const Settings common = {{"num_layers", "2"}, {"hidden_size", "48"}, {"add_qkv_bias", "1"}};
    static const Settings diffusion =
        common + Settings{{"num_attention_heads", "4"},      {"kv_channels", "4"},         {"ffn_hidden_size", "24"},
                          {"activation_func", "swiglu"},     {"normalization", "RMSNorm"}, {"qk_layernorm", "1"},
                          {"attention_mask_type", "no_mask"}};
    static const Settings grouped =
        common + Settings{{"num_attention_heads", "16"}, {"num_query_groups", "4"},   {"kv_channels", "2"},
                          {"ffn_hidden_size", "48"},     {"activation_func", "gelu"}, {"qk_layernorm", "1"}};
    static const std::vector<Model> all = {
        {"diffusion", diffusion, {}, 2},
        {"diffusion, dropout, batch first",
         diffusion + Settings{{"hidden_dropout", "0.2"}, {"attention_dropout", "0.1"}, {"batch_first", "1"}},
         {},
         3},
        {"grouped, unfused, dropout",
         grouped + Settings{{"attention_backend", "unfused"}, {"attention_dropout", "0.2"}, {"hidden_dropout", "0.1"}},
         {},
         2},
        {"grouped, documents, window",
         grouped + Settings{{"window_left", "5"}, {"activation_func", "squared_relu"}},
         {0, 3, 4, 12},
         1},
    };
    return all;
}

struct Place {
    mdlm_device_kind device;
    mdlm_matmul matmul;
};

std::string find_difference(const Values &a, const Values &b) {
    for (size_t i = 0; i < a.size(); ++i)
        if (std::memcmp(&a[i], &b[i], sizeof(double)) != 0)
            return "element " + std::to_string(i) + " of " + std::to_string(a.size()) + ": " + std::to_string(a[i]) +
                   ", on one rank " + std::to_string(b[i]);
    return "";
}

std::string same_bits(const char *dtype, mdlm_comm *comm, int rank, int size) {
    const Place places[] = {{MDLM_DEVICE_CPU, MDLM_MATMUL_AUTO},
                            {MDLM_DEVICE_CPU, MDLM_MATMUL_OWN},
                            {MDLM_DEVICE_REFERENCE, MDLM_MATMUL_AUTO}};
    int compared = 0;
    for (const Model &m : models())
        for (const Place &place : places) {
            WholeStep step;
            set_all(step.config, m.settings + Settings{{"params_dtype", dtype}});
            step.device = place.device, step.matmul = place.matmul;
            step.seq = 12, step.batch = m.batch, step.documents = m.documents;
            step.parameter = parameter;
            Random r(seed_of(m.name));
            for (Values *v : {&step.x, &step.dy})
                for (int64_t i = 0; i < step.seq * step.batch * step.config.hidden_size; ++i)
                    v->push_back(static_cast<double>(r.in(-96, 96)) / 64);
            WholeResult one;
            if (rank == 0) one = run_step(nullptr, step);
            const mdlm_config alone = step.config;
            for (const bool sequence_parallel : {false, true})
                for (const int32_t threads : {1, 2, 3}) {
                    if (place.device == MDLM_DEVICE_REFERENCE && threads > 1) continue;
                    step.config = alone, step.threads = threads;
                    set_all(step.config, group_of(size, sequence_parallel));
                    if (threads == 2)
                        set_all(step.config, {{"recompute_granularity", "full"},
                                              {"recompute_method", "uniform"},
                                              {"recompute_num_layers", "2"}});
                    const WholeResult seen = run_step(comm, step);
                    if (rank != 0) continue;
                    ++compared;
                    const std::string where = std::string(m.name) + (sequence_parallel ? ", sequence parallel" : "") +
                                              ", device " + std::to_string(place.device) + ", matmul " +
                                              std::to_string(place.matmul) + ", " + std::to_string(threads) +
                                              " threads: ";
                    for (const auto &[name, a, b] : {std::tuple{"y", &seen.y, &one.y}, {"dx", &seen.dx, &one.dx}}) {
                        const std::string wrong = find_difference(*a, *b);
                        hold(wrong.empty(), where + name + ", " + wrong);
                        hold(std::count(a->begin(), a->end(), 0.0) * 4 < static_cast<std::ptrdiff_t>(a->size()),
                             where + name + " is mostly 0");
                    }
                    if (place.device != MDLM_DEVICE_REFERENCE) continue;
                    // Each weight's gradient is a sum over tokens, whoever has the weight; of a vector that every rank
                    // has, too, if the tokens are not split.
                    for (const auto &[name, values] : seen.grads) {
                        const bool vector = !name.ends_with("weight") || name.find("norm") != std::string::npos;
                        const bool partial = name.find("q_layernorm") != std::string::npos ||
                                             name.find("k_layernorm") != std::string::npos;
                        if (partial || (vector && sequence_parallel)) continue;
                        const std::string wrong = find_difference(values, one.grads.at(name));
                        hold(wrong.empty(), where + "gradient of " + name + ", " + wrong);
                    }
                }
        }
    if (rank == 0)
        std::printf("parallel: %d steps with exact sums, t = %d, %s: the bits of one rank\n", compared, size, dtype);
    return "";
}

}  // namespace

std::vector<Case> exact_cases() {
    std::vector<Case> list;
    for (const int t : {2, 4})
        for (const char *dtype : {"f32", "bf16"})
            list.push_back(
                {"exact sums give the bits of one rank, t = " + std::to_string(t) + ", " + dtype, t,
                 [dtype](mdlm_comm *comm, int rank, int size) { return same_bits(dtype, comm, rank, size); }});
    return list;
}

}  // namespace parallel
