// SPDX-License-Identifier: Apache-2.0
// The C ABI on a device with a memory of its own, whose work is done late: what goes in and out is the CPU's to the
// bit, blocks may share scratch, observers and calibration have the device's clock, and what fails late is told.
#include <doctest/doctest.h>

#include <cstring>
#include <string>
#include <vector>

#include "support/checks.hpp"
#include "support/child.hpp"
#include "support/late_context.hpp"

using mdlm_test::LateDevice;
using mdlm_test::LateFaults;

namespace {

using Settings = std::vector<std::pair<const char *, const char *>>;

struct Step {
    std::vector<float> y, dx;
    std::vector<std::vector<float>> params, grads;
    bool operator==(const Step &) const = default;
};

// A block on a context, with the caller's buffers in device memory.
class OnContext {
public:
    OnContext(mdlm_context *context, const Settings &settings, bool share_scratch = false) : context_(context) {
        for (auto [key, value] : Settings{{"num_layers", "3"},
                                          {"hidden_size", "24"},
                                          {"num_attention_heads", "2"},
                                          {"qk_layernorm", "true"},
                                          {"position_embedding_type", "rope"},
                                          {"hidden_dropout", "0.1"},
                                          {"attention_dropout", "0.2"}})
            REQUIRE_OK(mdlm_config_set(&config_, key, value));
        for (auto [key, value] : settings) REQUIRE_OK(mdlm_config_set(&config_, key, value));
        shape_.seq_length = batch_.seq_length = 8, shape_.micro_batch_size = batch_.micro_batch_size = 2;
        shape_.share_scratch = share_scratch;
        batch_.training = 1, batch_.seed = 7;
        bytes_ = static_cast<size_t>(8 * 2 * config_.hidden_size) * sizeof(float);
    }
    mdlm_status reserve() {
        mdlm_status status = mdlm_block_create(context_, &config_, &block);
        if (status == MDLM_OK) status = mdlm_block_reserve(block, &shape_, nullptr);
        if (status == MDLM_OK) status = mdlm_params_init(block, 42);
        if (status == MDLM_OK) status = mdlm_tape_create(block, &tape);
        for (void **at : {&x_, &y_, &dy_, &dx_})
            if (status == MDLM_OK) status = mdlm_context_alloc(context_, bytes_, at);
        std::vector<float> values(bytes_ / sizeof(float));
        for (int which = 0; which < 2 && status == MDLM_OK; ++which) {
            for (size_t i = 0; i < values.size(); ++i)
                values[i] =
                    static_cast<float>(static_cast<int>(i * 37 + static_cast<size_t>(which) * 11) % 41 - 20) / 16;
            status = mdlm_context_copy(context_, which == 0 ? x_ : dy_, values.data(), bytes_);
        }
        return status == MDLM_OK ? mdlm_params_zero_grads(block) : status;
    }
    mdlm_status forward() { return mdlm_block_forward(block, &batch_, x_, tape, y_); }
    mdlm_status backward() { return mdlm_block_backward(block, tape, nullptr, dy_, dx_); }
    mdlm_status read(Step &s) {
        s.y.resize(bytes_ / sizeof(float)), s.dx.resize(s.y.size());
        mdlm_status status = mdlm_context_copy(context_, s.y.data(), y_, bytes_);
        if (status == MDLM_OK) status = mdlm_context_copy(context_, s.dx.data(), dx_, bytes_);
        int64_t count = 0;
        if (status == MDLM_OK) status = mdlm_param_count(block, &count);
        for (int64_t i = 0; i < count && status == MDLM_OK; ++i) {
            mdlm_param_desc d = MDLM_PARAM_DESC_INIT;
            status = mdlm_param_info(block, i, &d);
            for (auto *list : {&s.params, &s.grads}) {
                list->emplace_back(static_cast<size_t>(d.full_shape[0] * (d.ndim > 1 ? d.full_shape[1] : 1)));
                auto &v = list->back();
                const auto get = list == &s.params ? mdlm_param_gather : mdlm_param_grad_gather;
                if (status == MDLM_OK) status = get(block, i, MDLM_DTYPE_F32, v.data(), v.size() * sizeof(float));
            }
        }
        return status;
    }
    mdlm_status step(Step &s) {
        mdlm_status status = reserve();
        if (status == MDLM_OK) status = forward();
        if (status == MDLM_OK) status = backward();
        return status == MDLM_OK ? read(s) : status;
    }
    ~OnContext() {
        for (void *at : {x_, y_, dy_, dx_})
            if (at != nullptr) mdlm_context_free(context_, at, bytes_);
        mdlm_tape_destroy(tape);
        mdlm_block_destroy(block);
    }
    mdlm_block *block = nullptr;
    mdlm_tape *tape = nullptr;

private:
    mdlm_context *context_;
    mdlm_config config_ = MDLM_CONFIG_INIT;
    mdlm_shape shape_ = MDLM_SHAPE_INIT;
    mdlm_batch batch_ = MDLM_BATCH_INIT;
    size_t bytes_ = 0;
    void *x_ = nullptr, *y_ = nullptr, *dy_ = nullptr, *dx_ = nullptr;
};

mdlm_context *cpu_context() {
    mdlm_context_desc desc = MDLM_CONTEXT_DESC_INIT;
    desc.num_threads = 2;
    mdlm_context *context = nullptr;
    REQUIRE_OK(mdlm_context_create(&desc, &context));
    return context;
}

const Settings offloading = {{"cpu_offloading", "1"}, {"cpu_offloading_num_layers", "3"}};
const std::vector<Settings> kinds = {
    {},
    {{"recompute_granularity", "full"}},
    {{"recompute_granularity", "full"}, {"recompute_method", "uniform"}, {"recompute_num_layers", "2"}},
    {{"recompute_granularity", "selective"}},
    {{"attention_backend", "unfused"}},
    offloading};

}  // namespace

TEST_CASE("late device: initial values, steps and gathered values are the CPU's") {
    for (const Settings &settings : kinds) {
        mdlm_context *cpu = cpu_context();
        Step expected, found;
        {
            OnContext on(cpu, settings);
            REQUIRE_OK(on.step(expected));
        }
        mdlm_context_destroy(cpu);
        LateDevice *device = nullptr;
        mdlm_context *late = mdlm_test::make_late_context(3, 2, {}, &device);
        {
            OnContext on(late, settings);
            REQUIRE_OK(on.step(found));
            CHECK(device->most_pending() > 40);
        }
        CHECK(device->allocations() == 0);
        mdlm_context_destroy(late);
        CHECK(found == expected);
    }
}

TEST_CASE("late device: parts of parameters are written and read in place") {
    mdlm_context *late = mdlm_test::make_late_context(4, 1);
    {
        OnContext on(late, {});
        REQUIRE_OK(on.reserve());
        int64_t index = 0;
        REQUIRE_OK(mdlm_param_find(on.block, "layers.1.self_attention.linear_qkv.weight", &index));
        std::vector<float> before(24 * 3 * 24), after(before.size()), k(24 * 24);
        const size_t all = before.size() * sizeof(float);
        REQUIRE_OK(mdlm_param_read(on.block, index, nullptr, nullptr, nullptr, MDLM_DTYPE_F32, before.data(), all));
        for (size_t i = 0; i < k.size(); ++i) k[i] = static_cast<float>(i);
        REQUIRE_OK(mdlm_param_write(on.block, index, "k", nullptr, nullptr, MDLM_DTYPE_F32, k.data(), k.size() * 4));
        REQUIRE_OK(mdlm_param_read(on.block, index, nullptr, nullptr, nullptr, MDLM_DTYPE_F32, after.data(), all));
        // Two heads of 12: q of a group, its k, its v.
        for (size_t row = 0; row < 72; ++row)
            for (size_t c = 0; c < 24; ++c) {
                const size_t in_group = row % 36, i = row * 24 + c;
                const bool is_k = in_group >= 12 && in_group < 24;
                CHECK(after[i] == (is_k ? k[(row / 36 * 12 + in_group - 12) * 24 + c] : before[i]));
            }
    }
    mdlm_context_destroy(late);
}

TEST_CASE("late device: blocks that share scratch do not disturb each other's transfers") {
    mdlm_context *cpu = cpu_context();
    Step alone;
    {
        OnContext on(cpu, offloading);
        REQUIRE_OK(on.step(alone));
    }
    mdlm_context_destroy(cpu);
    for (uint64_t seed = 0; seed < 12; ++seed) {
        mdlm_context *late = mdlm_test::make_late_context(seed, 1);
        {
            OnContext a(late, offloading, true), b(late, offloading, true);
            REQUIRE_OK(a.reserve());
            REQUIRE_OK(b.reserve());
            Step of_a, of_b;
            REQUIRE_OK(a.forward());
            REQUIRE_OK(b.forward());
            REQUIRE_OK(a.backward());
            REQUIRE_OK(b.backward());
            REQUIRE_OK(a.read(of_a));
            REQUIRE_OK(b.read(of_b));
            CHECK(of_a == alone);
            CHECK(of_b == alone);
        }
        mdlm_context_destroy(late);
    }
}

TEST_CASE("late device: evaluations in a row, each with documents of its own") {
    const std::vector<std::vector<int32_t>> documents = {{0, 8},    {0, 3, 8}, {0, 1, 2, 8},
                                                         {0, 5, 8}, {0, 4, 8}, {0, 7, 8}};
    std::vector<std::vector<float>> outputs[2];
    for (const bool late : {false, true}) {
        LateDevice *device = nullptr;
        mdlm_context *context = late ? mdlm_test::make_late_context(11, 1, {}, &device) : cpu_context();
        mdlm_config config = MDLM_CONFIG_INIT;
        for (auto [key, value] : Settings{{"num_layers", "2"}, {"hidden_size", "16"}, {"num_attention_heads", "2"}})
            REQUIRE_OK(mdlm_config_set(&config, key, value));
        mdlm_shape shape = MDLM_SHAPE_INIT;
        shape.seq_length = 8, shape.micro_batch_size = 1, shape.max_documents = 3;
        mdlm_block *block = nullptr;
        REQUIRE_OK(mdlm_block_create(context, &config, &block));
        REQUIRE_OK(mdlm_block_reserve(block, &shape, nullptr));
        REQUIRE_OK(mdlm_params_init(block, 42));
        std::vector<float> values(8 * 16);
        for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 13) / 8 - 0.7f;
        const size_t bytes = values.size() * sizeof(float);
        void *x = nullptr;
        REQUIRE_OK(mdlm_context_alloc(context, bytes, &x));
        REQUIRE_OK(mdlm_context_copy(context, x, values.data(), bytes));
        const int64_t waits = late ? device->waits() : 0;
        std::vector<void *> y(documents.size());
        for (void *&at : y) REQUIRE_OK(mdlm_context_alloc(context, bytes, &at));
        for (size_t i = 0; i < documents.size(); ++i) {
            mdlm_batch batch = MDLM_BATCH_INIT;
            batch.seq_length = 8, batch.micro_batch_size = 1;
            batch.cu_seqlens = documents[i].data(), batch.num_documents = static_cast<int64_t>(documents[i].size()) - 1;
            REQUIRE_OK(mdlm_block_forward(block, &batch, x, nullptr, y[i]));
        }
        if (late) CHECK(device->waits() - waits <= 2);  // four images of calls, six calls
        for (void *at : y) {
            REQUIRE_OK(mdlm_context_copy(context, values.data(), at, bytes));
            outputs[late].push_back(values);
            REQUIRE_OK(mdlm_context_free(context, at, bytes));
        }
        REQUIRE_OK(mdlm_context_free(context, x, bytes));
        mdlm_block_destroy(block);
        mdlm_context_destroy(context);
    }
    CHECK(outputs[0] == outputs[1]);
    for (size_t i = 1; i < documents.size(); ++i) CHECK(outputs[0][i] != outputs[0][0]);
}

TEST_CASE("late device: an observer is told at the end, by the device's clock") {
    LateDevice *device = nullptr;
    mdlm_context *late = mdlm_test::make_late_context(5, 1, {}, &device);
    struct Seen {
        LateDevice *device = nullptr;
        std::vector<mdlm_op_event> events;
        int64_t pending = 0;
    } seen;
    seen.device = device;
    REQUIRE_OK(mdlm_context_set_observer(
        late,
        [](void *payload, const mdlm_op_event *event) {
            auto &s = *static_cast<Seen *>(payload);
            s.events.push_back(*event);
            s.pending = std::max(s.pending, s.device->pending());
        },
        &seen));
    {
        OnContext on(late, offloading);
        Step s;
        REQUIRE_OK(on.step(s));
        mdlm_tape_stats stats = MDLM_TAPE_STATS_INIT;
        REQUIRE_OK(mdlm_tape_get_stats(on.tape, &stats));
        uint64_t ops = 0, moved = 0;
        for (const mdlm_op_event &e : seen.events) {
            const bool transfer = std::strcmp(e.op, "to_host") == 0 || std::strcmp(e.op, "from_host") == 0;
            ops += !transfer && std::strcmp(e.op, "copy_input") != 0;
            moved += transfer;
            CHECK(e.begin_ns > 0);
            CHECK(e.end_ns > e.begin_ns);
        }
        CHECK(moved > 10);
        CHECK(ops == stats.forward_ops + stats.backward_ops + stats.replayed_ops);
        CHECK(seen.pending == 0);
    }
    mdlm_context_destroy(late);
}

TEST_CASE("late device: calibration has the device's clock") {
    mdlm_context *late = mdlm_test::make_late_context(6, 1);
    REQUIRE_OK(mdlm_context_calibrate(late, MDLM_DTYPE_F32));
    std::string text(4096, 0);
    size_t length = 0;
    REQUIRE_OK(mdlm_context_get_device_table(late, text.data(), text.size(), &length));
    // Its clock goes on by ten milliseconds a piece of work.
    CHECK_MESSAGE(text.find("10000000") != text.npos, text);
    mdlm_context_destroy(late);
}

TEST_CASE("late device: the host cannot read what is the device's") {
    mdlm_context *late = mdlm_test::make_late_context(8, 1);
    {
        OnContext on(late, {});
        REQUIRE_OK(on.reserve());
        void *param = nullptr;
        REQUIRE_OK(mdlm_param_data(on.block, 0, &param, nullptr));
        // The child dies of it, or says that it lives.
        const std::string said = mdlm_test::in_child([&] {
            signal(SIGSEGV, SIG_DFL);
            return "it read " + std::to_string(*static_cast<volatile float *>(param));
        });
        CHECK(said.find("it read") == said.npos);
        CHECK(said != "");
    }
    mdlm_context_destroy(late);
}

TEST_CASE("late device: work that fails is told by the next call that can, and from then on") {
    int64_t works = 0;
    {
        LateDevice *device = nullptr;
        mdlm_context *late = mdlm_test::make_late_context(9, 1, {}, &device);
        {
            OnContext on(late, offloading);
            Step s;
            REQUIRE_OK(on.step(s));
            works = device->done();
        }
        mdlm_context_destroy(late);
    }
    CHECK(works > 100);
    for (int64_t at = 0; at < works; at += 1 + works / 60) {
        CAPTURE(at);
        LateFaults faults;
        faults.fail_at = at;
        LateDevice *device = nullptr;
        mdlm_context *late = mdlm_test::make_late_context(9, 1, faults, &device);
        {
            OnContext on(late, offloading);
            Step s;
            CHECK(on.step(s) == MDLM_ERROR_DEVICE);
            CHECK(std::string(mdlm_last_error()).find("late device") != std::string::npos);
            CHECK(mdlm_context_synchronize(late) == MDLM_ERROR_DEVICE);
            if (on.tape != nullptr) CHECK(on.forward() == MDLM_ERROR_DEVICE);
        }
        CHECK(device->allocations() == 0);
        mdlm_context_destroy(late);
    }
}

TEST_CASE("late device: memory that is not there leaves nothing behind, and the next try has it") {
    for (int64_t at = 0;; ++at) {
        REQUIRE(at < 200);
        CAPTURE(at);
        LateFaults faults;
        faults.allocation = at;
        LateDevice *device = nullptr;
        mdlm_context *late = mdlm_test::make_late_context(10, 1, faults, &device);
        mdlm_status status;
        {
            OnContext on(late, offloading);
            Step s;
            status = on.step(s);
        }
        CHECK(device->allocations() == 0);
        if (status != MDLM_OK) {
            CHECK(status == MDLM_ERROR_MEMORY);
            OnContext again(late, offloading);
            Step s;
            CHECK_OK(again.step(s));
        }
        mdlm_context_destroy(late);
        if (status == MDLM_OK) break;
    }
}
