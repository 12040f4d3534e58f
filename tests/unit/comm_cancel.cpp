// SPDX-License-Identifier: Apache-2.0
// Cancelled ranks of a group: before anything ran they are refused through the agreement, later they end the group, and
// nobody waits for long.
#include <functional>

#include "comm_agreement.hpp"
#include "support/cancel.hpp"

using namespace mdlm_test;

namespace {

// Puts up the flag of a waiting rank, and says when.
class Later {
public:
    Later(Canceller &canceller, int ms)
        : thread_([&canceller, ms] {
              sleep_ms(ms);
              canceller.flag = true;
          }) {}
    ~Later() { thread_.join(); }
    Later(const Later &) = delete;

private:
    std::thread thread_;
};

mdlm_status sum(mdlm_comm *comm) {
    float value = 1;
    return mdlm_comm_all_reduce(comm, &value, &value, 1, MDLM_DTYPE_F32, MDLM_REDUCE_SUM, 60000);
}

}  // namespace

TEST_CASE("cancel: a rank of a group that is cancelled at the start is refused, and all go on") {
    Canceller cancellers[4];
    on_groups(
        [&](Member &m) -> std::string {
            Canceller &canceller = cancellers[m.r.rank];
            const auto at_start = [&](const Act &act) -> Act {
                return [&canceller, act](Rig &rig) {
                    canceller.reset(1);
                    const mdlm_status status = act(rig);
                    canceller.reset();
                    return status;
                };
            };
            const auto refused = [&](const char *call, const Act &act) -> std::string {
                const std::string line = std::string("cancelled: ") + call + ", at its start";
                return m.refused(call, act, at_start(act), MDLM_ERROR_CANCELLED, line);
            };
            EXPECT_GOOD(refused("mdlm_block_forward", forward));
            EXPECT_GOOD(refused("mdlm_block_forward", [](Rig &rig) { return rig.evaluate(); }));
            EXPECT_OK(mdlm_params_zero_grads(m.rig.block));
            EXPECT_OK(m.rig.forward());
            EXPECT_GOOD(refused("mdlm_block_backward", backward));
            EXPECT_OK(m.rig.backward());  // its tape is full, and its gradients are clean
            EXPECT(m.rig.digest() == m.good);
            EXPECT_GOOD(refused("mdlm_param_gather", [](Rig &rig) { return gather(rig); }));
            mdlm_tape_destroy(std::exchange(m.rig.tape, nullptr));
            EXPECT_GOOD(refused("mdlm_block_reserve", reserve));
            EXPECT_GOOD(m.right());
            // All at once.
            EXPECT_FAILS(at_start(forward)(m.rig), MDLM_ERROR_CANCELLED, "at its start");
            return "";
        },
        [&](Rig &rig) {
            int32_t rank = 0;
            mdlm_comm_rank(rig.desc.comm, &rank, nullptr);
            cancellers[rank].reset();
            cancellers[rank].join(rig.desc);
        });
}

TEST_CASE("cancel: at every ask of a step on a group, nobody waits for long") {
    struct Setup {
        const char *sequence_parallel, *distribute;
    };
    for (const auto &[sequence_parallel, distribute] : {Setup{"0", "0"}, {"0", "1"}, {"1", "0"}}) {
        CAPTURE(sequence_parallel);
        CAPTURE(distribute);
        std::atomic<bool> more = true;
        std::atomic<int> began = 0;  // steps of which something had run
        int64_t k = 1;
        for (; more; ++k) {
            CAPTURE(k);
            more = false;
            const std::string wrong = on_threads(2, [&](Rank &r) -> std::string {
                Canceller canceller;
                Rig rig{{"num_layers", "3"},
                        {"recompute_granularity", "full"},
                        {"recompute_method", "uniform"},
                        {"recompute_num_layers", "2"},
                        {"distribute_saved_activations", distribute},
                        {"sequence_parallel", sequence_parallel}};
                join_group(rig, r);
                canceller.join(rig.desc);
                EXPECT_OK(rig.open());
                EXPECT_OK(mdlm_params_zero_grads(rig.block));
                const Soon soon;
                canceller.reset(r.rank == k % 2 ? k : 0);
                mdlm_set_last_error("");
                mdlm_status status = rig.forward();
                if (status == MDLM_OK) status = rig.backward();
                const std::string line = mdlm_last_error();
                EXPECT(!soon.over());
                const bool cancelled = canceller.at != 0 && canceller.asks >= k;
                if (cancelled) more = true;
                if (cancelled) EXPECT_SAID(status, MDLM_ERROR_CANCELLED, "cancelled: mdlm_block_");
                else if (status != MDLM_OK) EXPECT_SAID(status, MDLM_ERROR_COMM, "rank");
                // Where nothing had run, all go on; else the group is over.
                const bool none = line.find("at its start") != std::string::npos;
                if (status == MDLM_OK) return "";  // no ask was left, or the other was cancelled at its end
                began += cancelled && !none;
                EXPECT_OK(mdlm_tape_reset(rig.tape));
                if (none) EXPECT_OK(rig.forward());
                else EXPECT_FAILS(rig.forward(), MDLM_ERROR_COMM, "aborted");
                return "";
            });
            CHECK(wrong == "");
            if (!wrong.empty()) break;
        }
        CHECK(began > 60);
    }
}

TEST_CASE("cancel: a rank that waits for another that does not come returns soon") {
    // In the agreement of every call of the group, and in a collective of a step.
    const std::pair<const char *, Act> calls[] = {{"mdlm_block_forward", forward},
                                                  {"mdlm_block_reserve", reserve},
                                                  {"mdlm_param_gather", [](Rig &rig) { return gather(rig); }}};
    for (const auto &[name, act] : calls)
        for (const int size : {2, 3}) {
            CAPTURE(name);
            CAPTURE(size);
            std::atomic<int> back = 0;
            const std::string wrong = on_threads(size, [&](Rank &r) -> std::string {
                Canceller canceller;
                Rig rig;
                join_group(rig, r);
                if (size == 3) rig.config.hidden_size = 48, rig.config.num_attention_heads = 3;
                canceller.join(rig.desc);
                EXPECT_OK(rig.open());
                mdlm_tape_destroy(std::exchange(rig.tape, nullptr));
                const Soon soon;
                if (r.rank == size - 1) {  // comes when the others have gone
                    while (back < size - 1 && !soon.over()) sleep_ms(1);
                    EXPECT_FAILS(act(rig), MDLM_ERROR_COMM, "rank 0 was cancelled when it had waited ");
                    return "";
                }
                if (r.rank != 0) {
                    const mdlm_status status = act(rig);
                    ++back;
                    EXPECT_SAID(status, MDLM_ERROR_COMM, "rank 0 was cancelled when it had waited ");
                    EXPECT(!soon.over());
                    return "";
                }
                canceller.reset();
                const Later later(canceller, 60);
                const mdlm_status status = act(rig);
                const int64_t ms = canceller.ms_since_yes(), asks = canceller.asks;
                ++back;
                const std::string line = std::string("cancelled: ") + name + ", in its wait of ";
                EXPECT_SAID(status, MDLM_ERROR_CANCELLED, line.c_str());
                EXPECT(ms < 1000);
                EXPECT(asks >= 2);  // a slow machine asks less often
                EXPECT(asks <= 60);
                canceller.reset();
                EXPECT_FAILS(rig.evaluate(), MDLM_ERROR_COMM, "aborted");
                return "";
            });
            CHECK(wrong == "");
        }
}

TEST_CASE("cancel: a rank that is cancelled at the start does not wait for long for others to hear it") {
    std::atomic<bool> back = false;
    const std::string wrong = on_threads(2, [&](Rank &r) -> std::string {
        Canceller canceller;
        Rig rig;
        join_group(rig, r);
        canceller.join(rig.desc);
        EXPECT_OK(rig.open());
        const Soon soon;
        if (r.rank == 0) {
            canceller.reset(1);
            const mdlm_status status = rig.forward();
            back = true;
            EXPECT_SAID(status, MDLM_ERROR_CANCELLED, "at its start");
            EXPECT(canceller.ms_since_yes() < 10000);  // it is one second
            EXPECT(canceller.asks == 1);
        }
        while (!back && !soon.over()) sleep_ms(1);
        EXPECT_FAILS(rig.forward(), MDLM_ERROR_COMM, r.rank == 0 ? "aborted" : "did not come");
        return "";
    });
    CHECK(wrong == "");
}

TEST_CASE("cancel: functions of the caller's communicator may ask, and are asked for when they return") {
    for (const bool asks : {true, false}) {
        CAPTURE(asks);
        const std::string wrong = on_threads(2, [&](Rank &r) -> std::string {
            Canceller canceller;
            OwnComm own(r);
            EXPECT_OK(own.take());
            EXPECT(mdlm_comm_cancelled() == 0);
            Rig rig;
            join_group(rig, r);
            canceller.join(rig.desc);
            EXPECT_OK(rig.open());
            EXPECT_OK(rig.forward());
            EXPECT(mdlm_comm_cancelled() == 0);
            const Soon soon;
            int64_t polls = 0;
            if (r.rank == 0) {
                own.inside = [&] {  // a wait in vain
                    if (own.calls < own.fail_at) return;
                    canceller.flag = true;
                    while (asks && mdlm_comm_cancelled() == 0 && !soon.over()) ++polls;
                };
                // In the midst of the backward. Without asking it goes well, and the call is cancelled all the same.
                own.fail_at = own.calls + 4;
                if (!asks) own.fail_with = MDLM_OK;
            }
            const mdlm_status status = rig.backward();
            EXPECT(!soon.over());
            own.inside = nullptr;
            if (r.rank == 0 && asks) EXPECT_SAID(status, MDLM_ERROR_CANCELLED, "of the communicator on rank 0 of 2");
            else if (r.rank == 0) EXPECT_SAID(status, MDLM_ERROR_CANCELLED, "cancelled: mdlm_block_backward, ");
            else EXPECT_SAID(status, MDLM_ERROR_COMM, "rank 0");
            if (asks && r.rank == 0) EXPECT(canceller.asks < polls);
            EXPECT(mdlm_comm_cancelled() == 0);
            // Collectives of the caller's own are no call of the context: nobody asks for them.
            EXPECT_FAILS(sum(r.comm), MDLM_ERROR_COMM, "aborted");
            return "";
        });
        CHECK(wrong == "");
    }
}
