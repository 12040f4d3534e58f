// SPDX-License-Identifier: Apache-2.0
// The planner on abstract chains.
#include <algorithm>

#include "api/guard.hpp"
#include "api/text.hpp"
#include "planner/chain.hpp"

namespace {

mdlm::planner::Chain chain_of(const char *text, size_t length, const char *buf, size_t cap) {
    mdlm::not_null(text, "text");
    if (cap != 0) mdlm::not_null(buf, "buf");
    return mdlm::planner::read_chain({text, length});
}

}  // namespace

mdlm_status mdlm_chain_solve(const char *text, size_t length, uint64_t budget_bytes, int64_t label_cap, char *buf,
                             size_t cap, size_t *out_len) {
    return mdlm::guard([&] {
        const mdlm::planner::Chain chain = chain_of(text, length, buf, cap);
        const auto budget = static_cast<int64_t>(std::min(budget_bytes, uint64_t{INT64_MAX}));  // no plan needs more
        mdlm::write_text(to_json(chain, solve(chain, budget, label_cap)), buf, cap, out_len);
    });
}

mdlm_status mdlm_chain_frontier(const char *text, size_t length, int64_t label_cap, char *buf, size_t cap,
                                size_t *out_len) {
    return mdlm::guard([&] {
        const mdlm::planner::Chain chain = chain_of(text, length, buf, cap);
        mdlm::write_text(to_json(chain, frontier(chain, label_cap)), buf, cap, out_len);
    });
}
