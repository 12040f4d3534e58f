// SPDX-License-Identifier: Apache-2.0
// The planner on abstract chains.
#include <mdlm/chain.h>

#include <algorithm>

#include "api/guard.hpp"
#include "api/text.hpp"
#include "base/structs.hpp"
#include "planner/chain.hpp"

namespace {

mdlm::planner::Chain chain_of(const char *text, size_t length, const char *buf, size_t cap) {
    mdlm::not_null(text, "text");
    if (cap != 0) mdlm::not_null(buf, "buf");
    return mdlm::planner::read_chain({text, length});
}

mdlm_chain_options options_of(const mdlm_chain_options *given) {
    const mdlm_chain_options o =
        given != nullptr ? mdlm::copy_in(given, "options") : mdlm::defaults<mdlm_chain_options>();
    if (o.label_cap < 0)
        mdlm::fail(MDLM_ERROR_ARGUMENT, "options.label_cap = %lld: expected at least 0", (long long)o.label_cap);
    return o;
}

}  // namespace

mdlm_status mdlm_chain_solve(const char *text, size_t length, uint64_t budget_bytes, const mdlm_chain_options *options,
                             char *buf, size_t cap, size_t *out_len) {
    return mdlm::guard([&] {
        const mdlm::planner::Chain chain = chain_of(text, length, buf, cap);
        const mdlm_chain_options o = options_of(options);
        mdlm::Cancellation cancellation(o.cancelled, o.cancelled_payload, "mdlm_chain_solve");
        const auto budget = static_cast<int64_t>(std::min(budget_bytes, uint64_t{INT64_MAX}));  // no plan needs more
        mdlm::write_text(to_json(chain, solve(chain, budget, o.label_cap, &cancellation)), buf, cap, out_len);
    });
}

mdlm_status mdlm_chain_frontier(const char *text, size_t length, const mdlm_chain_options *options, char *buf,
                                size_t cap, size_t *out_len) {
    return mdlm::guard([&] {
        const mdlm::planner::Chain chain = chain_of(text, length, buf, cap);
        const mdlm_chain_options o = options_of(options);
        mdlm::Cancellation cancellation(o.cancelled, o.cancelled_payload, "mdlm_chain_frontier");
        mdlm::write_text(to_json(chain, frontier(chain, o.label_cap, true, &cancellation), &cancellation), buf, cap,
                         out_len);
    });
}
