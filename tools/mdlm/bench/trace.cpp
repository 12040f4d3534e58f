// SPDX-License-Identifier: Apache-2.0
#include "trace.hpp"

#include <limits>
#include <nlohmann/json.hpp>

#include "profile.hpp"

namespace mdlm::tools::bench {
namespace {

using Json = nlohmann::ordered_json;

class Writer {
public:
    Writer(Json &events, int64_t origin, int64_t process) : events_(events), origin_(origin), process_(process) {}

    void name(const std::string &name) {
        events_.push_back(
            {{"name", "process_name"}, {"ph", "M"}, {"pid", process_}, {"tid", 1}, {"args", {{"name", name}}}});
        events_.push_back({{"name", "process_sort_index"},
                           {"ph", "M"},
                           {"pid", process_},
                           {"tid", 1},
                           {"args", {{"sort_index", process_}}}});
    }
    void span(const std::string &name, const char *category, int64_t begin, int64_t end, Json args) {
        events_.push_back({{"name", name},
                           {"cat", category},
                           {"ph", "X"},
                           {"ts", microseconds(begin - origin_)},
                           {"dur", microseconds(end - begin)},
                           {"pid", process_},
                           {"tid", 1},
                           {"args", std::move(args)}});
    }
    void op(const mdlm_op_event &e) {
        std::string name = e.op;
        if (e.phase == MDLM_PHASE_REPLAY) name = "replay " + name;
        if (name != e.tensor) name += std::string(" ") + e.tensor;
        Json args = {{"layer", e.layer}, {"phase", name_of(e.phase)}, {"flops", e.flops}, {"bytes", e.bytes}};
        if (e.work == MDLM_WORK_MATMUL) args.update({{"m", e.m}, {"n", e.n}, {"k", e.k}});
        span(name, name_of_work(e.work), e.begin_ns, e.end_ns, std::move(args));
    }
    // The ops of a call, in spans of layers: neighbours of one layer are one span.
    void call(const char *phase, int64_t begin, int64_t end, const std::vector<mdlm_op_event> &all) {
        span(phase, "call", begin, end, Json::object());
        size_t i = 0;
        while (i < all.size() && all[i].begin_ns < begin) ++i;
        while (i < all.size() && all[i].end_ns <= end) {
            size_t last = i;
            while (last + 1 < all.size() && all[last + 1].end_ns <= end && all[last + 1].layer == all[i].layer) ++last;
            span("layer " + std::to_string(all[i].layer), "layer", all[i].begin_ns, all[last].end_ns,
                 {{"layer", all[i].layer}});
            for (; i <= last; ++i) op(all[i]);
        }
    }

private:
    static double microseconds(int64_t ns) { return static_cast<double>(ns) / 1000; }
    Json &events_;
    int64_t origin_, process_;
};

}  // namespace

std::string trace_of(const Measurement &measurement) {
    int64_t origin = std::numeric_limits<int64_t>::max();
    for (const Measured &m : measurement.settings) origin = std::min(origin, m.last.forward_begin);
    Json events = Json::array();
    for (size_t i = 0; i < measurement.settings.size(); ++i) {
        const Measured &m = measurement.settings[i];
        Writer writer(events, origin, static_cast<int64_t>(i));
        writer.name(m.setting.name);
        writer.span(m.setting.name, "step", m.last.forward_begin, m.last.backward_end, Json::object());
        writer.call("forward", m.last.forward_begin, m.last.forward_end, m.last.events);
        writer.call("backward", m.last.backward_begin, m.last.backward_end, m.last.events);
    }
    // One event a line: viewers read it as well, and so do people.
    std::string text = "[";
    for (size_t i = 0; i < events.size(); ++i)
        text += (i == 0 ? "\n" : ",\n") + events[i].dump(-1, ' ', false, Json::error_handler_t::replace);
    return text + "\n]\n";
}

}  // namespace mdlm::tools::bench
