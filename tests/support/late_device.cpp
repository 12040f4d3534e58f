// SPDX-License-Identifier: Apache-2.0
#include "support/late_device.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/status.hpp"
#include "support/split_mix.hpp"

namespace mdlm_test {

using mdlm::Stream;

namespace {

// Shared with the events, which may outlive a wait.
struct Point {
    int64_t recorded = 0, passed = 0;  // how often
    int64_t ns = 0;
};

struct Work {
    std::function<void()> run;  // empty: only an event
    std::shared_ptr<Point> waits_for;
    int64_t ticket = 0;
    std::shared_ptr<Point> records;
    bool ready() const { return waits_for == nullptr || waits_for->passed >= ticket; }
};

size_t page() { return static_cast<size_t>(sysconf(_SC_PAGESIZE)); }
size_t pages(size_t bytes) { return (bytes + page() - 1) / page() * page(); }

}  // namespace

struct LateDevice::Queues {
    std::unique_ptr<mdlm::Device> inner;
    Random random;
    LateFaults faults;
    std::deque<Work> streams[2];
    std::map<char *, size_t> mapped;  // by first page
    bool open = false;
    int64_t done = 0, most_pending = 0, waits = 0, allocated = 0, pinned = 0, clock = 0;
    std::string failure;

    Queues(std::unique_ptr<mdlm::Device> d, uint64_t seed, LateFaults f)
        : inner(std::move(d)), random(seed), faults(f) {}

    int64_t pending() const { return static_cast<int64_t>(streams[0].size() + streams[1].size()); }
    void enqueue(Stream on, Work work) {
        streams[static_cast<int>(on)].push_back(std::move(work));
        most_pending = std::max(most_pending, pending());
    }
    void enqueue(Stream on, std::function<void()> run) {
        Work w;
        w.run = std::move(run);
        enqueue(on, std::move(w));
    }

    void protect(bool opened) {
        if (std::exchange(open, opened) == opened) return;
        for (const auto &[at, bytes] : mapped) mprotect(at, bytes, opened ? PROT_READ | PROT_WRITE : PROT_NONE);
    }

    // One piece of work of a stream that can go on, drawn.
    bool step() {
        const auto can = [&](int s) { return !streams[s].empty() && streams[s].front().ready(); };
        if (!can(0) && !can(1)) return false;
        const int s = can(0) && can(1) ? static_cast<int>(random.in(0, 1)) : can(1);
        Work work = std::move(streams[s].front());
        streams[s].pop_front();
        if (work.run && failure.empty()) {
            if (done++ == faults.fail_at) failure = "late device: work failed";
            else work.run();
        }
        if (work.records) {
            ++work.records->passed;
            work.records->ns = ++clock * 1000;
        }
        return true;
    }
    template <class Until>
    void run_until(Until &&until) {
        if (until()) return;
        ++waits;
        protect(true);
        while (!until() && step()) {
        }
        protect(false);
    }
    void finish() {
        run_until([&] { return pending() == 0; });
        if (pending() != 0) mdlm::fail(MDLM_ERROR_INTERNAL, "late device: streams wait for each other");
    }
    void throw_failure() const {
        if (!failure.empty()) mdlm::fail(MDLM_ERROR_DEVICE, "%s", failure.c_str());
    }
    // Runs at its place in the compute stream, and what is before it there.
    void at_once(std::function<void()> run) {
        auto point = std::make_shared<Point>();
        Work w;
        w.run = std::move(run), w.records = point;
        enqueue(Stream::compute, std::move(w));
        run_until([&] { return point->passed > 0; });
        throw_failure();
    }
};

namespace {

class LateEvents final : public mdlm::Events {
public:
    using Enqueue = std::function<void(Stream, Work)>;
    using Finish = std::function<void(const Point &, int64_t)>;
    LateEvents(int32_t count, const LateFaults &faults, Enqueue enqueue, Finish finish)
        : Events(count), faults_(faults), enqueue_(std::move(enqueue)), finish_(std::move(finish)) {
        for (int32_t i = 0; i < count; ++i) points_.push_back(std::make_shared<Point>());
    }
    void record(int32_t event, Stream on) override {
        ++at(event)->recorded;
        Work w;
        w.records = at(event);
        enqueue_(on, std::move(w));
    }
    void wait(int32_t event, Stream on) override {
        if (!(on == Stream::compute ? faults_.compute_waits : faults_.transfer_waits)) return;
        Work w;
        w.waits_for = at(event), w.ticket = at(event)->recorded;
        enqueue_(on, std::move(w));
    }
    void finish(int32_t event) override {
        if (faults_.host_waits) finish_(*at(event), at(event)->recorded);
    }
    int64_t ns(int32_t event) const override { return points_[static_cast<size_t>(event)]->ns; }

private:
    const std::shared_ptr<Point> &at(int32_t event) { return points_[static_cast<size_t>(event)]; }
    const LateFaults faults_;
    const Enqueue enqueue_;
    const Finish finish_;
    std::vector<std::shared_ptr<Point>> points_;
};

}  // namespace

LateDevice::LateDevice(std::unique_ptr<mdlm::Device> inner, uint64_t seed, LateFaults faults)
    : q_(std::make_unique<Queues>(std::move(inner), seed, faults)) {}
LateDevice::~LateDevice() = default;

mdlm::Traits LateDevice::traits() const {
    mdlm::Traits t = q_->inner->traits();
    t.asynchronous = true;
    return t;
}
void LateDevice::describe(char *line, size_t cap) const { q_->inner->describe(line, cap); }
int64_t LateDevice::alignment(mdlm::DType dtype) const { return q_->inner->alignment(dtype); }
std::shared_ptr<void> LateDevice::begin_shape() { return q_->inner->begin_shape(); }
void LateDevice::prepare(mdlm::Kernel kernel, const mdlm::KernelSize &size) { q_->inner->prepare(kernel, size); }

void LateDevice::launch(mdlm::Kernel kernel, const void *arguments) {
    const auto *begin = static_cast<const char *>(arguments);
    q_->enqueue(Stream::compute,
                [d = q_->inner.get(), kernel, a = std::vector<char>(begin, begin + mdlm::arguments_bytes(kernel))] {
                    d->launch(kernel, a.data());
                });
}

void *LateDevice::allocate(size_t bytes, size_t) {
    if (q_->faults.allocation >= 0 && q_->faults.allocation-- == 0) return nullptr;
    const size_t all = pages(bytes);
    // A page behind it that nobody may touch, ever.
    void *at = mmap(nullptr, all + page(), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) return nullptr;
    char *first = static_cast<char *>(at);
    mprotect(first, all, PROT_READ | PROT_WRITE);
    std::memset(first, 0xff, all);
    if (!q_->open) mprotect(first, all, PROT_NONE);
    q_->mapped[first] = all;
    return first + all - bytes;
}
void LateDevice::free(void *memory, size_t bytes, size_t) noexcept {
    const size_t all = pages(bytes);
    char *first = static_cast<char *>(memory) + bytes - all;
    q_->mapped.erase(first);
    munmap(first, all + page());
}
void *LateDevice::allocate_pinned(size_t bytes, size_t alignment) {
    if (q_->faults.allocation >= 0 && q_->faults.allocation-- == 0) return nullptr;
    ++q_->pinned;
    return mdlm::allocate_host(bytes, alignment);
}
void LateDevice::free_pinned(void *memory, size_t bytes, size_t alignment) noexcept {
    --q_->pinned;
    mdlm::free_host(memory, bytes, alignment);
}

void LateDevice::copy(void *to, const void *from, size_t bytes) {
    q_->enqueue(Stream::compute, [=] { std::memmove(to, from, bytes); });
}
void LateDevice::zero(void *memory, size_t bytes) {
    q_->enqueue(Stream::compute, [=] { std::memset(memory, 0, bytes); });
}
void LateDevice::transfer(Stream on, void *to, const void *from, size_t bytes) {
    q_->enqueue(on, [=] { std::memcpy(to, from, bytes); });
}
void LateDevice::upload(void *to, const void *host, size_t bytes) {
    q_->at_once([=] { std::memcpy(to, host, bytes); });
}
void LateDevice::download(void *host, const void *from, size_t bytes) {
    q_->at_once([=] { std::memcpy(host, from, bytes); });
}
void LateDevice::copy_any(void *to, const void *from, size_t bytes) {
    q_->at_once([=] { std::memmove(to, from, bytes); });
}

std::unique_ptr<mdlm::Events> LateDevice::make_events(int32_t count) {
    return std::make_unique<LateEvents>(
        count, q_->faults, [q = q_.get()](Stream on, Work w) { q->enqueue(on, std::move(w)); },
        [q = q_.get()](const Point &point, int64_t ticket) { q->run_until([&] { return point.passed >= ticket; }); });
}
void LateDevice::synchronize() {
    q_->finish();
    q_->throw_failure();
}
void LateDevice::check() { q_->throw_failure(); }

int64_t LateDevice::pending() const { return q_->pending(); }
int64_t LateDevice::done() const { return q_->done; }
int64_t LateDevice::most_pending() const { return q_->most_pending; }
int64_t LateDevice::waits() const { return q_->waits; }
int64_t LateDevice::allocations() const { return static_cast<int64_t>(q_->mapped.size()) + q_->pinned; }

}  // namespace mdlm_test
