// SPDX-License-Identifier: Apache-2.0
#include "measure.hpp"

#include <chrono>
#include <cstdio>
#include <optional>

#include "../../text.hpp"
#include "../run.hpp"
#include "memory.hpp"

namespace mdlm::tools::bench {
namespace {

int64_t now() {
    // The clock of mdlm_op_event: steady_clock and the library's are the same one.
    return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

void collect(void *payload, const mdlm_op_event *event) {
    static_cast<std::vector<mdlm_op_event> *>(payload)->push_back(*event);
}

OpTotals totals_of(const std::vector<mdlm_op_event> &events) {
    OpTotals totals;
    for (const mdlm_op_event &e : events) {
        OpTotal &t = totals[{e.op, e.tensor, e.phase, e.work, e.m, e.n, e.k}];
        const int64_t ns = e.end_ns - e.begin_ns;
        t.least_ns = t.calls == 0 ? ns : std::min(t.least_ns, ns);
        t.calls += 1, t.flops += e.flops, t.bytes += e.bytes, t.ns += ns;
    }
    return totals;
}

struct Running {
    Block block;
    Tape tape;
};

// A context, and what all blocks on it share.
struct Place {
    Place(const Options &o, const std::vector<Setting> &settings, int32_t threads, mdlm_comm *comm, bool one_rank)
        : context(open_context(o.device, threads, o.matmul, comm)), shared(context.get(), settings, one_rank) {}
    Context context;
    Shared shared;  // before all blocks, and gone after them
};

void must(mdlm_status status) {
    if (status != MDLM_OK) bad("mdlm bench: %s: %s", mdlm_status_name(status), mdlm_last_error());
}

std::string context_text(mdlm_context *context) {
    char line[512];
    must(mdlm_context_info(context, line, sizeof line, nullptr));
    return line;
}

// What one rank does.
class Session {
public:
    Session(const Options &o, const std::vector<Setting> &settings, const Progress &progress, const Rank &rank,
            const Ranks &ranks)
        : o_(o), progress_(progress), rank_(rank), bytes_(bytes_of(o, settings) * ranks.on_this_host(rank.size)),
          threads_(ranks.threads_each(o.threads, rank.size)), place_(o, settings, threads_, rank.comm, false) {
        result_.device = context_text(place_.context.get());
        result_.ranks = rank.size, result_.processes = ranks.processes(), result_.threads_each = threads_;
        set_table();
        if (rank.leads() && o.against_one_rank) alone_.emplace(o, settings, threads_ * rank.size, nullptr, true);
        result_.names = std::make_unique<std::set<std::string>>();
        for (const Setting &s : settings) result_.settings.emplace_back().setting = s;
        constexpr double share = 0.75;  // of the memory; the rest is for everybody else
        const bool fits = rank.largest(bytes_ <= share * available_bytes() ? 0 : 1) == 0;
        result_.all_alive = o.alive == Alive::all || (o.alive == Alive::automatic && fits);
    }

    Measurement run() {
        std::vector<Running> running(result_.settings.size());
        const int64_t rounds = o_.warmup + o_.repeats, count = static_cast<int64_t>(running.size());
        for (int64_t round = 0; round < rounds; ++round) {
            // Each round begins with another setting, so that none always runs behind the same one.
            for (int64_t turn = 0; turn < count; ++turn) {
                const auto i = static_cast<size_t>((turn + round) % count);
                Measured &m = result_.settings[i];
                if (rank_.leads()) progress_(round * count + turn, rounds * count, m.setting.name);
                // While one rank runs alone, the others wait for it.
                if (rank_.leads() || !m.setting.one_rank) take_turn(running[i], m, round);
                rank_.meet();
            }
        }
        if (rank_.leads()) progress_(rounds * count, rounds * count, "");
        return std::move(result_);
    }

private:
    Place &place_of(const Measured &m) { return m.setting.one_rank ? *alone_ : place_; }

    // A plan for a budget is chosen by what this machine can do, or by what is said of it: on all ranks by the same
    // table.
    void set_table() {
        mdlm_context *context = place_.context.get();
        has_table_ = !o_.device_table.empty() || o_.config.memory_budget != 0 || !o_.budgets.empty();
        if (!o_.device_table.empty()) return must(mdlm_context_set_device_table(context, o_.device_table.c_str()));
        if (!has_table_) return;
        rank_.meet();
        must(mdlm_context_calibrate(context, o_.config.params_dtype));
        if (rank_.size == 1) return;
        size_t length = 0;
        must(mdlm_context_get_device_table(context, nullptr, 0, &length));
        std::string table(length + 1, '\0');
        must(mdlm_context_get_device_table(context, table.data(), table.size(), nullptr));
        must(mdlm_context_set_device_table(context, rank_.of_first(table.c_str()).c_str()));
    }

    void take_turn(Running &r, Measured &m, int64_t round) {
        const bool made = r.block == nullptr;
        if (made) r = open(m);
        // A block that is new touches its memory for the first time: not what is to be timed.
        if (made && round >= o_.warmup) step(r, m, round, false);
        step(r, m, round, round >= o_.warmup);
        if (!result_.all_alive) r = {};
    }

    Running open(Measured &m) {
        const auto must = [&](mdlm_status status) { refuse(m.setting, status); };
        Running r;
        mdlm_block *block = nullptr;
        must(mdlm_block_create(place_of(m).context.get(), &m.setting.config, &block));
        r.block.reset(block);
        place_of(m).shared.bind(block, m.setting);
        const mdlm_shape shape = shape_of(m.setting);
        must(mdlm_block_reserve(block, &shape, nullptr));
        must(mdlm_block_memory(block, &m.memory));
        if (has_table_ && m.cost.forward_ns == 0) {
            mdlm_plan *plan = nullptr;
            must(mdlm_block_plan(block, &shape, &plan));
            const mdlm_status status = mdlm_plan_get_cost(plan, &m.cost);
            mdlm_plan_destroy(plan);
            must(status);
        }
        place_of(m).shared.add_to(m.memory);
        mdlm_tape *tape = nullptr;
        must(mdlm_tape_create(block, &tape));
        r.tape.reset(tape);
        return r;
    }

    // The time when all that run the setting have come here.
    int64_t all_here(const Measured &m) const {
        if (!m.setting.one_rank) rank_.meet();
        return now();
    }

    void step(Running &r, Measured &m, int64_t round, bool timed) {
        const auto must = [&](mdlm_status status) { refuse(m.setting, status); };
        mdlm_context *context = place_of(m).context.get();
        const Shared &shared = place_of(m).shared;
        mdlm_batch batch = MDLM_BATCH_INIT;
        batch.seq_length = m.setting.seq_length;
        batch.micro_batch_size = m.setting.micro_batch_size;
        batch.training = 1;
        batch.seed = 1234;
        batch.step = static_cast<uint32_t>(round);
        mdlm_backward_options options = MDLM_BACKWARD_OPTIONS_INIT;
        options.overwrite_grads = 1;
        // An optimizer would have changed the parameters; what the library derives from them is made again within the
        // forward.
        if (round % o_.micro_batches == 0) must(mdlm_params_changed(r.block.get()));
        events_.clear();
        must(mdlm_context_set_observer(context, collect, &events_));

        Timeline t;
        t.forward_begin = all_here(m);
        must(mdlm_block_forward(r.block.get(), &batch, shared.x(), r.tape.get(), shared.y()));
        must(mdlm_context_synchronize(context));
        t.forward_end = t.backward_begin = all_here(m);
        must(mdlm_block_backward(r.block.get(), r.tape.get(), &options, shared.dy(), shared.dx()));
        must(mdlm_context_synchronize(context));
        t.backward_end = all_here(m);

        must(mdlm_context_set_observer(context, nullptr, nullptr));
        if (!timed) return;
        m.steps.push_back({t.forward_end - t.forward_begin, t.backward_end - t.backward_begin, totals_of(events_)});
        if (round + 1 < o_.warmup + o_.repeats) return;
        for (mdlm_op_event &e : events_) e.tensor = result_.names->insert(e.tensor).first->c_str();
        t.events = events_;
        m.last = std::move(t);
        must(mdlm_tape_get_stats(r.tape.get(), &m.stats));
    }

    const Options &o_;
    const Progress &progress_;
    const Rank &rank_;
    double bytes_;  // first: sizes that overflow are refused here
    int32_t threads_;
    bool has_table_ = false;  // predictions are this machine's, or what was asked for
    Place place_;
    std::optional<Place> alone_;  // rank 0's, with the threads of all
    std::vector<mdlm_op_event> events_;
    Measurement result_;
};

}  // namespace

Measurement measure(Ranks &ranks, const Options &options, const std::vector<Setting> &settings,
                    const Progress &progress) {
    const auto size = static_cast<int32_t>(options.config.tensor_model_parallel_size);
    const int32_t together = ranks.threads_each(options.threads, size) * size;
    if (options.against_one_rank && ranks.processes())
        ranks.together([&] {
            if (ranks.leads() && cores() < together)
                bad("mdlm bench: --against-one-rank: expected %d cores for the process of rank 0, as many as all ranks "
                    "have threads (mpirun --bind-to "
                    "none), seen %d",
                    together, cores());
        });
    Measurement result;
    ranks.run(size, [&](const Rank &rank) {
        Measurement mine = Session(options, settings, progress, rank, ranks).run();
        if (rank.leads()) result = std::move(mine);
    });
    return result;
}

}  // namespace mdlm::tools::bench
