// SPDX-License-Identifier: Apache-2.0
// One rank's own arguments or memory fail before anything runs: it gets its error, the others hear of it.
#include <cstdlib>

#include "comm_agreement.hpp"

using namespace mdlm_test;

TEST_CASE("one rank's arguments are refused: the others are told why") {
    on_groups([](Member &m) -> std::string {
        Rig &rig = m.rig;
        const auto off = [](Buffer &b) { return static_cast<void *>(static_cast<unsigned char *>(b.get()) + 1); };
        const char *name = "mdlm_block_forward";
        const auto bad = [&](const Act &other, mdlm_status status, const char *line) -> std::string {
            EXPECT_GOOD(m.refused(name, forward, other, status, line));
            return m.right();
        };
        EXPECT_GOOD(bad([](Rig &g) { return mdlm_block_forward(g.block, &g.batch, nullptr, g.tape, g.y.get()); },
                        MDLM_ERROR_ARGUMENT, "x is NULL"));
        EXPECT_GOOD(bad([](Rig &g) { return mdlm_block_forward(g.block, nullptr, g.x.get(), g.tape, g.y.get()); },
                        MDLM_ERROR_ARGUMENT, "batch is NULL"));
        EXPECT_GOOD(bad([&](Rig &g) { return mdlm_block_forward(g.block, &g.batch, g.x.get(), g.tape, off(g.y)); },
                        MDLM_ERROR_ARGUMENT, "aligned"));
        EXPECT_GOOD(bad([](Rig &g) { return mdlm_block_forward(g.block, &g.batch, g.x.get(), g.tape, g.x.get()); },
                        MDLM_ERROR_ARGUMENT, "overlap"));
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
        const auto bad_backward = [&](const Act &other, mdlm_status status, const char *line) {
            return m.refused(name, backward, other, status, line);
        };
        EXPECT_GOOD(
            bad_backward([](Rig &g) { return mdlm_block_backward(g.block, nullptr, nullptr, g.dy.get(), g.dx.get()); },
                         MDLM_ERROR_ARGUMENT, "tape is NULL"));
        EXPECT_GOOD(
            bad_backward([](Rig &g) { return mdlm_block_backward(g.block, g.tape, nullptr, nullptr, g.dx.get()); },
                         MDLM_ERROR_ARGUMENT, "dy is NULL"));
        EXPECT_GOOD(
            bad_backward([](Rig &g) { return mdlm_block_backward(g.block, g.tape, nullptr, g.dy.get(), nullptr); },
                         MDLM_ERROR_ARGUMENT, "dx is NULL"));
        mdlm_backward_options options = MDLM_BACKWARD_OPTIONS_INIT;
        options.overwrite_grads = 3;
        EXPECT_GOOD(
            bad_backward([&](Rig &g) { return g.backward(&options); }, MDLM_ERROR_ARGUMENT, "overwrite_grads = 3"));
        if (m.is_odd()) EXPECT_OK(mdlm_tape_reset(rig.tape));
        EXPECT_GOOD(bad_backward(backward, MDLM_ERROR_STATE, "tape: it is empty"));
        EXPECT_GOOD(m.right());
        name = "mdlm_param_gather";
        const auto bad_gather = [&](const Act &other, mdlm_status status, const char *line) {
            return m.refused(
                name, [](Rig &g) { return gather(g); }, other, status, line);
        };
        EXPECT_GOOD(bad_gather([](Rig &g) { return gather(g, 0, false, 9); }, MDLM_ERROR_ARGUMENT, "dtype = 9"));
        EXPECT_GOOD(
            bad_gather([](Rig &g) { return gather(g, 0, false, MDLM_DTYPE_F32, 4); }, MDLM_ERROR_ARGUMENT, "bytes"));
        EXPECT_GOOD(bad_gather([](Rig &g) { return mdlm_param_gather(g.block, 0, MDLM_DTYPE_F32, nullptr, 4); },
                               MDLM_ERROR_ARGUMENT, "host is NULL"));
        EXPECT_GOOD(bad_gather([](Rig &g) { return mdlm_param_gather(g.block, 999, MDLM_DTYPE_F32, g.x.get(), 4); },
                               MDLM_ERROR_ARGUMENT, "index"));
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
        EXPECT_GOOD(
            m.refused(name, reserve, shape([](auto &s) { s.max_bytes = 64; }), MDLM_ERROR_BUDGET, "max_bytes = 64"));
        EXPECT_GOOD(m.refused(name, reserve, shape([](auto &s) { s.seq_length = 0; }), MDLM_ERROR_SHAPE, "seq_length"));
        EXPECT_GOOD(m.refused(
            name, reserve, [](Rig &g) { return mdlm_block_reserve(g.block, nullptr, nullptr); }, MDLM_ERROR_ARGUMENT,
            "shape is NULL"));
        return "";
    });
}

TEST_CASE("one rank's allocator fails in reserve: the others are told, and all can go on") {
    struct Failing {
        int calls = 0, fail_at = -1;
        int64_t live = 0;
        mdlm_allocator table() {
            return {sizeof(mdlm_allocator),
                    [](void *payload, size_t bytes, size_t alignment, void *) -> void * {
                        auto &f = *static_cast<Failing *>(payload);
                        if (f.calls++ == f.fail_at) return nullptr;
                        f.live += static_cast<int64_t>(bytes);
                        return std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
                    },
                    [](void *payload, void *memory, size_t bytes, size_t, void *) {
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
