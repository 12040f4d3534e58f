// SPDX-License-Identifier: Apache-2.0
// A plan as a table to read, and as JSON.
#include <charconv>
#include <cinttypes>
#include <cstdio>

#include "plan/plan.hpp"

namespace mdlm {
namespace {

template <class... A>
void line(std::string &to, const char *format, A... a) {
    char text[512];
    std::snprintf(text, sizeof text, format, a...);
    to += text;
}

// With so many digits after a point, which printf would take from the host's locale.
std::string decimal(double value, int digits) {
    char text[64];
    const auto end = std::to_chars(text, text + sizeof text, value, std::chars_format::fixed, digits);
    return {text, end.ptr};
}

std::string bytes_text(int64_t bytes) {
    const char *units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    double value = static_cast<double>(bytes);
    int unit = 0;
    while (value >= 1024.0 && unit < 6) value /= 1024.0, ++unit;
    return decimal(value, unit == 0 ? 0 : 2) + " " + units[unit];
}

// Tensors of a layer by storage, for those that some backward reads or whose storage is not the plain one.
std::string storages(const Plan &plan, int64_t item, Storage storage) {
    std::string names;
    const Program &p = plan.chain().of(item);
    const Differentiated &d = *plan.block_plan().layers[item];
    for (BufferId b : tensors_of(p)) {
        const bool matters = b == p.input || d.read[b];
        if (!matters || plan.policies().items[item][b] != storage) continue;
        names += (names.empty() ? "" : ",") + p.buffers[b].name;
    }
    return names;
}

}  // namespace

std::string print(const Plan &plan) {
    const BlockPlan &b = plan.block_plan();
    const mdlm_shape &shape = plan.shape();
    std::string text;
    line(text, "plan: %" PRId64 " layers, s %" PRId64 ", b %" PRId64 ", t %" PRId64 ", %d in flight\n",
         plan.config().num_layers, shape.seq_length, shape.micro_batch_size, plan.config().tensor_model_parallel_size,
         shape.in_flight);
    line(text, "peak %" PRId64 " bytes (%s): fixed %s, saved %s a tape, scratch up to %s; host %s a tape\n",
         b.peak_bytes, bytes_text(b.peak_bytes).c_str(), bytes_text(b.fixed_bytes).c_str(),
         bytes_text(b.stack_bytes).c_str(), bytes_text(b.scratch_bytes).c_str(), bytes_text(b.host_bytes).c_str());
    line(text, "%-12s %12s %12s %12s %9s  %s\n", "layer", "saved", "forward", "backward", "replayed", "tensors");
    for (int64_t i = 0; i < plan.chain().items();) {
        // Layers that are alike share a line.
        int64_t end = i + 1;
        const Unit &unit = plan.policies().unit_of(i);
        const auto alike = [&](int64_t j) {
            const ItemUsage &x = b.items[i], &y = b.items[j];
            return plan.chain()[i].name.empty() && plan.chain()[j].name.empty() &&
                   plan.chain()[i].program == plan.chain()[j].program && plan.policies().unit_of(j).count == 1 &&
                   unit.count == 1 && plan.policies().items[i] == plan.policies().items[j] &&
                   x.saved_bytes == y.saved_bytes && x.forward_bytes == y.forward_bytes &&
                   x.backward_bytes == y.backward_bytes;
        };
        while (end < plan.chain().items() && alike(end)) ++end;
        const ItemUsage &p = b.items[i];
        char name[64];
        if (!plan.chain()[i].name.empty()) std::snprintf(name, sizeof name, "%s", plan.chain()[i].name.c_str());
        else if (end - i > 1) std::snprintf(name, sizeof name, "%" PRId64 "-%" PRId64, i, end - 1);
        else std::snprintf(name, sizeof name, "%" PRId64, i);
        const double share = p.forward_flops > 0 ? 100.0 * double(p.replayed_flops) / double(p.forward_flops) : 0.0;
        line(text, "%-12s %12s %12s %12s %8s%%  ", name, bytes_text(p.saved_bytes + p.host_bytes).c_str(),
             bytes_text(p.forward_bytes).c_str(), bytes_text(p.backward_bytes).c_str(), decimal(share, 1).c_str());
        if (unit.count > 1) line(text, "unit %" PRId64 "-%" PRId64 "; ", unit.first, unit.first + unit.count - 1);
        for (Storage s : {Storage::keep, Storage::shard, Storage::host, Storage::replay}) {
            const std::string names = storages(plan, i, s);
            if (!names.empty()) text += std::string(name_of(s)) + " " + names + "; ";
        }
        text.resize(text.size() - 2);
        text += "\n";
        i = end;
    }
    return text;
}

std::string to_json(const Plan &plan) {
    const BlockPlan &b = plan.block_plan();
    std::string text;
    line(text, "{\"format\": \"mdlm-plan\", \"version\": 1, \"digest\": \"%016" PRIx64 "\",\n", plan.digest());
    line(text, " \"num_layers\": %" PRId64 ", \"tensor_model_parallel_size\": %" PRId64 ",\n", plan.config().num_layers,
         plan.config().tensor_model_parallel_size);
    line(text,
         " \"peak_bytes\": %" PRId64 ", \"fixed_bytes\": %" PRId64 ", \"saved_bytes\": %" PRId64
         ", \"host_bytes\": %" PRId64 ",\n \"layers\": [",
         b.peak_bytes, b.fixed_bytes, b.stack_bytes, b.host_bytes);
    for (int64_t i = 0; i < plan.chain().items(); ++i) {
        const Program &p = plan.chain().of(i);
        line(text,
             "%s\n  {\"layer\": %" PRId64 ", \"unit_first\": %" PRId64 ", \"saved_bytes\": %" PRId64 ", \"storage\": {",
             i == 0 ? "" : ",", i, plan.policies().unit_of(i).first, b.items[i].saved_bytes);
        bool first = true;
        for (BufferId t : tensors_of(p)) {
            line(text, "%s\"%s\": \"%s\"", first ? "" : ", ", p.buffers[t].name.c_str(),
                 name_of(plan.policies().items[i][t]));
            first = false;
        }
        text += "}}";
    }
    return text + "\n]}\n";
}

}  // namespace mdlm
