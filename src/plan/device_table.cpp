// SPDX-License-Identifier: Apache-2.0
#include "plan/device_table.hpp"

#include <algorithm>
#include <cstdio>
#include <iterator>

#include "base/sizes.hpp"

namespace mdlm {
namespace {

constexpr int64_t giga = 1'000'000'000, tera = 1000 * giga;

// Peak rates of the datasheets are dense, without sparsity. What is attained of them is a stated, round share, the same
// for all.
constexpr int64_t percent_linear = 65, percent_attention = 45, percent_pointwise = 40, percent_bandwidth = 80;

struct Datasheet {
    const char *name, *device;
    int64_t f32, half;           // TFLOP/s times 10: f32 outside tensor cores; bf16 and f16 on them
    int64_t memory, host, link;  // GB/s; host and link of one direction
};
// NVIDIA A100 Tensor Core GPU datasheet (2022), H100 SXM datasheet (2023), H200 SXM datasheet (2024).
constexpr Datasheet datasheets[] = {
    {"A100-40GB", "A100 SXM 40 GB", 195, 3120, 1555, 32, 300},
    {"A100-80GB", "A100 SXM 80 GB", 195, 3120, 2039, 32, 300},
    {"H100", "H100 SXM 80 GB", 670, 9890, 3350, 64, 450},
    {"H200", "H200 SXM 141 GB", 670, 9890, 4800, 64, 450},
};

DeviceTable from_datasheet(const Datasheet &s) {
    DeviceTable t;
    t.name = s.name;
    t.source = std::string("datasheet of ") + s.device + ": dense peaks, of which linears are taken to attain " +
               std::to_string(percent_linear) + " %, attention " + std::to_string(percent_attention) +
               " %, pointwise " + std::to_string(percent_pointwise) + " %, bandwidths " +
               std::to_string(percent_bandwidth) + " %";
    const int64_t peaks[4] = {s.f32, s.half, s.half, 0};
    for (int i = 0; i < 4; ++i) {
        t.linear[i] = peaks[i] * (tera / 10) / 100 * percent_linear;
        t.attention[i] = peaks[i] * (tera / 10) / 100 * percent_attention;
    }
    t.pointwise = s.f32 * (tera / 10) / 100 * percent_pointwise;
    t.memory = s.memory * giga / 100 * percent_bandwidth;
    t.host = s.host * giga / 100 * percent_bandwidth;
    t.link = s.link * giga / 100 * percent_bandwidth;
    t.op_ns = 3000, t.collective_ns = 15000;
    t.host_overlaps = true;
    t.scratch_bytes = int64_t{32} << 20;
    return t;
}

// Round numbers of one server core or two with AVX-512, for plans without a measurement: it is ratios that make a plan.
DeviceTable cpu_table() {
    DeviceTable t;
    t.name = "cpu";
    t.source = "round numbers for a few cores; mdlm_context_calibrate measures the device at hand";
    const int64_t linear[4] = {300, 600, 0, 10}, attention[4] = {100, 150, 0, 10};
    for (int i = 0; i < 4; ++i) t.linear[i] = linear[i] * giga, t.attention[i] = attention[i] * giga;
    t.pointwise = 10 * giga;
    t.memory = t.host = t.link = 10 * giga;
    t.op_ns = 5000, t.collective_ns = 20000;
    return t;
}

// Rounded up; a rate of 0 is not known.
int64_t time(int64_t work, int64_t rate, const char *what, const DeviceTable &t) {
    if (work == 0) return 0;
    if (rate == 0) fail(MDLM_ERROR_UNSUPPORTED, "device table %.60s: it has no rate of %s", t.name.c_str(), what);
    const __int128 ns = (static_cast<__int128>(work) * giga + rate - 1) / rate;
    if (ns > INT64_MAX / 4)
        fail(MDLM_ERROR_OVERFLOW, "device table %.60s: the time of one op does not fit in 61 bits", t.name.c_str());
    return static_cast<int64_t>(ns);
}

}  // namespace

int64_t DeviceTable::ns(const Cost &c, DType dtype) const {
    const int i = static_cast<int>(dtype) - 1;
    char what[40];
    switch (c.work) {
    case Work::linear:
    case Work::attention:
        std::snprintf(what, sizeof what, "%s in %s", c.work == Work::linear ? "linear" : "attention", name_of(dtype));
        return std::max(time(c.done, c.work == Work::linear ? linear[i] : attention[i], what, *this),
                        time(c.bytes, memory, "memory", *this)) +
               op_ns;
    case Work::pointwise:
        return std::max(time(c.flops, pointwise, "pointwise", *this), time(c.bytes, memory, "memory", *this)) + op_ns;
    case Work::collective: return gather_ns(c.done);
    }
    return 0;
}

int64_t DeviceTable::copy_ns(int64_t bytes) const { return time(mul(2, bytes), memory, "memory", *this) + op_ns; }

int64_t DeviceTable::gather_ns(int64_t sent) const { return time(sent, link, "link", *this) + collective_ns; }

int64_t DeviceTable::host_ns(int64_t bytes, int64_t forward_ns, int64_t backward_ns) const {
    if (bytes == 0) return 0;
    const int64_t copy = time(bytes, host, "host", *this) + op_ns;
    if (!host_overlaps) return mul(2, copy);
    return add(std::max<int64_t>(0, copy - forward_ns), std::max<int64_t>(0, copy - backward_ns));
}

Traits DeviceTable::traits(const Traits &given) const {
    if (scratch_bytes == 0) return given;
    Traits t;
    t.kind = MDLM_DEVICE_CUDA, t.scratch_cap = scratch_bytes;
    return t;
}

const char *device_table_name(int32_t index) {
    if (index == 0) return "cpu";
    return index < 0 || index > static_cast<int32_t>(std::size(datasheets)) ? nullptr : datasheets[index - 1].name;
}

DeviceTable read_device_table(std::string_view json);  // device_table_json.cpp

DeviceTable device_table(std::string_view text) {
    if (text.find('{') != std::string_view::npos) return read_device_table(text);
    if (text == "cpu") return cpu_table();
    for (const Datasheet &s : datasheets)
        if (text == s.name) return from_datasheet(s);
    std::string names = "cpu";
    for (const Datasheet &s : datasheets) names += std::string(", ") + s.name;
    fail(MDLM_ERROR_NOT_FOUND, "device table \"%.*s\": expected one of %s, or a table in JSON",
         static_cast<int>(std::min<size_t>(text.size(), 60)), text.data(), names.c_str());
}

}  // namespace mdlm
