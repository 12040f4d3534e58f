// SPDX-License-Identifier: Apache-2.0
#include "rank.hpp"

#include <algorithm>

#include "../text.hpp"

namespace mdlm::tools {
namespace {

// A rank may wait for one that measures something long.
constexpr int64_t wait_ms = 24 * 3600 * 1000;

void must(mdlm_status status) {
    if (status != MDLM_OK) bad("%s: %s", mdlm_status_name(status), mdlm_last_error());
}

}  // namespace

void Rank::meet() const { largest(0); }

double Rank::largest(double mine) const {
    if (comm != nullptr) must(mdlm_comm_all_reduce(comm, &mine, &mine, 1, MDLM_DTYPE_F64, MDLM_REDUCE_MAX, wait_ms));
    return mine;
}

std::string Rank::of_first(const std::string &mine) const {
    if (comm == nullptr) return mine;
    const auto length = static_cast<size_t>(largest(leads() ? static_cast<double>(mine.size()) : 0));
    const size_t part = (length + 4) / 4 * 4;
    std::vector<char> send(part), all(part * static_cast<size_t>(size));
    if (leads()) std::copy(mine.begin(), mine.end(), send.begin());
    must(mdlm_comm_all_gather(comm, send.data(), all.data(), static_cast<int64_t>(part / 4), MDLM_DTYPE_F32, wait_ms));
    return {all.data(), length};
}

std::vector<double> Rank::gather(const std::vector<double> &mine) const {
    if (comm == nullptr) return mine;
    std::vector<double> all(mine.size() * static_cast<size_t>(size));
    must(mdlm_comm_all_gather(comm, mine.data(), all.data(), static_cast<int64_t>(mine.size()), MDLM_DTYPE_F64,
                              wait_ms));
    return all;
}

}  // namespace mdlm::tools
