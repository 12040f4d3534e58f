// SPDX-License-Identifier: Apache-2.0
#include "bf16_oracle.hpp"

#include <bit>
#include <cmath>
#include <cstdint>

#include "oracle_parts.hpp"

namespace golden {
namespace {

// Inputs and results of one layer's forward that its backward needs. Rows are tokens, s-major.
struct LayerTape {
    Values x, norm1, qkv, q, k, probabilities, context, x1, norm2, fc1, activated;
};

class Oracle {
public:
    Oracle(const mdlm::tools::Case &c, Rounding rounding, Attention attention, int64_t ranks)
        : case_(c), set_(settings_of(c)), bf16_(rounding == Rounding::bf16), fused_(attention == Attention::fused),
          ranks_(ranks) {
        for (const auto &[name, array] : c.params) params_[name] = rounded(array.values);
    }

    OracleResult run() {
        Values x = rounded(case_.input.values);
        std::vector<LayerTape> tapes;
        for (int64_t i = 0; i < set_.layers; ++i) {
            tapes.push_back({});
            x = forward(prefix(i), x, tapes.back());
        }
        OracleResult result;
        result.output = set_.final_norm ? rounded(norm("final_layernorm", x, set_.hidden)) : x;
        Values dx = rounded(case_.grad_output.values);
        if (set_.final_norm) dx = rounded(norm_backward("final_layernorm", dx, x, set_.hidden));
        for (int64_t i = set_.layers; i-- > 0;) dx = backward(prefix(i), dx, tapes[static_cast<size_t>(i)]);
        result.grad_input = dx;
        result.grads = std::move(grads_);
        return result;
    }

private:
    static std::string prefix(int64_t layer) { return "layers." + std::to_string(layer) + "."; }

    Values rounded(Values v) const {
        if (bf16_)
            for (double &x : v) x = to_bf16(x);
        return v;
    }
    const Values *param(const std::string &name) const {
        const auto found = params_.find(name);
        return found == params_.end() ? nullptr : &found->second;
    }
    Values *grad(const std::string &name) {
        const Values *p = param(name);
        if (p == nullptr) return nullptr;
        Values &g = grads_[name];
        g.resize(p->size());
        return &g;
    }

    Values norm(const std::string &name, const Values &x, int64_t width) const {
        return norm_of(set_, x, width, *param(name + ".weight"), param(name + ".bias"));
    }
    Values norm_backward(const std::string &name, const Values &dy, const Values &x, int64_t width) {
        return norm_gradient(set_, dy, x, width, *param(name + ".weight"), *grad(name + ".weight"),
                             grad(name + ".bias"));
    }
    // The rank whose part a column (of what is split by input) or a row (by output, gate and up apart) of a weight is.
    int64_t rank_of(const std::string &name, int64_t at, int64_t all) const {
        const bool gated = name.ends_with("linear_fc1") && (set_.activation == "swiglu" || set_.activation == "geglu");
        const int64_t piece = all / (gated ? 2 : 1);
        return at % piece * ranks_ / piece;
    }
    static bool split_by_input(const std::string &name) {
        return name.ends_with("linear_proj") || name.ends_with("linear_fc2");
    }
    // Every rank's part of a sum, rounded, and the sum of those.
    Values sum_of_parts(std::vector<Values> parts) const {
        Values sum = rounded(std::move(parts[0]));
        for (size_t r = 1; r < parts.size(); ++r) sum = plus(std::move(sum), rounded(std::move(parts[r])));
        return rounded(std::move(sum));
    }
    // The bias of linear_proj and linear_fc2 is added with the residual, after the product was rounded.
    Values linear(const std::string &name, const Values &x, bool with_bias) const {
        const Values &w = *param(name + ".weight");
        const Values *bias = with_bias ? param(name + ".bias") : nullptr;
        const auto k = static_cast<int64_t>(x.size()) / set_.tokens(), n = static_cast<int64_t>(w.size()) / k;
        std::vector<Values> parts(split_by_input(name) ? static_cast<size_t>(ranks_) : 1,
                                  Values(static_cast<size_t>(set_.tokens() * n)));
        for (int64_t row = 0; row < set_.tokens(); ++row)
            for (int64_t i = 0; i < n; ++i) {
                if (bias != nullptr) parts[0][static_cast<size_t>(row * n + i)] = (*bias)[static_cast<size_t>(i)];
                for (int64_t c = 0; c < k; ++c)
                    parts[parts.size() > 1 ? static_cast<size_t>(rank_of(name, c, k)) : 0]
                         [static_cast<size_t>(row * n + i)] +=
                        x[static_cast<size_t>(row * k + c)] * w[static_cast<size_t>(i * k + c)];
            }
        return sum_of_parts(std::move(parts));
    }
    Values linear_backward(const std::string &name, const Values &dy, const Values &x) {
        const Values &w = *param(name + ".weight");
        Values &dw = *grad(name + ".weight"), *db = grad(name + ".bias");
        std::vector<Values> parts(split_by_input(name) ? 1 : static_cast<size_t>(ranks_), Values(x.size()));
        const auto k = static_cast<int64_t>(x.size()) / set_.tokens(), n = static_cast<int64_t>(w.size()) / k;
        for (int64_t row = 0; row < set_.tokens(); ++row)
            for (int64_t i = 0; i < n; ++i) {
                const double g = dy[static_cast<size_t>(row * n + i)];
                if (db != nullptr) (*db)[static_cast<size_t>(i)] += g;
                Values &dx = parts[parts.size() > 1 ? static_cast<size_t>(rank_of(name, i, n)) : 0];
                for (int64_t c = 0; c < k; ++c) {
                    dx[static_cast<size_t>(row * k + c)] += g * w[static_cast<size_t>(i * k + c)];
                    dw[static_cast<size_t>(i * k + c)] += g * x[static_cast<size_t>(row * k + c)];
                }
            }
        return sum_of_parts(std::move(parts));
    }
    Values add(const Values &residual, const Values &x, const std::string &bias_name) const {
        const Values *bias = param(bias_name);
        Values y(x.size());
        for (size_t i = 0; i < x.size(); ++i)
            y[i] = residual[i] + x[i] + (bias != nullptr ? (*bias)[i % bias->size()] : 0);
        return rounded(y);
    }
    static Values plus(Values a, const Values &b) {
        for (size_t i = 0; i < a.size(); ++i) a[i] += b[i];
        return a;
    }

    // One kind of head out of the rows of qkv: kind 0 the queries [token, heads, d], 1 the keys, 2 the values [token,
    // groups, d].
    template <class F>
    void each_head(int kind, F f) const {
        const int64_t per = set_.heads / set_.groups, count = kind == 0 ? per : 1;
        for (int64_t row = 0; row < set_.tokens(); ++row)
            for (int64_t g = 0; g < set_.groups; ++g)
                for (int64_t i = 0; i < count; ++i) {
                    const int64_t slot = kind == 0 ? i : per + kind - 1;
                    f((row * set_.groups + g) * (per + 2) * set_.d + slot * set_.d,
                      ((row * set_.groups + g) * count + i) * set_.d);
                }
    }
    Values split(const Values &qkv, int kind) const {
        Values out(static_cast<size_t>(set_.tokens() * (kind == 0 ? set_.heads : set_.groups) * set_.d));
        each_head(kind, [&](int64_t from, int64_t to) {
            for (int64_t c = 0; c < set_.d; ++c) out[static_cast<size_t>(to + c)] = qkv[static_cast<size_t>(from + c)];
        });
        return out;
    }
    void join(Values &qkv, const Values &part, int kind) const {
        each_head(kind, [&](int64_t to, int64_t from) {
            for (int64_t c = 0; c < set_.d; ++c) qkv[static_cast<size_t>(to + c)] = part[static_cast<size_t>(from + c)];
        });
    }
    Values norm_rope(const std::string &name, Values x) const {
        if (set_.qk_norm) x = norm(name, x, set_.d);
        return rounded(rotated(set_, std::move(x), 1));
    }
    Values norm_rope_backward(const std::string &name, const Values &dy, const Values &x) {
        Values dx = rotated(set_, dy, -1);
        if (set_.qk_norm) dx = norm_backward(name, dx, x, set_.d);
        return rounded(dx);
    }

    Values forward(const std::string &at, const Values &x, LayerTape &t) const {
        const std::string attn = at + "self_attention.", mlp = at + "mlp.";
        t.x = x;
        t.norm1 = rounded(norm(at + "input_layernorm", x, set_.hidden));
        t.qkv = linear(attn + "linear_qkv", t.norm1, true);
        t.q = norm_rope(attn + "q_layernorm", split(t.qkv, 0));
        t.k = norm_rope(attn + "k_layernorm", split(t.qkv, 1));
        t.probabilities = probabilities_of(set_, t.q, t.k, rounding_of_scores());
        t.context = rounded(context_of(set_, t.probabilities, split(t.qkv, 2)));
        t.x1 = add(x, linear(attn + "linear_proj", t.context, false), attn + "linear_proj.bias");
        t.norm2 = rounded(norm(at + "pre_mlp_layernorm", t.x1, set_.hidden));
        t.fc1 = linear(mlp + "linear_fc1", t.norm2, true);
        t.activated = rounded(activated(set_, t.fc1));
        return add(t.x1, linear(mlp + "linear_fc2", t.activated, false), mlp + "linear_fc2.bias");
    }

    Values backward(const std::string &at, const Values &dy, const LayerTape &t) {
        const std::string attn = at + "self_attention.", mlp = at + "mlp.";
        const Values dactivated = linear_backward(mlp + "linear_fc2", dy, t.activated);
        const Values dfc1 = rounded(activation_gradient(set_, dactivated, t.fc1));
        const Values dnorm2 = linear_backward(mlp + "linear_fc1", dfc1, t.norm2);
        const Values dx1 = rounded(plus(norm_backward(at + "pre_mlp_layernorm", dnorm2, t.x1, set_.hidden), dy));
        const Values dcontext = linear_backward(attn + "linear_proj", dx1, t.context);
        const AttentionGradient d = attention_gradient(set_, t.q, t.k, split(t.qkv, 2), t.probabilities, t.context,
                                                       dcontext, fused_, rounding_of_scores());
        Values dqkv(t.qkv.size());
        join(dqkv, norm_rope_backward(attn + "q_layernorm", rounded(d.q), split(t.qkv, 0)), 0);
        join(dqkv, norm_rope_backward(attn + "k_layernorm", rounded(d.k), split(t.qkv, 1)), 1);
        join(dqkv, rounded(d.v), 2);
        const Values dnorm1 = linear_backward(attn + "linear_qkv", dqkv, t.norm1);
        return rounded(plus(norm_backward(at + "input_layernorm", dnorm1, t.x, set_.hidden), dx1));
    }

    double (*rounding_of_scores() const)(double) {
        return bf16_ && !fused_ ? to_bf16 : +[](double v) { return v; };
    }

    const mdlm::tools::Case &case_;
    Settings set_;
    bool bf16_, fused_;
    int64_t ranks_;
    std::map<std::string, Values> params_, grads_;
};

}  // namespace

double to_bf16(double value) {
    if (value == 0 || !std::isfinite(value)) return value;
    if (std::fabs(value) < 0x1p-126) return std::nearbyint(value * 0x1p133) * 0x1p-133;
    // A double has 52 bits of fraction, a bf16 7: add half of the last kept bit, less one where that bit is even, and
    // drop the rest.
    constexpr int dropped = 45;
    const auto bits = std::bit_cast<uint64_t>(value);
    const uint64_t half = (uint64_t{1} << (dropped - 1)) - 1 + (bits >> dropped & 1);
    const auto nearest = std::bit_cast<double>((bits + half) >> dropped << dropped);
    return std::fabs(nearest) >= 0x1p128 ? std::copysign(HUGE_VAL, value) : nearest;
}

OracleResult run_oracle(const mdlm::tools::Case &c, Rounding rounding, Attention attention, int64_t ranks) {
    return Oracle(c, rounding, attention, ranks).run();
}

}  // namespace golden
