// SPDX-License-Identifier: Apache-2.0
#include "base/float_environment.hpp"

namespace mdlm {
namespace {

// The call that this thread is inside; calls nest where a function of the caller's makes another. Null in a function of
// the caller's, too: there the caller's environment is in force already.
thread_local CallFloats *innermost = nullptr;

}  // namespace

CallFloats::CallFloats() noexcept : callers_(FloatEnvironment::current()), outer_(innermost) {
    innermost = this;
    FloatEnvironment().install(callers_);
}

CallFloats::~CallFloats() {
    callers_.install(FloatEnvironment::current());
    innermost = outer_;
}

CallersFloats::CallersFloats() noexcept : call_(innermost) {
    if (call_ == nullptr) return;
    innermost = nullptr;
    call_->callers_.install(FloatEnvironment::current());
}

CallersFloats::~CallersFloats() {
    if (call_ == nullptr) return;
    innermost = call_;
    call_->callers_ = FloatEnvironment::current();
    FloatEnvironment().install(call_->callers_);
}

}  // namespace mdlm
