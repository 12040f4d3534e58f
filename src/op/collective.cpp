// SPDX-License-Identifier: Apache-2.0
// Collectives, and their derivatives as in Megatron (arXiv 1909.08053, section 3; arXiv 2205.05198, section 4.2.2):
// all-reduce after a row-parallel linear has the identity as backward; all-gather and reduce-scatter are each other's.
#include "op/collective.hpp"

#include "base/sizes.hpp"

namespace mdlm {
namespace {

class CollectiveOp final : public Op {
public:
    CollectiveOp(Collective kind, const Buffer &part, bool batch_first)
        : kind_(kind), part_(part), batch_first_(batch_first) {}
    const char *name() const override {
        switch (kind_) {
        case Collective::all_reduce: return "all_reduce";
        case Collective::all_gather: return "all_gather";
        case Collective::reduce_scatter: return "reduce_scatter";
        case Collective::all_reduce_gradients: return "all_reduce_gradients";
        }
        return "?";
    }
    void run(const Call &c) const override {
        const int64_t bytes = part_.bytes(c.state.extent()), count = bytes / size_of(part_.dtype);
        if (reduces_all()) return c.group.all_reduce(c.in[0], c.out[0], count, part_.dtype);
        // Ranks' parts stand one behind the other on the wire; so they do in memory, unless there are several sequences
        // and each is in one piece.
        const bool apart = batch_first_ && c.state.tokens.batch > 1;
        if (kind_ == Collective::all_gather) {
            c.group.all_gather(c.in[0], apart ? c.workspace : c.out[0], count, part_.dtype);
            if (apart) move(c, c.workspace, c.out[0], bytes, true);
        } else {
            if (apart) move(c, c.in[0], c.workspace, bytes, false);
            c.group.reduce_scatter(apart ? c.workspace : c.in[0], c.out[0], count, part_.dtype);
        }
    }
    // Over a ring: an all-reduce sends nearly every byte twice, the others every rank's part but one.
    Cost cost(Extent e) const override {
        const int64_t bytes = part_.bytes(e);
        Cost cost{0, bytes, Work::collective, mul(bytes, reduces_all() ? 2 : part_.split - 1)};
        cost.collective = reduces_all() ? bytes : mul(bytes, part_.split);
        cost.of_gradients = kind_ == Collective::all_reduce_gradients;
        return cost;
    }
    std::vector<int32_t> in_place() const override {
        return reduces_all() ? std::vector<int32_t>{0} : std::vector<int32_t>{};
    }
    int64_t scratch(Extent e) const override {
        return batch_first_ && !reduces_all() ? mul(part_.bytes(e), part_.split) : 0;
    }
    void kernels(Extent e, const UseKernel &use) const override {
        if (scratch(e) > 0) use(Kernel::transpose_pieces, {});
    }
    void differentiate(Derivative &d) const override {
        const BufferId dy = d.gradient(out[0]);
        if (dy == no_buffer || !d.wants(in[0])) return;
        if (kind_ == Collective::all_reduce) return d.contribute_as(in[0], dy);
        const bool gather = kind_ == Collective::all_gather;
        d.emit(make_collective(gather ? Collective::reduce_scatter : Collective::all_gather, part_, dy,
                               d.contribute(in[0]).to, batch_first_));
    }

private:
    bool reduces_all() const { return kind_ == Collective::all_reduce || kind_ == Collective::all_reduce_gradients; }

    // Between [rank, sequence, part of it] and [sequence, rank, part of it].
    void move(const Call &c, const void *from, void *to, int64_t bytes, bool by_rank) const {
        const int64_t batch = c.state.tokens.batch, ranks = part_.split;
        c.device.run(TransposePieces{by_rank ? ranks : batch, by_rank ? batch : ranks, bytes / batch, from, to});
    }

    Collective kind_;
    Buffer part_;
    bool batch_first_;
};

}  // namespace

std::unique_ptr<Op> make_collective(Collective kind, const Buffer &part, BufferId in, BufferId out, bool batch_first) {
    auto op = std::make_unique<CollectiveOp>(kind, part, batch_first);
    op->in = {in};
    op->out = {out};
    return op;
}

}  // namespace mdlm
