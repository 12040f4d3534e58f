// SPDX-License-Identifier: Apache-2.0
// The wall at the boundary: every exported function that can fail is one call of guard, and no exception passes it.
#pragma once
#include <exception>
#include <new>
#include <utility>

#include "base/float_environment.hpp"
#include "base/status.hpp"

namespace mdlm {

// Runs f in the library's floating-point environment; a failure becomes a status and this thread's error line.
// Reporting allocates nothing.
template <class F>
mdlm_status guard(F &&f) noexcept {
    const CallFloats floats;
    try {
        std::forward<F>(f)();
        return MDLM_OK;
    } catch (const Error &e) {
        set_last_error(e.what());
        return e.status();
    } catch (const std::bad_alloc &) {
        set_last_error("out of host memory");
        return MDLM_ERROR_MEMORY;
    } catch (const std::exception &e) {
        set_last_error(e.what());
        return MDLM_ERROR_INTERNAL;
    } catch (...) {
        set_last_error("an exception of unknown type");
        return MDLM_ERROR_INTERNAL;
    }
}

// For arguments whose type is no struct with a size.
inline void not_null(const void *p, const char *name) {
    if (p == nullptr) fail(MDLM_ERROR_ARGUMENT, "%s is NULL", name);
}

}  // namespace mdlm
