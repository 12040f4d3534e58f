// SPDX-License-Identifier: Apache-2.0
// Drawn models, plans, batches and orders of passes on groups: bits do not depend on the plan, replicas have the same
// bits, and the numbers are those of one rank.
#include <cstdio>
#include <cstdlib>

#include "cases.hpp"
#include "check_draw.hpp"
#include "support/repro.hpp"

namespace parallel {
namespace {

constexpr uint64_t draws = mdlm_test::sanitized ? 20 : 120;

std::string run_draws(mdlm_comm *comm, int rank, int size) {
    uint64_t first = 1, last = draws;
    const char *only = std::getenv("MDLM_DRAW");  // "123", or "1000-5000" to look further than the suite does
    if (only != nullptr) {
        char *rest = nullptr;
        first = std::strtoull(only, &rest, 10), last = *rest == '-' ? std::strtoull(rest + 1, nullptr, 10) : first;
    }
    Tally t;
    for (uint64_t seed = first; seed <= last; ++seed) {
        const property::Draw d = property::draw_for_group(seed, size);
        const std::string wrong = check_draw(d, comm, rank, size, t);
        if (!wrong.empty())
            return wrong + "\n  " + property::describe(d) + "\n  repeat it with MDLM_DRAW=" + std::to_string(seed);
    }
    const auto percent = [&](int count) { return 100.0 * count / t.draws; };
    if (rank == 0)
        std::printf("parallel: %d draws at t = %d: bf16 %.0f %%, sequence parallel %.0f %%, sharded inputs %.0f %%, "
                    "units of several "
                    "layers %.0f %%, dropout "
                    "%.0f %%, grouped queries %.0f %%, packed documents %.0f %%, batch first %.0f %%, host storage "
                    "%.0f %%, several tapes "
                    "%.0f %%, frozen "
                    "parameters %.0f %%; at most %.2f of the tolerance (%s)\n",
                    t.draws, size, percent(t.bf16), percent(t.sequence_parallel), percent(t.shards),
                    percent(t.units_of_several), percent(t.dropout), percent(t.grouped), percent(t.packed),
                    percent(t.batch_first), percent(t.host), percent(t.tapes), percent(t.frozen), t.worst,
                    t.where.c_str());
    if (only != nullptr || mdlm_test::sanitized) return "";  // too few for shares
    const struct {
        const char *name;
        int count, least;
    } shares[] = {{"bf16", t.bf16, 40},
                  {"sequence parallelism", t.sequence_parallel, 30},
                  {"sharded inputs", t.shards, 15},
                  {"units of several layers", t.units_of_several, 30},
                  {"dropout", t.dropout, 30},
                  {"grouped queries", t.grouped, 30},
                  {"packed documents", t.packed, 30},
                  {"batch_first", t.batch_first, 25},
                  {"host storage", t.host, 15},
                  {"several tapes", t.tapes, 15},
                  {"frozen parameters", t.frozen, 15}};
    for (const auto &s : shares)
        if (percent(s.count) < s.least)
            return std::string("draws with ") + s.name + ": " + std::to_string(percent(s.count)) + " %, expected " +
                   std::to_string(s.least);
    return "";
}

}  // namespace

std::vector<Case> drawn_cases() { return {{"drawn steps, t = 2", 2, run_draws}, {"drawn steps, t = 4", 4, run_draws}}; }

}  // namespace parallel
