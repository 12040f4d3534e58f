// SPDX-License-Identifier: Apache-2.0
// A build without oneDNN makes no calls to it.
#include "fault/inject.hpp"

int64_t mdlm_test::inject::dnnl_calls() { return 0; }
bool mdlm_test::inject::have_dnnl() { return false; }
