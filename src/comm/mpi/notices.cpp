// SPDX-License-Identifier: Apache-2.0
// What a rank tells the others besides collectives: that the group was aborted, that it has left; and the end of a
// link.
#include <cstdio>

#include "comm/mpi/link.hpp"

namespace mdlm {

bool Link::may_call_mpi() const noexcept {
    return mpi_is_running() && (thread_level_ == MPI_THREAD_MULTIPLE || caller_.load() == std::this_thread::get_id());
}

void Link::start() {
    listen();
    started_ = true;
}

void Link::listen() {
    check(MPI_Irecv(&heard_, static_cast<int>(sizeof heard_), MPI_BYTE, MPI_ANY_SOURCE, tag_notice, comm_, &hearing_),
          "MPI_Irecv");
}

void Link::hear() {
    if (abort_wanted_ && !broken_) {
        std::snprintf(reason_, sizeof reason_, "rank %d aborted the group", rank_);
        broken_ = true;
    }
    for (;;) {
        int done = 0;
        MPI_Status status;
        check(MPI_Test(&hearing_, &done, &status), "MPI_Test");
        if (!done) return;
        if (heard_.kind == Notice::left) {
            Peer &p = peers_[static_cast<size_t>(status.MPI_SOURCE)];
            p.left = true, p.completed = heard_.completed;
            std::snprintf(p.reason, sizeof p.reason, "%.*s", static_cast<int>(sizeof p.reason) - 1, heard_.reason);
        } else if (!broken_) {
            std::snprintf(reason_, sizeof reason_, "%.*s", static_cast<int>(sizeof reason_) - 1, heard_.reason);
            broken_ = true;
            notified_ = true;  // its sender has told everyone
        }
        listen();
    }
}

void Link::post_notice(Notice &notice, std::vector<MPI_Request> &requests, Notice::Kind kind) noexcept {
    notice.kind = kind;
    notice.completed = completed_;
    std::memcpy(notice.reason, reason_, sizeof reason_);
    for (int32_t p = 0; p < size_; ++p) {
        if (p == rank_) continue;
        MPI_Request &r = requests[static_cast<size_t>(p)];
        // An error here cannot be told to anyone: the others will find out by waiting.
        if (MPI_Isend(&notice, static_cast<int>(sizeof notice), MPI_BYTE, p, tag_notice, comm_, &r) != MPI_SUCCESS)
            r = MPI_REQUEST_NULL;
    }
}

void Link::abort() noexcept {
    abort_wanted_ = true;
    if (!may_call_mpi()) return;
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (!lock) return;  // a collective runs, looks at abort_wanted_, and comes here
    if (!broken_) std::snprintf(reason_, sizeof reason_, "rank %d aborted the group", rank_);
    broken_ = true;
    if (notified_ || has_left_) return;
    notified_ = true;
    post_notice(abort_notice_, abort_requests_, Notice::aborted);
}

void Link::leave() noexcept {
    const std::lock_guard lock(mutex_);
    if (has_left_) return;
    has_left_ = true;
    if (!started_) return;
    if (abort_wanted_ && !notified_) {
        if (!broken_) std::snprintf(reason_, sizeof reason_, "rank %d aborted the group", rank_);
        broken_ = notified_ = true;
        post_notice(abort_notice_, abort_requests_, Notice::aborted);
    }
    post_notice(left_notice_, left_requests_, Notice::left);
    for (Slot &s : slots_)
        for (MPI_Request &r : s.receives)
            if (r != MPI_REQUEST_NULL) MPI_Cancel(&r);
}

// Takes messages that came after this rank had failed, since until then their sender's buffers are MPI's.
void Link::drain() {
    for (;;) {
        int done = 1;
        if (draining_ != MPI_REQUEST_NULL) check(MPI_Test(&draining_, &done, MPI_STATUS_IGNORE), "MPI_Test");
        if (!done) return;
        Slot *idle = nullptr;
        for (Slot &s : slots_)
            if (test(s.receives)) idle = &s;
        if (idle == nullptr) return;
        int found = 0;
        MPI_Status status;
        for (const Tag tag : {tag_first, tag_second}) {
            check(MPI_Iprobe(MPI_ANY_SOURCE, tag, comm_, &found, &status), "MPI_Iprobe");
            if (found) break;
        }
        if (!found) return;
        check(MPI_Irecv(idle->in(status.MPI_SOURCE), static_cast<int>(idle->stride), MPI_BYTE, status.MPI_SOURCE,
                        status.MPI_TAG, comm_, &draining_),
              "MPI_Irecv");
    }
}

bool Link::finish() noexcept {
    const std::lock_guard lock(mutex_);
    if (is_finished()) return true;
    try {
        if (!started_) return MPI_Comm_free(&comm_) == MPI_SUCCESS;
        hear();
        drain();
        bool done = draining_ == MPI_REQUEST_NULL && test(abort_requests_) && test(left_requests_);
        for (Slot &s : slots_) done = test(s.sends) && test(s.receives) && done;
        for (int32_t p = 0; p < size_; ++p) done = done && (p == rank_ || peers_[static_cast<size_t>(p)].left);
        if (!done) return false;
        // Everyone's last message has come, so none can arrive at another communicator that is given the same number.
        check(MPI_Cancel(&hearing_), "MPI_Cancel");
        check(MPI_Wait(&hearing_, MPI_STATUS_IGNORE), "MPI_Wait");
        return MPI_Comm_free(&comm_) == MPI_SUCCESS;
    } catch (const Error &) {
        return false;
    }
}

}  // namespace mdlm
