#include "measure.hpp"

#include <chrono>
#include <cstdio>
#include <fstream>

#include "../../text.hpp"
#include "../run.hpp"
#include "memory.hpp"

namespace mdlm::tools::bench {
namespace {

int64_t now() {
    // The clock of mdlm_op_event: steady_clock and the library's are the same one.
    return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void collect(void *payload, const mdlm_op_event *event) { static_cast<std::vector<mdlm_op_event> *>(payload)->push_back(*event); }

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

class Session {
public:
    Session(const Options &o, const std::vector<Setting> &settings, const Progress &progress)
        : o_(o), progress_(progress), bytes_(bytes_of(o, settings)), context_(open_context(o.device, o.threads, o.matmul)), shared_(context_.get(), settings) {
        result_.device = context_text();
        // A plan for a budget is chosen by what this machine can do, or by what is said of it.
        const bool calibrates = o.config.memory_budget != 0 && o.device_table.empty();
        if ((calibrates && mdlm_context_calibrate(context_.get(), o.config.params_dtype) != MDLM_OK) ||
            (!o.device_table.empty() && mdlm_context_set_device_table(context_.get(), o.device_table.c_str()) != MDLM_OK))
            bad("mdlm bench: %s", mdlm_last_error());
        result_.names = std::make_unique<std::set<std::string>>();
        for (const Setting &s : settings) result_.settings.emplace_back().setting = s;
        constexpr double share = 0.75;  // of the memory; the rest is for everybody else
        result_.all_alive = o.alive == Alive::all || (o.alive == Alive::automatic && bytes_ <= share * available_bytes());
    }

    Measurement run() {
        std::vector<Running> running(result_.settings.size());
        const int64_t rounds = o_.warmup + o_.repeats, count = static_cast<int64_t>(running.size());
        for (int64_t round = 0; round < rounds; ++round) {
            // Each round begins with another setting, so that none always runs behind the same one.
            for (int64_t turn = 0; turn < count; ++turn) {
                const auto i = static_cast<size_t>((turn + round) % count);
                progress_(round * count + turn, rounds * count, result_.settings[i].setting.name);
                const bool made = running[i].block == nullptr;
                if (made) running[i] = open(result_.settings[i]);
                // A block that is new touches its memory for the first time: not what is to be timed.
                if (made && round >= o_.warmup) step(running[i], result_.settings[i], round, false);
                step(running[i], result_.settings[i], round, round >= o_.warmup);
                if (!result_.all_alive) running[i] = {};
            }
        }
        progress_(rounds * count, rounds * count, "");
        return std::move(result_);
    }

private:
    std::string context_text() const {
        char line[512];
        if (mdlm_context_info(context_.get(), line, sizeof line, nullptr) != MDLM_OK) bad("mdlm bench: %s", mdlm_last_error());
        return line;
    }

    Running open(Measured &m) {
        const auto must = [&](mdlm_status status) { refuse(m.setting, status); };
        Running r;
        mdlm_block *block = nullptr;
        must(mdlm_block_create(context_.get(), &m.setting.config, &block));
        r.block.reset(block);
        shared_.bind(block, m.setting);
        const mdlm_shape shape = shape_of(m.setting);
        must(mdlm_block_reserve(block, &shape, nullptr));
        must(mdlm_block_memory(block, &m.memory));
        mdlm_tape *tape = nullptr;
        must(mdlm_tape_create(block, &tape));
        r.tape.reset(tape);
        return r;
    }

    void step(Running &r, Measured &m, int64_t round, bool timed) {
        const auto must = [&](mdlm_status status) { refuse(m.setting, status); };
        mdlm_batch batch = MDLM_BATCH_INIT;
        batch.seq_length = m.setting.seq_length;
        batch.micro_batch_size = m.setting.micro_batch_size;
        batch.training = 1;
        batch.seed = 1234;
        batch.step = static_cast<uint32_t>(round);
        mdlm_backward_options options = MDLM_BACKWARD_OPTIONS_INIT;
        options.overwrite_grads = 1;
        // An optimizer would have changed the parameters; what the library derives from them is made again within the forward.
        if (round % o_.micro_batches == 0) must(mdlm_params_changed(r.block.get()));
        events_.clear();
        must(mdlm_context_set_observer(context_.get(), collect, &events_));

        Timeline t;
        t.forward_begin = now();
        must(mdlm_block_forward(r.block.get(), &batch, shared_.x(), r.tape.get(), shared_.y()));
        must(mdlm_context_synchronize(context_.get()));
        t.forward_end = t.backward_begin = now();
        must(mdlm_block_backward(r.block.get(), r.tape.get(), &options, shared_.dy(), shared_.dx()));
        must(mdlm_context_synchronize(context_.get()));
        t.backward_end = now();

        must(mdlm_context_set_observer(context_.get(), nullptr, nullptr));
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
    double bytes_;  // first: sizes that overflow are refused here
    Context context_;
    Shared shared_;  // before all blocks, and gone after them
    std::vector<mdlm_op_event> events_;
    Measurement result_;
};

}  // namespace

Measurement measure(const Options &options, const std::vector<Setting> &settings, const Progress &progress) {
    return Session(options, settings, progress).run();
}

}  // namespace mdlm::tools::bench
