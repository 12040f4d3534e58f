// SPDX-License-Identifier: Apache-2.0
// A rig that is one rank of a group.
#pragma once
#include <functional>

#include "support/ranks.hpp"
#include "support/rig.hpp"

namespace mdlm_test {

// Four heads, so that up to four ranks have some.
inline void join_group(Rig &rig, const Rank &r, int64_t timeout_ms = 60000) {
    rig.desc.comm = r.comm;
    rig.desc.comm_timeout_ms = timeout_ms;
    rig.desc.num_threads = 1;
    rig.config.num_attention_heads = 4;
    rig.config.tensor_model_parallel_size = r.size;
}

// A communicator of the caller's own functions in place of the rank's, which every call goes on to until one is told to
// fail. Its end is that of the rank's communicator.
struct OwnComm {
    explicit OwnComm(Rank &r) : rank(r) {}
    OwnComm(const OwnComm &) = delete;
    ~OwnComm() { mdlm_comm_destroy(std::exchange(rank.comm, nullptr)); }
    Rank &rank;
    mdlm_comm *inner = nullptr;
    int calls = 0, fail_at = -1;  // counted from 0
    mdlm_status fail_with = 12345;
    const char *text = "the wire is cut";  // NULL = none
    int aborts = 0, *destroyed = nullptr;
    int64_t timeout_ms = 0, count = 0;  // of the last call
    mdlm_dtype dtype = 0;
    mdlm_reduce_op op = 0;
    void *stream = nullptr;
    std::function<void()> inside;  // called in every call

    template <class F>
    mdlm_status run(int64_t n, mdlm_dtype type, mdlm_reduce_op what, int64_t timeout, void *on, F &&f) {
        count = n, dtype = type, op = what, timeout_ms = timeout, stream = on;
        if (inside) inside();
        if (calls++ != fail_at) return f();
        if (text != nullptr) mdlm_set_last_error(text);
        return fail_with;
    }
    static OwnComm &self(void *payload) { return *static_cast<OwnComm *>(payload); }
    mdlm_comm_table table() {
        mdlm_comm_table t = MDLM_COMM_TABLE_INIT;
        t.rank = rank.rank, t.size = rank.size, t.payload = this;
        t.all_reduce = [](void *p, const void *send, void *recv, int64_t n, mdlm_dtype type, mdlm_reduce_op what,
                          int64_t timeout, void *on) {
            return self(p).run(n, type, what, timeout, on,
                               [&] { return mdlm_comm_all_reduce(self(p).inner, send, recv, n, type, what, timeout); });
        };
        t.all_gather = [](void *p, const void *send, void *recv, int64_t n, mdlm_dtype type, int64_t timeout,
                          void *on) {
            return self(p).run(n, type, -1, timeout, on,
                               [&] { return mdlm_comm_all_gather(self(p).inner, send, recv, n, type, timeout); });
        };
        t.reduce_scatter = [](void *p, const void *send, void *recv, int64_t n, mdlm_dtype type, mdlm_reduce_op what,
                              int64_t timeout, void *on) {
            return self(p).run(n, type, what, timeout, on, [&] {
                return mdlm_comm_reduce_scatter(self(p).inner, send, recv, n, type, what, timeout);
            });
        };
        t.abort = [](void *p) {
            ++self(p).aborts;
            mdlm_comm_abort(self(p).inner);
        };
        t.destroy = [](void *p) {
            if (self(p).destroyed != nullptr) ++*self(p).destroyed;
            mdlm_comm_destroy(std::exchange(self(p).inner, nullptr));
        };
        return t;
    }
    mdlm_status take(bool with_abort = true) {
        inner = rank.comm;
        mdlm_comm_table t = table();
        if (!with_abort) t.abort = nullptr;
        return mdlm_comm_create(&t, &rank.comm);
    }
};

}  // namespace mdlm_test
