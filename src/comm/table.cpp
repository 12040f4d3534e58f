// SPDX-License-Identifier: Apache-2.0
// The caller's communicator: a table of functions.
#include <cstdio>

#include "base/float_environment.hpp"
#include "base/status.hpp"
#include "comm/comm.hpp"

namespace mdlm {
namespace {

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

protected:
    void run_all_reduce(const void *send, void *recv, int64_t count, DType dtype, mdlm_reduce_op op,
                        int64_t timeout_ms) override {
        call("all_reduce",
             [&] { return t_.all_reduce(t_.payload, send, recv, count, abi(dtype), op, timeout_ms, nullptr); });
    }
    void run_all_gather(const void *send, void *recv, int64_t count, DType dtype, int64_t timeout_ms) override {
        call("all_gather",
             [&] { return t_.all_gather(t_.payload, send, recv, count, abi(dtype), timeout_ms, nullptr); });
    }
    void run_reduce_scatter(const void *send, void *recv, int64_t count, DType dtype, mdlm_reduce_op op,
                            int64_t timeout_ms) override {
        call("reduce_scatter",
             [&] { return t_.reduce_scatter(t_.payload, send, recv, count, abi(dtype), op, timeout_ms, nullptr); });
    }
    void run_abort() noexcept override {
        if (t_.abort == nullptr) return;
        const CallersFloats floats;
        t_.abort(t_.payload);
    }

private:
    static mdlm_dtype abi(DType dtype) { return static_cast<mdlm_dtype>(dtype); }

    // What the function says with mdlm_set_last_error becomes part of our line; a call that went well leaves the line
    // as it was.
    template <class F>
    void call(const char *name, F &&f) {
        char before[512];
        std::snprintf(before, sizeof before, "%s", last_error());
        set_last_error("");
        const mdlm_status status = [&] {
            const CallersFloats floats;
            return f();
        }();
        if (status != MDLM_OK)
            fail(MDLM_ERROR_COMM, "%s on rank %d of %d: the communicator's function returned %d (%s)%s%s", name,
                 t_.rank, t_.size, status, mdlm_status_name(status), last_error()[0] != 0 ? ": " : "", last_error());
        set_last_error(before);
    }

    mdlm_comm_table t_;
};

}  // namespace

std::shared_ptr<Comm> make_table_comm(const mdlm_comm_table &table) { return std::make_shared<TableComm>(table); }

}  // namespace mdlm
