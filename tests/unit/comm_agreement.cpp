// SPDX-License-Identifier: Apache-2.0
// Ranks whose batches, shapes, tapes or calls differ.
#include "comm_agreement.hpp"

using namespace mdlm_test;

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
            EXPECT_GOOD(batch("batch.attention_mask_type", "2", "1",
                              [](auto &b) { b.attention_mask_type = MDLM_MASK_NO_MASK; }));
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
            EXPECT_GOOD(
                batch("batch.num_documents", "2", "0", [](auto &b) { b.cu_seqlens = nullptr, b.num_documents = 0; }));
            EXPECT_GOOD(
                batch("batch.num_documents", "2", "3", [](auto &b) { b.cu_seqlens = three, b.num_documents = 3; }));
            EXPECT_GOOD(m.differ(
                forward,
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
            EXPECT_GOOD(m.differ(
                forward, [](Rig &rig) { return rig.evaluate(); }, MDLM_ERROR_COMM, "forward with a tape", "1", "0"));
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
                 [](auto &s) { s.input_storage = MDLM_INPUT_BORROW; }, [](auto &s) { s.share_scratch = 1; },
                 [](auto &s) { s.max_bytes = 1 << 30; }}) {
            mdlm_tape_destroy(std::exchange(m.rig.tape, nullptr));
            EXPECT_OK(m.is_odd() ? changed(change)(m.rig) : reserve(m.rig));
            EXPECT_GOOD(m.right());
        }
        return "";
    });
}

TEST_CASE("ranks that go back through other forwards, or otherwise") {
    on_groups(
        [](Member &m) -> std::string {
            Rig &rig = m.rig;
            mdlm_tape *second = nullptr;
            EXPECT_OK(mdlm_tape_create(rig.block, &second));
            EXPECT_OK(mdlm_params_zero_grads(rig.block));
            EXPECT_OK(mdlm_block_forward(rig.block, &rig.batch, rig.x.get(), rig.tape, rig.y.get()));
            EXPECT_OK(mdlm_block_forward(rig.block, &rig.batch, rig.x.get(), second, rig.y.get()));
            const Act other = [&](Rig &g) {
                return mdlm_block_backward(g.block, second, nullptr, g.dy.get(), g.dx.get());
            };
            EXPECT_GOOD(m.differ(backward, other, MDLM_ERROR_COMM, "forward that the tape holds differs"));
            mdlm_backward_options options = MDLM_BACKWARD_OPTIONS_INIT;
            options.overwrite_grads = 1;
            EXPECT_GOOD(m.differ(
                backward, [&](Rig &g) { return g.backward(&options); }, MDLM_ERROR_COMM, "options.overwrite_grads", "0",
                "1"));
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
        const std::pair<const char *, Act> calls[] = {
            {"mdlm_block_forward", [](Rig &g) { return g.evaluate(); }},
            {"mdlm_block_backward", backward},
            {"mdlm_block_reserve", reserve},
            {"mdlm_param_gather", [](Rig &g) { return gather(g); }},
            {"mdlm_param_grad_gather", [](Rig &g) { return gather(g, 0, true); }}};
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
                    const std::string mine = std::string("calls ") + usual_name,
                                      its = std::string("calls ") + other_name;
                    EXPECT_GOOD(m.differ(usual, other, MDLM_ERROR_COMM, "expected the same call on all ranks"));
                    EXPECT(wrong_with(mdlm_last_error(), mine.c_str()) == "");
                    EXPECT(wrong_with(mdlm_last_error(), its.c_str()) == "");
                }
                EXPECT_GOOD(m.right());
            }
        EXPECT_GOOD(m.differ([](Rig &g) { return gather(g, 0); }, [](Rig &g) { return gather(g, 1); }, MDLM_ERROR_COMM,
                             "index", "0", "1"));
        mdlm_block *second = nullptr;
        EXPECT_OK(mdlm_block_create(rig.context, &rig.config, &second));
        EXPECT_OK(mdlm_block_reserve(second, &rig.shape, nullptr));
        const Act other = [&](Rig &g) { return mdlm_block_forward(second, &g.batch, g.x.get(), nullptr, g.y.get()); };
        EXPECT_GOOD(m.differ([](Rig &g) { return g.evaluate(); }, other, MDLM_ERROR_COMM,
                             "block (which of the group's reserves it had)"));
        EXPECT_OK(other(rig));
        mdlm_block_destroy(second);
        return "";
    });
}
