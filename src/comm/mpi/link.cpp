// SPDX-License-Identifier: Apache-2.0
#include "comm/mpi/link.hpp"

#include <algorithm>
#include <cstdio>

#include "comm/mpi/backoff.hpp"

namespace mdlm {

namespace {
constexpr int64_t most_chunk = 1 << 18, least_chunk = 1 << 14, most_memory = 32 << 20;
}

void check(int code, const char *call) {
    if (code == MPI_SUCCESS) return;
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    if (MPI_Error_string(code, text, &length) != MPI_SUCCESS) text[0] = 0;
    char line[sizeof text + 64];
    std::snprintf(line, sizeof line, "%.40s returned %d: %s", call, code, text);
    throw MpiError(MDLM_ERROR_COMM, line);
}

bool mpi_is_running() noexcept {
    int initialised = 0, finalised = 0;
    return MPI_Initialized(&initialised) == MPI_SUCCESS && initialised && MPI_Finalized(&finalised) == MPI_SUCCESS &&
           !finalised;
}

Link::Link(MPI_Comm dup) : comm_(dup), caller_(std::this_thread::get_id()) {
    check(MPI_Comm_rank(dup, &rank_), "MPI_Comm_rank");
    check(MPI_Comm_size(dup, &size_), "MPI_Comm_size");
    check(MPI_Query_thread(&thread_level_), "MPI_Query_thread");
    // Two streams of two rounds, out and in for every rank. Pages that no message reaches are never touched.
    chunk_ = std::clamp(most_memory / (8 * int64_t{size_}) / 64 * 64, least_chunk, most_chunk);
    const auto ranks = static_cast<size_t>(size_);
    const int64_t stride = chunk_ + static_cast<int64_t>(sizeof(Header));
    for (const Tag tag : {tag_first, tag_first, tag_second, tag_second}) {
        slots_.push_back({tag, 0, stride, size_, nullptr, std::vector<MPI_Request>(ranks, MPI_REQUEST_NULL),
                          std::vector<MPI_Request>(ranks, MPI_REQUEST_NULL)});
        slots_.back().memory.reset(new char[2 * ranks * static_cast<size_t>(stride)]);
    }
    peers_.resize(ranks);
    received_.resize(ranks);
    abort_requests_.assign(ranks, MPI_REQUEST_NULL);
    left_requests_.assign(ranks, MPI_REQUEST_NULL);
}

Link::~Link() = default;

void Link::begin(const Header &header, int64_t timeout_ms) {
    if (!mpi_is_running())
        fail(MDLM_ERROR_STATE, "MPI was finalized: expected the communicator to be destroyed before");
    if (thread_level_ < MPI_THREAD_SERIALIZED) {
        int is_main = 0;
        check(MPI_Is_thread_main(&is_main), "MPI_Is_thread_main");
        if (!is_main)
            fail(MDLM_ERROR_STATE,
                 "this is not the thread that initialised MPI: expected that one, or MPI_THREAD_SERIALIZED");
    }
    if (has_left_) fail(MDLM_ERROR_STATE, "MPI was finalized: expected the communicator to be destroyed before");
    caller_ = std::this_thread::get_id();
    header_ = header;
    header_.call = ++calls_;
    timeout_ms_ = timeout_ms;
    hear();
    if (broken_) refuse();
    for (int32_t p = 0; p < size_; ++p) miss(p);
}

void Link::end() {
    // What MPI has not sent would wait for this rank's next call, and the others for it.
    for (Slot &s : slots_) wait(s.sends);
    completed_ = calls_;
}

mdlm_status Link::failed(const Error &e) noexcept {
    // What happened to this rank alone is told with its number; other lines have one.
    const bool alone = e.status() != MDLM_ERROR_COMM || dynamic_cast<const MpiError *>(&e) != nullptr;
    if (!broken_ && alone) std::snprintf(reason_, sizeof reason_, "rank %d: %.200s", rank_, e.what());
    else if (!broken_) std::snprintf(reason_, sizeof reason_, "%.*s", static_cast<int>(sizeof reason_) - 1, e.what());
    broken_ = true;
    mdlm_set_last_error(e.what());
    return e.status();
}

// A slot is used again when its messages of two rounds ago, or of the last call, are out.
Link::Slot &Link::ready(Tag stream, int64_t round) {
    Slot &s = slot(stream, round);
    wait(s.sends);
    s.round = round;
    return s;
}

void Link::send(Slot &slot, int32_t to, char *message, int64_t bytes) {
    header_.round = slot.round;
    std::memcpy(message, &header_, sizeof header_);
    check(MPI_Isend(message, static_cast<int>(bytes) + static_cast<int>(sizeof(Header)), MPI_BYTE, to, slot.tag, comm_,
                    &slot.sends[static_cast<size_t>(to)]),
          "MPI_Isend");
}

void Link::expect(Slot &slot) {
    for (int32_t p = 0; p < size_; ++p)
        if (p != rank_)
            check(MPI_Irecv(slot.in(p), static_cast<int>(slot.stride), MPI_BYTE, p, slot.tag, comm_,
                            &slot.receives[static_cast<size_t>(p)]),
                  "MPI_Irecv");
}

void Link::receive(Tag stream, int64_t round) {
    Slot &s = slot(stream, round);
    wait(s.receives);
    compare(s);
}

static void describe(const Header &h, char (&text)[64]) {
    const char *const op = h.kind == Kind::all_gather ? "" : h.op == MDLM_REDUCE_SUM ? " SUM" : " MAX";
    std::snprintf(text, sizeof text, "%s%s of %lld %s", text_of(h.kind), op, (long long)h.count,
                  name_of(static_cast<DType>(h.dtype)));
}

void Link::compare(Slot &slot) {
    const auto of = [&](int32_t p) {
        Header h = header_;
        if (p != rank_) std::memcpy(&h, slot.in(p), sizeof h);
        return h;
    };
    const Header first = of(0);
    for (int32_t p = 1; p < size_; ++p) {
        const Header h = of(p);
        if (h.kind == first.kind && h.count == first.count && h.dtype == first.dtype && h.op == first.op &&
            h.call == first.call)
            continue;
        // All come to the same conclusion, from the same headers or from the notice of the first that does.
        char texts[2][64];
        describe(first, texts[0]);
        describe(h, texts[1]);
        fail(MDLM_ERROR_COMM, "ranks 0 and %d do not make the same call: %s and %s", p, texts[0], texts[1]);
    }
}

bool Link::test(std::vector<MPI_Request> &requests) {
    bool all = true;
    for (MPI_Request &r : requests) {
        if (r == MPI_REQUEST_NULL) continue;
        int done = 0;
        check(MPI_Test(&r, &done, MPI_STATUS_IGNORE), "MPI_Test");
        if (!done) all = false;
    }
    return all;
}

// Fails when the peer left before this collective. Who left after it has sent and received all of it.
void Link::miss(int32_t peer) {
    const Peer &p = peers_[static_cast<size_t>(peer)];
    if (!p.left || p.completed >= calls_) return;
    notified_ = true;  // by the peer, to everyone
    if (p.reason[0] != 0) fail(MDLM_ERROR_COMM, "%s", p.reason);
    fail(MDLM_ERROR_COMM, "rank %d has left the group", peer);
}

void Link::wait(std::vector<MPI_Request> &requests) {
    if (test(requests)) return;
    Backoff backoff(timeout_ms_);
    for (int64_t looks = 1; !test(requests); ++looks) {
        if (looks % 8 == 0) {
            hear();
            for (size_t p = 0; p < peers_.size() && !broken_; ++p)
                if (requests[p] != MPI_REQUEST_NULL) miss(static_cast<int32_t>(p));
            if (broken_) {
                if (test(requests)) return;
                refuse();
            }
            if (mdlm_comm_cancelled() != 0) fail(MDLM_ERROR_CANCELLED, "it was cancelled while it waited");
        }
        if (!backoff.wait())
            for (size_t p = 0; p < peers_.size(); ++p)
                if (requests[p] != MPI_REQUEST_NULL)
                    fail(MDLM_ERROR_COMM, "rank %d waited %lld ms for rank %zu, which did not come", rank_,
                         (long long)timeout_ms_, p);
    }
}

}  // namespace mdlm
