// SPDX-License-Identifier: Apache-2.0
#include "check_draw.hpp"

#include <algorithm>
#include <cmath>

#include "support/hold.hpp"
#include "support/rig.hpp"

namespace parallel {
namespace {

using namespace property;

double norm_of_difference(const std::vector<double> &a, const std::vector<double> &b) {
    double squares = 0;
    for (size_t i = 0; i < a.size(); ++i) squares += (a[i] - b[i]) * (a[i] - b[i]);
    return std::isfinite(squares) ? std::sqrt(squares) : HUGE_VAL;
}

// The group may be a few times as far from float64 as one rank is: its sums are rounded where they are handed over. The
// fewer elements, the more the two distances differ by chance (two channels of a norm of keys, whose gradient all but
// cancels); what one rank gets right by chance altogether is bounded by the dtype's own error.
std::string compare(const Draw &d, const Outcome &group, Tally &tally) {
    const Outcome one = run(on_one_rank(d), {.which = Which::keep_everything, .whole = true});
    const Outcome truth = run(on_one_rank(d, MDLM_DTYPE_F64),
                              {.which = Which::keep_everything, .device = MDLM_DEVICE_REFERENCE, .whole = true});
    for (const Outcome *o : {&one, &truth})
        if (!o->failure.empty()) return "on one rank: " + o->failure;
    if (group.values.size() != truth.values.size() || one.values.size() != truth.values.size())
        return "number of results";
    const double dtype_error = d.config.params_dtype == MDLM_DTYPE_BF16 ? 0x1p-7 : 0x1p-19;
    for (size_t i = 0; i < truth.values.size(); ++i) {
        const auto &[name, exact] = truth.values[i];
        if (group.values[i].first != name || group.values[i].second.size() != exact.size())
            return name + ": another shape";
        const std::vector<double> zero(exact.size());
        const double off = norm_of_difference(group.values[i].second, exact);
        const double times = 8 + 64 / static_cast<double>(exact.size());
        const double allowed =
            times * norm_of_difference(one.values[i].second, exact) + dtype_error * norm_of_difference(exact, zero);
        if (!(off <= allowed)) return name + ": off by " + std::to_string(off / allowed) + " times what is allowed";
        if (off > 0 && off / allowed > tally.worst)
            tally.worst = off / allowed, tally.where = name + " of draw " + std::to_string(d.seed);
    }
    return "";
}

// A call of the whole group.
std::string compare_replicas(const Outcome &o, mdlm_comm *comm, int size) {
    std::vector<uint64_t> mine, all;
    std::vector<std::string> names;
    for (const auto &[name, bytes] : o.bits)
        if (std::count(o.replicated.begin(), o.replicated.end(), name) > 0)
            mine.push_back(mdlm_test::fnv(bytes.data(), bytes.size())), names.push_back(name);
    all.resize(mine.size() * static_cast<size_t>(size));
    if (mine.empty()) return "";
    OK(mdlm_comm_all_gather(comm, mine.data(), all.data(), static_cast<int64_t>(mine.size()), MDLM_DTYPE_F64, 0));
    for (size_t i = 0; i < all.size(); ++i)
        if (all[i] != all[i % mine.size()])
            return names[i % mine.size()] + ": other bits on rank " + std::to_string(i / mine.size()) +
                   " than on rank 0";
    return "";
}

}  // namespace

std::string check_draw(const Draw &d, mdlm_comm *comm, int rank, int size, Tally &tally, Intruder *intruder) {
    const auto of_group = [&](Which which, int32_t threads, bool whole) {
        return run(d, {.which = which, .threads = threads, .intruder = intruder, .comm = comm, .whole = whole});
    };
    const Outcome kept = of_group(Which::keep_everything, d.threads, true);
    if (!kept.failure.empty()) return kept.failure;
    const Outcome drawn = of_group(Which::drawn, d.threads, false);
    std::string wrong = difference(kept, drawn);
    if (!wrong.empty()) return "other bits under the drawn plan: " + wrong;
    if (d.other_threads != 0) wrong = difference(kept, of_group(Which::drawn, d.other_threads, false));
    if (!wrong.empty()) return "other bits on " + std::to_string(d.other_threads) + " threads: " + wrong;
    wrong = compare_replicas(kept, comm, size);
    if (wrong.empty() && rank == 0) wrong = compare(d, kept, tally);

    ++tally.draws;
    tally.bf16 += d.config.params_dtype == MDLM_DTYPE_BF16;
    tally.sequence_parallel += d.config.sequence_parallel != 0;
    tally.shards += drawn.shards;
    tally.units_of_several += drawn.units_of_several;
    tally.dropout += d.drops();
    tally.grouped += d.grouped();
    tally.packed += d.packed();
    tally.batch_first += d.config.batch_first != 0;
    tally.host += drawn.host_bytes > 0;
    tally.tapes += d.shape.in_flight > 1 && d.micro.size() > 1;
    tally.frozen += d.freeze != Draw::Freeze::nothing;
    return wrong;
}

}  // namespace parallel
