// SPDX-License-Identifier: Apache-2.0
// The formulas that the oracle is made of, in float64: norm, rotary embedding, attention, activation, and their
// derivatives.
#pragma once
#include "bf16_oracle.hpp"

namespace golden {

struct Settings {
    int64_t layers, hidden, heads, groups, d, seq, batch;
    bool rms, zero_centered, qk_norm, final_norm;
    double epsilon;
    std::string activation;
    bool rope, interleaved;
    double rotary_base, rotary_percent;
    std::string mask;
    int64_t mask_block, window_left, window_right;
    double scale;
    std::vector<int64_t> document, position;  // of each token of a sequence

    int64_t tokens() const { return seq * batch; }
    bool sees(int64_t query, int64_t key) const;
};
Settings settings_of(const mdlm::tools::Case &c);

// Row by row, rows of the given width. The gradient adds to dweight and dbias and gives dx.
Values norm_of(const Settings &set, const Values &x, int64_t width, const Values &weight, const Values *bias);
Values norm_gradient(const Settings &set, const Values &dy, const Values &x, int64_t width, const Values &weight,
                     Values &dweight, Values *dbias);

// x is [token, any heads, d]; direction 1 turns, -1 turns back, which is the gradient.
Values rotated(const Settings &set, Values x, int direction);

// q [token, heads, d], k and v [token, groups, d]; probabilities [b, heads, s, s]. round is applied to what an unfused
// attention stores.
using Round = double (*)(double);
Values probabilities_of(const Settings &set, const Values &q, const Values &k, Round round);
Values context_of(const Settings &set, const Values &probabilities, const Values &v);
struct AttentionGradient {
    Values q, k, v;
};
// A fused attention takes sum(p dp) of a row as sum(context dcontext), an unfused one from what it stored.
AttentionGradient attention_gradient(const Settings &set, const Values &q, const Values &k, const Values &v,
                                     const Values &probabilities, const Values &context, const Values &dcontext,
                                     bool fused, Round round);

Values activated(const Settings &set, const Values &g);
Values activation_gradient(const Settings &set, const Values &dm, const Values &g);

}  // namespace golden
