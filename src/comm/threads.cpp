// SPDX-License-Identifier: Apache-2.0
// A group of threads in one process. Ranks post their buffers, wait for each other, work on each other's memory, and
// wait again.
#include <algorithm>
#include <cstring>
#include <vector>

#include "base/cores.hpp"
#include "base/counted.hpp"
#include "base/status.hpp"
#include "comm/barrier.hpp"
#include "comm/comm.hpp"
#include "comm/reduce.hpp"

namespace mdlm {
namespace {

enum class Kind { all_reduce, all_gather, reduce_scatter };
const char *text_of(Kind k) {
    return k == Kind::all_reduce ? "all_reduce" : k == Kind::all_gather ? "all_gather" : "reduce_scatter";
}

constexpr int64_t chunk = 16384;  // elements between two looks at whether the group is broken

struct Posted {
    Kind kind = Kind::all_reduce;
    const void *send = nullptr;
    void *recv = nullptr;
    int64_t count = 0;
    DType dtype = DType::f32;
    mdlm_reduce_op op = MDLM_REDUCE_SUM;
};

class ThreadGroup : public Barrier<> {
public:
    explicit ThreadGroup(int32_t size) : Barrier(size, size <= usable_cores()), posted_(static_cast<size_t>(size)) {}
    Posted &posted(int32_t rank) { return posted_[static_cast<size_t>(rank)]; }

private:
    std::vector<Posted> posted_;
};

class ThreadComm final : public Comm {
public:
    ThreadComm(std::shared_ptr<ThreadGroup> group, int32_t rank)
        : group_(std::move(group)), rank_(rank), parts_(static_cast<size_t>(group_->size())) {}
    // In a child that fork made, the others are the parent's.
    ~ThreadComm() override {
        if (!made().another_process()) group_->abort("rank %d has left the group", rank_, 0, 0);
    }
    int32_t rank() const override { return rank_; }
    int32_t size() const override { return group_->size(); }

protected:
    void run_all_reduce(const void *send, void *recv, int64_t count, DType dtype, mdlm_reduce_op op,
                        const Timeout &timeout) override {
        post(Kind::all_reduce, send, recv, count, dtype, op, timeout);
        // Every rank sums one part and hands it to all. Nobody else reads or writes that part, so in place is as good.
        const int64_t begin = count * rank_ / size(), end = count * (rank_ + 1) / size(), bytes = size_of(dtype);
        work(begin, end, [&](int64_t at, int64_t n) {
            sum(dtype, op, at, n, static_cast<char *>(recv) + at * bytes);
            for (int32_t r = 0; r < size(); ++r)
                if (r != rank_)
                    std::memcpy(static_cast<char *>(group_->posted(r).recv) + at * bytes,
                                static_cast<char *>(recv) + at * bytes, static_cast<size_t>(n * bytes));
        });
        group_->arrive_and_wait(rank_, timeout);
    }
    void run_all_gather(const void *send, void *recv, int64_t count, DType dtype, const Timeout &timeout) override {
        post(Kind::all_gather, send, recv, count, dtype, MDLM_REDUCE_SUM, timeout);
        const int64_t bytes = size_of(dtype);
        work(0, count, [&](int64_t at, int64_t n) {
            for (int32_t r = 0; r < size(); ++r)
                std::memcpy(static_cast<char *>(recv) + (r * count + at) * bytes,
                            static_cast<const char *>(group_->posted(r).send) + at * bytes,
                            static_cast<size_t>(n * bytes));
        });
        group_->arrive_and_wait(rank_, timeout);
    }
    void run_reduce_scatter(const void *send, void *recv, int64_t count, DType dtype, mdlm_reduce_op op,
                            const Timeout &timeout) override {
        post(Kind::reduce_scatter, send, recv, count, dtype, op, timeout);
        work(0, count, [&](int64_t at, int64_t n) {
            sum(dtype, op, rank_ * count + at, n, static_cast<char *>(recv) + at * size_of(dtype));
        });
        group_->arrive_and_wait(rank_, timeout);
    }
    void run_abort() noexcept override { group_->abort("rank %d aborted the group", rank_, 0, 0); }

private:
    Counted<Comm> counted_;
    // Shows the buffers, meets the others, and finds that all want the same.
    void post(Kind kind, const void *send, void *recv, int64_t count, DType dtype, mdlm_reduce_op op,
              const Timeout &timeout) {
        Posted &mine = group_->posted(rank_);
        mine.kind = kind, mine.send = send, mine.recv = recv, mine.count = count, mine.dtype = dtype, mine.op = op;
        group_->arrive_and_wait(rank_, timeout);
        const Posted &first = group_->posted(0);
        for (int32_t r = 1; r < size(); ++r) {
            const Posted &p = group_->posted(r);
            if (p.kind == first.kind && p.count == first.count && p.dtype == first.dtype && p.op == first.op) continue;
            // All ranks come to the same conclusion, and nobody has touched a buffer.
            const auto max = [](const Posted &q) { return q.op == MDLM_REDUCE_MAX ? " (max)" : ""; };
            fail(MDLM_ERROR_COMM, "ranks 0 and %d do not make the same call: %s%s of %lld %s and %s%s of %lld %s", r,
                 text_of(first.kind), max(first), (long long)first.count, name_of(first.dtype), text_of(p.kind), max(p),
                 (long long)p.count, name_of(p.dtype));
        }
    }

    template <class F>
    void work(int64_t begin, int64_t end, F &&f) {
        if (!group_->enter()) group_->refuse();
        for (int64_t at = begin; at < end && !group_->broken(); at += chunk) f(at, std::min(chunk, end - at));
        group_->leave();
    }

    void sum(DType dtype, mdlm_reduce_op op, int64_t at, int64_t n, void *to) {
        for (int32_t r = 0; r < size(); ++r)
            parts_[static_cast<size_t>(r)] = static_cast<const char *>(group_->posted(r).send) + at * size_of(dtype);
        reduce_ranks(dtype, op, parts_.data(), size(), n, to);
    }

    std::shared_ptr<ThreadGroup> group_;
    int32_t rank_;
    std::vector<const void *> parts_;
};

}  // namespace

std::vector<std::shared_ptr<Comm>> make_thread_comms(int32_t size) {
    // In a child that fork made, ranks that wait are not there, and the end of what they wait on would wait for them.
    const std::shared_ptr<ThreadGroup> group(new ThreadGroup(size), [made = MadeIn()](ThreadGroup *r) {
        if (!made.another_process()) delete r;
    });
    std::vector<std::shared_ptr<Comm>> comms;
    for (int32_t r = 0; r < size; ++r) comms.push_back(std::make_shared<ThreadComm>(group, r));
    return comms;
}

}  // namespace mdlm
