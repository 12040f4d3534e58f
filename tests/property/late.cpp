// SPDX-License-Identifier: Apache-2.0
// On a device whose work is done late, in any order that its streams and events allow, drawn steps have the bits that
// they have on the CPU device; and what such a device needs to be told, and is not, is noticed.
#include <doctest/doctest.h>

#include <algorithm>
#include <functional>

#include "base/sizes.hpp"
#include "memory_world.hpp"
#include "plan/plan.hpp"
#include "support/late_device.hpp"
#include "support/repro.hpp"

using namespace property;
using mdlm_test::LateDevice;
using mdlm_test::LateFaults;

namespace {

Draw draw_of(uint64_t seed) {
    Draw d = draw(seed);
    if (d.config.params_dtype == MDLM_DTYPE_F64) d.config.params_dtype = d.config.grad_dtype = MDLM_DTYPE_F32;
    return d;
}

memory::Outcome on_cpu(const Draw &d) { return memory::World(d, memory::make_device(MDLM_DEVICE_CPU, 1)).run(); }

struct Late {
    memory::Outcome outcome;
    int64_t most_pending = 0, waits = 0, left = 0;
};
Late on_late(const Draw &d, uint64_t order, LateFaults faults = {}) {
    auto device = std::make_unique<LateDevice>(memory::make_device(MDLM_DEVICE_CPU, 1), order, faults);
    LateDevice &late = *device;
    memory::World world(d, std::move(device));
    Late l;
    l.outcome = world.run();
    l.most_pending = late.most_pending(), l.waits = late.waits();
    return l;
}

bool offloads(const Draw &d) { return d.config.cpu_offloading != 0 || d.edits.host > 0; }

// Of many draws, those that `concerns`: in some of them the outcome is another one than the CPU's.
void is_noticed(const char *what, const LateFaults &faults, const std::function<bool(const Draw &)> &concerns) {
    CAPTURE(what);
    int noticed = 0, tried = 0;
    for (uint64_t seed = 1; seed < 2000 && tried < 60 && noticed == 0; ++seed) {
        const Draw d = draw_of(seed);
        if (!concerns(d)) continue;
        ++tried;
        const memory::Outcome expected = on_cpu(d);
        for (uint64_t order = 0; order < 4 && noticed == 0; ++order)
            noticed += !(on_late(d, order, faults).outcome == expected);
    }
    CHECK_MESSAGE(noticed > 0, tried, " draws");
}

}  // namespace

TEST_CASE("late device: drawn steps have the CPU device's bits") {
    int64_t most = 0;
    int packed = 0, offloaded = 0, dropped = 0, shared = 0, several = 0;
    for (uint64_t seed = 1; seed <= 200; ++seed) {
        const Draw d = draw_of(seed);
        CAPTURE(describe(d));
        const memory::Outcome expected = on_cpu(d);
        for (uint64_t order = 0; order < 2; ++order) {
            const Late late = on_late(d, seed * 10 + order);
            CHECK(late.outcome == expected);
            most = std::max(most, late.most_pending);
        }
        packed += d.packed(), offloaded += offloads(d), dropped += d.drops();
        shared += d.shape.share_scratch != 0, several += d.shape.in_flight > 1;
    }
    MESSAGE("at most ", most, " pieces of work were pending");
    CHECK(most > 200);
    for (const int count : {packed, offloaded, dropped, shared, several}) CHECK(count > 10);
}

TEST_CASE("late device: the host waits for nothing in a step but what it reads") {
    for (uint64_t seed = 1; seed <= 40; ++seed) {
        const Draw d = draw_of(seed);
        CAPTURE(describe(d));
        auto device = std::make_unique<LateDevice>(memory::make_device(MDLM_DEVICE_CPU, 1), seed);
        LateDevice &late = *device;
        memory::World world(d, std::move(device));
        const int64_t before = late.waits();
        const memory::Outcome o = world.run();
        int64_t reads = 0, evaluations = 0;
        for (const auto &list : {&o.y, &o.dx})
            for (const memory::Bytes &b : *list) reads += b.size() > 0;
        for (const mdlm::ParamEntry &p : world.params().entries()) reads += p.grad_bytes > 0;
        for (const Event &e : d.events) evaluations += e.kind == Event::Kind::evaluate;
        const auto uploads = static_cast<int64_t>(2 * d.micro.size() + o.dx.size());
        // Images of calls are written again only when they were copied.
        const auto images = static_cast<int64_t>(d.events.size());
        CHECK(late.waits() - before <= reads + uploads + images);
        CHECK(late.pending() == 0);
    }
}

TEST_CASE("late device: what is forgotten is noticed") {
    LateFaults compute, transfer, host;
    compute.compute_waits = false, transfer.transfer_waits = false, host.host_waits = false;
    is_noticed("a slot is used again while it is being moved", compute, offloads);
    is_noticed("a slot is moved before it is made", transfer, offloads);
    is_noticed("documents and seeds are overwritten before they are copied", host, [](const Draw &d) {
        return (d.packed() || d.drops()) && d.shape.evaluate_in_flight != 0 && d.events.size() > 6;
    });
}
