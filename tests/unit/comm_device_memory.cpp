// SPDX-License-Identifier: Apache-2.0
// Communicators for device memory: they are given what the device's allocator gave and nothing else, whatever ranks
// compare, gather and run; with a communicator for host memory beside them, they are given the data of steps alone.
#include <doctest/doctest.h>

#include <cstdlib>
#include <functional>
#include <map>

#include "support/rank_cases.hpp"
#include "support/rank_rig.hpp"

using namespace mdlm_test;

namespace {

// The memory of a device, as far as a test can tell it from the host's.
struct DeviceMemory {
    std::map<const char *, size_t> blocks;
    mdlm_allocator table() {
        return {sizeof(mdlm_allocator),
                [](void *payload, size_t bytes, size_t alignment, void *) -> void * {
                    void *at = std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
                    static_cast<DeviceMemory *>(payload)->blocks[static_cast<char *>(at)] = bytes;
                    return at;
                },
                [](void *payload, void *memory, size_t, size_t, void *) {
                    static_cast<DeviceMemory *>(payload)->blocks.erase(static_cast<char *>(memory));
                    std::free(memory);
                },
                this};
    }
    bool has(const void *at, size_t bytes) const {
        const auto *p = static_cast<const char *>(at);
        auto next = blocks.upper_bound(p);
        if (next == blocks.begin()) return false;
        --next;
        return p + bytes <= next->first + next->second;
    }
    bool touches(const void *at, size_t bytes) const {
        const auto *p = static_cast<const char *>(at);
        for (const auto &[begin, size] : blocks)
            if (p < begin + size && begin < p + bytes) return true;
        return false;
    }
};

// Functions over a group of threads that look at every buffer.
struct Watched {
    Watched(mdlm_comm *inner, const DeviceMemory &memory, mdlm_memory_space space)
        : inner(inner), memory(memory), space(space) {}
    ~Watched() { mdlm_comm_destroy(comm); }
    Watched(const Watched &) = delete;

    mdlm_comm *inner, *comm = nullptr;
    const DeviceMemory &memory;
    mdlm_memory_space space;
    int64_t calls = 0, wrong = 0, aborts = 0, fail_at = -1;

    bool look(const void *send, int64_t send_count, const void *recv, int64_t recv_count, mdlm_dtype dtype) {
        const size_t element = dtype == MDLM_DTYPE_F64 ? 8 : dtype == MDLM_DTYPE_F32 ? 4 : 2;
        for (const auto &[at, count] : {std::pair{send, send_count}, {recv, recv_count}}) {
            const size_t bytes = static_cast<size_t>(count) * element;
            wrong += space == MDLM_MEMORY_SPACE_DEVICE ? !memory.has(at, bytes) : memory.touches(at, bytes);
        }
        if (calls++ != fail_at) return true;
        mdlm_set_last_error("the wire is cut");
        return false;
    }
    mdlm_status take() {
        mdlm_comm_table t = MDLM_COMM_TABLE_INIT;
        mdlm_comm_rank(inner, &t.rank, &t.size);
        t.memory_space = space, t.payload = this;
        static const auto self = [](void *p) -> Watched & { return *static_cast<Watched *>(p); };
        t.all_reduce = [](void *p, const void *send, void *recv, int64_t n, mdlm_dtype type, mdlm_reduce_op op,
                          int64_t timeout, void *) {
            if (!self(p).look(send, n, recv, n, type)) return MDLM_ERROR_COMM + 0;
            return mdlm_comm_all_reduce(self(p).inner, send, recv, n, type, op, timeout);
        };
        t.all_gather = [](void *p, const void *send, void *recv, int64_t n, mdlm_dtype type, int64_t timeout, void *) {
            if (!self(p).look(send, n, recv, n * self(p).size(), type)) return MDLM_ERROR_COMM + 0;
            return mdlm_comm_all_gather(self(p).inner, send, recv, n, type, timeout);
        };
        t.reduce_scatter = [](void *p, const void *send, void *recv, int64_t n, mdlm_dtype type, mdlm_reduce_op op,
                              int64_t timeout, void *) {
            if (!self(p).look(send, n * self(p).size(), recv, n, type)) return MDLM_ERROR_COMM + 0;
            return mdlm_comm_reduce_scatter(self(p).inner, send, recv, n, type, op, timeout);
        };
        t.abort = [](void *p) {
            ++self(p).aborts;
            mdlm_comm_abort(self(p).inner);
        };
        t.destroy = [](void *p) { mdlm_comm_destroy(std::exchange(self(p).inner, nullptr)); };
        return mdlm_comm_create(&t, &comm);
    }
    int32_t size() const {
        int32_t n = 0;
        mdlm_comm_rank(inner, nullptr, &n);
        return n;
    }
    int64_t since() { return std::exchange(calls, 0); }
};

using Settings = std::vector<std::pair<const char *, const char *>>;
const Settings all_settings[] = {
    {{"recompute_granularity", "selective"}},
    {{"sequence_parallel", "1"}, {"batch_first", "1"}, {"hidden_dropout", "0"}, {"add_bias_linear", "0"}},
    {{"recompute_granularity", "full"},
     {"recompute_method", "uniform"},
     {"recompute_num_layers", "1"},
     {"distribute_saved_activations", "1"}},
    {{"recompute_granularity", "full"}, {"sequence_parallel", "1"}, {"qk_layernorm", "1"}, {"params_dtype", "bf16"}},
};

// A rig whose x, y, dy and dx are the device's, and all that a group can do with it: the bits of everything.
struct Step {
    Rig rig;
    void *x = nullptr, *y = nullptr, *dy = nullptr, *dx = nullptr;
    size_t bytes = 0;

    std::string open(Rank &r, const Settings &settings) {
        for (const auto &[key, value] : settings) EXPECT_OK(mdlm_config_set(&rig.config, key, value));
        mdlm_comm *const comm = rig.desc.comm;
        join_group(rig, r);
        rig.desc.comm = comm;
        rig.desc.device = MDLM_DEVICE_CPU;
        rig.shape.evaluate_in_flight = 1;
        EXPECT_OK(rig.open());
        mdlm_io io = MDLM_IO_INIT;
        EXPECT_OK(mdlm_block_io(rig.block, &rig.batch, &io));
        bytes = io.bytes;
        const void *const host[] = {rig.x.get(), rig.y.get(), rig.dy.get(), rig.dx.get()};
        void **const device[] = {&x, &y, &dy, &dx};
        for (int i = 0; i < 4; ++i) {
            EXPECT_OK(mdlm_context_alloc(rig.context, bytes, device[i]));
            EXPECT_OK(mdlm_context_copy(rig.context, *device[i], host[i], bytes));
        }
        return "";
    }
    void close() {
        for (void *at : {x, y, dy, dx})
            if (at != nullptr) mdlm_context_free(rig.context, at, bytes);
        rig.close();
    }
    mdlm_status forward() { return mdlm_block_forward(rig.block, &rig.batch, x, rig.tape, y); }
    mdlm_status evaluate() { return mdlm_block_forward(rig.block, &rig.batch, x, nullptr, y); }
    mdlm_status backward() { return mdlm_block_backward(rig.block, rig.tape, nullptr, dy, dx); }
    uint64_t digest() {
        mdlm_context_copy(rig.context, rig.y.get(), y, bytes);
        mdlm_context_copy(rig.context, rig.dx.get(), dx, bytes);
        return rig.digest();
    }
    // Of a parameter, its gradient, and a shard of the caller's on the device.
    std::string gathers(uint64_t *hash) {
        int64_t count = 0;
        EXPECT_OK(mdlm_param_count(rig.block, &count));
        for (int64_t i = 0; i < count; ++i) {
            mdlm_param_desc d = MDLM_PARAM_DESC_INIT;
            EXPECT_OK(mdlm_param_info(rig.block, i, &d));
            std::vector<double> all(static_cast<size_t>(d.full_shape[0] * (d.ndim == 2 ? d.full_shape[1] : 1)));
            const size_t whole = all.size() * sizeof(double);
            EXPECT_OK(mdlm_param_gather(rig.block, i, MDLM_DTYPE_F64, all.data(), whole));
            *hash = fnv(all.data(), whole, *hash);
            EXPECT_OK(mdlm_param_grad_gather(rig.block, i, MDLM_DTYPE_F64, all.data(), whole));
            *hash = fnv(all.data(), whole, *hash);
            void *grad = nullptr;
            EXPECT_OK(mdlm_param_data(rig.block, i, nullptr, &grad));
            EXPECT_OK(mdlm_param_shard_gather(rig.block, i, grad, d.grad_dtype, d.grad_bytes, MDLM_DTYPE_F64,
                                              all.data(), whole));
            *hash = fnv(all.data(), whole, *hash);
        }
        return "";
    }
};

}  // namespace

TEST_CASE("device memory: a group's calls have the bits of threads, and the communicator sees the device's alone") {
    for (const int size : {1, 2, 4})
        for (const Settings &settings : all_settings) {
            if (size == 1 && settings.size() == 4 && std::string(settings[3].first) == "distribute_saved_activations")
                continue;
            CAPTURE(size);
            CAPTURE(settings[0].first);
            CAPTURE(settings.size());
            std::vector<std::array<uint64_t, 2>> good(static_cast<size_t>(size));
            for (const int with : {0, 1, 2}) {  // threads' own; for device memory; with one for the host beside it
                CAPTURE(with);
                std::vector<mdlm_comm *> host(static_cast<size_t>(size));
                REQUIRE_OK(mdlm_comm_create_threads(size, host.data()));
                const std::string wrong = on_threads(size, [&](Rank &r) -> std::string {
                    DeviceMemory memory;
                    const mdlm_allocator table = memory.table();
                    Watched device(r.comm, memory, MDLM_MEMORY_SPACE_DEVICE);
                    Watched channel(host[static_cast<size_t>(r.rank)], memory, MDLM_MEMORY_SPACE_HOST);
                    EXPECT_OK(channel.take());
                    Step step;
                    step.rig.desc.device_allocator = &table;
                    step.rig.desc.comm = r.comm;
                    if (with > 0) {
                        EXPECT_OK(device.take());
                        r.comm = nullptr;
                        step.rig.desc.comm = device.comm;
                    }
                    if (with == 2) step.rig.desc.host_comm = channel.comm;
                    const std::string opened = step.open(r, settings);
                    if (!opened.empty()) return opened;
                    // How often each is called: agreement, and the collectives that the tape counts.
                    const auto called = [&](int64_t collectives, int64_t agreed, const char *call) -> std::string {
                        const int64_t on_device = device.since(), on_host = channel.since();
                        if (with == 0 || size == 1) return "";
                        const bool good = with == 1 ? on_device == collectives + agreed && on_host == 0
                                                    : on_device == collectives && on_host == agreed;
                        if (good) return "";
                        return std::string(call) + ": " + std::to_string(on_device) + " on the device, " +
                               std::to_string(on_host) + " on the host";
                    };
                    mdlm_tape_stats stats = MDLM_TAPE_STATS_INIT;
                    device.since(), channel.since();
                    EXPECT_OK(step.forward());
                    EXPECT_OK(mdlm_tape_get_stats(step.rig.tape, &stats));
                    EXPECT(called(static_cast<int64_t>(stats.forward_collectives), 1, "forward") == "");
                    EXPECT_OK(step.evaluate());
                    EXPECT(called(static_cast<int64_t>(stats.forward_collectives), 1, "evaluation") == "");
                    EXPECT_OK(step.backward());
                    EXPECT_OK(mdlm_tape_get_stats(step.rig.tape, &stats));
                    EXPECT(called(static_cast<int64_t>(stats.backward_collectives + stats.replayed_collectives +
                                                       stats.gradient_collectives),
                                  1, "backward") == "");
                    std::array<uint64_t, 2> seen = {step.digest(), 0};
                    device.since(), channel.since();
                    const std::string gathered = step.gathers(&seen[1]);
                    if (!gathered.empty()) return gathered;
                    if (with == 2 && size > 1) EXPECT(device.since() == 0);
                    if (with == 2 && size > 1) EXPECT(channel.since() > 0);
                    std::array<uint64_t, 2> &first = good[static_cast<size_t>(r.rank)];
                    if (with == 0) first = seen;
                    EXPECT(seen == first);
                    // What the group refuses names what differs, by whatever way it went.
                    if (size > 1) {
                        mdlm_shape other = step.rig.shape;
                        if (r.rank == 1) other.max_documents = 3;
                        mdlm_tape_destroy(std::exchange(step.rig.tape, nullptr));
                        EXPECT_FAILS(mdlm_block_reserve(step.rig.block, &other, nullptr), MDLM_ERROR_SHAPE,
                                     "max_documents differs between ranks: 0 on rank 0, 3 on rank 1");
                        mdlm_plan *plan = nullptr;
                        EXPECT_OK(mdlm_block_plan(step.rig.block, &step.rig.shape, &plan));
                        const bool replays = std::string(settings[0].second) == "full";
                        if (r.rank == 1 && !replays) EXPECT_OK(mdlm_plan_set_unit(plan, 0, 2));
                        const mdlm_status status = mdlm_block_reserve(step.rig.block, &step.rig.shape, plan);
                        mdlm_plan_destroy(plan);
                        if (replays) EXPECT_SAID(status, MDLM_OK, "");
                        else
                            EXPECT_SAID(status, MDLM_ERROR_CONFIG,
                                        "plan of layer 0: its unit differs between ranks: 1 from layer 0 on rank 0, 2 "
                                        "from layer 0 on rank 1");
                    }
                    EXPECT(device.wrong == 0);
                    EXPECT(channel.wrong == 0);
                    step.close();
                    EXPECT(memory.blocks.empty() || with == 0);
                    return "";
                });
                CHECK(wrong == "");
            }
        }
}

TEST_CASE("device memory: forward and backward ask neither allocator") {
    const std::string wrong = on_threads(2, [&](Rank &r) -> std::string {
        DeviceMemory memory;
        const mdlm_allocator table = memory.table();
        Watched device(std::exchange(r.comm, nullptr), memory, MDLM_MEMORY_SPACE_DEVICE);
        EXPECT_OK(device.take());
        Step step;
        step.rig.desc.device_allocator = &table, step.rig.desc.comm = device.comm;
        const std::string opened = step.open(r, all_settings[1]);
        if (!opened.empty()) return opened;
        mdlm_context_stats before = MDLM_CONTEXT_STATS_INIT, after = MDLM_CONTEXT_STATS_INIT;
        EXPECT_OK(mdlm_context_get_stats(step.rig.context, &before));
        EXPECT_OK(step.forward());
        EXPECT_OK(step.backward());
        EXPECT_OK(mdlm_context_get_stats(step.rig.context, &after));
        EXPECT(before.allocations == after.allocations);
        step.close();
        return "";
    });
    CHECK(wrong == "");
}

TEST_CASE("device memory: a channel for the host that does not fit is refused, and one that fits is kept") {
    mdlm_comm *two[2] = {}, *three[3] = {}, *pair[2] = {};
    REQUIRE_OK(mdlm_comm_create_threads(2, two));
    REQUIRE_OK(mdlm_comm_create_threads(2, pair));
    REQUIRE_OK(mdlm_comm_create_threads(3, three));
    DeviceMemory memory;
    {
        Watched device(pair[0], memory, MDLM_MEMORY_SPACE_DEVICE);
        Watched other(pair[1], memory, MDLM_MEMORY_SPACE_DEVICE);
        REQUIRE_OK(device.take());
        REQUIRE_OK(other.take());
        Rig rig, second;
        const auto refused = [&](mdlm_comm *comm, mdlm_comm *host, mdlm_status status, const char *line) {
            rig.desc.comm = comm, rig.desc.host_comm = host;
            CHECK_FAILS(mdlm_context_create(&rig.desc, &rig.context), status, line);
            CHECK(rig.context == nullptr);
        };
        refused(nullptr, two[0], MDLM_ERROR_ARGUMENT, "desc.host_comm");
        refused(three[0], two[0], MDLM_ERROR_ARGUMENT, "desc.comm is for host memory");
        refused(device.comm, other.comm, MDLM_ERROR_ARGUMENT, "desc.host_comm is for device memory");
        refused(device.comm, device.comm, MDLM_ERROR_ARGUMENT, "desc.host_comm is for device memory");
        refused(device.comm, two[1], MDLM_ERROR_ARGUMENT, "desc.host_comm is rank 1 of 2: expected 0 of 2");
        refused(device.comm, three[0], MDLM_ERROR_ARGUMENT, "desc.host_comm is rank 0 of 3: expected 0 of 2");
        second.desc.comm = two[0];
        REQUIRE_OK(mdlm_context_create(&second.desc, &second.context));
        refused(device.comm, two[0], MDLM_ERROR_STATE, "desc.host_comm");
        second.close();
        // What was refused has kept neither; now they do.
        rig.desc.comm = device.comm, rig.desc.host_comm = two[0];
        REQUIRE_OK(mdlm_context_create(&rig.desc, &rig.context));
        CHECK_FAILS(mdlm_context_create(&second.desc, &second.context), MDLM_ERROR_STATE, "in use by another context");
        mdlm_comm_destroy(std::exchange(two[0], nullptr));
        CHECK(device.aborts == 0);
        rig.close();
    }
    CHECK(memory.blocks.empty());
    for (mdlm_comm *c : {two[1], three[0], three[1], three[2]}) mdlm_comm_destroy(c);
}

TEST_CASE("device memory: what ends one of the two ends both, and nobody waits in the other") {
    for (const int how : {0, 1, 2, 3}) {  // an abort of either, and a failure in either
        CAPTURE(how);
        std::vector<mdlm_comm *> host(2);
        REQUIRE_OK(mdlm_comm_create_threads(2, host.data()));
        const std::string wrong = on_threads(2, [&](Rank &r) -> std::string {
            DeviceMemory memory;
            const mdlm_allocator table = memory.table();
            Watched device(std::exchange(r.comm, nullptr), memory, MDLM_MEMORY_SPACE_DEVICE);
            Watched channel(host[static_cast<size_t>(r.rank)], memory, MDLM_MEMORY_SPACE_HOST);
            EXPECT_OK(device.take());
            EXPECT_OK(channel.take());
            Step step;
            step.rig.desc.device_allocator = &table, step.rig.desc.comm = device.comm,
            step.rig.desc.host_comm = channel.comm;
            const std::string opened = step.open(r, all_settings[0]);
            if (!opened.empty()) return opened;
            EXPECT_OK(step.forward());
            const Soon soon;
            mdlm_status status = MDLM_OK;
            if (r.rank == 1) {
                if (how == 0) status = mdlm_comm_abort(device.comm);
                if (how == 1) status = mdlm_comm_abort(channel.comm);
                if (how == 2) device.fail_at = device.calls + 2;
                if (how == 3) channel.fail_at = channel.calls;
            }
            if (status == MDLM_OK) status = step.backward();
            EXPECT_SAID(status, MDLM_ERROR_COMM, "");
            EXPECT(!soon.over());
            EXPECT(device.aborts == 1);
            EXPECT(channel.aborts == 1);
            float value = 0;
            EXPECT_FAILS(mdlm_comm_all_reduce(device.comm, &value, &value, 1, MDLM_DTYPE_F32, MDLM_REDUCE_SUM, 0),
                         MDLM_ERROR_COMM, "aborted");
            EXPECT_FAILS(mdlm_comm_all_reduce(channel.comm, &value, &value, 1, MDLM_DTYPE_F32, MDLM_REDUCE_SUM, 0),
                         MDLM_ERROR_COMM, "aborted");
            step.close();
            return "";
        });
        CHECK(wrong == "");
    }
}
