// SPDX-License-Identifier: Apache-2.0
// Every op runs exactly as often as its schedule says, seen by a device that counts and refuses what was not prepared;
// and at most once more in replay for the named settings.
#include <doctest/doctest.h>

#include <cstring>
#include <map>
#include <string>

#include "lifetimes.hpp"
#include "support/prepared_device.hpp"
#include "support/repro.hpp"

namespace {

using namespace property;
using namespace property::memory;

using Calls = std::map<std::string, int64_t>;

class Counting final : public mdlm_test::WrappedDevice {
public:
    Counting(std::unique_ptr<mdlm::Device> inner, Calls &calls) : WrappedDevice(std::move(inner)), calls_(calls) {}
    void launch(mdlm::Kernel kernel, const void *arguments) override {
        ++calls_[op_of(mdlm::name_of(kernel))];
        WrappedDevice::launch(kernel, arguments);
    }

private:
    // The op that calls it has the same name, mostly.
    static std::string op_of(std::string kernel) {
        for (const char *forward : {"norm_forward", "linear_forward", "attention_forward", "activation_forward"})
            if (kernel == forward) kernel.resize(kernel.size() - std::strlen("_forward"));
        if (kernel.rfind("attn_", 0) == 0) kernel.replace(0, std::strlen("attn"), "attention");
        return kernel;
    }
    Calls &calls_;
};

}  // namespace

TEST_CASE("kernels are called as often as the schedules say, and in the named settings replayed at most once") {
    for (uint64_t seed = 1000; seed < (mdlm_test::sanitized ? 1050 : 1200); ++seed) {
        Draw d = draw(seed);
        const bool named = seed % 2 == 0;
        if (named) d.edits = {};
        mdlm_test::repro(describe(d));
        INFO(describe(d));
        Calls seen, planned;
        World world(d, std::make_unique<Counting>(
                           std::make_unique<mdlm_test::PreparedDevice>(make_device(MDLM_DEVICE_REFERENCE, 1)), seen));
        world.run();
        // By event and op, then by layer.
        std::map<std::pair<size_t, const mdlm::Op *>, std::map<int64_t, int64_t>> replays;
        for (const Line &line : derive(world).lines) {
            if (line.step == nullptr) continue;
            const mdlm::Op &op = line.entry->schedule->op(*line.step);
            ++planned[op.name()];
            if (line.step->replay || line.entry->replay) ++replays[{line.event, &op}][line.entry->item];
        }
        CHECK(seen == planned);
        if (!named) continue;
        for (const auto &[op, by_layer] : replays)
            for (const auto &[layer, count] : by_layer) CHECK(count == 1);
    }
}
