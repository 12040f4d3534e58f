// SPDX-License-Identifier: Apache-2.0
// A device's table, measured with its own kernels.
#pragma once
#include "block/engine.hpp"

namespace mdlm {

// In a fraction of a second. Rates of other dtypes than this one stay unknown.
DeviceTable calibrate(Engine &engine, DType dtype);

}  // namespace mdlm
