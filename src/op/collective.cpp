// Collectives, and their derivatives as in Megatron (arXiv 1909.08053, section 3; arXiv 2205.05198, section 4.2.2): all-reduce after a
// row-parallel linear has the identity as backward; all-gather and reduce-scatter are each other's.
#include "op/collective.hpp"

#include "base/sizes.hpp"

namespace mdlm {
namespace {

class CollectiveOp final : public Op {
public:
    CollectiveOp(Collective kind, const Buffer &part) : kind_(kind), part_(part) {}
    const char *name() const override {
        return kind_ == Collective::all_reduce ? "all_reduce" : kind_ == Collective::all_gather ? "all_gather" : "reduce_scatter";
    }
    void run(const Call &c) const override {
        const int64_t count = part_.bytes(c.state.extent()) / size_of(part_.dtype);
        if (kind_ == Collective::all_reduce) c.comm.all_reduce(c.in[0], c.out[0], count, part_.dtype);
        if (kind_ == Collective::all_gather) c.comm.all_gather(c.in[0], c.out[0], count, part_.dtype);
        if (kind_ == Collective::reduce_scatter) c.comm.reduce_scatter(c.in[0], c.out[0], count, part_.dtype);
    }
    // Over a ring: an all-reduce sends nearly every byte twice, the others every rank's part but one.
    Cost cost(Extent e) const override {
        const int64_t bytes = part_.bytes(e);
        return {0, bytes, Work::collective, mul(bytes, kind_ == Collective::all_reduce ? 2 : part_.split - 1)};
    }
    std::vector<int32_t> in_place() const override { return kind_ == Collective::all_reduce ? std::vector<int32_t>{0} : std::vector<int32_t>{}; }
    void differentiate(Derivative &d) const override {
        const BufferId dy = d.gradient(out[0]);
        if (dy == no_buffer || !d.wants(in[0])) return;
        if (kind_ == Collective::all_reduce) return d.set_gradient(in[0], dy);
        const bool gather = kind_ == Collective::all_gather;
        d.emit(make_collective(gather ? Collective::reduce_scatter : Collective::all_gather, part_, dy, d.new_gradient(in[0])));
    }

private:
    Collective kind_;
    Buffer part_;
};

}  // namespace

std::unique_ptr<Op> make_collective(Collective kind, const Buffer &part, BufferId in, BufferId out) {
    auto op = std::make_unique<CollectiveOp>(kind, part);
    op->in = {in};
    op->out = {out};
    return op;
}

}  // namespace mdlm
