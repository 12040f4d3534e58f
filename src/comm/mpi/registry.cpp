// SPDX-License-Identifier: Apache-2.0
#include "comm/mpi/registry.hpp"

#include <algorithm>
#include <chrono>

#include "base/made_in.hpp"

namespace mdlm {
namespace {

struct Registry {
    const MadeIn made;
    std::mutex mutex;
    std::vector<std::unique_ptr<Link>> live, retired;
    bool watching = false;
};

constexpr std::chrono::seconds finalize_timeout{2};  // with ranks that never say that they leave

// Never destroyed: MPI may write into a link's buffers until the process ends.
Registry &registry() {
    static Registry *const r = new Registry;
    return *r;
}

// Only links whose thread this is, unless all must go.
void sweep(Registry &r, bool all) noexcept {
    for (const auto &link : r.retired)
        if (!link->has_left() && (all || link->may_call_mpi())) link->leave();
    std::erase_if(r.retired, [&](const auto &link) {
        return link->has_left() && (all || link->may_call_mpi()) && link->finish();
    });
}

// MPI_Finalize's first act. Whoever forgot to destroy its communicator leaves the group here, so that the others' links
// can end too.
int on_finalize(MPI_Comm, int, void *, void *) {
    Registry &r = registry();
    const std::lock_guard lock(r.mutex);
    for (const auto &link : r.live) link->leave();
    const auto until = std::chrono::steady_clock::now() + finalize_timeout;
    for (;;) {
        sweep(r, true);
        bool all = r.retired.empty();
        for (const auto &link : r.live) all = link->finish() && all;
        if (all || std::chrono::steady_clock::now() >= until) return MPI_SUCCESS;
        std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
}

}  // namespace

Link *enroll(std::unique_ptr<Link> link) {
    Registry &r = registry();
    const std::lock_guard lock(r.mutex);
    r.retired.reserve(r.live.size() + r.retired.size() + 1);  // so that retire cannot fail
    r.live.push_back(std::move(link));
    return r.live.back().get();
}

void refuse_child() { registry().made.check("MPI"); }

void retire(Link *link) noexcept {
    Registry &r = registry();
    const std::lock_guard lock(r.mutex);
    const auto at = std::find_if(r.live.begin(), r.live.end(), [&](const auto &l) { return l.get() == link; });
    r.retired.push_back(std::move(*at));
    r.live.erase(at);
    if (mpi_is_running()) sweep(r, false);
    else std::erase_if(r.retired, [](const auto &l) { return l->is_finished(); });
}

void sweep() noexcept {
    Registry &r = registry();
    const std::lock_guard lock(r.mutex);
    sweep(r, false);
}

void watch_finalize() {
    Registry &r = registry();
    const std::lock_guard lock(r.mutex);
    if (r.watching) return;
    int key = MPI_KEYVAL_INVALID;
    check(MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, on_finalize, &key, nullptr), "MPI_Comm_create_keyval");
    check(MPI_Comm_set_attr(MPI_COMM_SELF, key, nullptr), "MPI_Comm_set_attr");
    check(MPI_Comm_free_keyval(&key), "MPI_Comm_free_keyval");
    r.watching = true;
}

}  // namespace mdlm
