// SPDX-License-Identifier: Apache-2.0
// Handles: children keep their parents alive, calls on one context exclude each other, destroy never waits.
#pragma once
#include <atomic>
#include <cstring>
#include <memory>
#include <mutex>
#include <thread>

#include "api/guard.hpp"
#include "base/made_in.hpp"

namespace mdlm {

struct Handle;

// Shared by a context and all that was made from it; outlives the last of them.
struct Gate {
    const MadeIn made;
    std::atomic<pid_t> destroying{0};  // a child that fork made: see destroy_inherited
    std::mutex mutex;
    bool busy = false;          // a call is inside
    Handle *waiting = nullptr;  // handles whose destroy came while busy
    char last_error[512] = "";
};

struct Handle {
    Handle(std::shared_ptr<Gate> gate, Handle *parent) : gate(std::move(gate)), parent(parent) {}
    virtual ~Handle() = default;
    Handle(const Handle &) = delete;

    std::shared_ptr<Gate> gate;
    Handle *parent;
    int references = 1;  // the caller's, and one for each child; changed only inside a call
    Handle *next_waiting = nullptr;
};

// A child that is complete takes its reference on its parent; one whose construction failed never had it.
inline void join(Handle &child) noexcept { ++child.parent->references; }

// Drops one reference; the last one frees the handle and drops its parent's. Needs the gate to be held.
inline void release(Handle *h) noexcept {
    while (h != nullptr && --h->references == 0) {
        Handle *parent = h->parent;
        delete h;
        h = parent;
    }
}

// Lets the next call in, after freeing what was destroyed meanwhile.
inline void leave(Gate &gate) noexcept {
    for (;;) {
        Handle *h = nullptr;
        {
            const std::lock_guard lock(gate.mutex);
            h = gate.waiting;
            if (h == nullptr) {
                gate.busy = false;
                return;
            }
            gate.waiting = h->next_waiting;
        }
        release(h);
    }
}

// One call on a handle's context: BUSY if another is inside. f must not touch the handle's gate.
template <class F>
mdlm_status call(const Handle *handle, const char *name, F &&f) noexcept {
    if (handle == nullptr) return guard([&] { fail(MDLM_ERROR_ARGUMENT, "%s is NULL", name); });
    const std::shared_ptr<Gate> gate = handle->gate;  // the handle may be destroyed from another thread meanwhile
    if (gate->made.another_process()) return guard([&] { gate->made.check(name); });
    {
        const std::lock_guard lock(gate->mutex);
        if (gate->busy) {
            set_last_error("context: another call on it is running (MDLM_ERROR_BUSY)");
            return MDLM_ERROR_BUSY;
        }
        gate->busy = true;
    }
    const mdlm_status status = guard(std::forward<F>(f));
    if (status != MDLM_OK) {
        const std::lock_guard lock(gate->mutex);
        std::memcpy(gate->last_error, last_error(), std::strlen(last_error()) + 1);
    }
    leave(*gate);
    return status;
}

// In a child that fork made. A thread that fork left behind may have been inside a call, and then nothing here is to be
// relied on, or may have held the mutex; so threads of the child exclude each other by its number instead.
inline void destroy_inherited(Gate &gate, Handle *h) noexcept {
    if (gate.busy) return;
    const pid_t own = getpid();
    for (pid_t seen = gate.destroying.load(); seen == own || !gate.destroying.compare_exchange_weak(seen, own);
         seen = gate.destroying.load())
        std::this_thread::yield();
    release(h);
    gate.destroying.store(0);
}

inline void destroy(Handle *h) noexcept {
    if (h == nullptr) return;
    const std::shared_ptr<Gate> gate = h->gate;
    if (gate->made.another_process()) return destroy_inherited(*gate, h);
    {
        const std::lock_guard lock(gate->mutex);
        if (gate->busy) {
            h->next_waiting = gate->waiting;
            gate->waiting = h;
            return;
        }
        gate->busy = true;
    }
    release(h);
    leave(*gate);
}

}  // namespace mdlm
