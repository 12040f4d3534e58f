// SPDX-License-Identifier: Apache-2.0
// A device that fails on one rank of a group, at each kernel of a step: that rank says so, the other one gets COMM.
#include <doctest/doctest.h>

#include <optional>

#include "block/block.hpp"
#include "device/device.hpp"
#include "support/rank_rig.hpp"
#include "support/wrapped_device.hpp"

using namespace mdlm_test;

namespace {

// Each call of a kernel or a copy counts; the n-th fails.
class FaultyDevice final : public WrappedDevice {
public:
    using WrappedDevice::WrappedDevice;
    int calls = 0, fail_at = -1;

    void copy(void *to, const void *from, size_t bytes) override { strike(), WrappedDevice::copy(to, from, bytes); }
    void launch(mdlm::Kernel kernel, const void *arguments) override {
        strike(), WrappedDevice::launch(kernel, arguments);
    }

private:
    void strike() {
        if (calls++ == fail_at) mdlm::fail(MDLM_ERROR_DEVICE, "a fault of the device");
    }
};

// One rank's step on a device that may fail. Returns its kernels, and what was thrown.
struct Stepped {
    int calls = 0;
    std::optional<mdlm::Error> error, next;
};

Stepped step_with(const std::shared_ptr<mdlm::Comm> &comm, int fail_at, int order) {
    Stepped out;
    Rig rig{{"recompute_granularity", "full"},
            {"sequence_parallel", "1"},
            {"qk_layernorm", "1"},
            {"tensor_model_parallel_size", "2"}};
    rig.make_buffers();
    auto device = std::make_unique<FaultyDevice>(mdlm::make_reference_device());
    FaultyDevice &faulty = *device;
    auto engine =
        std::make_unique<mdlm::Engine>(std::move(device), mdlm::Comms{comm, nullptr, 60000}, nullptr, nullptr);
    auto block = std::make_unique<mdlm::Block>(*engine, rig.config);
    block->reserve(&rig.shape, nullptr);
    block->params().init(*engine->device, 42);
    block->params().zero_grads(*engine->device);
    mdlm::Tape &tape = block->acquire_tape();
    faulty.calls = 0;
    faulty.fail_at = fail_at;
    try {
        block->forward(&rig.batch, rig.x.get(), &tape, rig.y.get());
        block->backward(&tape, nullptr, rig.dy.get(), rig.dx.get());
    } catch (const mdlm::Error &e) {
        out.error = e;
    }
    out.calls = faulty.calls;
    faulty.fail_at = -1;
    if (fail_at != INT32_MAX) {
        try {
            block->reset_tape(tape);
            block->forward(&rig.batch, rig.x.get(), &tape, rig.y.get());
        } catch (const mdlm::Error &e) {
            out.next = e;
        }
    }
    if (order % 2 == 0) block->release_tape(tape);
    return out;
}

}  // namespace

TEST_CASE("a device that fails on one rank, at every kernel of a step") {
    const auto run = [](int odd, int n) {
        const Soon soon;
        auto comms = mdlm::make_thread_comms(2);
        Stepped out[2];
        std::vector<std::thread> threads;
        for (int r = 0; r < 2; ++r)
            threads.emplace_back([&, r] {
                out[r] = step_with(comms[static_cast<size_t>(r)], n == INT32_MAX ? n : r == odd ? n : -1, n);
            });
        for (auto &t : threads) t.join();
        CHECK(!soon.over());
        return std::pair{out[odd], out[1 - odd]};
    };
    const int kernels = run(0, INT32_MAX).first.calls;
    REQUIRE(kernels > 50);
    for (int n = 0; n < kernels; ++n) {
        CAPTURE(n);
        const auto [failed, other] = run(n % 2, n);
        REQUIRE(failed.error.has_value());
        CHECK(failed.error->status() == MDLM_ERROR_DEVICE);
        CHECK(std::string(failed.error->what()) == "a fault of the device");
        // The other one has come to its end before only where no collective follows.
        if (other.error.has_value()) {
            CHECK(other.error->status() == MDLM_ERROR_COMM);
            CHECK(wrong_with(other.error->what(), "aborted") == "");
        } else {
            CHECK(n > kernels / 2);
        }
        for (const auto &next : {failed.next, other.next}) {
            REQUIRE(next.has_value());
            CHECK(next->status() == MDLM_ERROR_COMM);
            CHECK(wrong_with(next->what(), "aborted") == "");
        }
    }
}
