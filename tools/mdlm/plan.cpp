// SPDX-License-Identifier: Apache-2.0
#include "plan.hpp"

#include <algorithm>
#include <charconv>
#include <cstdio>

#include "../text.hpp"
#include "command.hpp"
#include "models.hpp"
#include "plan_settings.hpp"
#include "run.hpp"

namespace mdlm::tools {

const char plan_help[] = R"(NAME
    mdlm plan - the plan with the least extra time that fits a budget of bytes, proven; or the best plans for all
                budgets

SYNOPSIS
    mdlm plan [--model NAME] [CONFIG FLAG...] [SHAPE...] --budget BYTES [--svg FILE] [--json]
    mdlm plan [--model NAME] [CONFIG FLAG...] [SHAPE...] --sweep        [--svg FILE] [--json]
    mdlm plan [--model NAME] [CONFIG FLAG...] [SHAPE...] RECOMPUTE FLAG... [--svg FILE] [--json]
    mdlm plan --article [--json]
    mdlm plan --chain FILE --budget BYTES [--label-cap N] [--json]
    mdlm plan --chain FILE --sweep        [--label-cap N] [--json]

DESCRIPTION
    Activation checkpointing as an optimisation: each layer takes one of its policies, which differ in what they
    retain from forward to backward and in what they cost, or consecutive layers form a unit of which only the
    first input stays. Of all plans whose peak fits the budget the one with the least extra time is found; of
    several such the one with the lowest peak, then the first by the order of policies.

    For a block of the library's layers the policies are found: every tensor kept, replayed, a share of it on each
    rank or on the host, laid out to the byte. Beside the plan stands the best that Megatron's own recompute
    settings could do in that budget, and the flags for it, in Megatron's syntax and with its bytes: its core_attn
    keeps the context, its layernorm does nothing under its default layer spec, it offloads only without recompute.
    Times are of the library's replay, which runs no more than Megatron's. A second line has the best of the
    library's own modules.

    Recompute flags without a budget (--recompute-granularity selective, --cpu-offloading-num-layers 4, ...) give
    the plan of these flags.

A BLOCK
    CONFIG FLAG          as Megatron spells them: --num-layers 32, --swiglu, --tensor-model-parallel-size 8, ...
                         With --cpu-offloading and --cpu-offloading-num-layers the planner may use the host for
                         those layers
    --flags FILE         a file of them, also a whole training script's: what is no flag of a block is left out and
                         listed on standard error
    --model NAME         gpt2 (124M, in f32), megadlms-1.7b, gpt3-22b, gpt3-175b, llama-8b, llama-70b or 30b (a
                         shape is assumed: 48 layers, h 7168, 56 heads, 4 h); flags behind it change it
    --seq-length N, --micro-batch-size N, --in-flight N (tapes between forward and backward, default 1)
    --device-table T     what operations cost: a name (cpu, A100-40GB, A100-80GB, H100, H200; GPUs are from their
                         datasheets) or a JSON file, as mdlm_context_calibrate makes it. Default cpu. `--calibrate`
                         measures this machine and prints such a file
    --device D, --threads N  whose scratch is counted with a table of a CPU: cpu (default) or reference; threads
                             (default 0: all cores)
    --memory-budget-includes-parameters  the budget holds parameters and gradients, too
    --svg FILE           time against memory: the exact frontier, and as points Megatron's settings and the
                         library's modules
    --article            the table of the claim "30 to 10 GB for a 30B model": Megatron's accounting and the
                         library's. Default: the 30b model on A100-40GB with t 8, sequence parallelism and b 3,
                         where Megatron's accounting gives 30 GB

OPTIONS
    --chain FILE     an abstract chain of layers in JSON (see FILES); - is standard input
    --budget BYTES   whole, or with KiB, MiB, GiB, TiB, kB, MB, GB or TB: 40GiB
    --sweep          every plan that is best at some budget
    --label-cap N    bounds time and memory: at most N partial plans are kept for each layer (default 0: enough for
                     an exact answer of any usual chain). If that was too few, the answer says by how much it may
                     miss the optimum
    --json           JSON instead of lines

FILES
    A chain: integers are bytes and nanoseconds, none negative; a missing one is 0, unless said. Of a name only
    what is printed depends.
        {"format": "mdlm-chain", "version": 1,      both needed
         "in_flight": 1,                            tapes between forward and backward, finished in any order
                                                    (missing: 1)
         "fixed_bytes": 0,                          taken off the budget first, part of every peak
         "loss_bytes": 3,                           alive above all that is retained, between forward and backward
         "input_bytes": 2,                          of the first layer's input (missing: its boundary_bytes)
         "max_unit_depth": 1,                       0: single layers only; 1: units of single layers; 2: units in
                                                    units; ...
         "max_unit_layers": 8,                      most layers of a unit, up to 64 (missing or 0: 64)
         "layers": [{                               needed; in order
           "name": "decoder", "count": 4,           so many alike (missing: 1); at most 4097 in all
           "boundary_bytes": 2,                     of the output
           "grad_boundary_bytes": 2,                of its gradient
           "forward_ns": 6,
           "unsaved_forward_bytes": 5,              most alive in a forward that saves nothing, input and output
                                                    included
           "policies": [{                           needed, at least one
             "name": "A",
             "saved_bytes": 10,                     retained from forward to backward, the layer's input in some
                                                    form included
             "extra_ns": 0,                         over saving everything
             "forward_bytes": 12,                   most alive in forward, without what earlier layers retain
             "backward_bytes": 14,                  the same in replay and backward
             "rebuild_ns": 3}],                     to make what is retained again, for the last layer of a unit
           "unit_inputs": [{                        forms that a unit beginning at the layer may retain (missing:
                                                    no unit begins here)
             "name": "keep",
             "saved_bytes": 2, "restore_ns": 0,
             "stays": true}]}]}                     the input itself stays (missing: false, it is made again out of
                                                    the form)

OUTPUT
    A block: what is kept, sharded, on the host and replayed per layer; the peak; the extra time. JSON has the plan
    as mdlm_plan_from_json takes it.
    --budget   {"feasible": true, "optimal": true, "gap_ns": 0, "peak_bytes": 24, "extra_ns": 15,
               "minimum_budget_bytes": 21, "plan": [...]}
               where no plan fits: {"feasible": false, "minimum_budget_bytes": 21}
    --sweep    {"frontier": [{"peak_bytes": 21, "extra_ns": 15, "plan": [...]}, ...], "optimal": true, "gap_ns": 0}
    A plan's entries, layers counted from 0: {"layer": 3, "policy": "A"} and {"unit": [0, 2], "input": "keep",
    "inner": [...]}.

EXIT STATUS
    0  answered, with --chain also where no plan fits
    2  an option or the file is not what it should be; one line on standard error says which
)";

uint64_t bytes_of(const char *option, const std::string &text) {
    static constexpr struct {
        const char *name;
        double bytes;
    } units[] = {{"", 1},         {"B", 1},    {"KiB", 0x1p10}, {"MiB", 0x1p20}, {"GiB", 0x1p30},
                 {"TiB", 0x1p40}, {"kB", 1e3}, {"MB", 1e6},     {"GB", 1e9},     {"TB", 1e12}};
    const size_t digits = std::min(text.find_first_not_of("0123456789."), text.size());
    const std::string number = text.substr(0, digits);
    const std::string unit = text.substr(std::min(text.find_first_not_of(' ', digits), text.size()));
    for (const auto &u : units) {
        if (number.empty() || unit != u.name) continue;
        uint64_t whole = 0;
        const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), whole);
        if (error == std::errc() && end == number.data() + number.size() && u.bytes == 1) return whole;
        double value = 0;
        const auto [last, wrong] = std::from_chars(number.data(), number.data() + number.size(), value);
        const bool read = wrong == std::errc() && last == number.data() + number.size();
        if (read && value * u.bytes < 0x1p63) return static_cast<uint64_t>(value * u.bytes);
    }
    bad("mdlm plan: %s: expected bytes like 1500000 or 40GiB, below 2^63, seen '%s'", option, text.c_str());
}

namespace {

int64_t whole(const char *option, const std::string &text, int64_t least, int64_t most) {
    int64_t n = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n);
    if (error != std::errc() || end != text.data() + text.size() || n < least || n > most)
        bad("mdlm plan: %s: expected an integer from %lld to %lld, seen '%s'", option, static_cast<long long>(least),
            static_cast<long long>(most), text.c_str());
    return n;
}

// Words as mdlm_config_parse_flags wants them; made once, since a script has thousands that are no flags.
std::vector<const char *> pointers_to(const std::vector<std::string> &list) {
    std::vector<const char *> argv;
    for (const std::string &word : list) argv.push_back(word.c_str());
    return argv;
}

// Takes flags of the config from where words stand; 0 when the next word is none.
size_t take_flags(mdlm_config *config, const std::vector<const char *> &argv, size_t first) {
    int used = 0;
    if (mdlm_config_parse_flags(config, static_cast<int>(argv.size() - first), argv.data() + first, &used) != MDLM_OK)
        bad("mdlm plan: %s", mdlm_last_error());
    return static_cast<size_t>(used);
}

bool take_shape(Words &words, PlanOptions &o) {
    std::string value;
    constexpr int64_t most = int64_t{1} << 24;
    if (words.option("--seq-length", &value)) o.shape.seq_length = whole("--seq-length", value, 1, most);
    else if (words.option("--micro-batch-size", &value))
        o.shape.micro_batch_size = whole("--micro-batch-size", value, 1, 1 << 20);
    else if (words.option("--in-flight", &value))
        o.shape.in_flight = static_cast<int32_t>(whole("--in-flight", value, 1, 65536));
    else return false;
    return true;
}

void take_file(PlanOptions &o, const std::string &path) {
    const std::vector<std::string> list = flag_words(read_all(path));
    const std::vector<const char *> argv = pointers_to(list);
    std::string left_out;
    for (Words words(list); !words.done();) {
        if (take_shape(words, o)) continue;
        if (const size_t used = take_flags(&o.config, argv, words.place()); used > 0) {
            words.skip(used);
            continue;
        }
        left_out += " " + words.peek();
        words.skip(1);
    }
    if (!left_out.empty())
        std::fprintf(stderr, "mdlm plan: %s: no flags of a block:%s\n", one_line(path).c_str(),
                     one_line(left_out).c_str());
}

void take_model(PlanOptions &o, const std::string &name) {
    const Model &m = model_of(name);
    o.model = m.name;
    const std::vector<std::string> list(m.flags.begin(), m.flags.end());
    if (take_flags(&o.config, pointers_to(list), 0) != list.size())
        bad("mdlm plan: --model %s: a flag of it is unknown", m.name);
    o.shape.seq_length = m.seq_length;
    if (o.shape.micro_batch_size == 0) o.shape.micro_batch_size = 1;
}

int calibrate(const PlanOptions &o) {
    const Context context = open_context(o.target.device, o.target.num_threads);
    size_t length = 0;
    if (mdlm_context_calibrate(context.get(), o.config.params_dtype) != MDLM_OK ||
        mdlm_context_get_device_table(context.get(), nullptr, 0, &length) != MDLM_OK)
        bad("mdlm plan: %s", mdlm_last_error());
    std::string text(length + 1, '\0');
    if (mdlm_context_get_device_table(context.get(), text.data(), text.size(), nullptr) != MDLM_OK)
        bad("mdlm plan: %s", mdlm_last_error());
    std::fputs(text.c_str(), stdout);
    return exit_fine;
}

// The article's, where nothing else is said.
void article_defaults(PlanOptions &o, bool has_table) {
    if (o.config.num_layers == 0) {
        take_model(o, "30b");
        o.shape.micro_batch_size = 3;
        o.config.tensor_model_parallel_size = 8, o.config.sequence_parallel = 1;
    }
    if (!has_table) o.table = "A100-40GB";
}

}  // namespace

int plan_command(const std::vector<std::string> &list) {
    PlanOptions o;
    const std::vector<const char *> argv = pointers_to(list);
    std::string value;
    bool of_block = false, has_table = false, measures = false;
    for (Words words(list); !words.done();) {
        const size_t place = words.place();
        bool block_option = true;
        if (words.option("--model", &value)) take_model(o, value);
        else if (words.option("--flags", &value)) take_file(o, value);
        else if (words.option("--device-table", &value)) o.table = device_table_of(value), has_table = true;
        else if (words.option("--device", &value)) o.target.device = device_of(value);
        else if (words.option("--threads", &value)) o.target.num_threads = threads_of(value);
        else if (words.option("--svg", &value)) o.svg = value;
        else if (words.flag("--article")) o.article = true;
        else if (words.flag("--calibrate")) measures = true;
        else block_option = take_shape(words, o);
        if (block_option) {
            of_block = true;
            continue;
        }
        if (words.option("--chain", &value)) {
            if (value.empty()) bad("mdlm plan: --chain: expected a file, seen ''");
            o.chain = value;
        } else if (words.option("--budget", &value)) {
            o.budget = bytes_of("--budget", value);
        } else if (words.option("--label-cap", &value)) {
            o.label_cap = whole("--label-cap", value, 0, INT64_MAX);
        } else if (words.flag("--sweep")) {
            o.sweep = true;
        } else if (words.flag("--json")) {
            o.json = true;
        } else if (const size_t used = take_flags(&o.config, argv, place); used > 0) {
            words.skip(used);
            of_block = true;
        } else {
            bad("mdlm plan: expected --chain, --budget, --sweep, --label-cap, --json, a flag of a block or --help, "
                "seen '%s'",
                words.peek().c_str());
        }
    }
    if (measures) return calibrate(o);
    if (!o.chain.empty()) {
        if (of_block) bad("mdlm plan: --chain: expected no flag of a block beside it");
        if (o.budget.has_value() == o.sweep)
            bad("mdlm plan: expected either --budget or --sweep, seen %s", o.sweep ? "both" : "neither");
        return plan_chain(o);
    }
    if (o.article) {
        if (o.budget.has_value() || o.sweep)
            bad("mdlm plan: --article: expected neither --budget nor --sweep beside it");
        article_defaults(o, has_table);
        return plan_article(o);
    }
    if (!of_block) bad("mdlm plan: expected --chain FILE, or a block by --model or flags, seen neither");
    if (!o.budget.has_value() && o.config.memory_budget != 0) o.budget = static_cast<uint64_t>(o.config.memory_budget);
    if (o.budget.has_value() && o.sweep) bad("mdlm plan: expected either --budget or --sweep, seen both");
    if (!o.budget.has_value() && !o.sweep && !recomputes(o.config))
        bad("mdlm plan: expected --budget, --sweep or recompute flags, seen none of them");
    if (o.budget.has_value()) {
        if (*o.budget == 0) bad("mdlm plan: --budget: expected at least 1 byte, seen 0");
        o.config.memory_budget = static_cast<int64_t>(*o.budget);
    }
    return plan_block(o);
}

}  // namespace mdlm::tools
