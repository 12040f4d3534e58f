// SPDX-License-Identifier: Apache-2.0
// One forward and backward of a block on one rank or on a group, from whole arrays to whole arrays.
#pragma once
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "mdlm/mdlm.h"

namespace parallel {

using Values = std::vector<double>;
using Settings = std::vector<std::pair<std::string, std::string>>;

inline Settings operator+(Settings a, const Settings &b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
}
// Sets them over what is there. Throws the library's line.
void set_all(mdlm_config &config, const Settings &settings);
// For a group of t ranks, with sequence parallelism or not.
Settings group_of(int t, bool sequence_parallel);
// none, selective in every way, full in every way; with distribution where the group and the setting allow it.
struct Recompute {
    std::string name;
    Settings settings;
};
std::vector<Recompute> recompute_settings(int64_t num_layers, bool distributable);

// How parameters get into a block: whole tensors, their named parts, or boxes that cut both dimensions.
enum class Loading { whole, parts, boxes };

struct WholeStep {
    mdlm_config config = MDLM_CONFIG_INIT;
    mdlm_device_kind device = MDLM_DEVICE_CPU;
    mdlm_matmul matmul = MDLM_MATMUL_AUTO;
    int32_t threads = 1;
    int64_t seq = 0, batch = 0;
    std::vector<int32_t> documents;  // offsets; empty: none
    bool input_gradient = true;
    std::vector<std::string> frozen;  // names, or ends of names
    Loading loading = Loading::whole;
    std::function<Values(const std::string &name, int64_t rows, int64_t columns)> parameter;  // columns 1 for a vector
    Values x, dy;         // [s, b, h], whatever the block's layout
    bool numbers = true;  // false: only statistics and memory are wanted
};

struct WholeResult {
    Values y, dx;                          // [s, b, h]
    std::map<std::string, Values> grads;   // whole
    std::map<std::string, Values> params;  // gathered
    std::vector<unsigned char> bits;       // of this rank's y, dx and gradients
    mdlm_tape_stats stats = MDLM_TAPE_STATS_INIT;
    mdlm_memory memory = MDLM_MEMORY_INIT;
    std::vector<uint64_t> planned_saved;  // by layer
};

// comm NULL: a group of one. The parameters are gathered where that is asked for.
WholeResult run_step(mdlm_comm *comm, const WholeStep &step, bool gather_params = false);

// The same bits on every rank? A call of the whole group.
bool same_on_all_ranks(mdlm_comm *comm, const void *bytes, size_t count);

}  // namespace parallel
