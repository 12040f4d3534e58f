// SPDX-License-Identifier: Apache-2.0
#include "debug_executor.hpp"

#include <algorithm>

#include "base/sizes.hpp"

namespace property::memory {
namespace {

class Executor {
public:
    Executor(World &world, const Lifetimes &l)
        : world_(world), l_(l), memory_(l.pieces.size()), documents_(world.draw().events.size()) {}

    DebugRun run() {
        DebugRun r;
        r.outcome = world_.begin();
        states_.resize(world_.draw().micro.size());
        int64_t alive = 0;
        for (size_t i = 0; i < l_.lines.size(); ++i) {
            for (int32_t p : l_.born[i]) {
                memory_[p] = Bytes(l_.pieces[p].bytes);
                if (l_.pieces[p].where == Piece::Where::arena) alive += mdlm::rounded(l_.pieces[p].bytes);
            }
            r.most_alive = std::max(r.most_alive, alive);
            run(l_.lines[i], r.outcome);
            for (int32_t p : l_.dead[i]) {
                memory_[p] = Bytes();
                if (l_.pieces[p].where == Piece::Where::arena) alive -= mdlm::rounded(l_.pieces[p].bytes);
            }
        }
        world_.finish(r.outcome);
        return r;
    }

private:
    void *address(int32_t piece, Outcome &o) {
        const Piece &p = l_.pieces[piece];
        const size_t micro = world_.draw().events[p.event].micro;
        switch (p.where) {
        case Piece::Where::x: return world_.x(micro);
        case Piece::Where::dy: return world_.dy(micro);
        case Piece::Where::y: return o.y[p.event].get();
        case Piece::Where::dx: return o.dx[p.event].get();
        case Piece::Where::arena:
        case Piece::Where::host: break;
        }
        return memory_[piece].get();
    }

    // A tape's state is that of its forward.
    mdlm::RunState state(size_t event) {
        const Event &e = world_.draw().events[event];
        if (e.kind == Event::Kind::evaluate) return world_.state(e, documents_[event]);
        mdlm::RunState &s = states_[e.micro];
        if (e.kind != Event::Kind::backward) s = world_.state(e, documents_[event]);
        return s;
    }

    void run(const Line &line, Outcome &o) {
        std::vector<void *> in, out;
        for (int32_t p : line.in) in.push_back(address(p, o));
        for (int32_t p : line.out) out.push_back(address(p, o));
        mdlm::Device &device = *world_.engine().device;
        mdlm::Group &group = world_.engine().group;
        if (line.step == nullptr && line.entry->kind == mdlm::PlanEntry::Kind::shard_input) {
            const int64_t share = l_.pieces[line.out[0]].bytes, begin = share * group.rank();
            const int64_t own = std::min(share, l_.pieces[line.in[0]].bytes - begin);
            if (own > 0) device.copy(out[0], static_cast<const char *>(in[0]) + begin, static_cast<size_t>(own));
            return;
        }
        if (line.step == nullptr && line.entry->kind == mdlm::PlanEntry::Kind::gather_input) {
            const mdlm::DType type = world_.config().params_dtype;
            return group.all_gather(in[0], out[0], l_.pieces[line.in[0]].bytes / mdlm::size_of(type), type);
        }
        if (line.step == nullptr) {
            for (size_t i = 0; i < in.size(); ++i)
                device.copy(out[i], in[i], static_cast<size_t>(l_.pieces[line.in[i]].bytes));
            return;
        }
        mdlm::RunState s = state(line.event);
        s.layer = static_cast<uint32_t>(world_.config().layer_offset + line.entry->item);
        s.params = world_.params().data_of(line.entry->item);
        s.grads = world_.params().grads_of(line.entry->item);
        void *workspace = line.workspace < 0 ? nullptr : address(line.workspace, o);
        line.entry->schedule->op(*line.step).run({device, group, s, in.data(), out.data(), workspace});
    }

    World &world_;
    const Lifetimes &l_;
    std::vector<Bytes> memory_;
    std::vector<mdlm::CallState> documents_;
    std::vector<mdlm::RunState> states_;
};

}  // namespace

DebugRun run_apart(World &world, const Lifetimes &lifetimes) { return Executor(world, lifetimes).run(); }

}  // namespace property::memory
