// SPDX-License-Identifier: Apache-2.0
// Programs that no config makes: what would go wrong in them without a word is right, or refused with INTERNAL.
#include <doctest/doctest.h>

#include <cstring>
#include <functional>
#include <vector>

#include "block/block.hpp"
#include "support/programs.hpp"
#include "support/wrapped_device.hpp"

using namespace mdlm;
using mdlm_test::ProgramMaker;

namespace {

constexpr int64_t width = 8;

mdlm_status status_of(const std::function<void()> &f, const char *word) {
    try {
        f();
    } catch (const Error &e) {
        CHECK_MESSAGE(std::strstr(e.what(), word) != nullptr, e.what());
        return e.status();
    }
    return MDLM_OK;
}

// One layer as `layer`, and a final norm over its output, whose statistics stand with its input.
BlockPlanInput block_of(std::shared_ptr<const Program> layer, int64_t norm_width) {
    ProgramMaker m(norm_width);
    const BufferId y = m.norm("output", m.p.input);
    m.p.buffers[m.p.ops[0]->out[1]].main = m.p.input;
    BlockPlanInput in;
    in.chain.list = {{std::move(layer), "", "layers.0.", 0, true, true}, {m.take(y), "final norm", "", 1}};
    for (int64_t i = 0; i < in.chain.items(); ++i) {
        const Program &p = in.chain.of(i);
        in.trains.emplace_back(p.params.size(), 1);
        in.policies.items.emplace_back(p.buffers.size(), Storage::keep);
        in.policies.units.push_back({i, 1});
    }
    in.traits = traits_of(MDLM_DEVICE_REFERENCE, 1);
    in.bound = {1000, 1000};
    return in;
}

}  // namespace

TEST_CASE("odd programs: boundaries of several sizes") {
    ProgramMaker wide(width);
    const BufferId y = wide.linear("output", wide.p.input, 8 * width);
    const auto layer = wide.take(y);
    const auto plan = make_block_plan(block_of(layer, 8 * width));
    const int64_t boundary = 1000 * 8 * width * 4;
    CHECK(plan->fixed_bytes >= boundary);  // a slot for the gradient of the larger one
    for (const auto *list : {&plan->forward, &plan->backward})
        for (const PlanEntry &e : *list)
            for (const Place *p : {&e.x, &e.y, &e.dy, &e.dx})
                if (p->kind == Place::Kind::fixed) CHECK(p->offset + boundary <= plan->fixed_bytes);
    CHECK(status_of([&] { make_block_plan(block_of(layer, width)); }, "layer 0 makes an output") ==
          MDLM_ERROR_INTERNAL);
}

TEST_CASE("odd programs: whatever runs is prepared, in the final norm's place too") {
    struct Listening final : mdlm_test::WrappedDevice {
        using WrappedDevice::WrappedDevice;
        void prepare(Kernel kernel, const KernelSize &size) override {
            if (kernel == Kernel::linear_forward) widths.push_back(size.n);
        }
        std::vector<int64_t> widths;
    } device(make_reference_device());
    ProgramMaker a(width), b(width);
    const BufferId out_a = a.linear("output", a.p.input, width), out_b = b.linear("output", b.p.input, 3 * width);
    BlockPlanInput in = block_of(a.take(out_a), width);
    in.chain.list[1].program = b.take(out_b);
    in.policies.items[1].assign(in.chain.of(1).buffers.size(), Storage::keep);
    const auto plan = make_block_plan(std::move(in));
    prepare_ops(device, *plan, {10, 10});
    CHECK(device.widths == std::vector<int64_t>{width, 3 * width});
}
