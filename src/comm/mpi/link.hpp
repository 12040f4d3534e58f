// SPDX-License-Identifier: Apache-2.0
// One process's end of a group over MPI: messages to and from all others, through buffers of its own, with a deadline.
//
// MPI's collectives are not used. A rank that makes another call than the others must be found out before its data is
// used, a rank that is late must be named, and a rank must hear of an abort while it waits; with messages that carry a
// header all three come for free, and two or four ranks exchange them as fast as MPI_Ialltoall does, which is made of
// the same messages.
#pragma once
#include <mpi.h>

#include <atomic>
#include <cstring>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "base/dtype.hpp"
#include "base/status.hpp"
#include "comm/mpi/wire.hpp"

namespace mdlm {

// MPI's errors as ours: MpiError, of status COMM.
struct MpiError : Error {
    using Error::Error;
};
void check(int code, const char *call);
// Between MPI_Init and MPI_Finalize.
bool mpi_is_running() noexcept;

class Link {
public:
    // Takes dup, a communicator that nobody else uses, when it does not throw. Nothing is sent or received before
    // start.
    explicit Link(MPI_Comm dup);
    void start();
    ~Link();
    Link(const Link &) = delete;

    int32_t rank() const { return rank_; }
    int32_t size() const { return size_; }

    // A collective. f makes it of the functions below and throws Error when it cannot; the link is then broken for
    // good.
    template <class F>
    mdlm_status collective(const Header &header, int64_t timeout_ms, F &&f) noexcept {
        mdlm_status status = MDLM_OK;
        {
            const std::lock_guard lock(mutex_);
            try {
                begin(header, timeout_ms);
                f();
                end();
            } catch (const Error &e) {
                status = failed(e);
            }
        }
        if (broken_ || abort_wanted_) abort();  // also for a thread that was refused the mutex
        return status;
    }

    // Bytes of data in one message. The same on all ranks.
    int64_t chunk() const { return chunk_; }
    // A stream's messages of one round: to each other rank its own, or to all the same. fill(rank, to) writes the data
    // and returns its bytes. A stream has room for two rounds between send and receive.
    template <class Fill>
    void send_each(Tag stream, int64_t round, Fill &&fill) {
        Slot &slot = ready(stream, round);
        for (int32_t p = 0; p < size_; ++p)
            if (p != rank_) send(slot, p, slot.out(p), fill(p, slot.out(p) + sizeof(Header)));
        expect(slot);
    }
    template <class Fill>
    void send_all(Tag stream, int64_t round, Fill &&fill) {
        Slot &slot = ready(stream, round);
        const int64_t bytes = fill(slot.out(rank_) + sizeof(Header));
        for (int32_t p = 0; p < size_; ++p)
            if (p != rank_) send(slot, p, slot.out(rank_), bytes);
        expect(slot);
    }
    // Waits for the others' messages of a round. from(rank) is their data until the round after the next is sent.
    void receive(Tag stream, int64_t round);
    const char *from(Tag stream, int64_t round, int32_t rank) { return slot(stream, round).in(rank) + sizeof(Header); }
    // What send_all filled, and where fill wrote it.
    const char *own(Tag stream, int64_t round) { return slot(stream, round).out(rank_) + sizeof(Header); }

    // From any thread. Told to the others at once where this thread may call MPI, else by the next call that may.
    void abort() noexcept;
    // Tells the others that nothing will come from here any more.
    void leave() noexcept;
    // After leave: helps what is unfinished along. True when nothing is, and the communicator has been freed.
    bool finish() noexcept;
    // Whether this thread may call MPI, as far as we know.
    bool may_call_mpi() const noexcept;
    bool has_left() const { return has_left_; }
    bool is_finished() const { return comm_ == MPI_COMM_NULL; }

private:
    struct Slot {
        Tag tag;
        int64_t round;
        int64_t stride;
        int32_t size;
        std::unique_ptr<char[]> memory;
        std::vector<MPI_Request> sends, receives;
        char *out(int32_t p) { return memory.get() + p * stride; }
        char *in(int32_t p) { return memory.get() + (size + p) * stride; }
    };
    struct Peer {
        bool left = false;
        int64_t completed = 0;
        char reason[sizeof(Notice::reason)] = "";  // why it left, when that was not of its own accord
    };

    void begin(const Header &header, int64_t timeout_ms);
    void end();
    mdlm_status failed(const Error &e) noexcept;
    Slot &slot(Tag stream, int64_t round) {
        return slots_[static_cast<size_t>((stream == tag_first ? 0 : 2) + round % 2)];
    }
    Slot &ready(Tag stream, int64_t round);
    void send(Slot &slot, int32_t to, char *message, int64_t bytes);
    void expect(Slot &slot);
    void wait(std::vector<MPI_Request> &requests);
    void miss(int32_t peer);
    bool test(std::vector<MPI_Request> &requests);
    void compare(Slot &slot);
    void listen();
    void hear();
    void post_notice(Notice &notice, std::vector<MPI_Request> &requests, Notice::Kind kind) noexcept;
    void drain();
    [[noreturn]] void refuse() { fail(MDLM_ERROR_COMM, "%s", reason_); }

    MPI_Comm comm_;
    int32_t rank_, size_;
    int64_t chunk_ = 0;
    int thread_level_ = 0;
    std::vector<Slot> slots_;
    std::vector<Peer> peers_;
    std::vector<int64_t> received_;  // bytes of the messages that are being waited for

    Header header_{};  // of the collective that runs
    int64_t calls_ = 0, completed_ = 0, timeout_ms_ = 0;
    std::atomic<bool> abort_wanted_{false}, broken_{false};
    bool started_ = false, has_left_ = false;
    bool notified_ = false;  // the others know why it is broken
    char reason_[sizeof(Notice::reason)] = "";

    std::mutex mutex_;                     // of all MPI calls: a thread that aborts may not come between
    std::atomic<std::thread::id> caller_;  // the thread that last made a collective

    Notice heard_{}, abort_notice_{}, left_notice_{};
    MPI_Request hearing_ = MPI_REQUEST_NULL, draining_ = MPI_REQUEST_NULL;
    std::vector<MPI_Request> abort_requests_, left_requests_;
};

}  // namespace mdlm
