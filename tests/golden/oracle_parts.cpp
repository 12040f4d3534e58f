// SPDX-License-Identifier: Apache-2.0
#include "oracle_parts.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <stdexcept>

namespace golden {
namespace {

size_t at(int64_t index) { return static_cast<size_t>(index); }

// Value and derivative of gelu (by erf), of its tanh form, and of silu.
struct Curve {
    double value, slope;
};
Curve gelu(double x) {
    const double phi = 0.5 * (1 + std::erf(x / std::numbers::sqrt2));
    return {x * phi, phi + x * std::exp(-0.5 * x * x) / std::sqrt(2 * std::numbers::pi)};
}
Curve gelu_tanh(double x) {
    const double c = std::sqrt(2 / std::numbers::pi), t = std::tanh(c * (x + 0.044715 * x * x * x));
    return {0.5 * x * (1 + t), 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * c * (1 + 3 * 0.044715 * x * x)};
}
Curve silu(double x) {
    const double s = 1 / (1 + std::exp(-x));
    return {x * s, s * (1 + x * (1 - s))};
}
Curve squared_relu(double x) { return x > 0 ? Curve{x * x, 2 * x} : Curve{0, 0}; }

bool gated(const Settings &set) { return set.activation == "swiglu" || set.activation == "geglu"; }
Curve curve(const Settings &set, double x) {
    if (set.activation == "gelu") return gelu(x);
    if (set.activation == "gelu_tanh" || set.activation == "geglu") return gelu_tanh(x);
    if (set.activation == "squared_relu") return squared_relu(x);
    if (set.activation == "swiglu") return silu(x);
    throw std::runtime_error("oracle: unknown activation " + set.activation);
}

}  // namespace

Settings settings_of(const mdlm::tools::Case &c) {
    const std::map<std::string, std::string> text(c.settings.begin(), c.settings.end());
    const auto number = [&](const char *key) { return std::stod(text.at(key)); };
    const auto whole = [&](const char *key) { return std::stoll(text.at(key)); };
    const auto yes = [&](const char *key) { return text.at(key) == "true"; };
    Settings set{};
    set.layers = whole("num_layers");
    set.hidden = whole("hidden_size");
    set.heads = whole("num_attention_heads");
    set.groups = whole("num_query_groups");
    set.d = whole("kv_channels");
    set.seq = c.seq_length;
    set.batch = c.micro_batch_size;
    set.rms = text.at("normalization") == "rmsnorm";
    set.zero_centered = yes("layernorm_zero_centered_gamma");
    set.qk_norm = yes("qk_layernorm");
    set.final_norm = yes("final_layernorm");
    set.epsilon = number("layernorm_epsilon");
    set.activation = text.at("activation_func");
    set.rope = text.at("position_embedding_type") == "rope";
    set.interleaved = yes("rotary_interleaved");
    set.rotary_base = number("rotary_base");
    set.rotary_percent = number("rotary_percent");
    set.mask = text.at("attention_mask_type");
    set.mask_block = whole("mask_block_size");
    set.window_left = whole("window_left");
    set.window_right = whole("window_right");
    set.scale = number("softmax_scale");
    size_t document = 0;
    for (int64_t i = 0; i < set.seq; ++i) {
        while (document + 1 < c.cu_seqlens.size() && i >= c.cu_seqlens[document + 1]) ++document;
        set.document.push_back(static_cast<int64_t>(document));
        set.position.push_back(i - (c.cu_seqlens.empty() ? 0 : c.cu_seqlens[document]));
    }
    return set;
}

bool Settings::sees(int64_t query, int64_t key) const {
    if (document[at(query)] != document[at(key)]) return false;
    if (mask == "causal" && key > query) return false;
    if (mask == "block_causal" && position[at(key)] / mask_block > position[at(query)] / mask_block) return false;
    if (window_left >= 0 && key < query - window_left) return false;
    return window_right < 0 || key <= query + window_right;
}

namespace {

// Normalised row and 1 / deviation.
double normalised(const Settings &set, const double *x, int64_t width, Values &hat) {
    double mean = 0, square = 0;
    if (!set.rms)
        for (int64_t c = 0; c < width; ++c) mean += x[c] / static_cast<double>(width);
    for (int64_t c = 0; c < width; ++c) square += (x[c] - mean) * (x[c] - mean) / static_cast<double>(width);
    const double rstd = 1 / std::sqrt(square + set.epsilon);
    hat.resize(at(width));
    for (int64_t c = 0; c < width; ++c) hat[at(c)] = (x[c] - mean) * rstd;
    return rstd;
}

}  // namespace

Values norm_of(const Settings &set, const Values &x, int64_t width, const Values &weight, const Values *bias) {
    Values y(x.size()), hat;
    for (size_t row = 0; row < x.size(); row += at(width)) {
        normalised(set, &x[row], width, hat);
        for (size_t c = 0; c < at(width); ++c)
            y[row + c] = hat[c] * (weight[c] + (set.zero_centered ? 1 : 0)) + (bias != nullptr ? (*bias)[c] : 0);
    }
    return y;
}

Values norm_gradient(const Settings &set, const Values &dy, const Values &x, int64_t width, const Values &weight,
                     Values &dweight, Values *dbias) {
    Values dx(x.size()), hat, dhat(at(width));
    for (size_t row = 0; row < x.size(); row += at(width)) {
        const double rstd = normalised(set, &x[row], width, hat);
        double mean = 0, along = 0;
        for (size_t c = 0; c < at(width); ++c) {
            const double g = dy[row + c];
            dweight[c] += g * hat[c];
            if (dbias != nullptr) (*dbias)[c] += g;
            dhat[c] = g * (weight[c] + (set.zero_centered ? 1 : 0));
            mean += dhat[c] / static_cast<double>(width);
            along += dhat[c] * hat[c] / static_cast<double>(width);
        }
        if (set.rms) mean = 0;
        for (size_t c = 0; c < at(width); ++c) dx[row + c] = rstd * (dhat[c] - mean - hat[c] * along);
    }
    return dx;
}

Values rotated(const Settings &set, Values x, int direction) {
    if (!set.rope) return x;
    const auto turning = static_cast<int64_t>(static_cast<double>(set.d) * set.rotary_percent);
    const int64_t heads = static_cast<int64_t>(x.size()) / set.tokens() / set.d;
    for (int64_t token = 0; token < set.tokens(); ++token)
        for (int64_t head = 0; head < heads; ++head) {
            double *v = &x[at((token * heads + head) * set.d)];
            for (int64_t i = 0; i < turning / 2; ++i) {
                const double frequency =
                    std::pow(set.rotary_base, -2.0 * static_cast<double>(i) / static_cast<double>(turning));
                const double angle = direction * static_cast<double>(set.position[at(token / set.batch)]) * frequency;
                double &a = v[set.interleaved ? 2 * i : i], &b = v[set.interleaved ? 2 * i + 1 : i + turning / 2];
                const double old = a;
                a = old * std::cos(angle) - b * std::sin(angle);
                b = b * std::cos(angle) + old * std::sin(angle);
            }
        }
    return x;
}

namespace {

// Where heads lie, and a walk over all queries: f(batch, head, query, where its row of probabilities begins).
struct Pairs {
    const Settings &set;
    int64_t q_of(int64_t s, int64_t b, int64_t head) const { return ((s * set.batch + b) * set.heads + head) * set.d; }
    int64_t k_of(int64_t s, int64_t b, int64_t head) const {
        return ((s * set.batch + b) * set.groups + head / (set.heads / set.groups)) * set.d;
    }
    template <class F>
    void each_query(F f) const {
        for (int64_t b = 0; b < set.batch; ++b)
            for (int64_t head = 0; head < set.heads; ++head)
                for (int64_t query = 0; query < set.seq; ++query)
                    f(b, head, query, ((b * set.heads + head) * set.seq + query) * set.seq);
    }
};

double dot(const Settings &set, const Values &a, int64_t i, const Values &b, int64_t j) {
    double sum = 0;
    for (int64_t c = 0; c < set.d; ++c) sum += a[at(i + c)] * b[at(j + c)];
    return sum;
}
void add_scaled(const Settings &set, Values &to, int64_t i, double factor, const Values &from, int64_t j) {
    for (int64_t c = 0; c < set.d; ++c) to[at(i + c)] += factor * from[at(j + c)];
}

}  // namespace

Values probabilities_of(const Settings &set, const Values &q, const Values &k, Round round) {
    const Pairs pairs{set};
    Values p(at(set.batch * set.heads * set.seq * set.seq));
    pairs.each_query([&](int64_t b, int64_t head, int64_t query, int64_t row) {
        double most = -std::numeric_limits<double>::infinity(), sum = 0;
        for (int64_t key = 0; key < set.seq; ++key)
            if (set.sees(query, key)) {
                p[at(row + key)] =
                    round(set.scale * dot(set, q, pairs.q_of(query, b, head), k, pairs.k_of(key, b, head)));
                most = std::max(most, p[at(row + key)]);
            }
        for (int64_t key = 0; key < set.seq; ++key)
            if (set.sees(query, key)) sum += p[at(row + key)] = std::exp(p[at(row + key)] - most);
        for (int64_t key = 0; key < set.seq; ++key) p[at(row + key)] = round(p[at(row + key)] / sum);
    });
    return p;
}

Values context_of(const Settings &set, const Values &probabilities, const Values &v) {
    const Pairs pairs{set};
    Values context(at(set.tokens() * set.heads * set.d));
    pairs.each_query([&](int64_t b, int64_t head, int64_t query, int64_t row) {
        for (int64_t key = 0; key < set.seq; ++key)
            add_scaled(set, context, pairs.q_of(query, b, head), probabilities[at(row + key)], v,
                       pairs.k_of(key, b, head));
    });
    return context;
}

AttentionGradient attention_gradient(const Settings &set, const Values &q, const Values &k, const Values &v,
                                     const Values &probabilities, const Values &context, const Values &dcontext,
                                     bool fused, Round round) {
    const Pairs pairs{set};
    AttentionGradient d{Values(q.size()), Values(k.size()), Values(v.size())};
    Values dp(at(set.seq));
    pairs.each_query([&](int64_t b, int64_t head, int64_t query, int64_t row) {
        const int64_t qi = pairs.q_of(query, b, head);
        double along = 0;
        for (int64_t key = 0; key < set.seq; ++key) {
            dp[at(key)] = round(dot(set, dcontext, qi, v, pairs.k_of(key, b, head)));
            along += probabilities[at(row + key)] * dp[at(key)];
        }
        if (fused) along = dot(set, dcontext, qi, context, qi);
        for (int64_t key = 0; key < set.seq; ++key) {
            const double p = probabilities[at(row + key)], ds = round(p * (dp[at(key)] - along));
            const int64_t kj = pairs.k_of(key, b, head);
            add_scaled(set, d.q, qi, set.scale * ds, k, kj);
            add_scaled(set, d.k, kj, set.scale * ds, q, qi);
            add_scaled(set, d.v, kj, p, dcontext, qi);
        }
    });
    return d;
}

Values activated(const Settings &set, const Values &g) {
    if (!gated(set)) {
        Values m(g);
        for (double &x : m) x = curve(set, x).value;
        return m;
    }
    const size_t width = g.size() / at(2 * set.tokens());
    Values m(g.size() / 2);
    for (size_t i = 0; i < m.size(); ++i) {
        const size_t gate = i / width * 2 * width + i % width;
        m[i] = curve(set, g[gate]).value * g[gate + width];
    }
    return m;
}

Values activation_gradient(const Settings &set, const Values &dm, const Values &g) {
    Values dg(g.size());
    if (!gated(set)) {
        for (size_t i = 0; i < g.size(); ++i) dg[i] = dm[i] * curve(set, g[i]).slope;
        return dg;
    }
    const size_t width = g.size() / at(2 * set.tokens());
    for (size_t i = 0; i < dm.size(); ++i) {
        const size_t gate = i / width * 2 * width + i % width;
        const Curve c = curve(set, g[gate]);
        dg[gate] = dm[i] * c.slope * g[gate + width];
        dg[gate + width] = dm[i] * c.value;
    }
    return dg;
}

}  // namespace golden
