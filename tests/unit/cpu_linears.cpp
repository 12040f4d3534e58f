// SPDX-License-Identifier: Apache-2.0
// How linears are cut into tiles and what is kept ready for them: with a library made for the test, whose products are
// our own loop's.
#include "device/cpu/linear.hpp"

#include <array>
#include <atomic>
#include <thread>

#include "base/status.hpp"
#include "device/cpu/kernels.hpp"
#include "unit/cpu_case.hpp"

using namespace mdlm;
using namespace mdlm_test;

namespace {

struct Ledger {
    int64_t scratch_a_column = 0;             // that a product asks for, times its columns
    int64_t fail_run = -1, fail_make = -1;    // which call fails
    std::atomic<int64_t> runs{0}, shared{0};  // shared: two runs at the same time with one set
    int64_t made = 0, live = 0, widest = 0;
};

class FakePrimitive final : public cpu::Primitive {
public:
    FakePrimitive(Ledger &ledger, const cpu::Matmul &matmul, int32_t sets)
        : ledger_(ledger), matmul_(matmul), busy_(size_t(sets)) {
        ++ledger_.live;
    }
    ~FakePrimitive() override { --ledger_.live; }
    void run(int32_t set, int32_t, const cpu::Operands &operands, void *scratch) override {
        if (ledger_.runs++ == ledger_.fail_run) fail(MDLM_ERROR_DEVICE, "fake: run failed");
        if (busy_.at(size_t(set)).exchange(true)) ++ledger_.shared;
        std::this_thread::yield();
        cpu::run_own(matmul_, operands, static_cast<float *>(scratch));
        busy_[size_t(set)] = false;
    }

private:
    Ledger &ledger_;
    cpu::Matmul matmul_;
    std::vector<std::atomic<bool>> busy_;
};

class FakeLibrary final : public cpu::Library {
public:
    explicit FakeLibrary(Ledger &ledger) : ledger_(ledger) {}
    const char *name() const override { return "fake"; }
    bool runs(DType type) const override { return type == DType::f32; }
    std::unique_ptr<cpu::Primitive> make(const cpu::Matmul &matmul, int32_t sets, int64_t cap,
                                         int64_t *scratch) override {
        if (ledger_.made++ == ledger_.fail_make) fail(MDLM_ERROR_DEVICE, "fake: make failed");
        *scratch = ledger_.scratch_a_column * matmul.n;
        if (*scratch > cap) return nullptr;
        ledger_.widest = std::max(ledger_.widest, matmul.n);
        return std::make_unique<FakePrimitive>(ledger_, matmul, sets);
    }

private:
    Ledger &ledger_;
};

// y = x w^T in integers that are exact in float, so that every way to cut it must give the very values.
struct Problem {
    int64_t m, n, k;
    Block x, w, y, scratch;
    Problem(int64_t rows, int64_t columns, int64_t depth, int32_t threads)
        : m(rows), n(columns), k(depth), x(DType::f32, m * k, 0), w(DType::f32, n * k, 0), y(DType::f32, m * n, 0),
          scratch(DType::f32, cpu::linear_workspace(DType::f32, threads) / 4, 0) {
        for (int64_t i = 0; i < m * k; ++i) store(DType::f32, x.data(), i, double(i * 7 % 11) - 5);
        for (int64_t i = 0; i < n * k; ++i) store(DType::f32, w.data(), i, double(i * 5 % 13) - 6);
    }
    LinearForward call() { return {DType::f32, m, n, k, x.data(), w.data(), nullptr, y.data(), scratch.data()}; }
    bool right() {
        for (int64_t i = 0; i < m; ++i)
            for (int64_t j = 0; j < n; ++j) {
                double sum = 0;
                for (int64_t p = 0; p < k; ++p) sum += x[i * k + p] * w[j * k + p];
                if (y[i * n + j] != sum) return false;
            }
        std::memset(y.data(), 0xff, y.bytes());
        return true;
    }
};

}  // namespace

TEST_CASE("cpu linears: tiles with edges, and no two tasks with one set of arguments") {
    for (const int32_t threads : {1, 2, 3, 40}) {
        Ledger ledger;
        cpu::Resources r{make_own_pool(threads), {threads, std::make_unique<FakeLibrary>(ledger)}};
        for (const auto &s : {std::array<int64_t, 3>{1, 1, 3},
                              {256, 64, 5},
                              {700, 300, 4},
                              {2100, 200, 3},
                              {520, 2100, 2},
                              {4200, 130, 2}}) {
            Problem p(s[0], s[1], s[2], threads);
            for (int round = 0; round < 3; ++round) {
                cpu::linear_forward(r, p.call());
                CHECK(p.right());
            }
        }
        CHECK(ledger.shared == 0);
        CHECK(ledger.made <= 6 * 4);  // once a kind of tile, not once a call
    }
}

TEST_CASE("cpu linears: a tile that wants too much scratch is made smaller, or our own loop runs") {
    for (const int64_t bytes : {int64_t{0}, int64_t{4096}, int64_t{1} << 40}) {
        Ledger ledger;
        ledger.scratch_a_column = bytes;
        cpu::Resources r{make_own_pool(2), {2, std::make_unique<FakeLibrary>(ledger)}};
        Problem p(5000, 1000, 3, 2);
        cpu::linear_forward(r, p.call());
        CHECK(p.right());
        CHECK(ledger.widest == (bytes == 0 ? 1000 : bytes == 4096 ? 256 : 0));
        CHECK((ledger.runs == 0) == (ledger.widest == 0));
    }
}

TEST_CASE("cpu linears: a shape stays prepared as long as it is held, whatever else is") {
    Ledger ledger;
    {
        cpu::Resources r{make_own_pool(2), {2, std::make_unique<FakeLibrary>(ledger)}};
        KernelSize size;
        size.n = size.k = 64;
        std::vector<std::shared_ptr<void>> held;
        for (int64_t shape = 1; shape <= 40; ++shape) {
            held.push_back(r.linears.begin_shape());
            size.rows = shape;
            cpu::linear_forward_prepare(r, size);
            cpu::linear_forward_prepare(r, size);
            CHECK(ledger.made == shape);
            CHECK(r.linears.matmuls() == size_t(shape));
            CHECK(ledger.live == shape);
        }
        held.push_back(r.linears.begin_shape());  // whose products are those of another shape
        size.rows = 3;
        cpu::linear_forward_prepare(r, size);
        held.erase(held.begin(), held.begin() + 24);
        CHECK(r.linears.matmuls() == 17);
        CHECK(ledger.live == 17);
        held.pop_back();
        CHECK(ledger.live == 16);
        Problem kept(25, 64, 64, 2), dropped(24, 64, 64, 2);
        cpu::linear_forward(r, kept.call());
        CHECK(kept.right());
        CHECK(ledger.made == 40);
        cpu::linear_forward(r, dropped.call());
        CHECK(dropped.right());
        CHECK(ledger.made == 41);
        // What runs without being prepared stays for a while, and no longer.
        for (int64_t rows = 41; rows < 241; ++rows) {
            Problem other(rows, 64, 64, 2);
            cpu::linear_forward(r, other.call());
        }
        CHECK(ledger.live == 16 + 64);
        cpu::linear_forward(r, kept.call());
        CHECK(ledger.made == 41 + 200);
        held.clear();
        CHECK(ledger.live == 64);
    }
    CHECK(ledger.live == 0);
}

TEST_CASE("cpu linears: an error from the library comes out once, and the next call is right") {
    for (int64_t call = 0; call < 8; ++call)
        for (const bool make : {false, true}) {
            Ledger ledger;
            (make ? ledger.fail_make : ledger.fail_run) = call;
            cpu::Resources r{make_own_pool(3), {3, std::make_unique<FakeLibrary>(ledger)}};
            Problem p(300, 1300, 2, 3);
            mdlm_status status = MDLM_OK;
            try {
                cpu::linear_forward(r, p.call());
            } catch (const Error &e) {
                status = e.status();
            }
            CHECK(status == (make && call >= ledger.made ? MDLM_OK : MDLM_ERROR_DEVICE));
            cpu::linear_forward(r, p.call());
            CHECK(p.right());
            CHECK(ledger.live == 4);
        }
}
