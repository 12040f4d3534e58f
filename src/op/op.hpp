// SPDX-License-Identifier: Apache-2.0
// An op of the layer program: which buffers it reads and writes, what its backward needs, what it costs, how it runs on
// a device. Ops know nothing of policies, plans or addresses.
#pragma once
#include <cstdint>
#include <functional>
#include <initializer_list>
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
using StateId = int32_t;  // of one item

// Storage that is assigned once (its parts may be assigned by different ops). A policy gives it a storage class.
struct Buffer {
    std::string name;
    DType dtype = DType::f32;
    int64_t per_token = 0;      // elements for each token, and
    int64_t per_pair = 0;       // for each pair (token, position of the sequence)
    int64_t split = 1;          // tokens are split over this many ranks (sequence parallelism)
    BufferId main = no_buffer;  // statistics name the buffer whose storage class they share; others themselves
    int64_t fixed = 0;          // elements whatever the batch: parameter gradients on their way over the group
    uint32_t modules = 0;       // MDLM_RECOMPUTE_MODULE bits: selective recompute of one of them makes it again
    // A copy of what other tensors hold (a collective brings it back): no named setting keeps it.
    bool rebuilt = false;
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
    const DrawState *draw = nullptr;  // it and the mask's documents are in the device's memory
    uint32_t layer = 0;               // in the whole model
    int64_t rank = 0;                 // of the tensor-parallel group
    const void *cos = nullptr, *sin = nullptr;
    const void *const *params = nullptr;  // of this layer, by ParamId
    void *const *grads = nullptr;
    void *const *states = nullptr;  // of this item, by StateId
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
    void *lasting(StateId id) const { return state.states[id]; }
};

// Where an op puts its part of a parameter's gradient: straight into it, or, where every rank has only a part of the
// sum, into the buffer of partial gradients, which is the op's last output. A wanted sink has a parameter.
struct GradSink {
    ParamId param = no_param;
    int32_t out = -1;    // index of that output; -1: straight
    int64_t offset = 0;  // in it, bytes
    bool first = true;   // another op has not put its part there before in this backward
    void *at(const Call &c) const {
        if (param == no_param) return nullptr;
        return out < 0 ? c.grad(param) : static_cast<char *>(c.out[out]) + offset;
    }
    bool accumulate(const Call &c) const { return out < 0 && (c.state.accumulate || !first); }
};
// Whether a kernel that writes several parameter gradients accumulates. INTERNAL where it must for some of them only.
bool accumulate(const Call &c, std::initializer_list<const GradSink *> sinks);

class Derivative;

// Told of every kernel that an op may launch, at its sizes.
using UseKernel = std::function<void(Kernel, const KernelSize &)>;
// The ways in which one may run at a shape: a gradient assigned or added to, as the caller of backward says; dropout in
// training only.
void both_ways(const UseKernel &use, Kernel kernel, KernelSize size);
void with_dropout(const UseKernel &use, Kernel kernel, KernelSize size, double probability);

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
    // Every kernel that run launches at this extent, at the very sizes, in every way in which it may.
    virtual void kernels(Extent, const UseKernel &) const {}
    // Bytes of call.workspace that run itself uses, beside the kernels; it grows with the extent.
    virtual int64_t scratch(Extent) const { return 0; }

    // What follows from the two: the bytes of call.workspace, and everything ready to run.
    int64_t workspace(const Traits &traits, Extent extent) const;
    void prepare(Device &device, Extent extent) const;

    std::vector<BufferId> in, out;
    std::vector<ParamId> params;  // that it reads
    // That it reads or changes. What it makes in forward is always kept, for it runs once: a second time it would see
    // what later forwards left.
    std::vector<StateId> states;
};

// Where heads stand in rows of a buffer, in elements.
struct HeadLayout {
    int64_t offset = 0, row_stride = 0, group_stride = 0, head_stride = 0;
    Heads at(void *base, DType dtype) const {
        return {static_cast<char *>(base) + offset * size_of(dtype), row_stride, group_stride, head_stride};
    }
};

// The channels of some heads: columns of a row.
struct HeadColumns {
    HeadLayout at;
    int64_t groups = 0, per_group = 1, d = 0;
};

// Where an op of backward puts its contribution to the gradient of a buffer, in full.
struct Contribution {
    BufferId to = no_buffer;
    BufferId add = no_buffer;  // what it must add: only if it said that it can
};
enum class Adds { no, yes };

// The backward of a program while it is being written, last forward op first. Contributions of several ops to one
// gradient are added up.
class Derivative {
public:
    virtual ~Derivative() = default;
    // Does anything want the gradient of this buffer?
    virtual bool wants(BufferId forward) const = 0;
    virtual bool trains(ParamId param) const = 0;
    // Where op's gradient of a parameter goes; makes what is needed for it the op's last output. Call it after the
    // other outputs.
    virtual GradSink sink(Op &op, ParamId param) = 0;
    // The whole gradient of a buffer, for the op that makes it: the buffer's readers have had their turn. no_buffer
    // when nothing contributes.
    virtual BufferId gradient(BufferId forward) = 0;
    // What an op, which is emitted after, contributes to a gradient that is wanted. With Adds::yes it may be asked to
    // add what others contributed; else an op of its own does.
    virtual Contribution contribute(BufferId forward, Adds adds = Adds::no) = 0;
    // The same for an op that assigns some columns of the rows. Contributions to different columns share a buffer, and
    // what nobody assigns is zero.
    virtual BufferId contribute_columns(BufferId forward, const HeadColumns &columns) = 0;
    // The contribution is what is in `gradient`, which others may read too.
    virtual void contribute_as(BufferId forward, BufferId gradient) = 0;
    // A new buffer of that shape that stands for nothing yet.
    virtual BufferId new_like(BufferId forward, const char *suffix) = 0;
    virtual const Buffer &buffer(BufferId id) const = 0;
    virtual void emit(std::unique_ptr<Op> op) = 0;
};
// Makes its contribution to columns of a gradient an output of op: the output's index, or -1 where it is not wanted.
int32_t contribute_part(Derivative &d, Op &op, BufferId forward, const HeadColumns &columns);

}  // namespace mdlm
