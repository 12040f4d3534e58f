// SPDX-License-Identifier: Apache-2.0
#include "fuzz/calls_machine.hpp"

#include <algorithm>
#include <cstdlib>
#include <iterator>

namespace fuzz {

uint8_t Bytes::next() {
    if (left_.empty()) return '0';
    const auto byte = static_cast<uint8_t>(left_[0]);
    left_.remove_prefix(1);
    return byte;
}

int64_t Bytes::number() {
    static constexpr int64_t edges[] = {INT64_MAX,
                                        INT64_MIN,
                                        INT64_MIN + 1,
                                        -1,
                                        INT32_MAX,
                                        INT32_MIN,
                                        int64_t{1} << 32,
                                        int64_t{1} << 62,
                                        int64_t{1} << 24,
                                        (int64_t{1} << 24) + 1,
                                        1 << 20,
                                        65535,
                                        65536,
                                        65537,
                                        4095,
                                        4096,
                                        4097,
                                        1024,
                                        1023,
                                        256,
                                        255,
                                        128,
                                        100,
                                        INT64_MAX / 2,
                                        INT64_MAX / 8,
                                        UINT32_MAX};
    const uint8_t byte = next();
    return byte < 0x80 ? byte - '0' : edges[byte % std::size(edges)];
}

mdlm_allocator Counter::table() {
    return {sizeof(mdlm_allocator),
            [](void *payload, size_t bytes, size_t alignment, void *) -> void * {
                auto &self = *static_cast<Counter *>(payload);
                if (bytes == 0 || alignment == 0 || (alignment & (alignment - 1)) != 0 || alignment > 4096)
                    self.wrong = "an allocation of no bytes or alignment";
                constexpr size_t most = size_t{8} << 20;
                if (self.refuses || bytes > most) return nullptr;
                void *memory = std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
                if (memory == nullptr) return nullptr;
                std::memset(memory, 0xff, bytes);  // NaN, whatever the dtype
                self.live += static_cast<int64_t>(bytes);
                self.blocks[memory] = {bytes, alignment};
                return memory;
            },
            [](void *payload, void *memory, size_t bytes, size_t alignment, void *) {
                auto &self = *static_cast<Counter *>(payload);
                const auto at = self.blocks.find(memory);
                if (at == self.blocks.end() || at->second != std::pair{bytes, alignment}) {
                    self.wrong = "memory was given back that was not taken, or with other bytes";
                    return;
                }
                self.live -= static_cast<int64_t>(bytes);
                self.blocks.erase(at);
                std::free(memory);
            },
            this};
}

Machine::~Machine() {
    for (Tape &t : tapes) mdlm_tape_destroy(std::exchange(t.handle, nullptr));
    for (Block &b : blocks) mdlm_block_destroy(std::exchange(b.handle, nullptr));
    for (PlanSlot &p : plans) mdlm_plan_destroy(std::exchange(p.handle, nullptr));
    for (Context &c : contexts) mdlm_context_destroy(std::exchange(c.handle, nullptr));
    for (mdlm_comm *&c : comms) mdlm_comm_destroy(std::exchange(c, nullptr));
    for (const auto &counter : counters)
        for (const auto &[memory, bytes] : counter->blocks) std::free(memory);
}

int64_t Machine::live() const {
    int64_t sum = 0;
    for (const auto &c : counters) sum += c->live;
    return sum;
}

void Machine::end() {
    const size_t first = in.pick(4);
    for (size_t i = 0; i < 4; ++i) {
        switch ((first + i) % 4) {
        case 0:
            for (Tape &t : tapes) mdlm_tape_destroy(std::exchange(t.handle, nullptr));
            break;
        case 1:
            for (Block &b : blocks) mdlm_block_destroy(std::exchange(b.handle, nullptr));
            break;
        case 2:
            for (Context &c : contexts) mdlm_context_destroy(std::exchange(c.handle, nullptr));
            break;
        case 3:
            for (mdlm_comm *&c : comms) mdlm_comm_destroy(std::exchange(c, nullptr));
        }
    }
    for (const auto &c : counters) {
        if (!c->wrong.empty()) found("allocator: %s", c->wrong.c_str());
        if (c->live != 0 || !c->blocks.empty()) found("%lld bytes are not given back at the end", (long long)c->live);
    }
}

// What the context says that it holds is what its allocators gave, and is what the plans of its blocks foretold.
void Machine::check_memory(const Block &of) {
    if (of.context.handle == nullptr) return;
    mdlm_context_stats stats = MDLM_CONTEXT_STATS_INIT;
    answered(mdlm_context_get_stats(of.context.handle, &stats), "mdlm_context_get_stats", {MDLM_OK});
    const auto arena = static_cast<int64_t>(stats.arena_bytes), host = static_cast<int64_t>(stats.host_bytes);
    const auto parameters = static_cast<int64_t>(stats.parameter_bytes),
               gradients = static_cast<int64_t>(stats.gradient_bytes);
    const Counter &device = *of.context.device;
    if (device.live != arena + parameters + gradients + device.own)
        found("%lld bytes are allocated, said are %lld", (long long)device.live,
              (long long)(arena + parameters + gradients + device.own));
    if (of.context.host->live != host)
        found("%lld bytes of the host are allocated, said are %lld", (long long)of.context.host->live, (long long)host);

    int64_t peaks = 0, hosts = 0, all_parameters = 0, all_gradients = 0;
    bool known = !shared_once;
    for (const Block &b : blocks) {
        if (b.handle == nullptr || b.context.device != of.context.device) continue;
        if (!b.reserved) continue;
        mdlm_memory m = MDLM_MEMORY_INIT;  // with the parameters that are still the library's
        answered(mdlm_block_memory(b.handle, &m), "mdlm_block_memory", {MDLM_OK});
        peaks += static_cast<int64_t>(m.peak_bytes), hosts += static_cast<int64_t>(m.host_bytes);
        all_parameters += static_cast<int64_t>(m.parameter_bytes),
            all_gradients += static_cast<int64_t>(m.gradient_bytes);
    }
    for (const Tape &t : tapes)  // a block whose handle is gone lives on in its tapes
        if (t.handle != nullptr &&
            std::none_of(blocks.begin(), blocks.end(), [&](const Block &b) { return b.handle == t.of; }))
            known = false;
    if (!known) return;
    if (arena != peaks) found("arena_bytes is %lld, the peaks foretold are %lld", (long long)arena, (long long)peaks);
    if (host != hosts) found("host_bytes is %lld, foretold were %lld", (long long)host, (long long)hosts);
    if (parameters != all_parameters || gradients != all_gradients)
        found("parameters and gradients take %lld and %lld bytes, blocks say %lld and %lld", (long long)parameters,
              (long long)gradients, (long long)all_parameters, (long long)all_gradients);
}

void calls(std::string_view input) {
    Machine machine(input);
    machine.run();
    machine.end();
}

}  // namespace fuzz
