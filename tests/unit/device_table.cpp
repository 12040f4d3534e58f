// SPDX-License-Identifier: Apache-2.0
// Device tables: times are integers that follow from table and cost alone; text goes there and back; a device measures
// its own.
#include <doctest/doctest.h>

#include <cstring>
#include <string>

#include "base/status.hpp"
#include "plan/device_table.hpp"
#include "plan/plan.hpp"
#include "support/checks.hpp"
#include "support/rig.hpp"

namespace {

using mdlm::Cost;
using mdlm::DeviceTable;
using mdlm::DType;
using mdlm::Work;

DeviceTable round_numbers() {
    DeviceTable t;
    t.name = "test";
    t.linear[0] = 1'000'000'000'000, t.attention[0] = 500'000'000'000, t.pointwise = 100'000'000'000;
    t.memory = 10'000'000'000, t.host = 1'000'000'000, t.link = 2'000'000'000;
    t.op_ns = 7, t.collective_ns = 11;
    return t;
}

std::string text_of(const std::string &table) {
    size_t length = 0;
    REQUIRE_OK(mdlm_device_table(table.c_str(), nullptr, 0, &length));
    std::string text(length + 1, '\0');
    REQUIRE_OK(mdlm_device_table(table.c_str(), text.data(), text.size(), nullptr));
    text.resize(length);
    return text;
}

std::string with(std::string text, const std::string &from, const std::string &to) {
    const size_t at = text.find(from);
    REQUIRE(at != std::string::npos);
    return text.replace(at, from.size(), to);
}

}  // namespace

TEST_CASE("device table: the slower of work and bytes, rounded up, and the fixed time") {
    const DeviceTable t = round_numbers();
    Cost c;
    c.work = Work::linear, c.flops = c.done = 5'000'000, c.bytes = 10'000;  // 5 us of work, 1 us of bytes
    CHECK(t.ns(c, DType::f32) == 5'000 + 7);
    c.bytes = 100'001;  // 10.0001 us
    CHECK(t.ns(c, DType::f32) == 10'001 + 7);
    c.work = Work::attention, c.bytes = 0, c.done = 1;
    CHECK(t.ns(c, DType::f32) == 1 + 7);
    c.work = Work::pointwise, c.flops = 1'000;
    CHECK(t.ns(c, DType::f32) == 10 + 7);
    c.work = Work::collective, c.done = 2'000;
    CHECK(t.ns(c, DType::f32) == 1'000 + 11);
    CHECK(t.copy_ns(5'000) == 1'000 + 7);  // read and written
    c.work = Work::linear, c.done = 1;
    CHECK_THROWS_WITH(t.ns(c, DType::bf16), "device table test: it has no rate of linear in bf16");
    c.done = INT64_MAX;
    CHECK(t.ns(c, DType::f32) == INT64_MAX / 1000 + 1 + 7);
    c.bytes = INT64_MAX;  // 9e17 ns
    CHECK(t.ns(c, DType::f32) == INT64_MAX / 10 + 1 + 7);
}

TEST_CASE("device table: copies to the host are hidden by the layer's own work where the device can") {
    DeviceTable t = round_numbers();
    CHECK(t.host_ns(0, 5, 5) == 0);
    CHECK(t.host_ns(1'000, 5'000, 5'000) == 2 * 1'007);
    t.host_overlaps = true;
    CHECK(t.host_ns(1'000, 5'000, 5'000) == 0);
    CHECK(t.host_ns(1'000, 1'000, 500) == 7 + 507);
}

TEST_CASE("device table: names, JSON there and back") {
    int32_t count = 0;
    for (; mdlm_device_table_name(count) != nullptr; ++count) {
        const std::string text = text_of(mdlm_device_table_name(count));
        INFO(text);
        CHECK(text.find("\"name\": \"" + std::string(mdlm_device_table_name(count)) + "\"") != std::string::npos);
        CHECK(text_of(text) == text);
        CHECK(mdlm::device_table(text) == mdlm::device_table(mdlm_device_table_name(count)));
    }
    CHECK(count == 5);
    CHECK(mdlm_device_table_name(-1) == nullptr);
    CHECK_FAILS(mdlm_device_table("H300", nullptr, 0, nullptr), MDLM_ERROR_NOT_FOUND,
                "expected one of cpu, A100-40GB, A100-80GB, H100, H200");
    CHECK_FAILS(mdlm_device_table(nullptr, nullptr, 0, nullptr), MDLM_ERROR_ARGUMENT, "table is NULL");
}

TEST_CASE("device table: what JSON may not be") {
    const std::string good = text_of("A100-40GB");
    const auto refused = [](const std::string &text, const char *what) {
        CHECK_FAILS(mdlm_device_table(text.c_str(), nullptr, 0, nullptr), MDLM_ERROR_FORMAT, what);
    };
    refused("{", "byte 2: this is not JSON");
    refused("{}", "format is missing");
    refused("{\"format\": \"mdlm-device-table\"}", "version is missing");
    refused(with(good, "\"version\": 1", "\"version\": 2"), "version: expected 1");
    refused(with(good, "mdlm-device-table", "mdlm-plan"), "format: expected \"mdlm-device-table\"");
    refused(with(good, "\"op_ns\": 3000", "\"op_ns\": -1"), "op_ns: expected an integer that is not negative");
    refused(with(good, "\"op_ns\": 3000", "\"op_ns\": 3.5"), "op_ns");
    refused(with(good, "\"op_ns\": 3000", "\"op_ns\": 9223372036854775808"), "op_ns: expected an integer below 2^61");
    refused(with(good, "\"op_ns\"", "\"op_time\""), "op_time: expected a key of the format");
    refused(with(good, "\"op_ns\": 3000", "\"op_ns\": [1]"), "op_ns");
    refused(with(good, "\"host_overlaps\": true", "\"host_overlaps\": 1"), "host_overlaps: expected true or false");
    refused(with(good, "\"name\": \"A100-40GB\"", "\"name\": \"a\\nb\""), "name: expected a text of one line");
    refused(with(good, "\"memory_bytes_per_s\": 1244000000000", "\"memory_bytes_per_s\": 0"), "memory_bytes_per_s");
    CHECK_FAILS(mdlm_device_table("x{", nullptr, 0, nullptr), MDLM_ERROR_FORMAT, "not JSON");
}

TEST_CASE("device table: a context measures its device, and its table is the planner's") {
    mdlm_test::Rig rig;
    rig.desc.device = MDLM_DEVICE_CPU;
    REQUIRE_OK(mdlm_context_create(&rig.desc, &rig.context));
    const auto current = [&] {
        size_t length = 0;
        REQUIRE_OK(mdlm_context_get_device_table(rig.context, nullptr, 0, &length));
        std::string text(length + 1, '\0');
        REQUIRE_OK(mdlm_context_get_device_table(rig.context, text.data(), text.size(), nullptr));
        text.resize(length);
        return text;
    };
    CHECK(current() == text_of("cpu"));
    REQUIRE_OK(mdlm_context_calibrate(rig.context, MDLM_DTYPE_F32));
    const std::string measured = current();
    CHECK(measured.find("measured in f32 on cpu") != std::string::npos);
    const DeviceTable t = mdlm::device_table(measured);
    for (const int64_t rate : {t.linear[0], t.attention[0], t.pointwise, t.memory, t.host, t.link})
        CHECK(rate > 1'000'000);
    CHECK(t.linear[1] == 0);
    CHECK(t.op_ns > 0);
    mdlm_context_stats stats = MDLM_CONTEXT_STATS_INIT;
    REQUIRE_OK(mdlm_context_get_stats(rig.context, &stats));
    CHECK(stats.arena_bytes == 0);

    CHECK_FAILS(mdlm_context_calibrate(rig.context, MDLM_DTYPE_F16), MDLM_ERROR_UNSUPPORTED,
                "the device does not run f16");
    CHECK_FAILS(mdlm_context_calibrate(rig.context, 9), MDLM_ERROR_ARGUMENT, "dtype = 9");
    CHECK_FAILS(mdlm_context_set_device_table(rig.context, "H100"), MDLM_ERROR_UNSUPPORTED,
                "stands for another device");
    CHECK_FAILS(mdlm_context_set_device_table(rig.context, "{}"), MDLM_ERROR_FORMAT, "format is missing");
    CHECK(current() == measured);
    REQUIRE_OK(mdlm_context_set_device_table(rig.context, "cpu"));
    CHECK(current() == text_of("cpu"));
    REQUIRE_OK(mdlm_context_set_device_table(rig.context, measured.c_str()));
    CHECK(current() == measured);

    // A plan of the context's block is timed by its table; one made without it by "cpu".
    REQUIRE_OK(mdlm_block_create(rig.context, &rig.config, &rig.block));
    REQUIRE_OK(mdlm_block_plan(rig.block, &rig.shape, &rig.plan));
    CHECK(rig.plan != nullptr);
    mdlm_target target = MDLM_TARGET_INIT;
    target.device_table = measured.c_str(), target.num_threads = rig.desc.num_threads;
    mdlm_plan *other = nullptr;
    REQUIRE_OK(mdlm_plan_create(&rig.config, &rig.shape, &target, &other));
    mdlm_plan_cost a = MDLM_PLAN_COST_INIT, b = MDLM_PLAN_COST_INIT;
    REQUIRE_OK(mdlm_plan_get_cost(rig.plan, &a));
    REQUIRE_OK(mdlm_plan_get_cost(other, &b));
    CHECK(a.forward_ns == b.forward_ns);
    CHECK(a.backward_ns == b.backward_ns);
    mdlm_plan_destroy(other);
}
