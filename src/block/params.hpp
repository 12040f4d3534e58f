// SPDX-License-Identifier: Apache-2.0
// Parameters and their gradients: names, shapes, where they stand, and reading and writing them from the host.
#pragma once
#include <cstddef>
#include <string>
#include <vector>

#include "base/config.hpp"
#include "block/engine.hpp"
#include "plan/policy.hpp"

namespace mdlm {

struct ParamEntry {
    std::string name;
    int64_t item = 0;
    ParamId id = 0;  // within its program
    const Param *spec = nullptr;
    bool requires_grad = true;
    int64_t elements = 0, bytes = 0, offset = 0, grad_bytes = 0, grad_offset = 0;
    char *data = nullptr, *grad = nullptr;     // where they are now; nullptr before allocation
    void must_have(const void *memory) const;  // STATE where there is none
};

// Which part of a parameter a rank has. A dimension that is split over ranks is split within each of its
// partition_stride pieces (gate and up).
class Shard {
public:
    Shard(const Param &spec, int64_t t, int64_t rank) : spec_(spec), t_(t), rank_(rank) {}
    int64_t rows() const { return spec_.local(0, t_); }
    int64_t columns() const { return spec_.local(1, t_); }
    int64_t first_column() const { return spec_.partition_dim == 1 ? rank_ * columns() : 0; }
    int64_t full_row(int64_t row) const {
        if (spec_.partition_dim != 0) return row;
        const int64_t piece = rows() / spec_.partition_stride;
        return row / piece * piece * t_ + rank_ * piece + row % piece;
    }
    int64_t local_row(int64_t row) const {  // -1: another rank's
        if (spec_.partition_dim != 0) return row;
        const int64_t piece = rows() / spec_.partition_stride, within = row % (piece * t_) - rank_ * piece;
        return within < 0 || within >= piece ? -1 : row / (piece * t_) * piece + within;
    }

private:
    const Param &spec_;
    int64_t t_, rank_;
};

class Params {
public:
    Params(const Config &config, const Chain &chain, int64_t rank);

    const std::vector<ParamEntry> &entries() const { return entries_; }
    const ParamEntry &at(int64_t index) const;
    int64_t find(const char *name) const;
    std::vector<std::vector<char>> trains() const;
    void set_requires_grad(int64_t index, bool on);
    int64_t flat_bytes() const { return flat_; }
    int64_t flat_grad_bytes() const { return flat_grad_; }
    DType dtype() const { return dtype_; }
    DType grad_dtype() const { return grad_dtype_; }

    // Own memory for what is not bound. prepare allocates, commit (which cannot fail) puts it in use.
    struct Storage {
        Memory params, grads;
    };
    Storage prepare(Engine &engine) const;
    void commit(Engine &engine, Storage storage);
    int64_t own_parameter_bytes() const { return own_.params.bytes(); }
    int64_t own_gradient_bytes() const { return own_.grads.bytes(); }
    // Own memory in which nothing stands any more is freed.
    void bind(Engine &engine, void *params, size_t params_bytes, void *grads, size_t grads_bytes);
    void bind_one(Engine &engine, int64_t index, void *param, void *grad);
    // Where everything stands as in a flat buffer; nullptr where it does not.
    char *flat() const;
    char *flat_grads() const;

    // What a rank has of one parameter, element by element: its values, its gradient, or memory of the caller in any
    // dtype.
    struct Elements {
        char *at = nullptr;
        DType type = DType::f32;
    };
    Elements elements(int64_t index, bool grad) const;
    Elements callers(int64_t index, const void *shard, DType type, size_t bytes) const;

    // A box of the full tensor, or of a part of it, and the host's memory for it.
    struct Box {
        const char *part;
        const int64_t *start, *count;
        DType type;
        size_t bytes;
    };
    void init(Device &device, uint64_t seed);
    void write(Device &device, int64_t index, const Elements &to, const Box &box, const void *host) const;
    void read(Device &device, int64_t index, const Elements &from, const Box &box, void *host) const;
    // The whole, in dtype type, from all ranks' parts one behind the other (from one that is replicated).
    void join_parts(const ParamEntry &p, DType stored, const void *parts, DType type, void *whole) const;
    // Throws what a gather of the whole parameter refuses.
    const ParamEntry &whole(int64_t index, DType type, size_t bytes) const;
    void zero_grads(Device &device);

    // By item and ParamId, for RunState.
    const void *const *data_of(int64_t item) const { return data_.data() + first_[item]; }
    void *const *grads_of(int64_t item) const { return grads_.data() + first_[item]; }

    uint64_t version = 1;      // grows with every change of values
    bool grads_dirty = false;  // a backward failed inside

private:
    struct Region;
    Region region(const ParamEntry &p, const Box &box) const;
    // What this rank has of a region: how many elements, and within which of its own they lie.
    struct Span {
        int64_t first = 0, end = 0, elements = 0;
    };
    Span span_of(const ParamEntry &p, const Region &region) const;
    template <class Body>
    void each_row_of(const ParamEntry &p, const Region &region, Body &&body) const;
    Shard shard(const ParamEntry &p, int64_t rank) const { return {*p.spec, t_, rank}; }
    void refresh();
    void lay_out_grads();
    void free_unused(Engine &engine);

    const Config &config_;
    const int64_t t_, rank_;
    DType dtype_, grad_dtype_;
    std::vector<ParamEntry> entries_;
    std::vector<int64_t> first_;  // by item, index of its first entry
    std::vector<const void *> data_;
    std::vector<void *> grads_;
    int64_t flat_ = 0, flat_grad_ = 0;
    Storage own_;
    bool ready_ = false, grads_bound_ = false;
};

}  // namespace mdlm
