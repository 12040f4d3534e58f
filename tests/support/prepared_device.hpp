// SPDX-License-Identifier: Apache-2.0
// A device that refuses what was not prepared: a kernel that runs at sizes for which nobody called prepare, since a
// shape was begun that is still held. The sizes are read off the arguments, kernel by kernel, as kernels.hpp says what
// they are.
#pragma once
#include <algorithm>
#include <array>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/status.hpp"
#include "support/wrapped_device.hpp"

namespace mdlm_test {

inline mdlm::KernelSize rows_by(mdlm::DType dtype, int64_t rows, int64_t n, int64_t k = 0) {
    mdlm::KernelSize s;
    s.dtype = dtype, s.rows = rows, s.n = n, s.k = k;
    return s;
}
inline mdlm::KernelSize sizes_of(const mdlm::NormForward &a) {
    mdlm::KernelSize s = rows_by(a.dtype, a.rows, a.width);
    s.bias = !a.rms;
    return s;
}
inline mdlm::KernelSize sizes_of(const mdlm::NormBackward &a) {
    mdlm::KernelSize s = rows_by(a.dtype, a.rows, a.width);
    s.bias = !a.rms, s.dx = a.dx != nullptr, s.accumulate = a.accumulate;
    return s;
}
inline mdlm::KernelSize sizes_of(const mdlm::LinearForward &a) {
    mdlm::KernelSize s = rows_by(a.dtype, a.m, a.n, a.k);
    s.bias = a.bias != nullptr;
    return s;
}
inline mdlm::KernelSize sizes_of(const mdlm::LinearDgrad &a) { return rows_by(a.dtype, a.m, a.n, a.k); }
inline mdlm::KernelSize sizes_of(const mdlm::LinearWgrad &a) {
    mdlm::KernelSize s = rows_by(a.dtype, a.m, a.n, a.k);
    s.accumulate = a.accumulate;
    return s;
}
inline mdlm::KernelSize sizes_of(const mdlm::BiasGrad &a) {
    mdlm::KernelSize s = rows_by(a.dtype, a.rows, a.width);
    s.accumulate = a.accumulate;
    return s;
}
inline mdlm::KernelSize sizes_of(const mdlm::QkNormRope &a) {
    mdlm::KernelSize s = rows_by(a.dtype, a.tokens.rows(), 0, a.rotary_dim);
    s.heads = a.heads, s.groups = a.groups, s.d = a.d;
    return s;
}
inline mdlm::KernelSize sizes_of(const mdlm::QkNormRopeBackward &a) {
    mdlm::KernelSize s = sizes_of(a.forward);
    s.accumulate = a.accumulate;
    return s;
}
template <class OfAttention>
requires requires(const OfAttention &a) { a.shape.all_heads; }
mdlm::KernelSize sizes_of(const OfAttention &arguments) {
    const mdlm::Attention &a = arguments.shape;
    mdlm::KernelSize s = rows_by(a.dtype, a.tokens.rows(), 0);
    s.seq = a.tokens.seq, s.heads = a.heads, s.groups = a.groups, s.d = a.d;
    s.mask = a.mask.type, s.window = a.mask.left >= 0 || a.mask.right >= 0, s.dropout = a.dropout.on;
    return s;
}
inline mdlm::KernelSize sizes_of(const mdlm::BiasDropoutAdd &a) {
    mdlm::KernelSize s = rows_by(a.dtype, a.tokens.rows(), a.width);
    s.bias = a.bias != nullptr, s.dropout = a.dropout.on;
    return s;
}
inline mdlm::KernelSize sizes_of(const mdlm::DropoutBackward &a) {
    mdlm::KernelSize s = rows_by(a.dtype, a.tokens.rows(), a.width);
    s.dropout = a.dropout.on;
    return s;
}
template <class OfActivation>
requires requires(const OfActivation &a) { a.kind; }
mdlm::KernelSize sizes_of(const OfActivation &a) {
    mdlm::KernelSize s = rows_by(a.dtype, a.rows, a.width);
    s.activation = a.kind;
    return s;
}

inline mdlm::KernelSize sizes_of(const mdlm::TransposePieces &) { return {}; }  // one for all

class PreparedDevice : public WrappedDevice {
public:
    using WrappedDevice::WrappedDevice;
    std::array<int64_t, mdlm::kernel_count> launches{};

    std::shared_ptr<void> begin_shape() override {
        auto shape = std::make_shared<Shape>();
        shape->inner = inner().begin_shape();
        std::erase_if(shapes_, [](const auto &s) { return s.expired(); });
        shapes_.push_back(shape);
        return shape;
    }
    void prepare(mdlm::Kernel kernel, const mdlm::KernelSize &size) override {
        if (const auto shape = shapes_.empty() ? nullptr : shapes_.back().lock()) shape->ready.insert({kernel, size});
        inner().prepare(kernel, size);
    }
    void launch(mdlm::Kernel kernel, const void *arguments) override {
        mdlm::with_arguments(kernel, arguments, [&](const auto &a) {
            const std::pair key{kernel, sizes_of(a)};
            const bool ready = std::any_of(shapes_.begin(), shapes_.end(), [&](const auto &s) {
                const auto shape = s.lock();
                return shape != nullptr && shape->ready.count(key) != 0;
            });
            if (!ready) mdlm::fail(MDLM_ERROR_DEVICE, "%s runs without being prepared", mdlm::name_of(kernel));
        });
        ++launches[static_cast<size_t>(kernel)];
        inner().launch(kernel, arguments);
    }

private:
    struct Shape {
        std::shared_ptr<void> inner;
        std::set<std::pair<mdlm::Kernel, mdlm::KernelSize>> ready;
    };
    std::vector<std::weak_ptr<Shape>> shapes_;
};

}  // namespace mdlm_test
