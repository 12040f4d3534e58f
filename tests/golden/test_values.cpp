// SPDX-License-Identifier: Apache-2.0
// The golden cases on every device and in the precisions whose error is rounding noise.
#include <algorithm>
#include <doctest/doctest.h>

#include "golden_support.hpp"

namespace golden {
namespace {

void expect_within(double tolerance, mdlm_device_kind device, const SettingsOnTop &settings) {
    for (const std::string &name : case_names()) {
        CAPTURE(name);
        const mdlm::tools::Errors e = mdlm::tools::errors_of(run(name, device, settings), case_named(name));
        INFO("worst gradient: ", e.worst);
        CHECK(e.output <= tolerance);
        CHECK(e.grad_input <= tolerance);
        CHECK(e.grad <= tolerance);
    }
}

// The runner transposes what a batch_first block takes and makes, so the numbers compare as they stand. What is
// computed token by token keeps its bits where the kernel's do not depend on where in the array a row lies (the
// reference); sums over tokens run in the order of the rows, which is another.
struct Allowed {
    bool same_bits_per_token;
    double difference;
};
void expect_same_batch_first(mdlm_device_kind device, const std::string &dtype, const Allowed &allowed) {
    using mdlm::tools::relative_error;
    for (const std::string backend : {"fused", "unfused"})
        for (const std::string &name : case_names()) {
            CAPTURE(dtype);
            CAPTURE(backend);
            CAPTURE(name);
            SettingsOnTop settings = {{"params_dtype", dtype}, {"attention_backend", backend}};
            const mdlm::tools::Outcome a = run(name, device, settings);
            settings.emplace_back("batch_first", "true");
            const mdlm::tools::Outcome b = run(name, device, settings);
            if (allowed.same_bits_per_token) {
                CHECK(a.output == b.output);
                CHECK(a.grad_input == b.grad_input);
            }
            CHECK(relative_error(a.output, b.output) <= allowed.difference);
            CHECK(relative_error(a.grad_input, b.grad_input) <= allowed.difference);
            for (const auto &entry : a.grads) {
                CAPTURE(entry.first);
                CHECK(relative_error(entry.second, b.grads.at(entry.first)) <= allowed.difference);
            }
            if (name == "packed") CHECK(difference(a, b) == "");  // one sequence: the same array
        }
}

}  // namespace

TEST_CASE("golden: the eight cases are there and their results are not trivial") {
    CHECK(case_names() ==
          std::vector<std::string>{"block_causal", "dlm", "gpt", "gqa", "odd", "packed", "relu2", "window"});
    for (const std::string &name : case_names()) {
        CAPTURE(name);
        const mdlm::tools::Case &c = case_named(name);
        CHECK(c.params.size() == c.grads.size());
        for (const auto &entry : c.grads) {
            const std::string &parameter = entry.first;
            CAPTURE(parameter);
            const auto zeros = std::count(entry.second.values.begin(), entry.second.values.end(), 0.0);
            CHECK(zeros * 2 < static_cast<std::ptrdiff_t>(entry.second.values.size()));
        }
    }
}

TEST_CASE("golden: reference f64 is within 1e-12") {
    expect_within(1e-12, MDLM_DEVICE_REFERENCE, {{"params_dtype", "f64"}});
}

TEST_CASE("golden: reference f64, unfused attention, is within 1e-12") {
    expect_within(1e-12, MDLM_DEVICE_REFERENCE, {{"params_dtype", "f64"}, {"attention_backend", "unfused"}});
}

TEST_CASE("golden: f32 is within 2e-5") {
    for (const Place &place : places) {
        CAPTURE(std::string(place.name));
        expect_within(2e-5, place.kind, {{"params_dtype", "f32"}});
    }
}

TEST_CASE("golden: f32, unfused attention, is within 2e-5") {
    for (const Place &place : places) {
        CAPTURE(std::string(place.name));
        expect_within(2e-5, place.kind, {{"params_dtype", "f32"}, {"attention_backend", "unfused"}});
    }
}

TEST_CASE("golden: batch_first gives the same numbers") {
    expect_same_batch_first(MDLM_DEVICE_REFERENCE, "f64", {true, 1e-13});
    expect_same_batch_first(MDLM_DEVICE_REFERENCE, "f32", {true, 5e-7});
    expect_same_batch_first(MDLM_DEVICE_REFERENCE, "bf16", {true, 5e-7});  // gradients of parameters are f32
    expect_same_batch_first(MDLM_DEVICE_CPU, "f32", {false, 5e-6});
    expect_same_batch_first(MDLM_DEVICE_CPU, "bf16", {false, 3e-2});
}

}  // namespace golden
