// SPDX-License-Identifier: Apache-2.0
// What a device's operations cost: rates and bandwidths by which FLOPs and bytes become whole nanoseconds. Everything
// is an integer, so that all ranks with the same table come to the same plan.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "device/device.hpp"
#include "op/op.hpp"

namespace mdlm {

struct DeviceTable {
    std::string name, source;  // source: where the numbers are from
    // Per second. 0: not known, and a plan that needs it is refused.
    int64_t linear[4] = {}, attention[4] = {};  // FLOPs, by DType - 1: f32, bf16, f16, f64
    int64_t pointwise = 0;                      // FLOPs of everything else
    int64_t memory = 0, host = 0, link = 0;     // bytes: device memory; host copies, each way; collectives, each way
    int64_t op_ns = 0, collective_ns = 0;       // fixed, for each op
    bool host_overlaps = false;                 // host copies run beside computing
    // Scratch of one library call. Not 0: a device that need not be here, whose kernels take at most this.
    int64_t scratch_bytes = 0;

    // max(work / rate, bytes / bandwidth) rounded up once, and the fixed time.
    int64_t ns(const Cost &cost, DType dtype) const;
    int64_t copy_ns(int64_t bytes) const;   // within the device, read and written
    int64_t gather_ns(int64_t sent) const;  // a collective that moves so many bytes over a rank's link
    // Of a copy to the host in forward and back in backward, what is not hidden behind the layer's own work.
    int64_t host_ns(int64_t bytes, int64_t forward_ns, int64_t backward_ns) const;
    // For planning on this table's device; given are those of the machine at hand, which a table with a cap of scratch
    // replaces.
    Traits traits(const Traits &given) const;
    bool operator==(const DeviceTable &) const = default;
};

const char *device_table_name(int32_t index);  // nullptr past the end
// A name, or JSON. NOT_FOUND, or FORMAT naming the place.
DeviceTable device_table(std::string_view text);
std::string to_json(const DeviceTable &table);

}  // namespace mdlm
