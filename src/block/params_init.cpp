// SPDX-License-Identifier: Apache-2.0
// Initial values of parameters: normal numbers by Box and Muller's transform of Philox words, counted by element and
// keyed by the parameter's name, so that a value does not depend on how tensors are split, stages cut or work shared.
#include <algorithm>
#include <array>
#include <cmath>

#include "base/sizes.hpp"
#include "block/host_view.hpp"
#include "block/params.hpp"

namespace mdlm {
namespace {

class Normal {
public:
    Normal(uint64_t seed, uint64_t name, double std) : seed_(seed), name_(name), std_(std) {}
    double at(int64_t index) {
        const int64_t j = index & 3;
        if (index / 4 != drawn_) {
            drawn_ = index / 4;
            words_ = philox4x32(
                seed_, {uint32_t(drawn_), uint32_t(uint64_t(drawn_) >> 32), uint32_t(name_), uint32_t(name_ >> 32)});
        }
        const double u = (words_[j & 2] + 0.5) / 4294967296.0, angle = 2.0 * M_PI * words_[(j & 2) + 1] / 4294967296.0;
        const double radius = std::sqrt(-2.0 * std::log(u));
        return std_ * radius * ((j & 1) == 0 ? std::cos(angle) : std::sin(angle));
    }

private:
    const uint64_t seed_, name_;
    const double std_;
    int64_t drawn_ = -1;
    std::array<uint32_t, 4> words_{};
};

constexpr int64_t piece = 1 << 14;  // elements of a task

}  // namespace

void Params::init(Device &device, uint64_t seed) {
    for (const ParamEntry &p : entries_) p.must_have(p.data);
    for (const ParamEntry &p : entries_) {
        HostView view(device, p.data, p.bytes, HostView::Holds::nothing);
        char *to = view.get();
        const bool output = p.spec->init == Param::Init::output_weight,
                   drawn = output || p.spec->init == Param::Init::weight,
                   one = p.spec->init == Param::Init::norm_weight && !config_.layernorm_zero_centered_gamma;
        const double std = output ? config_.output_init_std : config_.init_method_std;
        const uint64_t name = digest_of(p.name);
        const Shard mine = shard(p, rank_);
        const auto fill = [&](int64_t task, int32_t) {
            Normal normal(seed, name, std);
            for (int64_t i = task * piece; i < std::min(p.elements, (task + 1) * piece); ++i) {
                const int64_t row = mine.full_row(i / mine.columns());
                const int64_t index = row * p.spec->full[1] + mine.first_column() + i % mine.columns();
                store(dtype_, to, i, drawn ? normal.at(index) : one ? 1.0 : 0.0);
            }
        };
        const int64_t tasks = ceil_div(p.elements, piece);
        if (Pool *pool = device.pool()) pool->parallel_for(tasks, fill);
        else
            for (int64_t task = 0; task < tasks; ++task) fill(task, 0);
        view.write_back();
    }
    ++version;
}

}  // namespace mdlm
