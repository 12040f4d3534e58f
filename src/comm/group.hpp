// SPDX-License-Identifier: Apache-2.0
// The tensor-parallel group as a context's blocks see it: the communicator with the context's timeout, and agreement
// before anything runs.
#pragma once
#include <array>
#include <new>
#include <optional>
#include <string>
#include <vector>

#include "base/status.hpp"
#include "comm/comm.hpp"

namespace mdlm {

// What a rank is about to do, as numbers with names. Of fixed size, so that any two calls can be compared.
struct Statement {
    struct Item {
        const char *name;
        mdlm_status status;  // of a difference
    };
    explicit Statement(const char *call) : call(call) {}
    void say(const char *name, mdlm_status status, int64_t value) {
        if (count == most) fail(MDLM_ERROR_INTERNAL, "%s: a statement of over %zu items", call, most);
        items[count] = {name, status}, values[count++] = value;
    }
    static constexpr size_t most = 24;
    const char *call;
    size_t count = 0;
    std::array<Item, most> items{};
    std::array<int64_t, most> values{};
};

// Two small buffers of the device, for what is in host memory and goes through a communicator for device memory.
class Staging {
public:
    static constexpr int64_t piece_bytes = 64 * 1024;  // of one rank
    virtual ~Staging() = default;
    virtual const void *send() const = 0;                                        // piece_bytes
    virtual void *recv() const = 0;                                              // piece_bytes for each rank
    virtual void copy_in(const void *host, int64_t bytes) = 0;                   // to send
    virtual void copy_out(void *host, int64_t offset, int64_t bytes) const = 0;  // from recv; waits for it
};

// What ranks compare and gather is in host memory. It goes through comm where that is for host memory, else through
// host_comm where there is one, else piece by piece through the staging buffers. Data of steps goes through comm.
class Group {
public:
    // staging: null where nothing needs it. cancellation: of whatever call runs; outlives the group. Null: nobody is
    // asked.
    Group(std::shared_ptr<Comm> comm, std::shared_ptr<Comm> host_comm, std::unique_ptr<Staging> staging,
          int64_t timeout_ms, Cancellation *cancellation = nullptr);
    ~Group();
    Group(const Group &) = delete;

    int64_t rank() const { return rank_; }
    int64_t size() const { return size_; }
    void all_reduce(const void *send, void *recv, int64_t count, DType dtype) {
        comm_->all_reduce(send, recv, count, dtype, MDLM_REDUCE_SUM, timeout());
    }
    void all_gather(const void *send, void *recv, int64_t count, DType dtype) {
        comm_->all_gather(send, recv, count, dtype, timeout());
    }
    void reduce_scatter(const void *send, void *recv, int64_t count, DType dtype) {
        comm_->reduce_scatter(send, recv, count, dtype, MDLM_REDUCE_SUM, timeout());
    }
    // All ranks' elements, in rank order: to has size() * count of them. Host memory, done on return.
    void gather_host(const void *mine, void *to, int64_t count, DType dtype) {
        gather_host(mine, to, count, dtype, timeout());
    }

    // The beginning of a call of the whole group. check looks at this rank's arguments, prepares what can fail, and
    // says in the statement what it will do. Returns when all ranks are ready to do the same; otherwise every rank
    // throws, and all can go on. Allocates nothing.
    template <class Check>
    void together(Statement &statement, Check &&check) {
        std::optional<Error> failed;
        try {
            check();
        } catch (const Error &e) {
            failed = e;
        } catch (const std::bad_alloc &) {
            failed = Error(MDLM_ERROR_MEMORY, "out of host memory");
        } catch (const std::exception &e) {
            failed = Error(MDLM_ERROR_INTERNAL, e.what());
        }
        if (size_ > 1) agree(statement, failed ? &*failed : nullptr);
        if (failed) throw *failed;
    }
    // The same for texts, of which all ranks have equally many: the first that differs is named with what ranks have
    // there. Allocates nothing: a rank that failed between two rounds would leave the others waiting.
    struct Text {
        std::string name, value;
    };
    void compare(const std::vector<Text> &texts, mdlm_status status);
    // Numbers what the group has agreed on, alike on all ranks.
    int64_t next_number() { return ++numbers_; }
    // Runs what all have agreed on. A failure inside leaves the others where this rank will never come, so the group
    // ends.
    template <class F>
    void run(F &&f) {
        try {
            f();
        } catch (...) {
            if (size_ > 1) abort();
            throw;
        }
    }

private:
    struct Record;
    Timeout timeout() const { return {timeout_ms_, cancellation_}; }
    void agree(const Statement &mine, const Error *failed);
    void refuse_cancelled(const Record &own) noexcept;
    void gather_host(const void *mine, void *to, int64_t count, DType dtype, const Timeout &timeout);
    void gather_staged(const void *mine, void *to, int64_t bytes, DType dtype, const Timeout &timeout);
    void gather_bytes(const void *mine, void *to, int64_t bytes) { gather_host(mine, to, bytes / 4, DType::f32); }
    void abort() noexcept;
    int64_t differs(uint64_t digest);

    std::shared_ptr<Comm> comm_, host_comm_;  // host_comm_ may be null
    std::unique_ptr<Staging> staging_;
    int64_t timeout_ms_;
    Cancellation *cancellation_;
    int64_t rank_, size_, numbers_ = 0;
    std::unique_ptr<Record[]> records_;  // one for each rank, and this rank's
};

}  // namespace mdlm
