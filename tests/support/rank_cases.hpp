// SPDX-License-Identifier: Apache-2.0
// Cases of rank code that hold for every communicator, whatever connects the ranks. Each returns "" or what is wrong on
// this rank.
#pragma once
#include <string>

#include "mdlm/mdlm.h"

namespace mdlm_test {

// Every collective, dtype and operation; counts from 0; in place; bits equal on all ranks and to sums in rank order.
std::string collectives(mdlm_comm *comm, int rank, int size);

}  // namespace mdlm_test
