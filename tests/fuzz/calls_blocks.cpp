// SPDX-License-Identifier: Apache-2.0
// Calls on blocks and their parameters.
#include <cstdlib>
#include <iterator>

#include "fuzz/calls_machine.hpp"

namespace fuzz {

void Machine::destroy_context(Context &c) {
    for (Block &b : blocks)
        if (b.context.handle == c.handle) b.context.handle = nullptr;
    mdlm_context_destroy(std::exchange(c.handle, nullptr));
}

void Machine::destroy_block(Block &b) {
    mdlm_block_destroy(std::exchange(b.handle, nullptr));
    for (auto &buffer : b.kept) orphaned.push_back(std::move(buffer));
    if (b.context.handle != nullptr) check_memory(b);
    b = Block();
}

void Machine::destroy() {
    switch (in.pick(5)) {
    case 0: mdlm_comm_destroy(std::exchange(comms[in.pick(comms.size())], nullptr)); break;
    case 1: destroy_context(contexts[in.pick(contexts.size())]); break;
    case 2: mdlm_plan_destroy(std::exchange(plans[in.pick(plans.size())].handle, nullptr)); break;
    case 3: destroy_block(block()); break;
    default: mdlm_tape_destroy(std::exchange(tapes[in.pick(tapes.size())].handle, nullptr));
    }
}

void Machine::create_block() {
    Block &b = block();
    destroy_block(b);
    b.context = contexts[in.pick(contexts.size())];
    const mdlm_config &c = configs[in.pick(3)];
    if (c.num_layers > 4) return;
    const mdlm_status status =
        call("mdlm_block_create", [&] { return mdlm_block_create(b.context.handle, Struct(c, in).get(), &b.handle); });
    if ((status == MDLM_OK) != (b.handle != nullptr))
        found("mdlm_block_create: %s, and a block or none", mdlm_status_name(status));
}

void Machine::reserve() {
    Block &b = block();
    const size_t which = in.pick(plans.size() + 1);
    const mdlm_plan *plan = which == 0 ? nullptr : plans[which - 1].handle;
    Struct shape(shape_, in);
    Foretold next;
    next.shape = shape_;
    bool foretold = false;
    mdlm_plan *mine = nullptr;
    if (call("mdlm_block_plan", [&] { return mdlm_block_plan(b.handle, shape.get(), &mine); }) == MDLM_OK &&
        plan == nullptr && shape.plain()) {
        foretold = mdlm_plan_memory(mine, &next.memory) == MDLM_OK;
        mdlm_plan_layer l = MDLM_PLAN_LAYER_INIT;
        for (int64_t i = 0; foretold && mdlm_plan_get_layer(mine, i, &l) == MDLM_OK; ++i) {
            next.sums.replayed_ops += l.replayed_ops, next.sums.replayed_flops += l.replayed_flops;
            next.sums.forward_flops += l.forward_flops, next.sums.backward_flops += l.backward_flops;
        }
        next.has_sums = foretold;
    }
    mdlm_plan_destroy(mine);
    const mdlm_status status =
        call("mdlm_block_reserve", [&] { return mdlm_block_reserve(b.handle, shape.get(), plan); });
    mdlm_memory memory = MDLM_MEMORY_INIT;
    if (b.handle == nullptr) return;
    if (status != MDLM_OK) {
        const mdlm_status told = call("mdlm_block_memory", [&] { return mdlm_block_memory(b.handle, &memory); });
        if ((told == MDLM_OK) != b.reserved || (b.reserved && memory.peak_bytes != b.foretold.memory.peak_bytes))
            found("a reserve that was refused changed the reservation");
        check_memory(b);
        return;
    }
    answered(mdlm_block_memory(b.handle, &memory), "mdlm_block_memory", {MDLM_OK});
    if (b.bound)  // of which a plan knows nothing
        next.memory.parameter_bytes = memory.parameter_bytes, next.memory.gradient_bytes = memory.gradient_bytes;
    if (foretold && std::memcmp(&memory, &next.memory, sizeof memory) != 0)
        found("the plan foretold a peak of %llu bytes, and reserved are %llu, or parameters or the like differ",
              (unsigned long long)next.memory.peak_bytes, (unsigned long long)memory.peak_bytes);
    if (shape_.max_bytes != 0 && shape.plain() && memory.peak_bytes > shape_.max_bytes)
        found("reserved are more than max_bytes");
    next.memory = memory;
    b.foretold = next;
    b.reserved = true;
    shared_once = shared_once || shape_.share_scratch != 0;
    check_memory(b);
}

void Machine::ask_block() {
    Block &b = block();
    call("mdlm_block_memory",
         [&] { return mdlm_block_memory(b.handle, Struct(mdlm_memory MDLM_MEMORY_INIT, in).get()); });
    call("mdlm_block_io",
         [&] { return mdlm_block_io(b.handle, Struct(batch_, in).get(), Struct(mdlm_io MDLM_IO_INIT, in).get()); });
    call("mdlm_block_prepare", [&] { return mdlm_block_prepare(b.handle, Struct(batch_, in).get()); });
}

void Machine::parameter() {
    Block &b = block();
    int64_t count = 0, index = in.number(), at = -1;
    call("mdlm_param_count", [&] { return mdlm_param_count(b.handle, &count); });
    mdlm_param_desc info = MDLM_PARAM_DESC_INIT;
    const bool there = call("mdlm_param_info", [&] { return mdlm_param_info(b.handle, index, &info); }) == MDLM_OK;
    if (there != (b.handle != nullptr && index >= 0 && index < count))
        found("parameter %lld of %lld is there, or is not", (long long)index, (long long)count);
    if (there && (mdlm_param_find(b.handle, info.name, &at) != MDLM_OK || at != index))
        found("%s is found at %lld", info.name, (long long)at);
    void *flat[2] = {};
    size_t room[2] = {};
    const mdlm_status data =
        call("mdlm_params_data", [&] { return mdlm_params_data(b.handle, &flat[0], &room[0], &flat[1], &room[1]); });
    if (there && (data != MDLM_OK || info.offset_bytes + info.bytes > room[0] ||
                  info.grad_offset_bytes + info.grad_bytes > room[1]))
        found("%s ends behind the flat buffers of %zu and %zu bytes", info.name, room[0], room[1]);
    switch (in.pick(7)) {
    case 0: call("mdlm_params_init", [&] { return mdlm_params_init(b.handle, 1); }); break;
    case 1:
        call("mdlm_param_set_requires_grad",
             [&] { return mdlm_param_set_requires_grad(b.handle, index, in.number32() & 3); });
        break;
    case 2: {
        void *param = nullptr, *grad = &param;
        if (call("mdlm_param_data", [&] { return mdlm_param_data(b.handle, index, &param, &grad); }) != MDLM_OK) break;
        if (b.reserved && ((grad == nullptr) != (info.requires_grad == 0) || param == nullptr))
            found("%s: its gradient is %p", info.name, grad);
        std::memset(param, 0, info.bytes);
        break;
    }
    case 3: call("mdlm_params_changed", [&] { return mdlm_params_changed(b.handle); }); break;
    case 4: call("mdlm_params_zero_grads", [&] { return mdlm_params_zero_grads(b.handle); }); break;
    case 5: call("mdlm_param_find", [&] { return mdlm_param_find(b.handle, in.chance() ? "" : nullptr, &at); }); break;
    default:
        call("mdlm_param_info",
             [&] { return mdlm_param_info(b.handle, index, Struct(mdlm_param_desc MDLM_PARAM_DESC_INIT, in).get()); });
    }
}

// A buffer of about the right size; what is said of it is true.
void Machine::bind() {
    Block &b = block();
    mdlm_param_desc info = MDLM_PARAM_DESC_INIT;
    size_t sizes[2] = {};
    for (int64_t i = 0; mdlm_param_info(b.handle, i, &info) == MDLM_OK; ++i) {
        sizes[0] = std::max<size_t>(sizes[0], info.offset_bytes + info.bytes),
        sizes[1] = std::max<size_t>(sizes[1], info.grad_offset_bytes + info.grad_bytes);
        if (info.bytes > size_t{1} << 20) return;
    }
    void *at[2] = {};
    size_t bytes[2] = {};
    for (int i = 0; i < 2; ++i) {
        const size_t kind = in.pick(6), right = (sizes[i] + 255) / 256 * 256;
        if (kind == 0) continue;
        bytes[i] = kind == 1 || kind == 2 ? right
                   : kind == 3            ? right + 256
                   : kind == 4            ? right - std::min<size_t>(right, 1)
                                          : in.pick(64);
        b.kept.push_back(std::make_unique<Buffer>(bytes[i], kind == 2 ? 16 * in.pick(17) : 0));
        at[i] = b.kept.back()->get();
    }
    if (call("mdlm_params_bind", [&] { return mdlm_params_bind(b.handle, at[0], bytes[0], at[1], bytes[1]); }) ==
        MDLM_OK)
        b.bound = true;
}

void Machine::bind_one() {
    Block &b = block();
    const int64_t index = in.number();
    mdlm_param_desc info = MDLM_PARAM_DESC_INIT;
    mdlm_param_info(b.handle, index, &info);
    if (info.bytes > size_t{1} << 20) return;
    void *at[2] = {};
    for (int i = 0; i < 2; ++i) {
        const size_t kind = in.pick(4);
        if (kind == 0) continue;
        b.kept.push_back(
            std::make_unique<Buffer>(i == 0 ? info.bytes : info.grad_bytes, kind == 3 ? 4 * in.pick(64) : 0));
        at[i] = b.kept.back()->get();
    }
    if (call("mdlm_param_bind", [&] { return mdlm_param_bind(b.handle, index, at[0], at[1]); }) == MDLM_OK)
        b.bound = true;
}

// Part of a parameter, from or to memory of as many bytes as are said.
void Machine::box() {
    Block &b = block();
    const int64_t index = in.number();
    constexpr const char *parts[] = {nullptr, nullptr, "q", "k", "v", "gate", "up", "", "none"};
    const char *part = parts[in.pick(std::size(parts))];
    int64_t start[2] = {}, count[2] = {};
    const size_t given = in.pick(4);
    mdlm_param_desc info = MDLM_PARAM_DESC_INIT;
    mdlm_param_info(b.handle, index, &info);
    for (int i = 0; i < 2; ++i) {
        if ((given & 1) != 0) start[i] = in.number();
        count[i] = (given & 2) != 0 ? in.number() : info.full_shape[i];
    }
    const auto dtype = static_cast<mdlm_dtype>(in.pick(7));
    const size_t element = dtype == MDLM_DTYPE_F64 ? 8 : dtype == MDLM_DTYPE_F32 ? 4 : 2;
    size_t bytes = static_cast<size_t>(count[0]) * (info.ndim == 2 ? static_cast<size_t>(count[1]) : 1) * element;
    if (bytes > size_t{1} << 20 || in.pick(8) == 7) bytes = in.pick(64);
    const Buffer host(bytes);
    const int64_t *s = (given & 1) != 0 ? start : nullptr, *c = (given & 2) != 0 ? count : nullptr;
    // The same box of memory of the caller, in float64, which holds what any dtype has.
    const size_t elements =
        static_cast<size_t>(info.local_shape[0]) * (info.ndim == 2 ? static_cast<size_t>(info.local_shape[1]) : 1);
    if (elements <= size_t{1} << 17) {
        const Buffer shard(elements * 8, 8 * (index & 1));
        if (call("mdlm_param_shard_write", [&] {
                return mdlm_param_shard_write(b.handle, index, shard.get(), MDLM_DTYPE_F64, shard.size(), part, s, c,
                                              dtype, host.get(), bytes);
            }) != call("mdlm_param_shard_read", [&] {
                return mdlm_param_shard_read(b.handle, index, shard.get(), MDLM_DTYPE_F64, shard.size(), part, s, c,
                                             dtype, host.get(), bytes);
            }))
            found("parameter %lld: a box of a shard can be written or read, not both", (long long)index);
    }
    switch (in.pick(4)) {
    case 0:
        call("mdlm_param_write",
             [&] { return mdlm_param_write(b.handle, index, part, s, c, dtype, host.get(), bytes); });
        break;
    case 1:
        call("mdlm_param_read", [&] { return mdlm_param_read(b.handle, index, part, s, c, dtype, host.get(), bytes); });
        break;
    case 2:
        call("mdlm_param_grad_read",
             [&] { return mdlm_param_grad_read(b.handle, index, part, s, c, dtype, host.get(), bytes); });
        break;
    default:
        if (in.pick(2) == 0)
            call("mdlm_param_gather", [&] { return mdlm_param_gather(b.handle, index, dtype, host.get(), bytes); });
        else
            call("mdlm_param_grad_gather",
                 [&] { return mdlm_param_grad_gather(b.handle, index, dtype, host.get(), bytes); });
    }
}

}  // namespace fuzz
