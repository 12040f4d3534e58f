// SPDX-License-Identifier: Apache-2.0
#include "options.hpp"

#include <algorithm>
#include <charconv>
#include <optional>

#include "../../text.hpp"
#include "../command.hpp"
#include "../convert.hpp"
#include "../ranks.hpp"
#include "settings.hpp"

namespace mdlm::tools::bench {
namespace {

constexpr size_t most_points = 16;  // shapes that a device keeps prepared

int64_t whole(const char *option, const std::string &text, int64_t least, int64_t most) {
    int64_t n = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n);
    if (error != std::errc() || end != text.data() + text.size() || n < least || n > most)
        bad("mdlm bench: %s: expected a whole number %lld .. %lld, seen '%s'", option, static_cast<long long>(least),
            static_cast<long long>(most), text.c_str());
    return n;
}

std::vector<int64_t> list(const char *option, const std::string &text) {
    std::vector<int64_t> numbers;
    for (size_t begin = 0; begin <= text.size();) {
        const size_t comma = std::min(text.find(',', begin), text.size());
        numbers.push_back(whole(option, text.substr(begin, comma - begin), 1, int64_t{1} << 24));
        begin = comma + 1;
    }
    if (numbers.size() > most_points || !std::is_sorted(numbers.begin(), numbers.end(), std::less_equal<>()))
        bad("mdlm bench: %s: expected at most %zu rising numbers, seen '%s'", option, most_points, text.c_str());
    return numbers;
}

template <class T>
T choice(const char *option, const std::string &text, std::initializer_list<std::pair<const char *, T>> choices) {
    std::string names;
    for (const auto &[name, value] : choices) {
        if (text == name) return value;
        names += (names.empty() ? "" : " or ") + std::string(name);
    }
    bad("mdlm bench: %s: expected %s, seen '%s'", option, names.c_str(), text.c_str());
}

// Takes flags of the config; false when the next word is none.
bool config_flags(mdlm_config *config, const std::vector<std::string> &words, size_t first, size_t *used) {
    std::vector<const char *> argv;
    for (size_t i = first; i < words.size(); ++i) argv.push_back(words[i].c_str());
    int taken = 0;
    if (mdlm_config_parse_flags(config, static_cast<int>(argv.size()), argv.data(), &taken) != MDLM_OK)
        bad("mdlm bench: %s", mdlm_last_error());
    *used = static_cast<size_t>(taken);
    return taken > 0;
}

void check_curve(Options &o, bool has_seq, bool has_batch) {
    if (o.curve == Curve::none) {
        if (!o.points.empty()) bad("mdlm bench: --points: expected --curve too, seen none");
        return;
    }
    if (o.sweep) bad("mdlm bench: --curve and --sweep: expected one of them, seen both");
    if (o.curve == Curve::micro_batch_size) {
        if (has_batch)
            bad("mdlm bench: --micro-batch-size: expected none with --curve micro-batch-size (see --points), seen one");
        if (o.points.empty()) o.points = {1, 2, 4, 8, 16};
        return;
    }
    if (o.points.empty()) o.points = {256, 512, 1024, 2048, 4096, 8192};
    if (!has_seq && !has_batch) o.seq_length = o.points.back();  // tokens
    int64_t tokens = 0;
    if (__builtin_mul_overflow(o.seq_length, o.micro_batch_size, &tokens))
        bad("mdlm bench: --seq-length times --micro-batch-size: expected at most 2^63 - 1");
    for (const int64_t s : o.points)
        if (tokens % s != 0)
            bad("mdlm bench: --curve seq-length: expected tokens (--seq-length times --micro-batch-size, %lld) that "
                "every point divides, seen "
                "the point %lld",
                static_cast<long long>(tokens), static_cast<long long>(s));
}

void check(Options &o, bool has_seq, bool has_batch) {
    check_curve(o, has_seq, has_batch);
    const mdlm_config &c = o.config;
    if (o.sweep && recomputes(c))
        bad("mdlm bench: --sweep: expected no recompute settings beside it, it runs them all");
    if (o.against_one_rank && c.tensor_model_parallel_size == 1)
        bad("mdlm bench: --against-one-rank: expected --tensor-model-parallel-size of at least 2 too, seen 1");
    if (!o.budgets.empty()) {
        if (o.budgets.back() > 100)
            bad("mdlm bench: --budgets: expected percentages from 1 to 100, seen %lld",
                static_cast<long long>(o.budgets.back()));
        if (o.sweep || o.curve != Curve::none || o.against_one_rank || !o.baseline)
            bad("mdlm bench: --budgets: expected none of --sweep, --curve, --against-one-rank and --no-baseline beside "
                "it");
        if (recomputes(c) || c.memory_budget != 0)
            bad("mdlm bench: --budgets: expected no recompute settings and no --memory-budget beside it");
    }
    if (o.against_one_rank && c.memory_budget != 0)
        bad("mdlm bench: --against-one-rank: expected no --memory-budget beside it, ranks and one rank need different "
            "bytes");
    if (!o.baseline && (o.sweep || o.curve != Curve::none))
        bad("mdlm bench: --no-baseline: expected neither --sweep nor --curve beside it");
    if (!o.svg.empty() && !o.sweep && o.curve == Curve::none)
        bad("mdlm bench: --svg: expected --sweep or --curve too, seen neither");
    if (mdlm_config_validate(&c) != MDLM_OK) bad("mdlm bench: %s", mdlm_last_error());
    dtype_size(c.params_dtype);  // refuses those that this program cannot fill
}

}  // namespace

const char *name_of(Curve curve) {
    return curve == Curve::seq_length ? "seq-length" : curve == Curve::micro_batch_size ? "micro-batch-size" : "none";
}

Options parse(const std::vector<std::string> &list_of_words) {
    Options o;
    o.config.tensor_model_parallel_size = not_said;
    bool has_seq = false, has_batch = false;
    std::string value;
    for (Words words(list_of_words); !words.done();) {
        size_t used = 0;
        if (words.option("--seq-length", &value))
            o.seq_length = whole("--seq-length", value, 1, 1 << 24), has_seq = true;
        else if (words.option("--micro-batch-size", &value))
            o.micro_batch_size = whole("--micro-batch-size", value, 1, 1 << 20), has_batch = true;
        else if (words.option("--device", &value)) o.device = device_of(value);
        else if (words.option("--threads", &value)) o.threads = threads_of(value);
        else if (words.option("--matmul", &value))
            o.matmul = choice<mdlm_matmul>(
                "--matmul", value,
                {{"auto", MDLM_MATMUL_AUTO}, {"onednn", MDLM_MATMUL_ONEDNN}, {"own", MDLM_MATMUL_OWN}});
        else if (words.option("--device-table", &value)) o.device_table = device_table_of(value);
        else if (words.option("--repeats", &value)) o.repeats = whole("--repeats", value, 1, 100000);
        else if (words.option("--warmup", &value)) o.warmup = whole("--warmup", value, 0, 100000);
        else if (words.option("--micro-batches", &value)) o.micro_batches = whole("--micro-batches", value, 1, 1 << 16);
        else if (words.option("--alive", &value))
            o.alive =
                choice<Alive>("--alive", value, {{"auto", Alive::automatic}, {"all", Alive::all}, {"one", Alive::one}});
        else if (words.option("--curve", &value))
            o.curve = choice<Curve>("--curve", value,
                                    {{"seq-length", Curve::seq_length}, {"micro-batch-size", Curve::micro_batch_size}});
        else if (words.option("--budgets", &value)) o.budgets = list("--budgets", value);
        else if (words.option("--points", &value)) o.points = list("--points", value);
        else if (words.option("--svg", &value)) o.svg = value;
        else if (words.option("--trace", &value)) o.trace = value;
        else if (words.flag("--sweep")) o.sweep = true;
        else if (words.flag("--no-baseline")) o.baseline = false;
        else if (words.flag("--against-one-rank")) o.against_one_rank = true;
        else if (words.flag("--profile")) o.profile = true;
        else if (words.flag("--json")) o.json = true;
        else if (config_flags(&o.config, list_of_words, words.place(), &used)) words.skip(used);
        else
            bad("mdlm bench: expected an option or a config flag, seen '%s' (see mdlm bench --help)",
                words.peek().c_str());
    }
    o.config.tensor_model_parallel_size = group_size("mdlm bench", o.config.tensor_model_parallel_size);
    check(o, has_seq, has_batch);
    return o;
}

}  // namespace mdlm::tools::bench
