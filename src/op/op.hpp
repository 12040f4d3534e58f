// SPDX-License-Identifier: Apache-2.0
// An op of the layer program: which buffers it reads and writes, what its backward needs, what it costs, how it runs on
// a device. Ops know nothing of policies, plans or addresses.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "comm/group.hpp"
#include "device/device.hpp"

namespace mdlm {

// The two sizes that change from batch to batch.
struct Extent {
    int64_t tokens = 0;  // s * b
    int64_t seq = 0;     // s
};

using BufferId = int32_t;
inline constexpr BufferId no_buffer = -1;
using ParamId = int32_t;  // of one layer
inline constexpr ParamId no_param = -1;

// Storage that is assigned once (its parts may be assigned by different ops). A policy gives it a storage class.
struct Buffer {
    std::string name;
    DType dtype = DType::f32;
    int64_t per_token = 0;      // elements for each token, and
    int64_t per_pair = 0;       // for each pair (token, position of the sequence)
    int64_t split = 1;          // tokens are split over this many ranks (sequence parallelism)
    BufferId main = no_buffer;  // statistics name the buffer whose storage class they share; others themselves
    int64_t fixed = 0;          // elements whatever the batch: parameter gradients on their way over the group
    // No policy may replay it: its maker must not run twice in a step.
    bool always_kept = false;
    int64_t bytes(Extent e) const;
    bool same_form(const Buffer &o) const {
        return dtype == o.dtype && per_token == o.per_token && per_pair == o.per_pair && split == o.split &&
               fixed == o.fixed;
    }
};

// What decides how long an op takes.
enum class Work { pointwise, linear, attention, collective };

struct Cost {
    int64_t flops = 0;  // floating point operations of the formula; 0 for a copy
    int64_t bytes = 0;  // read and written; of a collective this rank's part
    Work work = Work::pointwise;
    // What a device really does: masked pairs left out and scores built again for attention; for a collective the bytes
    // over a rank's link.
    int64_t done = 0;
    int64_t n = 0, k = 0;       // of a linear: outputs and inputs; 0 for the others
    int64_t collective = 0;     // of a collective: bytes of the whole tensor
    bool of_gradients = false;  // and it sums parameter gradients
    bool matmul() const { return work == Work::linear || work == Work::attention; }
};

// What is the same for all ops of one run of one layer.
struct RunState {
    Tokens tokens;
    Mask mask;
    bool training = false;
    uint64_t seed = 0;
    uint32_t step = 0, micro_batch = 0;
    uint32_t layer = 0;  // in the whole model
    int64_t rank = 0;    // of the tensor-parallel group
    const void *cos = nullptr, *sin = nullptr;
    const void *const *params = nullptr;  // of this layer, by ParamId
    void *const *grads = nullptr;
    bool accumulate = true;
    Extent extent() const { return {tokens.rows(), tokens.seq}; }
    // The tokens of buffers whose sequence is split over ranks.
    Tokens part(int64_t split) const {
        Tokens t = tokens;
        t.seq /= split, t.first = split > 1 ? rank * t.seq : 0;
        return t;
    }
    Dropout dropout(double probability, Site site) const;
};

struct Call {
    Device &device;
    Group &group;
    const RunState &state;
    void *const *in;   // as Op::in
    void *const *out;  // as Op::out
    void *workspace;
    const void *param(ParamId id) const { return id == no_param ? nullptr : state.params[id]; }
    void *grad(ParamId id) const { return id == no_param ? nullptr : state.grads[id]; }
};

// Where an op puts its part of a parameter's gradient: straight into it, or, where every rank has only a part of the
// sum, into the buffer of partial gradients, which is the op's last output. A wanted sink has a parameter.
struct GradSink {
    ParamId param = no_param;
    int32_t out = -1;    // index of that output; -1: straight
    int64_t offset = 0;  // in it, bytes
    void *at(const Call &c) const {
        if (param == no_param) return nullptr;
        return out < 0 ? c.grad(param) : static_cast<char *>(c.out[out]) + offset;
    }
    bool accumulate(const Call &c) const { return out < 0 && c.state.accumulate; }
};

class Derivative;

class Op {
public:
    virtual ~Op() = default;
    virtual const char *name() const = 0;
    virtual void run(const Call &call) const = 0;
    virtual Cost cost(Extent extent) const = 0;
    // Appends the ops of the backward, for what the derivative says is wanted. Only ops of the forward program have
    // one.
    virtual void differentiate(Derivative &) const {}
    // Index of an input over which output 0 may be written, in order of preference.
    virtual std::vector<int32_t> in_place() const { return {}; }
    virtual int64_t workspace(const Traits &, Extent) const { return 0; }
    virtual void prepare(Device &, Extent) const {}

    std::vector<BufferId> in, out;
    std::vector<ParamId> params;  // that it reads
};

// The backward of a program while it is being written, last forward op first.
class Derivative {
public:
    virtual ~Derivative() = default;
    // Does anything want the gradient of this buffer?
    virtual bool wants(BufferId forward) const = 0;
    virtual bool trains(ParamId param) const = 0;
    // Where op's gradient of a parameter goes; makes what is needed for it the op's last output. Call it after the
    // other outputs.
    virtual GradSink sink(Op &op, ParamId param) = 0;
    // The gradient of a buffer so far; no_buffer when nothing has contributed yet.
    virtual BufferId gradient(BufferId forward) const = 0;
    // A new buffer, shaped like the forward one, that becomes its gradient. There is none yet: a second contribution
    // would take the place of the first. INTERNAL otherwise, as for the next three.
    virtual BufferId new_gradient(BufferId forward) = 0;
    // The same for an op that reads the gradient so far and adds it.
    virtual BufferId new_sum(BufferId forward) = 0;
    // The gradient's buffer, for an op that assigns only that part of it which begins so many elements into a row.
    // Nobody else assigns that part, and nobody the whole. The first op to come makes the buffer.
    virtual BufferId part_of_gradient(BufferId forward, int64_t offset) = 0;
    // A new buffer of that shape that stands for nothing yet.
    virtual BufferId new_like(BufferId forward, const char *suffix) = 0;
    // The gradient of `forward`, which has none yet, is what is in `gradient`.
    virtual void set_gradient(BufferId forward, BufferId gradient) = 0;
    virtual const Buffer &buffer(BufferId id) const = 0;
    virtual void emit(std::unique_ptr<Op> op) = 0;
};

// Where heads stand in rows of a buffer, in elements.
struct HeadLayout {
    int64_t offset = 0, row_stride = 0, group_stride = 0, head_stride = 0;
    Heads at(void *base, DType dtype) const {
        return {static_cast<char *>(base) + offset * size_of(dtype), row_stride, group_stride, head_stride};
    }
};

}  // namespace mdlm
