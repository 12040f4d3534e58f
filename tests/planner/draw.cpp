// SPDX-License-Identifier: Apache-2.0
#include "draw.hpp"

#include <doctest/doctest.h>

#include <cerrno>
#include <cstdlib>

#include "support/repro.hpp"

namespace planner_test {

using namespace mdlm::planner;

Chain draw_chain(Random &random, const Sizes &sizes) {
    for (int64_t layers = random.in(1, sizes.layers);; layers = std::max<int64_t>(layers - 1, 1)) {
        Chain c;
        // Few distinct numbers make ties; now and then no rule holds between f, b and s.
        const int64_t bytes = random.percent(50) ? sizes.bytes : std::max<int64_t>(sizes.bytes / 4, 1);
        const int64_t ns = random.percent(60) ? sizes.ns : std::max<int64_t>(sizes.ns / 4, 1);
        const bool lawless = random.percent(25), with_grad = random.percent(60);
        const bool with_roles = random.percent(25);
        const int64_t boundary = lawless ? 3 * bytes : bytes;
        c.in_flight = random.percent(60) ? 1 : random.in(1, sizes.in_flight);
        c.slab_apart = random.percent(15);
        c.fixed_bytes = random.percent(20) ? random.in(0, bytes) : 0;
        c.loss_bytes = random.in(0, 2 * bytes);
        c.input_bytes = random.in(0, boundary);
        c.max_unit_depth = random.in(0, sizes.depth);
        c.max_unit_layers = random.percent(40) ? 0 : random.in(0, sizes.layers);
        const int64_t types = random.in(1, sizes.types);
        for (int64_t t = 0; t < types; ++t) {
            LayerType l;
            l.name = std::string(1, static_cast<char>('a' + t));
            l.boundary_bytes = random.in(0, boundary);
            l.grad_boundary_bytes = with_grad ? random.in(0, bytes) : 0;
            l.forward_ns = random.in(0, ns);
            l.unsaved_forward_bytes = random.in(0, 2 * bytes);
            const int64_t policies = random.in(1, sizes.policies);
            for (int64_t p = 0; p < policies; ++p) {
                PolicyCost q;
                q.name = std::string(1, static_cast<char>('A' + p));
                q.saved_bytes = random.in(0, 2 * bytes);
                q.extra_ns = random.in(0, ns);
                q.forward_bytes = (lawless ? 0 : q.saved_bytes + l.boundary_bytes) + random.in(0, bytes);
                q.backward_bytes = (lawless ? 0 : q.saved_bytes + l.grad_boundary_bytes) + random.in(0, 2 * bytes);
                q.rebuild_ns = random.in(0, ns);
                if (with_roles) q.roles = static_cast<uint32_t>(random.in(0, 7)) | (p == 0 ? uint32_t{role_alone} : 0);
                l.policies.push_back(q);
            }
            const int64_t forms = c.max_unit_depth == 0 ? 0 : random.in(0, sizes.forms);
            for (int64_t f = 0; f < forms; ++f) {
                UnitInput u;
                u.name = std::string(1, static_cast<char>('k' + f));
                u.saved_bytes = random.in(0, bytes);
                u.restore_ns = random.percent(50) ? 0 : random.in(0, ns);
                u.stays = random.percent(50);
                l.unit_inputs.push_back(u);
            }
            c.types.push_back(l);
        }
        for (int64_t i = 0; i < layers; ++i) c.layers.push_back(static_cast<int32_t>(random.in(0, types - 1)));
        if (count_plans(c, sizes.plans) <= sizes.plans) return c;
    }
}

void for_seeds(const char *test, uint64_t first, uint64_t count, Case (*body)(uint64_t)) {
    uint64_t end = first + count;
    if (const char *only = std::getenv("MDLM_DRAW")) {
        char *rest = nullptr;
        first = std::strtoull(only, &rest, 10);
        end = (*rest == '-' ? std::strtoull(rest + 1, nullptr, 10) : first) + 1;
    }
    int wrong = 0;
    for (uint64_t seed = first; seed < end && wrong < 5; ++seed) {
        const std::string command =
            "MDLM_DRAW=" + std::to_string(seed) + " " + program_invocation_name + " '--test-case=" + test + "'";
        mdlm_test::repro(command);  // should it crash
        const Case c = body(seed);
        std::string beside;  // what JSON does not say
        if (c.chain.slab_apart) beside += "\n  with the slab apart from the stack";
        for (const LayerType &t : c.chain.types)
            for (const PolicyCost &p : t.policies)
                if (p.roles != role_any)
                    beside += "\n  " + t.name + "." + p.name + " has roles " + std::to_string(p.roles);
        CHECK_MESSAGE(c.wrong.empty(), c.wrong, "\n  chain: ", write_chain(c.chain), beside,
                      "\n  repeat it with: ", command);
        if (c.wrong.empty()) mdlm_test::repro_text.clear();
        else ++wrong;
    }
}

}  // namespace planner_test
