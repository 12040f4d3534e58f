// SPDX-License-Identifier: Apache-2.0
#include "block/params.hpp"

#include <cstring>

#include "base/sizes.hpp"

namespace mdlm {
namespace {

// Less than the granule of own buffers: what the caller has is often aligned to a line of the cache and no more.
constexpr uintptr_t bind_alignment = 64;

void check_bound(const void *at, const char *what) {
    if (reinterpret_cast<uintptr_t>(at) % bind_alignment != 0)
        fail(MDLM_ERROR_ARGUMENT, "%s = %p: expected an address aligned to %d", what, at, int(bind_alignment));
}

void check_apart(const void *params, int64_t params_bytes, const void *grads, int64_t grads_bytes, const char *what) {
    const auto p = reinterpret_cast<uintptr_t>(params), g = reinterpret_cast<uintptr_t>(grads);
    if (params != nullptr && grads != nullptr && p < g + static_cast<uint64_t>(grads_bytes) &&
        g < p + static_cast<uint64_t>(params_bytes))
        fail(MDLM_ERROR_ARGUMENT,
             "%s: parameters at %p (%lld bytes) and gradients at %p (%lld bytes) overlap: expected them apart", what,
             params, (long long)params_bytes, grads, (long long)grads_bytes);
}

bool within(const Memory &memory, const char *at) {
    const auto begin = reinterpret_cast<uintptr_t>(memory.get()), p = reinterpret_cast<uintptr_t>(at);
    return memory.get() != nullptr && p >= begin && p - begin < static_cast<uint64_t>(memory.bytes());
}

}  // namespace

void ParamEntry::must_have(const void *memory) const {
    if (memory == nullptr)
        fail(MDLM_ERROR_STATE, "%s: it has no memory yet: expected mdlm_block_reserve or a bind before", name.c_str());
}

Params::Params(const Config &config, const Chain &chain, int64_t rank)
    : config_(config), t_(config.tensor_model_parallel_size), rank_(rank), dtype_(config.params_dtype),
      grad_dtype_(config.grad_dtype) {
    for (int64_t item = 0; item < chain.items(); ++item) {
        first_.push_back(static_cast<int64_t>(entries_.size()));
        const auto &specs = chain.of(item).params;
        for (size_t i = 0; i < specs.size(); ++i) {
            ParamEntry p;
            p.name = chain[item].params + specs[i].name;
            p.item = item, p.id = static_cast<ParamId>(i), p.spec = &specs[i];
            p.elements = mul(specs[i].local(0, t_), specs[i].local(1, t_));
            p.bytes = mul(p.elements, size_of(dtype_));
            p.offset = flat_;
            flat_ = add(flat_, rounded(p.bytes));
            entries_.push_back(std::move(p));
        }
    }
    data_.resize(entries_.size());
    grads_.resize(entries_.size());
    lay_out_grads();
}

void Params::lay_out_grads() {
    flat_grad_ = 0;
    for (ParamEntry &p : entries_) {
        p.grad_bytes = p.requires_grad ? mul(p.elements, size_of(grad_dtype_)) : 0;
        p.grad_offset = flat_grad_;
        flat_grad_ = add(flat_grad_, rounded(p.grad_bytes));
    }
}

const ParamEntry &Params::at(int64_t index) const {
    if (index < 0 || index >= static_cast<int64_t>(entries_.size()))
        fail(MDLM_ERROR_ARGUMENT, "parameter index %lld: expected 0 .. %lld", (long long)index,
             (long long)entries_.size() - 1);
    return entries_[index];
}

int64_t Params::find(const char *name) const {
    for (size_t i = 0; i < entries_.size(); ++i)
        if (entries_[i].name == name) return static_cast<int64_t>(i);
    fail(MDLM_ERROR_NOT_FOUND, "parameter \"%.200s\": this block has none of that name", name);
}

std::vector<std::vector<char>> Params::trains() const {
    std::vector<std::vector<char>> all(first_.size());
    for (const ParamEntry &p : entries_) all[p.item].push_back(p.requires_grad);
    return all;
}

void Params::set_requires_grad(int64_t index, bool on) {
    at(index);
    if (grads_bound_)  // their places in a flat buffer would move
        fail(MDLM_ERROR_STATE, "%s: requires_grad: expected to be set before gradients are bound",
             entries_[index].name.c_str());
    entries_[index].requires_grad = on;
    lay_out_grads();
}

Params::Storage Params::prepare(Engine &engine) const {
    Storage s;
    if (ready_) return s;
    bool params = false, grads = false;
    for (const ParamEntry &p : entries_)
        params = params || p.data == nullptr, grads = grads || (p.grad == nullptr && p.grad_bytes > 0);
    if (params) s.params = engine.device_memory.allocate(flat_, "parameters");
    if (grads) s.grads = engine.device_memory.allocate(flat_grad_, "gradients");
    if (params) engine.device->zero(s.params.get(), static_cast<size_t>(flat_));
    if (grads) engine.device->zero(s.grads.get(), static_cast<size_t>(flat_grad_));
    return s;
}

void Params::commit(Engine &engine, Storage storage) {
    if (ready_) return;
    own_ = std::move(storage);
    for (ParamEntry &p : entries_) {
        if (p.data == nullptr) p.data = own_.params.get() + p.offset;
        if (p.grad == nullptr && p.grad_bytes > 0) p.grad = own_.grads.get() + p.grad_offset;
    }
    engine.parameter_bytes += own_.params.bytes();
    engine.gradient_bytes += own_.grads.bytes();
    ready_ = true;
    refresh();
}

void Params::bind(Engine &engine, void *params, size_t params_bytes, void *grads, size_t grads_bytes) {
    const auto check = [](const void *at, size_t bytes, int64_t least, const char *what) {
        if (at == nullptr && bytes != 0)
            fail(MDLM_ERROR_ARGUMENT, "%s is NULL with %zu bytes: expected 0", what, bytes);
        if (at != nullptr && static_cast<uint64_t>(bytes) < static_cast<uint64_t>(least))
            fail(MDLM_ERROR_ARGUMENT, "%s: %zu bytes: expected at least %lld, as mdlm_params_data says", what, bytes,
                 (long long)least);
        check_bound(at, what);
    };
    check(params, params_bytes, flat_, "params");
    check(grads, grads_bytes, flat_grad_, "grads");
    check_apart(params, flat_, grads, flat_grad_, "bind");
    for (ParamEntry &p : entries_) {
        if (params != nullptr) p.data = static_cast<char *>(params) + p.offset;
        if (grads != nullptr && p.grad_bytes > 0) p.grad = static_cast<char *>(grads) + p.grad_offset;
    }
    grads_bound_ = grads_bound_ || grads != nullptr;
    free_unused(engine);
    refresh();
}

void Params::bind_one(Engine &engine, int64_t index, void *param, void *grad) {
    at(index);
    ParamEntry &p = entries_[index];
    for (const void *q : {static_cast<const void *>(param), static_cast<const void *>(grad)})
        check_bound(q, p.name.c_str());
    if (grad != nullptr && p.grad_bytes == 0)
        fail(MDLM_ERROR_STATE, "%s: it is frozen and has no gradient to bind", p.name.c_str());
    check_apart(param, p.bytes, grad, p.grad_bytes, p.name.c_str());
    if (param != nullptr) p.data = static_cast<char *>(param);
    if (grad != nullptr) p.grad = static_cast<char *>(grad), grads_bound_ = true;
    free_unused(engine);
    refresh();
}

void Params::free_unused(Engine &engine) {
    bool params = false, grads = false;
    for (const ParamEntry &p : entries_)
        params = params || within(own_.params, p.data), grads = grads || within(own_.grads, p.grad);
    if (!params) {
        engine.parameter_bytes -= own_.params.bytes();
        own_.params = Memory();
    }
    if (!grads) {
        engine.gradient_bytes -= own_.grads.bytes();
        own_.grads = Memory();
    }
}

namespace {

// The address from which places count, if one is at its place; begin is nullptr until the first was seen.
bool in_place(const char *at, int64_t offset, char *&begin) {
    const uintptr_t from = reinterpret_cast<uintptr_t>(at) - static_cast<uintptr_t>(offset);
    if (begin == nullptr) begin = reinterpret_cast<char *>(from);
    return at != nullptr && from == reinterpret_cast<uintptr_t>(begin);
}

}  // namespace

char *Params::flat() const {
    char *begin = nullptr;
    for (const ParamEntry &p : entries_)
        if (!in_place(p.data, p.offset, begin)) return nullptr;
    return begin;
}

char *Params::flat_grads() const {
    char *begin = nullptr;
    for (const ParamEntry &p : entries_)
        if (p.grad_bytes > 0 && !in_place(p.grad, p.grad_offset, begin)) return nullptr;
    return begin;
}

void Params::refresh() {
    for (size_t i = 0; i < entries_.size(); ++i) data_[i] = entries_[i].data, grads_[i] = entries_[i].grad;
    ++version;
}

void Params::zero_grads(Device &device) {
    for (const ParamEntry &p : entries_)
        if (p.grad == nullptr && p.grad_bytes > 0)
            fail(MDLM_ERROR_STATE, "%s: its gradient has no memory yet: expected mdlm_block_reserve or a bind before",
                 p.name.c_str());
    for (const ParamEntry &p : entries_)
        if (p.grad_bytes > 0) device.zero(p.grad, static_cast<size_t>(p.grad_bytes));
    grads_dirty = false;
}

}  // namespace mdlm
