// SPDX-License-Identifier: Apache-2.0
// Writes a program down: buffers, parameters and ops by name, so that the program itself reads like its formulas.
#pragma once
#include "layer/program.hpp"
#include "op/attention.hpp"
#include "op/bias_dropout_add.hpp"
#include "op/qk_norm_rope.hpp"

namespace mdlm {

class Builder {
public:
    explicit Builder(const Config &config) : c_(config) {}
    Program take() { return std::move(program_); }

    BufferId input(const char *name, int64_t width);
    void output(BufferId id) { program_.output = id; }
    // Selective recompute of any of these modules (MDLM_RECOMPUTE_MODULE bits; 0: none) makes again what follows.
    Builder &in(uint32_t modules) {
        modules_ = modules;
        return *this;
    }
    // Nothing keeps the output of a last norm, so its statistics go with its input.
    enum class Statistics { with_output, with_input };
    BufferId norm(const char *name, const char *param, BufferId x, Statistics statistics = Statistics::with_output);
    // What the outputs of a linear are: parts with names, and into how many pieces they are cut before each is split
    // over the ranks.
    struct Rows {
        int64_t count = 0;
        std::vector<ParamPart> parts;
        int32_t stride = 1;
    };
    Rows qkv_rows() const;
    Rows fc1_rows() const;
    // Column parallel: outputs are split over ranks; the input is gathered first under sequence parallelism.
    BufferId column_linear(const char *name, const char *param, BufferId x, const Rows &rows, bool bias);
    // Row parallel: inputs are split over ranks; the parts of the output are summed. Its bias is added by
    // bias_dropout_add.
    BufferId row_linear(const char *name, const char *param, BufferId x);
    struct QKV {
        BufferId q, k, v;
        HeadLayout q_at, k_at, v_at;
    };
    QKV split_qkv(BufferId qkv) const;
    QKV qk_norm_rope(const char *name, const QKV &in);
    BufferId attention(const char *name, const QKV &in);
    BufferId activation(const char *name, BufferId g);
    BufferId bias_dropout_add(const char *name, BufferId x, const char *bias_param, BufferId residual, Site site);

private:
    BufferId buffer(const std::string &name, int64_t per_token, int64_t per_pair = 0, int64_t split = 1);
    BufferId stats(const std::string &name, BufferId main, int64_t per_token, int64_t split = 1);
    ParamId param(const std::string &name, int64_t rows, int64_t columns, int32_t partition_dim, Param::Init init);
    // Replicated, of one dimension; partial: its gradient is summed over the group (FACTS of tensor parallelism: arXiv
    // 2205.05198, section 4.2.2).
    ParamId replicated(const std::string &name, int64_t width, Param::Init init, bool partial);
    void emit(std::unique_ptr<Op> op, std::vector<ParamId> params);
    int64_t t() const { return c_.tensor_model_parallel_size; }
    bool rms() const { return c_.normalization == MDLM_NORM_RMSNORM; }
    int64_t sequence_split() const { return c_.sequence_parallel ? t() : 1; }

    const Config &c_;
    Program program_;
    uint32_t modules_ = 0;
};

}  // namespace mdlm
