// SPDX-License-Identifier: Apache-2.0
// pthread_create of the test program, found by libstdc++ before libc's: fails when told to.
#include <dlfcn.h>
#include <pthread.h>

#include <cerrno>

#include "fault/inject.hpp"

extern "C" int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*start)(void *),
                              void *argument) {
    using Function = int (*)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    static const auto real = reinterpret_cast<Function>(dlsym(RTLD_NEXT, "pthread_create"));
    if (mdlm_test::inject::inside_dnnl == 0 && mdlm_test::inject::strikes(mdlm_test::Fault::thread)) return EAGAIN;
    return real(thread, attributes, start, argument);
}
