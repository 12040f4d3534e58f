// SPDX-License-Identifier: Apache-2.0
// Threads that run numbered tasks. How sums are cut into tasks depends on shapes only, so that bits do not depend on
// the threads.
#pragma once
#include <cstdint>
#include <memory>
#include <type_traits>

#include "mdlm/mdlm.h"

namespace mdlm {

class Pool {
public:
    virtual ~Pool() = default;
    virtual int32_t size() const = 0;
    // Calls body(index, worker) for every index in [0, count); returns when all are done. worker < size(), unique among
    // running tasks. body must not throw. Allocates nothing. Fails where a caller's pool did not do that; body was then
    // called for no wrong number.
    template <class Body>
    void parallel_for(int64_t count, Body &&body) {
        using B = std::remove_reference_t<Body>;
        run(
            count, [](void *b, int64_t i, int32_t w) { (*static_cast<B *>(b))(i, w); },
            const_cast<std::remove_const_t<B> *>(&body));
    }

protected:
    virtual void run(int64_t count, void (*task)(void *, int64_t, int32_t), void *argument) = 0;
};

// threads = 0: as many as this process may use. Throws Error(MDLM_ERROR_THREAD) when one cannot be made; none is left
// behind then.
std::unique_ptr<Pool> make_own_pool(int32_t threads);
// Believes nothing: a task with a wrong number is not run, and parallel_for() then fails with CALLBACK.
std::unique_ptr<Pool> make_caller_pool(const mdlm_threadpool &pool);

}  // namespace mdlm
