// SPDX-License-Identifier: Apache-2.0
// One kernel call as a case: run on the reference device, then on the CPU device with several pools and addresses.
#pragma once
#include <doctest/doctest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "device/device.hpp"
#include "support/random.hpp"
#include "support/repro.hpp"

namespace mdlm_test {

// Memory as the arena gives it: aligned to 256, and `shift` granules further; its end is exact, so that a sanitizer
// sees each step outside.
class Block {
public:
    Block(mdlm::DType type, int64_t count, int shift) : type_(type), count_(count), shift_(256 * size_t(shift)) {
        if (posix_memalign(&memory_, 256, shift_ + bytes() + (bytes() == 0)) != 0) std::abort();
        std::memset(memory_, 0xff, shift_ + bytes());
    }
    Block(const Block &) = delete;
    ~Block() { std::free(memory_); }
    void *data() { return static_cast<char *>(memory_) + shift_; }
    size_t bytes() const { return size_t(count_ * mdlm::size_of(type_)); }
    int64_t count() const { return count_; }
    mdlm::DType type() const { return type_; }
    int64_t row = 0;  // elements that are compared together by check_rows; 0: all
    double operator[](int64_t i) { return mdlm::load(type_, data(), i); }

private:
    mdlm::DType type_;
    int64_t count_;
    size_t shift_;
    void *memory_ = nullptr;
};

// What a case sees: a device, fresh inputs that are the same for every device, and outputs that are compared.
class Run {
public:
    Run(mdlm::Device &device, mdlm::Device &reference, int shift)
        : device(device), reference(reference), shift_(shift) {}
    mdlm::Device &device;
    mdlm::Device &reference;  // makes inputs that must be consistent

    void *in(mdlm::DType type, int64_t count, uint64_t seed, double scale = 1.0, double middle = 0.0) {
        Block &b = add(type, count);
        fill_uniform(type, b.data(), count, seed, scale, middle);
        return b.data();
    }
    void *out(mdlm::DType type, int64_t count, int64_t row = 0) {
        outputs.push_back(&add(type, count));
        outputs.back()->row = row;
        return outputs.back()->data();
    }
    // An output that starts with values: an accumulator, or an input that is written in place.
    void *both(mdlm::DType type, int64_t count, uint64_t seed) {
        void *p = in(type, count, seed);
        outputs.push_back(blocks_.back().get());
        return p;
    }
    void *scratch(mdlm::Kernel kernel, const mdlm::KernelSize &size) { return scratch(device, kernel, size); }
    void *scratch(const mdlm::Device &of, mdlm::Kernel kernel, const mdlm::KernelSize &size) {
        const int64_t bytes = of.traits().workspace(kernel, size);
        return bytes == 0 ? nullptr : add(mdlm::DType::f32, bytes / 4).data();
    }
    std::vector<Block *> outputs;

private:
    Block &add(mdlm::DType type, int64_t count) {
        blocks_.push_back(std::make_unique<Block>(type, count, shift_));
        return *blocks_.back();
    }
    std::vector<std::unique_ptr<Block>> blocks_;
    int shift_;
};
using Case = std::function<void(Run &)>;

// A caller's pool with 3 workers that runs everything on the calling thread, the last task first.
inline std::unique_ptr<mdlm::Pool> reverse_pool() {
    mdlm_threadpool pool = MDLM_THREADPOOL_INIT;
    pool.num_threads = 3;
    pool.parallel_for = [](void *, int64_t count, void (*task)(void *, int64_t, int32_t), void *argument) {
        for (int64_t i = count - 1; i >= 0; --i) task(argument, i, int32_t(i % 3));
    };
    return mdlm::make_caller_pool(pool);
}

// Devices live as long as the test case: what they make lazily is found again by later cases.
struct Devices {
    std::unique_ptr<mdlm::Device> reference = mdlm::make_reference_device();
    std::vector<std::unique_ptr<mdlm::Device>> cpus;
    explicit Devices(mdlm_matmul matmul = MDLM_MATMUL_AUTO) {
        for (const int32_t threads : slow() ? std::vector<int32_t>{1, 3} : std::vector<int32_t>{1, 2, 3, 5})
            cpus.push_back(mdlm::make_cpu_device(mdlm::make_own_pool(threads), matmul));
        cpus.push_back(mdlm::make_cpu_device(reverse_pool(), matmul));
    }
};

// Close to the reference: within `units` of 1e-6 of the largest value for float outputs, 2 units in its last place for
// bf16.
inline void check_close(Block &seen, Block &expected, double units) {
    double largest = 0.0, worst = 0.0;
    for (int64_t i = 0; i < expected.count(); ++i)
        if (std::isfinite(expected[i])) largest = std::max(largest, std::fabs(expected[i]));
    for (int64_t i = 0; i < expected.count(); ++i) {
        if (seen[i] == expected[i]) continue;  // infinities too
        worst = std::isfinite(seen[i]) && std::isfinite(expected[i]) ? std::max(worst, std::fabs(seen[i] - expected[i]))
                                                                     : INFINITY;
        if (!std::isfinite(worst)) break;
    }
    const double ulp = largest == 0.0 ? 0.0 : std::ldexp(1.0, std::ilogb(largest) - 7);
    CHECK(worst <= (seen.type() == mdlm::DType::bf16 ? 2.0 * ulp : units * 1e-6 * std::max(largest, 1e-3)));
}

// The same, row by row: where the reference has NaN or an infinity, so has the device; finite values are within `part`
// of the row's largest (bf16: 2 units in its last place), so that a row of huge values hides no other, or within
// `floor`.
inline void check_rows(Block &seen, Block &expected, double part, double floor = 1e-36) {
    const int64_t length = expected.row != 0 ? expected.row : expected.count();
    int64_t wrong = -1;
    for (int64_t begin = 0; begin < expected.count() && wrong < 0; begin += length) {
        double largest = 0.0;
        for (int64_t i = begin; i < begin + length; ++i)
            if (std::isfinite(expected[i])) largest = std::max(largest, std::fabs(expected[i]));
        const double ulp = largest == 0.0 ? 0.0 : std::ldexp(1.0, std::ilogb(largest) - 7);
        const double allowed = (seen.type() == mdlm::DType::bf16 ? 2.0 * ulp : part * largest) + floor;
        for (int64_t i = begin; i < begin + length && wrong < 0; ++i) {
            const double s = seen[i], e = expected[i];
            const bool right = std::isnan(e) ? std::isnan(s) : s == e || std::fabs(s - e) <= allowed;
            if (!right) wrong = i;
        }
    }
    if (wrong < 0) return;
    FAIL_CHECK("element " << wrong << " of " << expected.count() << ", row of " << length << ": expected "
                          << expected[wrong] << ", got " << seen[wrong]);
}

// Where tests are slow, every case of a loop runs in one dtype.
inline bool left_out(int64_t number, mdlm::DType type) {
    return slow() && (number + (type == mdlm::DType::bf16)) % 2 != 0;
}

using Compare = std::function<void(Block &seen, Block &expected)>;
inline void check_case(Devices &devices, const std::string &what, const Case &body, const Compare &compare) {
    CAPTURE(what);
    Run expected(*devices.reference, *devices.reference, 0);
    body(expected);
    REQUIRE_FALSE(expected.outputs.empty());
    Run first(*devices.cpus[0], *devices.reference, 0);
    body(first);
    for (size_t o = 0; o < first.outputs.size(); ++o) {
        CAPTURE(o);
        compare(*first.outputs[o], *expected.outputs[o]);
    }
    for (size_t d = 0; d < devices.cpus.size(); ++d) {
        CAPTURE(d);
        Run again(*devices.cpus[d], *devices.reference, int(d % 3));
        body(again);
        for (size_t o = 0; o < first.outputs.size(); ++o) {
            CAPTURE(o);
            CHECK(std::memcmp(again.outputs[o]->data(), first.outputs[o]->data(), first.outputs[o]->bytes()) == 0);
        }
    }
}
inline void check_case(Devices &devices, const std::string &what, const Case &body, double units = 10.0) {
    check_case(devices, what, body, [units](Block &seen, Block &expected) { check_close(seen, expected, units); });
}

}  // namespace mdlm_test
