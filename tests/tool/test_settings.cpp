// SPDX-License-Identifier: Apache-2.0
// Words to options and settings.
#include <doctest/doctest.h>

#include <algorithm>
#include <set>

#include "../../tools/text.hpp"
#include "bench_case.hpp"

using namespace bench_test;
using namespace mdlm::tools;
using namespace mdlm::tools::bench;

namespace {

std::vector<std::string> names(const Words &words) {
    std::vector<std::string> all;
    for (const Setting &s : settings_of(parse(words))) all.push_back(s.name);
    return all;
}

std::string refusal(const Words &words) {
    try {
        parse(words);
    } catch (const Bad &error) {
        return error.what();
    }
    return "";
}

}  // namespace

TEST_CASE("bench: words to options") {
    const Options o = parse(tiny({"--device=reference", "--warmup", "0", "--micro-batches=4", "--alive", "one",
                                  "--profile", "--json", "--bf16"}));
    CHECK(o.config.num_layers == 3);
    CHECK(o.config.params_dtype == MDLM_DTYPE_BF16);
    CHECK(o.config.activation_func == MDLM_ACT_SWIGLU);
    CHECK(o.seq_length == 16);
    CHECK(o.micro_batch_size == 2);
    CHECK(o.threads == 2);
    CHECK(o.device == MDLM_DEVICE_REFERENCE);
    CHECK(o.repeats == 3);
    CHECK(o.warmup == 0);
    CHECK(o.micro_batches == 4);
    CHECK(o.alive == Alive::one);
    CHECK(o.profile);
    CHECK(o.json);
    CHECK(!o.sweep);
    CHECK(parse({"--num-layers=1", "--hidden-size=8", "--num-attention-heads=1"}).repeats == 9);
}

TEST_CASE("bench: one setting has its baseline, unless it is none or none is wanted") {
    CHECK(names(tiny()) == std::vector<std::string>{"none"});
    CHECK(names(tiny({"--recompute-granularity", "full"})) == std::vector<std::string>{"none", "full uniform 1"});
    CHECK(names(tiny({"--recompute-granularity", "full", "--no-baseline"})) ==
          std::vector<std::string>{"full uniform 1"});
    CHECK(names(tiny({"--recompute-activations"})) == std::vector<std::string>{"none", "selective qkv,core_attn"});
}

TEST_CASE("bench: a sweep has every recompute setting once, and all are settings that the library takes") {
    const std::vector<Setting> all = settings_of(parse(tiny({"--sweep"})));
    std::set<std::string> seen;
    for (const Setting &s : all) {
        CAPTURE(s.name);
        CHECK(seen.insert(s.name).second);
        CHECK(mdlm_config_validate(&s.config) == MDLM_OK);
        CHECK(s.name == recompute_name(s.config));
    }
    CHECK(all.front().name == "none");
    const auto has = [&](mdlm_recompute_granularity granularity, uint32_t modules, mdlm_recompute_method method,
                         int64_t layers) {
        return 1 == std::count_if(all.begin(), all.end(), [&](const Setting &s) {
                   return s.config.recompute_granularity == granularity && s.config.recompute_modules == modules &&
                          s.config.recompute_method == method && s.config.recompute_num_layers == layers;
               });
    };
    for (const uint32_t modules :
         {uint32_t{MDLM_RECOMPUTE_MODULE_CORE_ATTN}, uint32_t{MDLM_RECOMPUTE_MODULE_LAYERNORM},
          uint32_t{MDLM_RECOMPUTE_MODULE_MLP_ACT},
          uint32_t{MDLM_RECOMPUTE_MODULE_LAYERNORM | MDLM_RECOMPUTE_MODULE_MLP_ACT},
          uint32_t{MDLM_RECOMPUTE_MODULE_LAYERNORM | MDLM_RECOMPUTE_MODULE_QK_NORM_ROPE |
                   MDLM_RECOMPUTE_MODULE_MLP_ACT},
          uint32_t{MDLM_RECOMPUTE_MODULE_MLP}, uint32_t{MDLM_RECOMPUTE_MODULE_QKV | MDLM_RECOMPUTE_MODULE_CORE_ATTN}}) {
        CAPTURE(modules);
        CHECK(has(MDLM_RECOMPUTE_GRANULARITY_SELECTIVE, modules, MDLM_RECOMPUTE_METHOD_NONE, 0));
    }
    for (int64_t n = 1; n <= 3; ++n) CHECK(has(MDLM_RECOMPUTE_GRANULARITY_FULL, 0, MDLM_RECOMPUTE_METHOD_UNIFORM, n));
    for (int64_t n = 1; n <= 2; ++n) CHECK(has(MDLM_RECOMPUTE_GRANULARITY_FULL, 0, MDLM_RECOMPUTE_METHOD_BLOCK, n));
    CHECK(!has(MDLM_RECOMPUTE_GRANULARITY_FULL, 0, MDLM_RECOMPUTE_METHOD_BLOCK, 3));  // the same as uniform with 1

    // Without norm and rotation of q and k there is nothing of that name to replay.
    const std::vector<std::string> plain = names(
        {"--num-layers=1", "--hidden-size=8", "--num-attention-heads=1", "--position-embedding-type=none", "--sweep"});
    CHECK(std::none_of(plain.begin(), plain.end(),
                       [](const std::string &name) { return name.find("qk_norm_rope") != std::string::npos; }));
    CHECK(std::count(plain.begin(), plain.end(), "full uniform 1") == 1);
    CHECK(std::count(plain.begin(), plain.end(), "full block 1") == 0);
}

TEST_CASE("bench: with ranks, inputs are distributed too where that is allowed, and one rank may be run beside them") {
    const std::vector<std::string> alone = names(tiny({"--sweep"})),
                                   split = names(
                                       tiny({"--sweep", "--tensor-model-parallel-size=2", "--sequence-parallel"})),
                                   grouped = names(tiny({"--sweep", "--tensor-model-parallel-size=2"}));
    CHECK(split == alone);
    CHECK(grouped.size() == alone.size() + 5);  // three of uniform, two of block
    for (const std::string &name : alone) {
        CAPTURE(name);
        const bool full = name.substr(0, 4) == "full";
        CHECK(std::count(grouped.begin(), grouped.end(), name) == 1);
        CHECK(std::count(grouped.begin(), grouped.end(), name + " distributed") == (full ? 1 : 0));
    }
    for (const Words &more : {Words{"--sweep"}, Words{"--sequence-parallel", "--recompute-granularity=full"},
                              Words{"--curve=seq-length", "--points=4,8"}}) {
        Words words = tiny({"--tensor-model-parallel-size=2", "--against-one-rank"});
        words.insert(words.end(), more.begin(), more.end());
        const std::vector<Setting> all = settings_of(parse(words));
        for (const Setting &s : all) {
            CAPTURE(s.name);
            CHECK(mdlm_config_validate(&s.config) == MDLM_OK);
            CHECK(s.config.tensor_model_parallel_size == (s.one_rank ? 1 : 2));
            CHECK(s.one_rank == (s.against < 0));
            if (s.one_rank) continue;
            REQUIRE(static_cast<size_t>(s.against) < all.size());
            const Setting &other = all[static_cast<size_t>(s.against)];
            CHECK(other.one_rank);
            CHECK(other.seq_length == s.seq_length);
            CHECK(other.config.recompute_granularity == s.config.recompute_granularity);
            CHECK(other.config.recompute_method == s.config.recompute_method);
            CHECK(other.config.recompute_num_layers == s.config.recompute_num_layers);
            CHECK(other.config.recompute_modules == s.config.recompute_modules);
        }
    }
    const std::vector<std::string> pair =
        names(tiny({"--tensor-model-parallel-size=2", "--against-one-rank", "--recompute-granularity=full",
                    "--recompute-method=block", "--recompute-num-layers=2", "--distribute-saved-activations"}));
    CHECK(pair ==
          std::vector<std::string>{"none", "full block 2 distributed", "one rank: none", "one rank: full block 2"});
}

TEST_CASE("bench: budgets have the planner's plan and the fewest layers of full/block that fit, beside none") {
    const Options o = parse(tiny({"--budgets", "25,75,100"}));
    const std::vector<Setting> all = settings_of(o);
    REQUIRE(all.size() == 7);
    CHECK(all[0].name == "none");
    CHECK(all[0].percent == 0);
    const auto memory = [&](const Setting &s, mdlm_plan_cost *cost) {
        mdlm_plan *plan = nullptr;
        mdlm_target target = MDLM_TARGET_INIT;
        target.num_threads = o.threads;
        mdlm_shape shape = MDLM_SHAPE_INIT;
        shape.seq_length = s.seq_length, shape.micro_batch_size = s.micro_batch_size;
        mdlm_memory m = MDLM_MEMORY_INIT;
        REQUIRE(mdlm_plan_create(&s.config, &shape, &target, &plan) == MDLM_OK);
        CHECK(mdlm_plan_memory(plan, &m) == MDLM_OK);
        CHECK(mdlm_plan_get_cost(plan, cost) == MDLM_OK);
        mdlm_plan_destroy(plan);
        return static_cast<int64_t>(m.peak_bytes);
    };
    mdlm_plan_cost cost = MDLM_PLAN_COST_INIT;
    const int64_t most = memory(all[0], &cost);
    for (size_t i = 1; i < all.size(); ++i) {
        CAPTURE(all[i].name);
        CHECK(memory(all[i], &cost) <= all[i].budget);
        if (all[i].config.memory_budget != 0) {
            const auto least = static_cast<int64_t>(cost.minimum_budget_bytes);
            CHECK(all[i].budget == least + (most - least) * all[i].percent / 100);
            CHECK(all[i].config.recompute_granularity == MDLM_RECOMPUTE_GRANULARITY_NONE);
            continue;
        }
        CHECK(all[i].percent == all[i - 1].percent);
        CHECK(all[i].config.recompute_method == MDLM_RECOMPUTE_METHOD_BLOCK);
        if (all[i].config.recompute_num_layers == 1) continue;
        Setting fewer = all[i];
        --fewer.config.recompute_num_layers;
        CHECK(memory(fewer, &cost) > all[i].budget);
    }
}

TEST_CASE("bench: a curve keeps the tokens, or the sequence length") {
    const std::vector<Setting> by_seq = settings_of(parse(tiny({"--curve", "seq-length", "--points", "4,8,32"})));
    REQUIRE(by_seq.size() == 3);
    for (const Setting &s : by_seq) CHECK(s.seq_length * s.micro_batch_size == 32);
    CHECK(by_seq[2].seq_length == 32);
    const Words model = {"--num-layers=1", "--hidden-size=8", "--num-attention-heads=1"};
    Words words = model;
    words.insert(words.end(), {"--curve=seq-length"});
    const std::vector<Setting> whole = settings_of(parse(words));
    CHECK(whole.front().seq_length == 256);
    CHECK(whole.front().micro_batch_size == 32);
    CHECK(whole.back().seq_length == 8192);
    words = model;
    words.insert(words.end(), {"--curve=micro-batch-size", "--seq-length=64"});
    const std::vector<Setting> by_batch = settings_of(parse(words));
    REQUIRE(by_batch.size() == 5);
    CHECK(by_batch.back().micro_batch_size == 16);
    CHECK(by_batch.back().seq_length == 64);
}

TEST_CASE("bench: words that cannot be used are refused in one line that names them") {
    struct Wrong {
        Words more;
        const char *part;
    };
    for (const Wrong &wrong : std::vector<Wrong>{
             {{"--wrong"}, "--wrong"},
             {{"folder"}, "folder"},
             {{"--seq-length", "0"}, "--seq-length"},
             {{"--micro-batch-size", "2x"}, "2x"},
             {{"--repeats", "0"}, "--repeats"},
             {{"--repeats"}, "--repeats"},
             {{"--warmup", "-1"}, "--warmup"},
             {{"--micro-batches", "99999999999999999999"}, "--micro-batches"},
             {{"--threads", "-1"}, "--threads"},
             {{"--device", "cuda9"}, "cuda9"},
             {{"--alive", "some"}, "some"},
             {{"--curve", "hidden-size"}, "hidden-size"},
             {{"--points", "1,2"}, "--curve"},
             {{"--curve", "seq-length", "--points", "8,4"}, "8,4"},
             {{"--curve", "seq-length", "--points", "4,,8"}, "--points"},
             {{"--curve", "seq-length", "--points", ""}, "--points"},
             {{"--curve", "seq-length", "--points", "5"}, "5"},
             {{"--curve", "micro-batch-size"}, "--micro-batch-size"},
             {{"--curve", "seq-length", "--points", "4", "--sweep"}, "--sweep"},
             {{"--sweep", "--recompute-granularity", "full"}, "--sweep"},
             {{"--sweep", "--no-baseline"}, "--no-baseline"},
             {{"--svg", "x.svg"}, "--svg"},
             {{"--against-one-rank"}, "--tensor-model-parallel-size"},
             {{"--tensor-model-parallel-size", "0"}, "tensor_model_parallel_size"},
             {{"--tensor-model-parallel-size", "4"}, "num_query_groups"},
             {{"--tensor-model-parallel-size", "2", "--against-one-rank", "--memory-budget", "1GiB"},
              "--memory-budget"},
             {{"--tensor-model-parallel-size", "2", "--sweep", "--distribute-saved-activations"}, "--sweep"},
             {{"--budgets", "0,50"}, "--budgets"},
             {{"--budgets", "50,101"}, "101"},
             {{"--budgets", "50", "--sweep"}, "--budgets"},
             {{"--budgets", "50", "--no-baseline"}, "--budgets"},
             {{"--budgets", "50", "--recompute-granularity", "full"}, "--budgets"},
             {{"--budgets", "50", "--memory-budget", "1GiB"}, "--memory-budget"},
             {{"--recompute-granularity", "half"}, "half"},
             {{"--num-query-groups", "3"}, "num_query_groups"},
             {{"--params-dtype", "f16"}, "f16"}}) {
        const std::string line = refusal(tiny(wrong.more));
        CAPTURE(line);
        CAPTURE(std::string(wrong.part));
        CHECK(!line.empty());
        CHECK(line.find('\n') == std::string::npos);
        CHECK(line.find(wrong.part) != std::string::npos);
    }
    CHECK(refusal({}).find("num_layers") != std::string::npos);
}
