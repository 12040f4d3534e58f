// Ranks that do not want the same: every rank gets an error that names what differs, with both values; nothing has changed, and the right
// step afterwards has the right bits. One group lives through all of them.
#include <doctest/doctest.h>

#include <cstdlib>
#include <set>

#include "support/rank_rig.hpp"

using namespace mdlm_test;

namespace {

using Act = std::function<mdlm_status(Rig &)>;

struct Member {
    Rank &r;
    int odd;  // the rank that does something else
    Rig rig;
    uint64_t good = 0;

    Member(Rank &rank, int odd_rank) : r(rank), odd(odd_rank) { join_group(rig, rank); }
    bool is_odd() const { return r.rank == odd; }

    std::string open() {
        EXPECT_OK(rig.open());
        EXPECT_OK(rig.step());
        good = rig.digest();
        return "";
    }
    // The right step, with the right bits.
    std::string right() {
        if (rig.tape == nullptr) EXPECT_OK(mdlm_tape_create(rig.block, &rig.tape));
        EXPECT_OK(mdlm_tape_reset(rig.tape));
        EXPECT_OK(rig.step());
        EXPECT(rig.digest() == good);
        return "";
    }
    // All ranks get status and the same line, which has `line` in it.
    std::string differ(const Act &usual, const Act &other, mdlm_status status, const std::string &line) {
        const Soon soon;
        mdlm_set_last_error("");
        const mdlm_status got = is_odd() ? other(rig) : usual(rig);
        EXPECT_SAID(got, status, line.c_str());
        EXPECT(!soon.over());
        return "";
    }
    std::string differ(const Act &usual, const Act &other, mdlm_status status, const std::string &name, const std::string &here,
                       const std::string &there) {
        const std::string first = odd == 0 ? there : here, second = odd == 0 ? here : there;
        return differ(usual, other, status,
                      name + " differs between ranks: " + first + " on rank 0, " + second + " on rank " + std::to_string(odd == 0 ? 1 : odd));
    }
    // The odd rank gets its own error; the others COMM with its number, its call, and its error.
    std::string refused(const char *call, const Act &usual, const Act &other, mdlm_status status, const std::string &line) {
        const Soon soon;
        mdlm_set_last_error("");
        const mdlm_status got = is_odd() ? other(rig) : usual(rig);
        if (is_odd()) EXPECT_SAID(got, status, line.c_str());
        const std::string told = "rank " + std::to_string(odd) + " failed in " + call + " with " + mdlm_status_name(status) + ": ";
        if (!is_odd()) EXPECT_SAID(got, MDLM_ERROR_COMM, told.c_str());
        if (!is_odd()) EXPECT(wrong_with(mdlm_last_error(), line.c_str()) == "");
        EXPECT(!soon.over());
        return "";
    }
};

#define EXPECT_GOOD(call)                                                                                                      \
    do {                                                                                                                       \
        const std::string wrong_ = (call);                                                                                     \
        if (!wrong_.empty()) return std::string(__FILE__ ":") + std::to_string(__LINE__) + ": " #call "\n        " + wrong_;   \
    } while (0)

// For every odd rank of a pair, and one in the midst of four.
void on_groups(const std::function<std::string(Member &)> &body, const std::function<void(Rig &)> &prepare = [](Rig &) {}) {
    for (const auto &group : {std::pair{2, 0}, {2, 1}, {4, 2}}) {
        const int size = group.first, odd = group.second;
        CAPTURE(size);
        CAPTURE(odd);
        const std::string wrong = on_threads(size, [&](Rank &r) -> std::string {
            Member m(r, odd);
            prepare(m.rig);
            EXPECT_GOOD(m.open());
            EXPECT_GOOD(body(m));
            return m.right();
        });
        CHECK(wrong == "");
    }
}

mdlm_status forward(Rig &rig) { return rig.forward(); }
mdlm_status backward(Rig &rig) { return rig.backward(); }
mdlm_status reserve(Rig &rig) { return mdlm_block_reserve(rig.block, &rig.shape, rig.plan); }
mdlm_status gather(Rig &rig, int64_t index = 0, int32_t gradient = 0, mdlm_dtype dtype = MDLM_DTYPE_F32, size_t more = 0) {
    mdlm_param_desc desc = MDLM_PARAM_DESC_INIT;
    mdlm_param_info(rig.block, index, &desc);
    std::vector<float> host(static_cast<size_t>(desc.full_shape[0] * (desc.ndim == 2 ? desc.full_shape[1] : 1)));
    return mdlm_param_gather(rig.block, index, gradient, dtype, host.data(), host.size() * sizeof(float) + more);
}

}  // namespace

TEST_CASE("ranks with other batches") {
    static constexpr int32_t two[] = {0, 3, 8}, also_two[] = {0, 4, 8}, three[] = {0, 2, 3, 8};
    on_groups(
        [](Member &m) -> std::string {
            const auto batch = [&](const std::string &name, const std::string &here, const std::string &there,
                                   const std::function<void(mdlm_batch &)> &change) -> std::string {
                const Act other = [&](Rig &rig) {
                    mdlm_batch b = rig.batch;
                    change(b);
                    return mdlm_block_forward(rig.block, &b, rig.x.get(), rig.tape, rig.y.get());
                };
                EXPECT_GOOD(m.differ(forward, other, MDLM_ERROR_SHAPE, name, here, there));
                return m.right();
            };
            EXPECT_GOOD(batch("batch.seq_length", "8", "4", [](auto &b) { b.seq_length = 4; }));
            EXPECT_GOOD(batch("batch.micro_batch_size", "2", "1", [](auto &b) { b.micro_batch_size = 1; }));
            EXPECT_GOOD(batch("batch.training", "1", "0", [](auto &b) { b.training = 0; }));
            EXPECT_GOOD(batch("batch.attention_mask_type", "2", "1", [](auto &b) { b.attention_mask_type = MDLM_MASK_NO_MASK; }));
            EXPECT_GOOD(batch("batch.seed", "7", "8", [](auto &b) { b.seed = 8; }));
            EXPECT_GOOD(batch("batch.step", "0", "4294967295", [](auto &b) { b.step = UINT32_MAX; }));
            EXPECT_GOOD(batch("batch.micro_batch_index", "0", "65535", [](auto &b) { b.micro_batch_index = 65535; }));
            // Packed documents: in the batch, or by the tape.
            const mdlm_batch usual = m.rig.batch;
            m.rig.batch.micro_batch_size = 1;
            m.rig.batch.cu_seqlens = two, m.rig.batch.num_documents = 2;
            EXPECT_OK(m.rig.step());
            const uint64_t good = m.good;
            m.good = m.rig.digest();
            EXPECT_GOOD(batch("batch.num_documents", "2", "0", [](auto &b) { b.cu_seqlens = nullptr, b.num_documents = 0; }));
            EXPECT_GOOD(batch("batch.num_documents", "2", "3", [](auto &b) { b.cu_seqlens = three, b.num_documents = 3; }));
            EXPECT_GOOD(m.differ(forward,
                                 [&](Rig &rig) {
                                     mdlm_batch b = rig.batch;
                                     b.cu_seqlens = also_two;
                                     return mdlm_block_forward(rig.block, &b, rig.x.get(), rig.tape, rig.y.get());
                                 },
                                 MDLM_ERROR_SHAPE, "batch.cu_seqlens"));
            EXPECT_GOOD(m.right());
            m.rig.batch.cu_seqlens = nullptr, m.rig.batch.num_documents = 0;
            EXPECT_OK(mdlm_tape_set_documents(m.rig.tape, m.is_odd() ? also_two : two, 2));
            EXPECT_GOOD(m.differ(forward, forward, MDLM_ERROR_SHAPE, "batch.cu_seqlens"));
            EXPECT_OK(mdlm_tape_set_documents(m.rig.tape, two, 2));
            EXPECT_GOOD(m.right());
            EXPECT_OK(mdlm_tape_set_documents(m.rig.tape, nullptr, 0));
            m.rig.batch = usual;
            m.good = good;
            // With a tape and without.
            EXPECT_GOOD(m.differ(forward, [](Rig &rig) { return rig.evaluate(); }, MDLM_ERROR_COMM, "forward with a tape", "1", "0"));
            return "";
        },
        [](Rig &rig) { rig.shape.max_documents = 3; });
}

TEST_CASE("ranks with other shapes: what must be the same, and what need not") {
    on_groups([](Member &m) -> std::string {
        const auto changed = [](const std::function<void(mdlm_shape &)> &change) {
            return [change](Rig &rig) {
                mdlm_shape s = rig.shape;
                change(s);
                return mdlm_block_reserve(rig.block, &s, nullptr);
            };
        };
        const auto shape = [&](const std::string &name, const std::string &here, const std::string &there,
                               const std::function<void(mdlm_shape &)> &change) -> std::string {
            mdlm_tape_destroy(std::exchange(m.rig.tape, nullptr));
            EXPECT_GOOD(m.differ(reserve, changed(change), MDLM_ERROR_SHAPE, "shape." + name, here, there));
            return m.right();
        };
        EXPECT_GOOD(shape("seq_length", "8", "16", [](auto &s) { s.seq_length = 16; }));
        EXPECT_GOOD(shape("micro_batch_size", "2", "1", [](auto &s) { s.micro_batch_size = 1; }));
        EXPECT_GOOD(shape("max_tokens", "16", "8", [](auto &s) { s.max_tokens = 8; }));
        EXPECT_GOOD(shape("max_documents", "0", "2", [](auto &s) { s.max_documents = 2; }));
        EXPECT_GOOD(shape("in_flight", "1", "2", [](auto &s) { s.in_flight = 2; }));
        EXPECT_GOOD(shape("evaluate_in_flight", "0", "1", [](auto &s) { s.evaluate_in_flight = 1; }));
        EXPECT_GOOD(shape("input_requires_grad", "1", "0", [](auto &s) { s.input_requires_grad = 0; }));
        for (const auto &change : std::initializer_list<std::function<void(mdlm_shape &)>>{
                 [](auto &s) { s.input_storage = MDLM_INPUT_BORROW; }, [](auto &s) { s.share_scratch = 1; }, [](auto &s) { s.max_bytes = 1 << 30; }}) {
            mdlm_tape_destroy(std::exchange(m.rig.tape, nullptr));
            EXPECT_OK(m.is_odd() ? changed(change)(m.rig) : reserve(m.rig));
            EXPECT_GOOD(m.right());
        }
        return "";
    });
}

TEST_CASE("ranks with other configs: each setting is named") {
    struct Setting {
        const char *key, *here, *there;
        std::vector<std::pair<const char *, const char *>> all;  // on all ranks
    };
    const std::vector<std::pair<const char *, const char *>> full = {{"recompute_granularity", "full"}, {"recompute_method", "uniform"}, {"recompute_num_layers", "1"}};
    const std::vector<Setting> settings = {
        {"num_layers", "2", "3", {}}, {"layer_offset", "0", "5", {}}, {"hidden_size", "16", "32", {}}, {"num_attention_heads", "4", "8", {}},
        {"num_query_groups", "0", "4", {}}, {"kv_channels", "0", "8", {}}, {"ffn_hidden_size", "0", "32", {}}, {"normalization", "LayerNorm", "RMSNorm", {}},
        {"layernorm_zero_centered_gamma", "0", "1", {}}, {"layernorm_epsilon", "1e-05", "0.001", {}}, {"qk_layernorm", "0", "1", {}},
        {"final_layernorm", "1", "0", {}}, {"add_bias_linear", "1", "0", {}}, {"add_qkv_bias", "0", "1", {}}, {"activation_func", "gelu", "swiglu", {}},
        {"position_embedding_type", "rope", "none", {}}, {"rotary_base", "10000", "500", {}}, {"rotary_percent", "1", "0.5", {}},
        {"rotary_interleaved", "0", "1", {}}, {"use_rope_scaling", "0", "1", {}}, {"rope_scaling_factor", "8", "4", {}},
        {"rope_low_freq_factor", "1", "2", {}}, {"rope_high_freq_factor", "4", "8", {}}, {"rope_original_max_position", "8192", "64", {}},
        {"seq_len_interpolation_factor", "1", "2", {}}, {"attention_mask_type", "causal", "no_mask", {}},
        {"mask_block_size", "2", "4", {{"attention_mask_type", "block_causal"}}}, {"window_left", "-1", "3", {}}, {"window_right", "-1", "3", {}},
        {"softmax_scale", "0", "0.25", {}}, {"attention_backend", "auto", "unfused", {}}, {"attention_dropout", "0.1", "0.2", {}},
        {"hidden_dropout", "0.1", "0", {}}, {"batch_first", "0", "1", {}}, {"params_dtype", "f32", "f64", {}},
        {"grad_dtype", "default", "f32", {}}, {"init_method_std", "0.02", "0.03", {}},
        {"output_init_std", "0", "0.01", {}}, {"sequence_parallel", "0", "1", {}}, {"recompute_granularity", "none", "selective", {}},
        {"recompute_method", "uniform", "block", full}, {"recompute_num_layers", "1", "2", full},
        {"recompute_modules", "layernorm", "mlp", {{"recompute_granularity", "selective"}}}, {"distribute_saved_activations", "0", "1", full},
        {"cpu_offloading", "1", "0", {}}, {"cpu_offloading_num_layers", "1", "2", {{"cpu_offloading", "1"}}}, {"memory_budget", "0", "1048576", {}},
        {"memory_budget_includes_parameters", "0", "1", {{"memory_budget", "1048576"}}}};
    std::set<std::string> keys = {"tensor_model_parallel_size"};  // which the context's group decides
    for (const Setting &s : settings) keys.insert(s.key);
    CHECK(keys.size() == static_cast<size_t>(mdlm_config_key_count()));
    on_groups([&](Member &m) -> std::string {
        for (const Setting &s : settings) {
            mdlm_block *block = nullptr;
            mdlm_config config = m.rig.config;
            for (const auto &[key, value] : s.all) EXPECT_OK(mdlm_config_set(&config, key, value));
            char texts[2][32];
            for (const int there : {m.is_odd() ? 0 : 1, m.is_odd() ? 1 : 0}) {  // its own last
                EXPECT_OK(mdlm_config_set(&config, s.key, there != 0 ? s.there : s.here));
                EXPECT_OK(mdlm_config_get(&config, s.key, texts[there], sizeof texts[there], nullptr));
            }
            if (std::string(s.key) == "cpu_offloading" && config.cpu_offloading != 0) config.cpu_offloading_num_layers = 1;
            EXPECT_OK(mdlm_block_create(m.rig.context, &config, &block));
            const Act act = [&](Rig &rig) { return mdlm_block_reserve(block, &rig.shape, nullptr); };
            std::string wrong = m.differ(act, act, MDLM_ERROR_CONFIG, s.key, texts[0], texts[1]);
            mdlm_memory memory = MDLM_MEMORY_INIT;
            if (wrong.empty()) wrong = wrong_with(mdlm_block_memory(block, &memory), MDLM_ERROR_STATE, "not reserved", s.key);
            mdlm_block_destroy(block);
            EXPECT_GOOD(wrong);
        }
        return "";
    });
}

TEST_CASE("ranks with other frozen parameters, plans and devices") {
    on_groups([](Member &m) -> std::string {
        mdlm_tape_destroy(std::exchange(m.rig.tape, nullptr));
        for (const int64_t index : {0, 5, 13}) {
            mdlm_block *block = nullptr;
            mdlm_param_desc desc = MDLM_PARAM_DESC_INIT;
            EXPECT_OK(mdlm_block_create(m.rig.context, &m.rig.config, &block));
            EXPECT_OK(mdlm_param_info(block, index, &desc));
            const std::string name = std::string("requires_grad of ") + desc.name;
            if (m.is_odd()) EXPECT_OK(mdlm_param_set_requires_grad(block, index, 0));
            const Act act = [&](Rig &rig) { return mdlm_block_reserve(block, &rig.shape, nullptr); };
            const std::string wrong = m.differ(act, act, MDLM_ERROR_CONFIG, name, "1", "0");
            if (m.is_odd()) EXPECT_OK(mdlm_param_set_requires_grad(block, index, 1));
            EXPECT_OK(mdlm_block_reserve(block, &m.rig.shape, nullptr));
            mdlm_block_destroy(block);
            EXPECT_GOOD(wrong);
        }
        for (const int64_t layer : {0, 1}) {
            EXPECT_OK(mdlm_block_plan(m.rig.block, &m.rig.shape, &m.rig.plan));
            if (m.is_odd()) EXPECT_OK(mdlm_plan_set(m.rig.plan, layer, "pre_mlp_layernorm", MDLM_REPLAY));
            EXPECT_GOOD(m.differ(reserve, reserve, MDLM_ERROR_CONFIG, "plan of layer " + std::to_string(layer) + ": pre_mlp_layernorm", "keep", "replay"));
            mdlm_plan_destroy(std::exchange(m.rig.plan, nullptr));
        }
        EXPECT_OK(mdlm_block_plan(m.rig.block, &m.rig.shape, &m.rig.plan));
        if (m.is_odd()) EXPECT_OK(mdlm_plan_set_unit(m.rig.plan, 0, 2));
        EXPECT_GOOD(m.differ(reserve, reserve, MDLM_ERROR_CONFIG, "plan of layer 0: its unit", "1 from layer 0", "2 from layer 0"));
        mdlm_plan_destroy(std::exchange(m.rig.plan, nullptr));
        EXPECT_GOOD(m.right());
        m.rig.close();
        if (m.is_odd()) m.rig.desc.device = MDLM_DEVICE_CPU;
        EXPECT_GOOD(m.differ([](Rig &rig) { return rig.open(); }, [](Rig &rig) { return rig.open(); }, MDLM_ERROR_CONFIG, "desc.device", "1", "0"));
        m.rig.close();
        m.rig.desc.device = MDLM_DEVICE_REFERENCE;
        EXPECT_OK(m.rig.open());
        return "";
    });
}

TEST_CASE("ranks may have other numbers of threads, and other matrix products") {
    on_groups([](Member &m) -> std::string {
        m.rig.close();
        m.rig.desc.device = MDLM_DEVICE_CPU;
        m.rig.desc.matmul = MDLM_MATMUL_OWN;
        EXPECT_OK(m.rig.open());
        EXPECT_OK(m.rig.step());
        m.good = m.rig.digest();
        m.rig.close();
        if (m.is_odd()) m.rig.desc.num_threads = 3;
        EXPECT_OK(m.rig.open());
        return "";
    });
}

TEST_CASE("ranks that go back through other forwards, or otherwise") {
    on_groups(
        [](Member &m) -> std::string {
            Rig &rig = m.rig;
            mdlm_tape *second = nullptr;
            EXPECT_OK(mdlm_tape_create(rig.block, &second));
            EXPECT_OK(mdlm_zero_grads(rig.block));
            EXPECT_OK(mdlm_block_forward(rig.block, &rig.batch, rig.x.get(), rig.tape, rig.y.get()));
            EXPECT_OK(mdlm_block_forward(rig.block, &rig.batch, rig.x.get(), second, rig.y.get()));
            const Act other = [&](Rig &g) { return mdlm_block_backward(g.block, second, nullptr, g.dy.get(), g.dx.get()); };
            EXPECT_GOOD(m.differ(backward, other, MDLM_ERROR_COMM, "forward that the tape holds differs"));
            mdlm_backward_options options = MDLM_BACKWARD_OPTIONS_INIT;
            options.overwrite_grads = 1;
            EXPECT_GOOD(m.differ(backward, [&](Rig &g) { return g.backward(&options); }, MDLM_ERROR_COMM, "options.overwrite_grads", "0", "1"));
            mdlm_tape_destroy(second);
            EXPECT_OK(rig.backward());
            EXPECT(rig.digest() == m.good);
            return "";
        },
        [](Rig &rig) { rig.shape.in_flight = 2; });
}

TEST_CASE("ranks that make different calls, or call different blocks") {
    on_groups([](Member &m) -> std::string {
        Rig &rig = m.rig;
        const std::pair<const char *, Act> calls[] = {{"mdlm_block_forward", [](Rig &g) { return g.evaluate(); }},
                                                      {"mdlm_block_backward", backward},
                                                      {"mdlm_block_reserve", reserve},
                                                      {"mdlm_param_gather", [](Rig &g) { return gather(g); }}};
        for (const auto &[usual_name, usual] : calls)
            for (const auto &[other_name, other] : calls) {
                if (usual_name == other_name) continue;
                const bool back = &usual == &calls[1].second || &other == &calls[1].second;
                if (back) EXPECT_OK(rig.forward());
                else mdlm_tape_destroy(std::exchange(rig.tape, nullptr));
                const bool reserves_full = back && (&usual == &calls[2].second || &other == &calls[2].second);
                const bool evaluates_full = back && (&usual == &calls[0].second || &other == &calls[0].second);
                if (reserves_full || evaluates_full) {
                    // One of the two is refused for its own reason, the full tape.
                    const Soon soon;
                    const mdlm_status got = m.is_odd() ? other(rig) : usual(rig);
                    EXPECT(got == MDLM_ERROR_COMM || got == MDLM_ERROR_STATE);
                    EXPECT(!soon.over());
                } else {
                    const std::string mine = std::string("calls ") + usual_name, its = std::string("calls ") + other_name;
                    EXPECT_GOOD(m.differ(usual, other, MDLM_ERROR_COMM, "expected the same call on all ranks"));
                    EXPECT(wrong_with(mdlm_last_error(), mine.c_str()) == "");
                    EXPECT(wrong_with(mdlm_last_error(), its.c_str()) == "");
                }
                EXPECT_GOOD(m.right());
            }
        EXPECT_GOOD(m.differ([](Rig &g) { return gather(g, 0); }, [](Rig &g) { return gather(g, 1); }, MDLM_ERROR_COMM, "index", "0", "1"));
        EXPECT_GOOD(m.differ([](Rig &g) { return gather(g, 1, 0); }, [](Rig &g) { return gather(g, 1, 1); }, MDLM_ERROR_COMM, "gradient", "0", "1"));
        mdlm_block *second = nullptr;
        EXPECT_OK(mdlm_block_create(rig.context, &rig.config, &second));
        EXPECT_OK(mdlm_block_reserve(second, &rig.shape, nullptr));
        const Act other = [&](Rig &g) { return mdlm_block_forward(second, &g.batch, g.x.get(), nullptr, g.y.get()); };
        EXPECT_GOOD(m.differ([](Rig &g) { return g.evaluate(); }, other, MDLM_ERROR_COMM, "block (which of the group's reserves it had)"));
        EXPECT_OK(other(rig));
        mdlm_block_destroy(second);
        return "";
    });
}

TEST_CASE("one rank's arguments are refused: the others are told why") {
    on_groups([](Member &m) -> std::string {
        Rig &rig = m.rig;
        const auto off = [](Buffer &b) { return static_cast<void *>(static_cast<unsigned char *>(b.get()) + 8); };
        const char *name = "mdlm_block_forward";
        const auto bad = [&](const Act &other, mdlm_status status, const char *line) -> std::string {
            EXPECT_GOOD(m.refused(name, forward, other, status, line));
            return m.right();
        };
        EXPECT_GOOD(bad([](Rig &g) { return mdlm_block_forward(g.block, &g.batch, nullptr, g.tape, g.y.get()); }, MDLM_ERROR_ARGUMENT, "x is NULL"));
        EXPECT_GOOD(bad([](Rig &g) { return mdlm_block_forward(g.block, nullptr, g.x.get(), g.tape, g.y.get()); }, MDLM_ERROR_ARGUMENT, "batch is NULL"));
        EXPECT_GOOD(bad([&](Rig &g) { return mdlm_block_forward(g.block, &g.batch, g.x.get(), g.tape, off(g.y)); }, MDLM_ERROR_ARGUMENT, "aligned"));
        EXPECT_GOOD(bad([](Rig &g) { return mdlm_block_forward(g.block, &g.batch, g.x.get(), g.tape, g.x.get()); }, MDLM_ERROR_ARGUMENT, "overlap"));
        const auto batch = [](const std::function<void(mdlm_batch &)> &change) {
            return [change](Rig &g) {
                mdlm_batch b = g.batch;
                change(b);
                return mdlm_block_forward(g.block, &b, g.x.get(), g.tape, g.y.get());
            };
        };
        EXPECT_GOOD(bad(batch([](auto &b) { b.seq_length = 9; }), MDLM_ERROR_SHAPE, "seq_length"));
        EXPECT_GOOD(bad(batch([](auto &b) { b.struct_size = 2; }), MDLM_ERROR_ARGUMENT, "struct_size"));
        EXPECT_GOOD(bad(batch([](auto &b) { b.training = 2; }), MDLM_ERROR_ARGUMENT, "training"));
        EXPECT_OK(rig.forward());
        name = "mdlm_block_backward";
        const auto bad_backward = [&](const Act &other, mdlm_status status, const char *line) { return m.refused(name, backward, other, status, line); };
        EXPECT_GOOD(bad_backward([](Rig &g) { return mdlm_block_backward(g.block, nullptr, nullptr, g.dy.get(), g.dx.get()); }, MDLM_ERROR_ARGUMENT, "tape is NULL"));
        EXPECT_GOOD(bad_backward([](Rig &g) { return mdlm_block_backward(g.block, g.tape, nullptr, nullptr, g.dx.get()); }, MDLM_ERROR_ARGUMENT, "dy is NULL"));
        EXPECT_GOOD(bad_backward([](Rig &g) { return mdlm_block_backward(g.block, g.tape, nullptr, g.dy.get(), nullptr); }, MDLM_ERROR_ARGUMENT, "dx is NULL"));
        mdlm_backward_options options = MDLM_BACKWARD_OPTIONS_INIT;
        options.overwrite_grads = 3;
        EXPECT_GOOD(bad_backward([&](Rig &g) { return g.backward(&options); }, MDLM_ERROR_ARGUMENT, "overwrite_grads = 3"));
        if (m.is_odd()) EXPECT_OK(mdlm_tape_reset(rig.tape));
        EXPECT_GOOD(bad_backward(backward, MDLM_ERROR_STATE, "tape: it is empty"));
        EXPECT_GOOD(m.right());
        name = "mdlm_param_gather";
        const auto bad_gather = [&](const Act &other, mdlm_status status, const char *line) {
            return m.refused(name, [](Rig &g) { return gather(g); }, other, status, line);
        };
        EXPECT_GOOD(bad_gather([](Rig &g) { return gather(g, 0, 2); }, MDLM_ERROR_ARGUMENT, "gradient = 2"));
        EXPECT_GOOD(bad_gather([](Rig &g) { return gather(g, 0, 0, 9); }, MDLM_ERROR_ARGUMENT, "dtype = 9"));
        EXPECT_GOOD(bad_gather([](Rig &g) { return gather(g, 0, 0, MDLM_DTYPE_F32, 4); }, MDLM_ERROR_ARGUMENT, "bytes"));
        EXPECT_GOOD(bad_gather([](Rig &g) { return mdlm_param_gather(g.block, 0, 0, MDLM_DTYPE_F32, nullptr, 4); }, MDLM_ERROR_ARGUMENT, "host is NULL"));
        EXPECT_GOOD(bad_gather([](Rig &g) { return mdlm_param_gather(g.block, 999, 0, MDLM_DTYPE_F32, g.x.get(), 4); }, MDLM_ERROR_ARGUMENT, "index"));
        name = "mdlm_block_reserve";
        if (!m.is_odd()) mdlm_tape_destroy(std::exchange(rig.tape, nullptr));
        EXPECT_GOOD(m.refused(name, reserve, reserve, MDLM_ERROR_STATE, "tapes of the last reservation exist"));
        if (m.is_odd()) mdlm_tape_destroy(std::exchange(rig.tape, nullptr));
        const auto shape = [](const std::function<void(mdlm_shape &)> &change) {
            return [change](Rig &g) {
                mdlm_shape s = g.shape;
                change(s);
                return mdlm_block_reserve(g.block, &s, nullptr);
            };
        };
        EXPECT_GOOD(m.refused(name, reserve, shape([](auto &s) { s.max_bytes = 64; }), MDLM_ERROR_BUDGET, "max_bytes = 64"));
        EXPECT_GOOD(m.refused(name, reserve, shape([](auto &s) { s.seq_length = 0; }), MDLM_ERROR_SHAPE, "seq_length"));
        EXPECT_GOOD(m.refused(name, reserve, [](Rig &g) { return mdlm_block_reserve(g.block, nullptr, nullptr); }, MDLM_ERROR_ARGUMENT, "shape is NULL"));
        return "";
    });
}

TEST_CASE("one rank's allocator fails in reserve: the others are told, and all can go on") {
    struct Failing {
        int calls = 0, fail_at = -1;
        int64_t live = 0;
        mdlm_allocator table() {
            return {[](void *payload, size_t bytes, size_t alignment) -> void * {
                        auto &f = *static_cast<Failing *>(payload);
                        if (f.calls++ == f.fail_at) return nullptr;
                        f.live += static_cast<int64_t>(bytes);
                        return std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
                    },
                    [](void *payload, void *memory, size_t bytes, size_t) {
                        static_cast<Failing *>(payload)->live -= static_cast<int64_t>(bytes);
                        std::free(memory);
                    },
                    this};
        }
    };
    for (const auto &group : {std::pair{2, 0}, {2, 1}, {4, 2}}) {
        const int size = group.first, odd = group.second;
        CAPTURE(size);
        CAPTURE(odd);
        const std::string wrong = on_threads(size, [&](Rank &r) -> std::string {
            Failing failing;
            const mdlm_allocator table = failing.table();
            {
                Member m(r, odd);
                m.rig.desc.device_allocator = &table;
                EXPECT_GOOD(m.open());
                mdlm_tape_destroy(std::exchange(m.rig.tape, nullptr));
                const int before = failing.calls;
                EXPECT_OK(reserve(m.rig));
                const int calls = failing.calls - before;
                EXPECT(calls >= 2);
                for (int n = 0; n < calls; ++n) {
                    failing.calls = 0;
                    failing.fail_at = m.is_odd() ? n : -1;
                    const int64_t live = failing.live;
                    EXPECT_GOOD(m.refused("mdlm_block_reserve", reserve, reserve, MDLM_ERROR_MEMORY, "bytes"));
                    failing.fail_at = -1;
                    EXPECT(failing.live == live);
                }
                EXPECT_GOOD(m.right());
            }
            EXPECT(failing.live == 0);
            return "";
        });
        CHECK(wrong == "");
    }
}
