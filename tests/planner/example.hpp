// SPDX-License-Identifier: Apache-2.0
// A small chain as a user would write it.
#pragma once

namespace planner_test {

inline constexpr char example[] = R"({ "format": "mdlm-chain", "version": 1,
  "in_flight": 1, "fixed_bytes": 0, "loss_bytes": 3,
  "max_unit_depth": 1, "max_unit_layers": 8,
  "layers": [
    { "name": "decoder", "count": 6,
      "boundary_bytes": 2, "grad_boundary_bytes": 2, "forward_ns": 4, "unsaved_forward_bytes": 5,
      "policies": [
        { "name": "A", "saved_bytes": 10, "extra_ns": 0, "forward_bytes": 12, "backward_bytes": 14, "rebuild_ns": 3 },
        { "name": "X", "saved_bytes": 2,  "extra_ns": 3, "forward_bytes": 5,  "backward_bytes": 14, "rebuild_ns": 0 } ],
      "unit_inputs": [ { "name": "keep", "saved_bytes": 2, "restore_ns": 0, "stays": true } ] } ] })";

}  // namespace planner_test
