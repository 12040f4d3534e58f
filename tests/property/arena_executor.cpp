// SPDX-License-Identifier: Apache-2.0
#include "arena_executor.hpp"

#include <algorithm>

#include "base/sizes.hpp"

namespace property::memory {
namespace {

constexpr int64_t guard = 4096;
constexpr int64_t nowhere = -1;

class Executor {
public:
    Executor(World &world, const Lifetimes &l)
        : world_(world), plan_(world.plan()), l_(l), room_(plan_.peak_bytes + 2 * guard + mdlm::granule),
          at_(l.pieces.size(), nowhere), documents_(world.draw().events.size()), states_(world.draw().micro.size()),
          tapes_(world.draw().micro.size(), -1) {
        const auto base = reinterpret_cast<uintptr_t>(room_.get()) + guard;
        arena_ = room_.get() + guard + (mdlm::granule - base % mdlm::granule) % mdlm::granule;
        std::fill_n(arena_ - guard, guard, pattern);
        std::fill_n(arena_ + plan_.peak_bytes, guard, pattern);
        for (int64_t i = 0; i < world.draw().shape.in_flight; ++i)
            host_.emplace_back(std::max<int64_t>(plan_.host_bytes, 1));
        place();
    }

    ArenaRun run() {
        r_.outcome = world_.begin();
        for (size_t i = 0; i < l_.lines.size() && r_.fault.empty(); ++i) {
            const Line &line = l_.lines[i];
            if (i == 0 || l_.lines[i - 1].event != line.event) enter(line.event);
            check_apart(static_cast<int64_t>(i));
            run(line);
            check_bytes(static_cast<int64_t>(i));
            for (int32_t p : l_.dead[i])
                if (at_[p] != nowhere) std::fill_n(arena_ + at_[p], l_.pieces[p].bytes, nan);
        }
        world_.finish(r_.outcome);
        return std::move(r_);
    }

private:
    static constexpr char pattern = 0x5a, nan = static_cast<char>(0xff);

    void fault(int64_t line, const std::string &what) {
        if (!r_.fault.empty()) return;
        const Line &l = l_.lines[line];
        r_.fault =
            "line " + std::to_string(line) + " of event " + std::to_string(l.event) + " (" + name(l) + "): " + what;
    }
    static std::string name(const Line &line) {
        if (line.step == nullptr) return "copy";
        return std::string(line.step->replay || line.entry->replay ? "replayed " : "") +
               line.entry->schedule->op(*line.step).name() + " of layer " + std::to_string(line.entry->item);
    }

    // Where the plan says that a value is, from the arena's start; nowhere: the caller's.
    int64_t offset(const mdlm::Place &p, int64_t stack) const {
        switch (p.kind) {
        case mdlm::Place::Kind::fixed: return shared() + p.offset;
        case mdlm::Place::Kind::stack: return stack + p.offset;
        case mdlm::Place::Kind::slab: return (apart() ? shared() + plan_.fixed_bytes : plan_.slab_origin) + p.offset;
        default: return nowhere;
        }
    }
    int64_t offset(const mdlm::PlanEntry &e, int32_t v, int64_t stack) const {
        const auto base = [&](const mdlm::Place &p) { return offset(p, stack); };
        switch (e.schedule->values[v].home) {
        case mdlm::Home::x: return base(e.x);
        case mdlm::Home::y: return base(e.y);
        case mdlm::Home::dy: return base(e.dy);
        case mdlm::Home::dx: return base(e.dx);
        case mdlm::Home::side: return nowhere;
        case mdlm::Home::frame:
        case mdlm::Home::kept:
        case mdlm::Home::staged:
        case mdlm::Home::scratch: break;
        }
        const mdlm::ValuePlace &place = e.layout->places[v];
        using Where = mdlm::ValuePlace::Where;
        return base(place.where == Where::frame  ? e.frame
                    : place.where == Where::slab ? e.slab
                    : place.where == Where::kept ? e.kept
                                                 : e.staging) +
               place.offset;
    }

    // Tapes as the events take and give them; then one address for every piece, the same at all its uses.
    void place() {
        size_t event = l_.lines.size();
        for (size_t i = 0; i < l_.lines.size(); ++i) {
            const Line &line = l_.lines[i];
            if (line.event != event) enter(event = line.event);
            const auto put_at = [&](int32_t piece, int64_t at) {
                if (l_.pieces[piece].where != Piece::Where::arena) return;
                if (at_[piece] != nowhere && at_[piece] != at)
                    fault(static_cast<int64_t>(i), "a piece of memory that moves");
                at_[piece] = at;
                if (at < 0 || at % mdlm::granule != 0 || at + l_.pieces[piece].bytes > plan_.peak_bytes)
                    fault(static_cast<int64_t>(i), "an offset outside the arena: " + std::to_string(at));
            };
            const auto put = [&](int32_t piece, int32_t v) { put_at(piece, offset(*line.entry, v, stack())); };
            if (line.step == nullptr && line.entry->kind == mdlm::PlanEntry::Kind::shard_input) {
                put(line.in[0], line.values[0]), put_at(line.out[0], offset(line.entry->frame, stack()));
                continue;
            }
            if (line.step == nullptr && line.entry->kind == mdlm::PlanEntry::Kind::gather_input) {
                put_at(line.in[0], offset(line.entry->frame, stack())), put(line.out[0], line.values[0]);
                continue;
            }
            if (line.step == nullptr) {
                for (size_t j = 0; j < line.in.size(); ++j)
                    put(line.in[j], line.values[j]), put(line.out[j], line.values[j]);
                continue;
            }
            for (size_t j = 0; j < line.in.size(); ++j) put(line.in[j], line.step->in[j]);
            for (size_t j = 0; j < line.out.size(); ++j) {
                put(line.out[j], line.step->out[j]);
                const int64_t at = at_[line.out[j]];
                r_.top_is_tensor =
                    r_.top_is_tensor ||
                    (at != nowhere && at + mdlm::rounded(l_.pieces[line.out[j]].bytes) == plan_.peak_bytes);
            }
            if (line.workspace >= 0) put(line.workspace, line.step->workspace);
        }
        std::fill(tapes_.begin(), tapes_.end(), -1);
        taken_.clear();
        entered_ = 0;
    }

    void enter(size_t event) {
        const auto &events = world_.draw().events;
        for (; entered_ <= event;
             ++entered_) {  // an event without a line (nothing to do in backward) has its tape, too
            const Event &e = events[entered_];
            if (entered_ > 0) leave(events[entered_ - 1]);
            if (e.kind == Event::Kind::forward || e.kind == Event::Kind::abandon) {
                int32_t tape = 0;
                while (std::count(taken_.begin(), taken_.end(), tape) > 0) ++tape;
                taken_.push_back(tape);
                tapes_[e.micro] = tape;
            }
        }
        event_ = event;
    }
    void leave(const Event &e) {
        if (e.kind == Event::Kind::backward || e.kind == Event::Kind::abandon)
            taken_.erase(std::find(taken_.begin(), taken_.end(), tapes_[e.micro]));
    }
    int64_t stack() const {
        const Event &e = world_.draw().events[event_];
        return e.kind == Event::Kind::evaluate
                   ? 0
                   : (apart() ? 0 : plan_.fixed_bytes) + tapes_[e.micro] * plan_.stack_bytes;
    }
    // With share_scratch the arena here is the block's own part and then the shared one.
    bool apart() const { return plan_.input.share_scratch; }
    int64_t shared() const { return apart() ? plan_.own_bytes() : 0; }

    void check_apart(int64_t line) {
        std::vector<std::pair<int64_t, int64_t>> used = needed(line);
        for (size_t i = 1; i < used.size(); ++i)
            if (used[i].first < used[i - 1].second)
                fault(line, "two pieces of memory overlap at byte " + std::to_string(used[i].first));
    }
    std::vector<std::pair<int64_t, int64_t>> needed(int64_t line) const {
        std::vector<std::pair<int64_t, int64_t>> used;
        for (size_t p = 0; p < l_.pieces.size(); ++p)
            if (at_[p] != nowhere && l_.pieces[p].needed(line)) used.emplace_back(at_[p], at_[p] + l_.pieces[p].bytes);
        std::sort(used.begin(), used.end());
        return used;
    }
    void check_bytes(int64_t line) {
        int64_t at = 0;
        std::vector<std::pair<int64_t, int64_t>> used = needed(line);
        used.emplace_back(plan_.peak_bytes, plan_.peak_bytes);
        for (const auto &[begin, end] : used) {
            if (at < begin && !is_nan(at, begin))
                return fault(line, "bytes from " + std::to_string(at) + " on written, which nothing uses");
            at = std::max(at, end);
        }
        const char *top = arena_ + plan_.peak_bytes;
        r_.top_written =
            r_.top_written || !is_nan(std::max<int64_t>(0, plan_.peak_bytes - mdlm::granule), plan_.peak_bytes);
        const auto intact = [](const char *from) {
            return from[0] == pattern && std::memcmp(from, from + 1, guard - 1) == 0;
        };
        if (!intact(arena_ - guard) || !intact(top)) fault(line, "guard bytes written");
    }

    bool is_nan(int64_t begin, int64_t end) const {  // the first byte is, and each is as the one before it
        return arena_[begin] == nan &&
               std::memcmp(arena_ + begin, arena_ + begin + 1, static_cast<size_t>(end - begin - 1)) == 0;
    }

    void run(const Line &line) {
        const Event &e = world_.draw().events[line.event];
        mdlm::RunBindings f;
        f.arena = arena_, f.events = &events_;
        if (apart()) f.shared = arena_ + shared();
        if (e.kind == Event::Kind::evaluate) {
            f.state = world_.state(e, documents_[line.event]);
        } else {
            if (e.kind != Event::Kind::backward) states_[e.micro] = world_.state(e, documents_[line.event]);
            f.state = states_[e.micro];
            f.stack = stack();
            f.host = host_[static_cast<size_t>(tapes_[e.micro])].get();
        }
        f.x = world_.x(e.micro);
        f.y = r_.outcome.y[line.event].get();
        if (e.kind == Event::Kind::backward)
            f.dy = world_.dy_of(e, r_.outcome, line.event), f.dx = r_.outcome.dx[line.event].get();
        f.params = &world_.params();

        // The entry with this one step.
        mdlm::Schedule one;
        mdlm::PlanEntry entry = *line.entry;
        if (line.step != nullptr) {
            one = *entry.schedule;
            one.forward = one.backward = {*line.step};
            entry.schedule = &one;
        }
        mdlm::Counts counts;
        mdlm::Runner(world_.engine(), plan_, f, counts).run(entry);
        if (static_cast<int64_t>(counts.high_water_bytes) > r_.high_water)
            r_.high_water = static_cast<int64_t>(counts.high_water_bytes), r_.top = name(line);
    }

    World &world_;
    const mdlm::BlockPlan &plan_;
    const Lifetimes &l_;
    Bytes room_;
    char *arena_ = nullptr;
    std::vector<Bytes> host_;
    std::vector<int64_t> at_;
    mdlm::Events events_{8};
    std::vector<mdlm::CallState> documents_;
    std::vector<mdlm::RunState> states_;
    std::vector<int32_t> tapes_, taken_;  // the tape of a micro-batch; tapes in use
    size_t event_ = 0, entered_ = 0;
    ArenaRun r_;
};

}  // namespace

ArenaRun run_in_arena(World &world, const Lifetimes &lifetimes) { return Executor(world, lifetimes).run(); }

}  // namespace property::memory
