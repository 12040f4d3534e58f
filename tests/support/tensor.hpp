// SPDX-License-Identifier: Apache-2.0
// A buffer of one dtype for kernel tests. Its heap block has exactly its size, so that a sanitizer sees each step
// outside; new ones are full of NaN, so that an element that a kernel leaves out shows.
#pragma once
#include <cstddef>
#include <cstring>
#include <vector>

#include "base/dtype.hpp"
#include "device/device.hpp"
#include "support/random.hpp"

namespace mdlm_test {

class Tensor {
public:
    Tensor(mdlm::DType type, int64_t count)
        : type_(type), count_(count), bytes_(size_t(count * mdlm::size_of(type)), std::byte{0xff}) {}
    static Tensor random(mdlm::DType type, int64_t count, uint64_t seed) {
        Tensor t(type, count);
        fill_uniform(type, t.data(), count, seed);
        return t;
    }
    mdlm::DType type() const { return type_; }
    int64_t count() const { return count_; }
    void *data() { return bytes_.data(); }
    const void *data() const { return bytes_.data(); }
    double operator[](int64_t i) const { return mdlm::load(type_, bytes_.data(), i); }
    void set(int64_t i, double value) { mdlm::store(type_, bytes_.data(), i, value); }
    void fill(double value) {
        for (int64_t i = 0; i < count_; ++i) set(i, value);
    }
    void spoil() { std::memset(bytes_.data(), 0xff, bytes_.size()); }
    // The same values in another dtype, rounded.
    Tensor as(mdlm::DType type) const {
        Tensor t(type, count_);
        for (int64_t i = 0; i < count_; ++i) t.set(i, (*this)[i]);
        return t;
    }
    // The same bits.
    bool operator==(const Tensor &other) const { return type_ == other.type_ && bytes_ == other.bytes_; }

private:
    mdlm::DType type_;
    int64_t count_;
    std::vector<std::byte> bytes_;
};

// Scratch of exactly the bytes that the device asks for; null when that is none.
class Scratch {
public:
    Scratch(const mdlm::Device &device, mdlm::Kernel kernel, const mdlm::KernelSize &size)
        : bytes_(size_t(device.traits().workspace(kernel, size)), std::byte{0xff}) {}
    void *data() { return bytes_.empty() ? nullptr : bytes_.data(); }

private:
    std::vector<std::byte> bytes_;
};

inline mdlm::Dropout dropout_of(double probability) {
    mdlm::Dropout d;
    d.on = probability > 0.0;
    d.threshold = uint32_t(probability * 4294967296.0);
    d.scale = float(1.0 / (1.0 - probability));
    static constexpr mdlm::DrawState drawn = {77, 3, 2};
    d.where = mdlm::Dropout::place(5, mdlm::Site::mlp_output);
    d.draw = &drawn;
    return d;
}

}  // namespace mdlm_test
