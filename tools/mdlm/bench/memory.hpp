// SPDX-License-Identifier: Apache-2.0
// Memory that all settings of a measurement use: parameters, gradients, and the block's inputs and outputs.
#pragma once
#include <vector>

#include "../run.hpp"
#include "settings.hpp"

namespace mdlm::tools::bench {

mdlm_shape shape_of(const Setting &setting);

// Bad, naming the setting, unless status is OK.
void refuse(const Setting &setting, mdlm_status status);

// What the settings' blocks need on one rank, all at once. Bad for a setting that the library can make no plan for.
double bytes_of(const Options &options, const std::vector<Setting> &settings);
// What can be had now without swapping; infinite where the system does not say.
double available_bytes();

class Shared {
public:
    // Those of the settings that are for one rank, or the others: their parameters are alike. The context outlives
    // this.
    Shared(mdlm_context *context, const std::vector<Setting> &settings, bool one_rank);
    Shared(const Shared &) = delete;
    // Gives a new block the parameters (with initial values) and the gradients.
    void bind(mdlm_block *block, const Setting &setting);
    // What the block has bound, which mdlm_block_memory does not count.
    void add_to(mdlm_memory &memory) const {
        memory.parameter_bytes += params_.bytes, memory.gradient_bytes += grads_.bytes;
    }
    const void *x() const { return x_.at; }
    const void *dy() const { return dy_.at; }
    void *y() const { return y_.at; }
    void *dx() const { return dx_.at; }

private:
    struct Piece {
        Piece() = default;
        Piece(const Piece &) = delete;
        ~Piece();
        void take(mdlm_context *from, size_t size);
        mdlm_context *context = nullptr;
        void *at = nullptr;
        size_t bytes = 0;
    };
    void fill(const Piece &piece, mdlm_dtype type, uint64_t seed, double scale);

    mdlm_context *context_;
    Piece params_, grads_, x_, y_, dy_, dx_;
};

}  // namespace mdlm::tools::bench
