// SPDX-License-Identifier: Apache-2.0
// What follows from the table of kernels, for every line of it.
#include "device/kernel_table.hpp"

#include <doctest/doctest.h>

#include <cstring>
#include <set>
#include <string>
#include <thread>

#include "block/block.hpp"
#include "block/calibrate.hpp"
#include "support/prepared_device.hpp"
#include "support/random.hpp"
#include "support/rig.hpp"

using namespace mdlm;
using mdlm_test::PreparedDevice;
using mdlm_test::Rig;

namespace {

std::vector<Kernel> all_kernels() {
    std::vector<Kernel> all;
    for (int i = 0; i < kernel_count; ++i) all.push_back(static_cast<Kernel>(i));
    return all;
}

// A device's only function for kernels, which keeps what it was told.
class Listening final : public mdlm_test::WrappedDevice {
public:
    using WrappedDevice::WrappedDevice;
    void launch(Kernel k, const void *a) override { kernel = k, arguments = a; }
    Kernel kernel{};
    const void *arguments = nullptr;
};

struct Step {
    std::vector<std::pair<const char *, const char *>> settings;
    int32_t frozen = 0;  // every so many parameters; 1: all
};

// Passes of every kind on a block, on a device that refuses what is not prepared. Adds what ran.
void run_on(const Step &step, std::unique_ptr<Device> inner, std::shared_ptr<Comm> comm,
            std::array<int64_t, kernel_count> &launches) {
    Rig rig;
    rig.batch.seed = 3;
    for (const auto &[key, value] : step.settings) REQUIRE(mdlm_config_set(&rig.config, key, value) == MDLM_OK);
    rig.config.num_attention_heads = 4;
    rig.make_buffers();
    auto device = std::make_unique<PreparedDevice>(std::move(inner));
    PreparedDevice &seen = *device;
    Engine engine(std::move(device), Comms{std::move(comm), nullptr, 60000}, nullptr, nullptr);
    Block block(engine, rig.config);
    const auto count = static_cast<int64_t>(block.params().entries().size());
    for (int64_t i = 0; step.frozen != 0 && i < count; i += step.frozen) block.set_requires_grad(i, false);
    block.reserve(&rig.shape, nullptr);
    block.params().init(*engine.device, 42);
    Tape &tape = block.acquire_tape();
    for (const int64_t seq : {8, 4})
        for (const mdlm_mask_type mask :
             {MDLM_MASK_DEFAULT, MDLM_MASK_NO_MASK, MDLM_MASK_CAUSAL, MDLM_MASK_BLOCK_CAUSAL}) {
            if (mask == MDLM_MASK_BLOCK_CAUSAL && rig.config.mask_block_size == 0) continue;
            for (const int32_t training : {1, 0}) {
                rig.batch.seq_length = seq, rig.batch.attention_mask_type = mask, rig.batch.training = training;
                block.forward(&rig.batch, rig.x.get(), nullptr, rig.y.get());
                mdlm_backward_options options = MDLM_BACKWARD_OPTIONS_INIT;
                for (const int32_t overwrite : {1, 0}) {
                    options.overwrite_grads = overwrite;
                    block.forward(&rig.batch, rig.x.get(), &tape, rig.y.get());
                    block.backward(&tape, &options, rig.dy.get(), rig.dx.get());
                }
            }
        }
    block.release_tape(tape);
    for (size_t i = 0; i < launches.size(); ++i) launches[i] += seen.launches[i];
}

const std::vector<Step> &steps() {
    static const std::vector<Step> all = {
        {{}, 0},
        {{{"attention_backend", "unfused"}, {"add_qkv_bias", "true"}, {"qk_layernorm", "true"}}, 0},
        {{{"normalization", "RMSNorm"},
          {"activation_func", "swiglu"},
          {"position_embedding_type", "rope"},
          {"qk_layernorm", "true"},
          {"mask_block_size", "2"},
          {"add_bias_linear", "false"},
          {"params_dtype", "bf16"}},
         0},
        {{{"recompute_granularity", "full"}, {"window_left", "2"}, {"batch_first", "true"}}, 3},
        {{{"num_query_groups", "2"}, {"hidden_dropout", "0"}, {"position_embedding_type", "rope"}}, 2},
        {{{"attention_dropout", "0"}, {"activation_func", "squared_relu"}}, 1}};
    return all;
}

}  // namespace

TEST_CASE("kernels: names differ, and a launch carries the arguments of its type") {
    std::set<std::string> names;
    for (const Kernel k : all_kernels()) {
        CHECK(names.insert(name_of(k)).second);
        CHECK(arguments_bytes(k) > 0);
    }
    Listening device(make_reference_device());
    const auto check = [&]<class A>(const A &a) {
        std::memset(static_cast<void *>(&device.kernel), 0xff, sizeof device.kernel);
        device.run(a);
        CHECK(device.kernel == kernel_of<A>);
        CHECK(device.arguments == &a);
        CHECK(arguments_bytes(device.kernel) == sizeof(A));
        int calls = 0;
        with_arguments(device.kernel, device.arguments, [&]<class B>(const B &b) {
            CHECK(std::is_same_v<A, B>);
            CHECK(static_cast<const void *>(&b) == &a);
            ++calls;
        });
        CHECK(calls == 1);
        CHECK(arguments_as<A>(device.kernel, &a) == &a);
        CHECK(arguments_as<std::conditional_t<std::is_same_v<A, BiasGrad>, LinearDgrad, BiasGrad>>(device.kernel, &a) ==
              nullptr);
    };
#define MDLM_KERNEL(name, Arguments)                                                                                   \
    check(Arguments{});                                                                                                \
    CHECK(std::string(name_of(kernel_of<Arguments>)) == #name);
    MDLM_KERNELS(MDLM_KERNEL)
#undef MDLM_KERNEL
}

TEST_CASE("kernels: scratch grows with every size and with the threads, for every kernel on every kind of device") {
    int64_t KernelSize::*const sizes[] = {&KernelSize::rows,  &KernelSize::n,      &KernelSize::k, &KernelSize::seq,
                                          &KernelSize::heads, &KernelSize::groups, &KernelSize::d};
    for (const mdlm_device_kind kind : {MDLM_DEVICE_CPU, MDLM_DEVICE_REFERENCE})
        for (const DType dtype : {DType::f32, DType::bf16})
            for (const Kernel kernel : all_kernels()) {
                CAPTURE(kind);
                CAPTURE(name_of(kernel));
                KernelSize size{dtype, 60, 9, 9, 60, 2, 1, 7};
                Traits traits = traits_of(kind, 2);
                bool some = false, same = true;
                for (int step = 0; step < 400; ++step) {
                    const int64_t before = traits.workspace(kernel, size);
                    const auto which = static_cast<size_t>(step * 5 % 8);
                    if (which < std::size(sizes)) size.*sizes[which] += 1 + step % 3;
                    else traits.threads += 1;
                    const int64_t after = traits.workspace(kernel, size);
                    CHECK(after >= before);
                    some = some || after > 0, same = same && after == before;
                    // What a kernel may be chosen by takes no more.
                    KernelSize other = size;
                    other.mask = MDLM_MASK_CAUSAL, other.window = other.dropout = other.bias = true;
                    other.accumulate = other.dx = false;
                    CHECK(traits.workspace(kernel, other) == after);
                }
                if (!has_workspace(kernel)) CHECK_FALSE(some);
                if (kernel == Kernel::attention_backward) CHECK_FALSE(same);
            }
    CHECK_THROWS_AS(traits_of(MDLM_DEVICE_REFERENCE, 1)
                        .workspace(Kernel::attention_backward,
                                   KernelSize{DType::f32, 1, 1, 1, int64_t{1} << 40, 1, 1, int64_t{1} << 40}),
                    Error);
    Traits planned;  // a device that is only planned for
    planned.scratch_cap = 1 << 20;
    for (const Kernel kernel : all_kernels())
        CHECK(planned.workspace(kernel, {}) == (has_workspace(kernel) ? 1 << 20 : 0));
}

TEST_CASE("kernels: whatever runs was prepared, and every kernel is some op's") {
    std::array<int64_t, kernel_count> launches{};
    for (size_t i = 0; i < steps().size(); ++i) {
        CAPTURE(i);
        run_on(steps()[i], make_reference_device(), make_self_comm(), launches);
    }
    run_on(steps()[1], make_cpu_device(make_own_pool(2)), make_self_comm(), launches);
    for (const Kernel kernel : all_kernels()) {
        CAPTURE(name_of(kernel));
        const bool of_groups = kernel == Kernel::transpose_pieces;  // the next case
        CHECK((launches[static_cast<size_t>(kernel)] > 0) == !of_groups);
    }
}

TEST_CASE("kernels: whatever runs was prepared on the ranks of a group") {
    for (const bool sequence_parallel : {false, true}) {
        CAPTURE(sequence_parallel);
        auto comms = make_thread_comms(2);
        std::array<int64_t, kernel_count> launches[2]{};
        std::string errors[2];
        std::vector<std::thread> ranks;
        for (size_t r = 0; r < 2; ++r)
            ranks.emplace_back([&, r] {
                try {
                    run_on({{{"tensor_model_parallel_size", "2"},
                             {"sequence_parallel", sequence_parallel ? "true" : "false"},
                             {"batch_first", "true"},
                             {"qk_layernorm", "true"}},
                            0},
                           make_reference_device(), comms[r], launches[r]);
                } catch (const std::exception &e) {
                    errors[r] = e.what();
                }
            });
        for (std::thread &t : ranks) t.join();
        CHECK(errors[0] == "");
        CHECK(errors[1] == "");
        CHECK(launches[0] == launches[1]);
        CHECK(launches[0][static_cast<size_t>(Kernel::bias_grad)] > 0);
        CHECK((launches[0][static_cast<size_t>(Kernel::transpose_pieces)] > 0) == sequence_parallel);
    }
}

TEST_CASE("kernels: calibration prepares what it runs") {
    auto device = std::make_unique<PreparedDevice>(make_cpu_device(make_own_pool(2)));
    PreparedDevice &seen = *device;
    Engine engine(std::move(device), Comms{make_self_comm(), nullptr, 0}, nullptr, nullptr);
    calibrate(engine, DType::f32);
    for (const Kernel k :
         {Kernel::linear_forward, Kernel::attention_forward, Kernel::activation_forward, Kernel::bias_dropout_add})
        CHECK(seen.launches[static_cast<size_t>(k)] > 0);
}
