// SPDX-License-Identifier: Apache-2.0
#include "block/calibrate.hpp"

#include <algorithm>
#include <string>
#include <vector>

#include "base/sizes.hpp"

namespace mdlm {
namespace {

// A size is tried while the one before took less than this, so that a slow device is measured with small ones.
constexpr int64_t enough_ns = 8'000'000, time_limit_ns = 40'000'000;
// Behind one another, so that a device with streams is measured at work and not at being told to.
constexpr int64_t batch_ns = 1'000'000, most_in_batch = 64;

class Bench {
public:
    Bench(Engine &engine, DType dtype) : e_(engine), d_(*engine.device), type_(dtype) {
        // Zeros would do for time, but not for the exponents of a softmax on devices that treat them apart: small
        // numbers instead.
        std::vector<char> pattern(static_cast<size_t>(piece));
        for (int64_t i = 0; i < piece / size_of(type_); ++i)
            store(type_, pattern.data(), i, static_cast<double>(i % 17 - 8) / 16.0);
        const int64_t area = parts * 4 * chunk_;
        memory_ = e_.device_memory.allocate(area, "calibration");
        if (asynchronous_) pinned_ = e_.host_memory.allocate(4 * chunk_, "calibration");
        for (int64_t at = 0; at < area; at += piece)
            d_.upload(memory_.get() + at, pattern.data(), static_cast<size_t>(piece));
        shape_ = d_.begin_shape();
    }

    int64_t linear() {
        return rate(
            [&](int level, int64_t &work) {
                const int64_t m = int64_t{64} << level, n = int64_t{256} << level,
                              k = n;  // 8 MFLOP, then 8 times as many each
                KernelSize size;
                size.dtype = type_, size.rows = m, size.n = n, size.k = k;
                d_.prepare(Kernel::linear_forward, size);
                work = 2 * m * n * k;
                const LinearForward a = {
                    type_, m, n, k, part(0), part(1), nullptr, part(2), scratch(Kernel::linear_forward, size)};
                return [this, a] { d_.run(a); };
            },
            4);
    }
    int64_t attention() {
        return rate(
            [&](int level, int64_t &work) {
                AttentionForward a{};
                const int64_t s = int64_t{128} << level, heads = 4, d = 64, width = 3 * heads * d;
                a.shape.dtype = type_, a.shape.tokens = {s, 1, false}, a.shape.heads = a.shape.groups = heads,
                a.shape.d = d, a.shape.scale = 0.125;
                a.shape.mask.seq = s;
                KernelSize size;
                size.dtype = type_, size.rows = size.seq = s, size.heads = size.groups = heads, size.d = d;
                d_.prepare(Kernel::attention_forward, size);
                char *qkv = part(0);
                a.q = {qkv, width, 3 * d, d}, a.k = {qkv + d * size_of(type_), width, 3 * d, 0},
                a.v = {qkv + 2 * d * size_of(type_), width, 3 * d, 0};
                a.context = {part(1), heads * d, d, d}, a.row_max = part(2), a.inverse_sum = part(2) + chunk_;
                a.workspace = scratch(Kernel::attention_forward, size);
                work = 4 * s * s * heads * d;
                return [this, a] { d_.run(a); };
            },
            5);
    }
    int64_t pointwise() {  // 8 FLOPs an element, as the op counts them
        return rate(
            [&](int level, int64_t &work) {
                const ActivationForward a = {type_, MDLM_ACT_SWIGLU, 16 << (2 * level), 1024, part(0), part(1)};
                KernelSize size;
                size.dtype = type_, size.rows = a.rows, size.n = a.width, size.activation = a.kind;
                d_.prepare(Kernel::activation_forward, size);
                work = 8 * a.rows * a.width;
                return [this, a] { d_.run(a); };
            },
            4);
    }
    int64_t memory() {
        return rate(
            [&](int level, int64_t &work) {
                const BiasDropoutAdd a = add(int64_t{16} << (2 * level));
                work = 3 * a.tokens.rows() * a.width * size_of(type_);
                return [this, a] { d_.run(a); };
            },
            5);
    }
    int64_t op_ns() {
        const BiasDropoutAdd a = add(1);
        return best([this, a] { d_.run(a); });
    }
    int64_t copies() {
        return rate(
            [&](int level, int64_t &work) {
                work = (chunk_ / 64) << (2 * level);
                return [this, bytes = static_cast<size_t>(work)] {
                    if (asynchronous_) d_.transfer(Stream::compute, pinned_.get(), part(0), bytes);
                    else d_.copy(part(1), part(0), bytes);
                };
            },
            4);
    }

private:
    static constexpr int64_t piece = 4 << 20, parts = 3;

    char *part(int64_t i) const { return memory_.get() + i * 4 * chunk_; }
    void *scratch(Kernel kernel, const KernelSize &size) {
        const int64_t bytes = rounded(d_.traits().workspace(kernel, size));
        if (bytes > scratch_.bytes()) scratch_ = Memory(), scratch_ = e_.device_memory.allocate(bytes, "calibration");
        return bytes > 0 ? scratch_.get() : nullptr;
    }
    BiasDropoutAdd add(int64_t rows) {
        BiasDropoutAdd a{};
        KernelSize size;
        size.dtype = type_, size.rows = rows, size.n = 1024;
        d_.prepare(Kernel::bias_dropout_add, size);
        a.dtype = type_, a.tokens = {rows, 1, false}, a.width = 1024;
        a.x = part(0), a.residual = part(1), a.y = part(2);
        return a;
    }
    // The best of a few runs, at least two after the first.
    template <class F>
    int64_t best(F &&run) {
        e_.cancellation.check("between two measurements");
        const auto time = [&](int64_t count) {
            events_->record(0, Stream::compute);
            for (int64_t i = 0; i < count; ++i) run();
            events_->record(1, Stream::compute);
            events_->finish(1);
            return std::max<int64_t>(1, (events_->ns(1) - events_->ns(0)) / count);
        };
        time(1);
        int64_t least = INT64_MAX, spent = 0, count = 1;
        for (int i = 0; i < 2 || (i < 20 && spent < time_limit_ns); ++i) {
            const int64_t ns = time(count);
            least = std::min(least, ns), spent += ns * count;
            if (asynchronous_) count = std::clamp<int64_t>(batch_ns / ns, 1, most_in_batch);
        }
        return least;
    }
    // Work a second at the largest size that is not too slow.
    template <class Make>
    int64_t rate(Make &&make, int levels) {
        int64_t result = 0;
        if (asynchronous_) levels += 2;  // of 16 times the work
        for (int level = 0; level < levels; ++level) {
            int64_t work = 0;
            const auto run = make(level, work);
            const int64_t ns = best(run);
            result = std::max<int64_t>(1, static_cast<int64_t>(static_cast<__int128>(work) * 1'000'000'000 / ns));
            if (ns > enough_ns) break;
        }
        return result;
    }

    Engine &e_;
    Device &d_;
    DType type_;
    // A device with a memory of its own is faster, and has larger caches.
    const bool asynchronous_ = d_.traits().asynchronous;
    const int64_t chunk_ = asynchronous_ ? 16 * piece : piece;
    Memory memory_, scratch_, pinned_;
    std::unique_ptr<Events> events_ = d_.make_events(2);
    std::shared_ptr<void> shape_;
};

}  // namespace

DeviceTable calibrate(Engine &engine, DType dtype) {
    engine.cancellation.begin("mdlm_context_calibrate");
    const Traits traits = engine.device->traits();
    if (!traits.supports(dtype)) fail(MDLM_ERROR_UNSUPPORTED, "calibrate: the device does not run %s", name_of(dtype));
    Bench bench(engine, dtype);
    DeviceTable t;
    char line[512];
    engine.device->describe(line, sizeof line);
    t.name = "calibrated";
    t.source = std::string("measured in ") + name_of(dtype) + " on " + line;
    t.source.resize(std::min<size_t>(t.source.size(), 400));
    for (char &c : t.source)
        if (c == '"' || c == '\\' || static_cast<unsigned char>(c) < 32) c = ' ';
    const int i = static_cast<int>(dtype) - 1;
    t.linear[i] = bench.linear();
    t.attention[i] = bench.attention();
    t.pointwise = bench.pointwise();
    t.memory = bench.memory();
    t.op_ns = bench.op_ns();
    t.host = bench.copies();
    t.link = t.host;  // a group of one has no link; a memory copy stands for it
    t.collective_ns = t.op_ns;
    return t;
}

}  // namespace mdlm
