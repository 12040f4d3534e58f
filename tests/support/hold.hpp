// SPDX-License-Identifier: Apache-2.0
// Checks for code that may run on any thread, where doctest's must not: they throw one line, which the caller brings
// home.
#pragma once
#include <stdexcept>
#include <string>

#include "mdlm/mdlm.h"

namespace mdlm_test {

inline void expect_ok(mdlm_status status, const char *call) {
    if (status != MDLM_OK)
        throw std::runtime_error(std::string(call) + ": " + mdlm_status_name(status) + ": " + mdlm_last_error());
}
inline void hold(bool yes, const std::string &what) {
    if (!yes) throw std::runtime_error(what);
}
template <class A, class B>
void expect_same(const std::string &what, const A &seen, const B &expected) {
    if (!(seen == expected))
        throw std::runtime_error(what + ": " + std::to_string(seen) + ", expected " + std::to_string(expected));
}

}  // namespace mdlm_test

#define OK(call) mdlm_test::expect_ok(call, #call)
