// SPDX-License-Identifier: Apache-2.0
// The caller's communicator: a table of functions.
#include <cstdio>

#include "base/counted.hpp"
#include "base/float_environment.hpp"
#include "base/status.hpp"
#include "comm/comm.hpp"

namespace mdlm {
namespace {

// Of the call that this thread is inside a function of a table for; functions nest where one makes a call of another
// context.
thread_local Cancellation *of_this_thread = nullptr;

class MayAsk {
public:
    explicit MayAsk(Cancellation *cancellation) : outer_(of_this_thread) { of_this_thread = cancellation; }
    ~MayAsk() { of_this_thread = outer_; }
    MayAsk(const MayAsk &) = delete;

private:
    Cancellation *outer_;
};

class TableComm final : public Comm {
public:
    explicit TableComm(const mdlm_comm_table &table) : t_(table) {}
    // In a child that fork made, the connection is the parent's.
    ~TableComm() override {
        if (t_.destroy == nullptr || made().another_process()) return;
        const CallersFloats floats;
        t_.destroy(t_.payload);
    }
    int32_t rank() const override { return t_.rank; }
    int32_t size() const override { return t_.size; }
    mdlm_memory_space memory_space() const override { return t_.memory_space; }

protected:
    void run_all_reduce(const void *send, void *recv, int64_t count, DType dtype, mdlm_reduce_op op,
                        const Timeout &timeout) override {
        call("all_reduce", timeout,
             [&] { return t_.all_reduce(t_.payload, send, recv, count, abi(dtype), op, timeout.ms, nullptr); });
    }
    void run_all_gather(const void *send, void *recv, int64_t count, DType dtype, const Timeout &timeout) override {
        call("all_gather", timeout,
             [&] { return t_.all_gather(t_.payload, send, recv, count, abi(dtype), timeout.ms, nullptr); });
    }
    void run_reduce_scatter(const void *send, void *recv, int64_t count, DType dtype, mdlm_reduce_op op,
                            const Timeout &timeout) override {
        call("reduce_scatter", timeout,
             [&] { return t_.reduce_scatter(t_.payload, send, recv, count, abi(dtype), op, timeout.ms, nullptr); });
    }
    void run_abort() noexcept override {
        if (t_.abort == nullptr) return;
        const CallersFloats floats;
        t_.abort(t_.payload);
    }

private:
    static mdlm_dtype abi(DType dtype) { return static_cast<mdlm_dtype>(dtype); }

    // What the function says with mdlm_set_last_error becomes part of our line; a call that went well leaves the line
    // as it was. Nothing can end the function but itself: it may ask (asked_in_table), and who cancelled the call while
    // it ran hears of that afterwards.
    template <class F>
    void call(const char *name, const Timeout &timeout, F &&f) {
        char before[512];
        std::snprintf(before, sizeof before, "%s", last_error());
        set_last_error("");
        const mdlm_status status = [&] {
            const MayAsk may_ask(timeout.cancellation);
            const CallersFloats floats;
            return f();
        }();
        if (timeout.cancellation != nullptr &&
            (status != MDLM_OK ? timeout.cancellation->ask() : timeout.cancellation->ask_after(Timeout::between_asks)))
            timeout.cancellation->end("in %s of the communicator on rank %d of %d", name, t_.rank, t_.size);
        if (status != MDLM_OK)
            fail(MDLM_ERROR_COMM, "%s on rank %d of %d: the communicator's function returned %d (%s)%s%s", name,
                 t_.rank, t_.size, status, mdlm_status_name(status), last_error()[0] != 0 ? ": " : "", last_error());
        set_last_error(before);
    }

    mdlm_comm_table t_;
    Counted<Comm> counted_;
};

}  // namespace

bool asked_in_table() noexcept {
    if (of_this_thread == nullptr) return false;
    try {
        return of_this_thread->ask_after(Timeout::between_asks);
    } catch (...) {
        return true;  // the table's function is not ours to throw through; the call asks again when it has returned
    }
}

std::shared_ptr<Comm> make_table_comm(const mdlm_comm_table &table) { return std::make_shared<TableComm>(table); }

}  // namespace mdlm
