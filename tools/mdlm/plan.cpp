#include "plan.hpp"

#include <algorithm>
#include <charconv>

#include "../text.hpp"
#include "command.hpp"

namespace mdlm::tools {

const char plan_help[] = R"(NAME
    mdlm plan - the plan with the least extra time that fits a budget of bytes, proven; or the best plans for all budgets

SYNOPSIS
    mdlm plan --chain FILE --budget BYTES [--label-cap N] [--json]
    mdlm plan --chain FILE --sweep        [--label-cap N] [--json]

DESCRIPTION
    Activation checkpointing as an optimisation: each layer takes one of its policies, which differ in what they retain from forward to backward
    and in what they cost, or consecutive layers form a unit of which only the first input stays. Of all plans whose peak fits the budget
    the one with the least extra time is found; of several such the one with the lowest peak, then the first by the order of policies.

OPTIONS
    --chain FILE     an abstract chain of layers in JSON (see FILES); - is standard input
    --budget BYTES   whole, or with KiB, MiB, GiB, TiB, kB, MB, GB or TB: 40GiB
    --sweep          every plan that is best at some budget
    --label-cap N    bounds time and memory: at most N partial plans are kept for each layer (default 0: enough for an exact answer of
                     any usual chain). If that was too few, the answer says by how much it may miss the optimum
    --json           JSON instead of lines

FILES
    A chain: integers are bytes and nanoseconds, none negative; a missing one is 0, unless said. Of a name only what is printed depends.
        {"format": "mdlm-chain", "version": 1,      both needed
         "in_flight": 1,                            tapes between forward and backward, finished in any order (missing: 1)
         "fixed_bytes": 0,                          taken off the budget first, part of every peak
         "loss_bytes": 3,                           alive above all that is retained, between forward and backward
         "input_bytes": 2,                          of the first layer's input (missing: its boundary_bytes)
         "max_unit_depth": 1,                       0: single layers only; 1: units of single layers; 2: units in units; ...
         "max_unit_layers": 8,                      most layers of a unit, up to 64 (missing or 0: 64)
         "layers": [{                               needed; in order
           "name": "decoder", "count": 4,           so many alike (missing: 1); at most 4097 in all
           "boundary_bytes": 2,                     of the output
           "grad_boundary_bytes": 2,                of its gradient
           "forward_ns": 6,
           "unsaved_forward_bytes": 5,              most alive in a forward that saves nothing, input and output included
           "policies": [{                           needed, at least one
             "name": "A",
             "saved_bytes": 10,                     retained from forward to backward, the layer's input in some form included
             "extra_ns": 0,                         over saving everything
             "forward_bytes": 12,                   most alive in forward, without what earlier layers retain
             "backward_bytes": 14,                  the same in replay and backward
             "rebuild_ns": 3}],                     to make what is retained again, for the last layer of a unit
           "unit_inputs": [{                        forms that a unit beginning at the layer may retain (missing: no unit begins here)
             "name": "keep",
             "saved_bytes": 2, "restore_ns": 0,
             "stays": true}]}]}                     the input itself stays (missing: false, it is made again out of the form)

OUTPUT
    --budget   {"feasible": true, "optimal": true, "gap_ns": 0, "peak_bytes": 24, "extra_ns": 15, "minimum_budget_bytes": 21, "plan": [...]}
               where no plan fits: {"feasible": false, "minimum_budget_bytes": 21}
    --sweep    {"frontier": [{"peak_bytes": 21, "extra_ns": 15, "plan": [...]}, ...], "optimal": true, "gap_ns": 0}
    A plan's entries, layers counted from 0: {"layer": 3, "policy": "A"} and {"unit": [0, 2], "input": "keep", "inner": [...]}.

EXIT STATUS
    0  answered, also where no plan fits
    2  an option or the file is not what it should be; one line on standard error says which
)";

uint64_t bytes_of(const char *option, const std::string &text) {
    static constexpr struct {
        const char *name;
        double bytes;
    } units[] = {{"", 1},           {"B", 1},    {"KiB", 0x1p10}, {"MiB", 0x1p20}, {"GiB", 0x1p30},
                 {"TiB", 0x1p40}, {"kB", 1e3}, {"MB", 1e6},     {"GB", 1e9},     {"TB", 1e12}};
    const size_t digits = std::min(text.find_first_not_of("0123456789."), text.size());
    const std::string number = text.substr(0, digits);
    const std::string unit = text.substr(std::min(text.find_first_not_of(' ', digits), text.size()));
    for (const auto &u : units) {
        if (number.empty() || unit != u.name) continue;
        uint64_t whole = 0;
        const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), whole);
        if (error == std::errc() && end == number.data() + number.size() && u.bytes == 1) return whole;
        double value = 0;
        const auto [last, wrong] = std::from_chars(number.data(), number.data() + number.size(), value);
        const bool read = wrong == std::errc() && last == number.data() + number.size();
        if (read && value * u.bytes < 0x1p63) return static_cast<uint64_t>(value * u.bytes);
    }
    bad("mdlm plan: %s: expected bytes like 1500000 or 40GiB, below 2^63, seen '%s'", option, text.c_str());
}

int plan_command(const std::vector<std::string> &list) {
    PlanOptions o;
    std::string value;
    for (Words words(list); !words.done();) {
        if (words.option("--chain", &value)) {
            if (value.empty()) bad("mdlm plan: --chain: expected a file, seen ''");
            o.chain = value;
        } else if (words.option("--budget", &value)) {
            o.budget = bytes_of("--budget", value);
        } else if (words.option("--label-cap", &value)) {
            const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), o.label_cap);
            if (error != std::errc() || end != value.data() + value.size() || o.label_cap < 0)
                bad("mdlm plan: --label-cap: expected an integer from 0, seen '%s'", value.c_str());
        } else if (words.flag("--sweep")) {
            o.sweep = true;
        } else if (words.flag("--json")) {
            o.json = true;
        } else {
            bad("mdlm plan: expected --chain, --budget, --sweep, --label-cap, --json or --help, seen '%s'", words.peek().c_str());
        }
    }
    if (o.chain.empty()) bad("mdlm plan: expected --chain FILE, seen none");
    if (o.budget.has_value() == o.sweep) bad("mdlm plan: expected either --budget or --sweep, seen %s", o.sweep ? "both" : "neither");
    return plan_chain(o);
}

}  // namespace mdlm::tools
