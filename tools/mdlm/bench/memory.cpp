// SPDX-License-Identifier: Apache-2.0
#include "memory.hpp"

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <limits>

#include "../../text.hpp"
#include "../convert.hpp"

namespace mdlm::tools::bench {
double available_bytes() {
    std::ifstream file("/proc/meminfo");
    for (std::string line; std::getline(file, line);) {
        long long kilobytes = 0;
        if (std::sscanf(line.c_str(), "MemAvailable: %lld kB", &kilobytes) == 1)
            return 1024.0 * static_cast<double>(kilobytes);
    }
    return std::numeric_limits<double>::infinity();
}

mdlm_shape shape_of(const Setting &setting) {
    mdlm_shape shape = MDLM_SHAPE_INIT;
    shape.seq_length = setting.seq_length;
    shape.micro_batch_size = setting.micro_batch_size;
    return shape;
}

void refuse(const Setting &setting, mdlm_status status) {
    if (status != MDLM_OK)
        bad("mdlm bench: %s: %s: %s", setting.name.c_str(), mdlm_status_name(status), mdlm_last_error());
}

double bytes_of(const Options &options, const std::vector<Setting> &settings) {
    double bytes = 0;
    for (const Setting &s : settings) {
        mdlm_target target = MDLM_TARGET_INIT;
        target.device = options.device;
        target.num_threads = options.threads;
        const mdlm_shape shape = shape_of(s);
        mdlm_plan *plan = nullptr;
        refuse(s, mdlm_plan_create(&s.config, &shape, &target, &plan));
        mdlm_memory memory = MDLM_MEMORY_INIT;
        const mdlm_status status = mdlm_plan_memory(plan, &memory);
        mdlm_plan_destroy(plan);
        refuse(s, status);
        bytes += static_cast<double>(memory.peak_bytes) + static_cast<double>(memory.host_bytes);
    }
    return bytes;
}

Shared::Piece::~Piece() {
    if (at != nullptr) mdlm_context_free(context, at, bytes);
}

void Shared::Piece::take(mdlm_context *from, size_t size) {
    if (mdlm_context_alloc(from, size, &at) != MDLM_OK) bad("mdlm bench: %s", mdlm_last_error());
    context = from;
    bytes = size;
}

Shared::Shared(mdlm_context *context, const std::vector<Setting> &settings, bool one_rank) : context_(context) {
    size_t bytes = 0;
    for (const Setting &s : settings) {
        if (s.one_rank != one_rank) continue;
        const int64_t parts = s.config.sequence_parallel != 0 ? s.config.tensor_model_parallel_size : 1;
        bytes = std::max(bytes, static_cast<size_t>(s.seq_length / parts * s.micro_batch_size * s.config.hidden_size) *
                                    dtype_size(s.config.params_dtype));
    }
    for (Piece *piece : {&x_, &y_, &dy_, &dx_}) piece->take(context, bytes);
    const mdlm_dtype type = settings[0].config.params_dtype;
    fill(x_, type, 1, 1.0);
    fill(dy_, type, 2, 1e-3);
}

// Numbers spread evenly in (-scale, scale): a norm comes first, and times depend on no value as long as none is
// subnormal.
void Shared::fill(const Piece &piece, mdlm_dtype type, uint64_t seed, double scale) {
    std::vector<std::byte> host(piece.bytes);
    uint64_t state = seed;
    for (size_t at = 0; at < host.size(); at += dtype_size(type)) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        store(type, host.data() + at, scale * (static_cast<double>(state >> 40) / (1 << 23) - 1));
    }
    if (mdlm_context_copy(context_, piece.at, host.data(), host.size()) != MDLM_OK)
        bad("mdlm bench: %s", mdlm_last_error());
}

void Shared::bind(mdlm_block *block, const Setting &setting) {
    const bool first = params_.at == nullptr;
    if (first) {
        size_t params = 0, grads = 0;
        refuse(setting, mdlm_params_data(block, nullptr, &params, nullptr, &grads));
        params_.take(context_, params);
        grads_.take(context_, grads);
    }
    refuse(setting, mdlm_params_bind(block, params_.at, params_.bytes, grads_.at, grads_.bytes));
    if (first) refuse(setting, mdlm_params_init(block, 1234));
}

}  // namespace mdlm::tools::bench
