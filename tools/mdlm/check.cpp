// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <optional>

#include "../text.hpp"
#include "bench/settings.hpp"
#include "check_case.hpp"
#include "command.hpp"
#include "convert.hpp"
#include "ranks.hpp"

namespace mdlm::tools {

const char check_help[] = R"(NAME
    mdlm check - runs golden cases and says how far the results are from theirs

SYNOPSIS
    mdlm check [OPTION...] [CONFIG FLAG...] DIR...

DESCRIPTION
    Each DIR is a case: settings, inputs, parameters, and outputs and gradients that were computed elsewhere. check
    runs a forward and a backward and prints one line a case with three relative errors, max|a - b| / max|b|: of
    the output, of the gradient of the input, and of the parameter gradient that is off most, with its name. A
    folder that cannot be read is named on standard error in one line, and the next is taken.

    With --tensor-model-parallel-size t the case runs on t ranks, threads of this program, and under mpirun on its
    processes. Each rank compares the whole of its results with the case, and the largest errors of all ranks are
    printed. A case whose sizes t does not divide is skipped.

OPTIONS
    --device D       cpu (default) or reference
    --dtype T        f32, bf16 or f64 (reference only) of parameters and activations (default: what the config
                     says, f32)
    --threads N      threads of each rank's pool (default 0: all cores that this process may use, shared by its ranks)
    --sweep          each case under every recompute setting; with t > 1 also with its inputs distributed and with
                     sequence parallelism. The line has the largest errors of all settings, and fails unless all
                     that differ in recompute only have the same bits
    --tolerance E    largest relative error that passes (default: f64 1e-12, f32 2e-5, bf16 5e-2)
    --atol A         elements that differ by at most A count as equal; none (default): only equal ones do
    --json           one JSON object instead of lines
    --               what follows are folders

CONFIG FLAGS
    Every setting of the library by its Megatron flag, applied after config.txt. The results must not change with,
    for example,
        --recompute-granularity full --recompute-method uniform --recompute-num-layers 2
        --recompute-granularity selective --recompute-modules qkv,core_attn
        --attention-backend unfused
        --batch-first
        --tensor-model-parallel-size 2 --sequence-parallel

FILES
    DIR/config.txt        one "key = value" a line: keys of mdlm_config, seq_length and micro_batch_size; '#'
                          begins a comment
    DIR/input.npy         hidden states [s, b, h], float64 or float32, as are all but the last
    DIR/output.npy        what the block makes of them
    DIR/grad_output.npy   gradient of the output
    DIR/grad_input.npy    gradient of the input
    DIR/param/NAME.npy    every parameter of the block, in full
    DIR/grad/NAME.npy     its gradient
    DIR/cu_seqlens.npy    int32 or int64 [documents + 1]: bounds of packed documents, if any

EXIT STATUS
    0  every case is within the tolerance, or was skipped
    1  one is not
    2  a folder or an option is not what it should be, the library refused, or every case was skipped
)";

namespace {

struct Options {
    mdlm_device_kind device = MDLM_DEVICE_CPU;
    const char *device_name = "cpu";
    std::string dtype;  // empty: the config's
    int32_t threads = 0;
    std::optional<double> tolerance;
    double atol = 0;
    bool json = false, sweep = false;
    int64_t ranks = not_said;
    std::vector<std::string> flags;  // of the config
    std::vector<std::string> folders;
};

double number_of(const char *option, const std::string &text) {
    char *end = nullptr;
    const double value = std::strtod(text.c_str(), &end);
    if (text.empty() || *end != '\0' || !std::isfinite(value) || value < 0)
        bad("mdlm check: %s: expected a number from 0, seen '%s'", option, text.c_str());
    return value;
}

// Words of list, from first on, that are flags of the config. Bad for a value that cannot be read.
size_t config_flags(mdlm_config *config, const std::vector<std::string> &list, size_t first) {
    std::vector<const char *> words;
    for (size_t i = first; i < list.size(); ++i) words.push_back(list[i].c_str());
    int used = 0;
    if (mdlm_config_parse_flags(config, static_cast<int>(words.size()), words.data(), &used) != MDLM_OK)
        bad("mdlm check: %s", mdlm_last_error());
    return static_cast<size_t>(used);
}

Options parse(const std::vector<std::string> &list) {
    Options o;
    std::string value;
    bool only_folders = false, recomputes = false;
    for (Words words(list); !words.done();) {
        if (only_folders || words.peek().empty() || words.peek()[0] != '-') {
            o.folders.push_back(words.peek());
            words.skip(1);
        } else if (words.option("--device", &value)) {
            o.device = device_of(value);
            o.device_name = o.device == MDLM_DEVICE_CPU ? "cpu" : "reference";
        } else if (words.option("--dtype", &value)) {
            if (value != "f32" && value != "bf16" && value != "f64")
                bad("mdlm check: --dtype: expected f32, bf16 or f64, seen '%s'", value.c_str());
            o.dtype = value;
        } else if (words.option("--threads", &value)) {
            o.threads = threads_of(value);
        } else if (words.option("--tolerance", &value)) {
            o.tolerance = number_of("--tolerance", value);
        } else if (words.option("--atol", &value)) {
            o.atol = value == "none" ? 0 : number_of("--atol", value);
        } else if (words.flag("--json")) {
            o.json = true;
        } else if (words.flag("--sweep")) {
            o.sweep = true;
        } else if (words.flag("--")) {
            only_folders = true;
        } else {
            mdlm_config scratch = MDLM_CONFIG_INIT;
            scratch.tensor_model_parallel_size = o.ranks;
            const size_t used = config_flags(&scratch, list, words.place());
            o.ranks = scratch.tensor_model_parallel_size;
            recomputes |= bench::recomputes(scratch) || scratch.memory_budget != 0;
            if (used == 0)
                bad("mdlm check: expected an option, a config flag or a folder, seen '%s' (see mdlm check --help)",
                    words.peek().c_str());
            for (size_t i = 0; i < used; ++i) o.flags.push_back(list[words.place() + i]);
            words.skip(used);
        }
    }
    if (o.folders.empty()) bad("mdlm check: expected the folder of a case, seen none (see mdlm check --help)");
    if (o.sweep && recomputes) bad("mdlm check: --sweep: expected no recompute settings beside it, it runs them all");
    // A case may name its own size of the group; flags and a launcher change it.
    if (o.ranks != not_said || launched().size > 1) o.ranks = group_size("mdlm check", o.ranks);
    return o;
}

double default_tolerance(mdlm_dtype type) {
    return type == MDLM_DTYPE_F64 ? 1e-12 : type == MDLM_DTYPE_F32 ? 2e-5 : 5e-2;
}

mdlm_config config_with(const Options &o, const Case &c) {
    mdlm_config config = config_of(c);
    const size_t used = o.flags.empty() ? 0 : config_flags(&config, o.flags, 0);
    if (used != o.flags.size()) bad("mdlm check: expected flags of the config, seen '%s'", o.flags[used].c_str());
    if (!o.dtype.empty() && mdlm_config_set(&config, "params_dtype", o.dtype.c_str()) != MDLM_OK)
        bad("mdlm check: %s", mdlm_last_error());
    if (o.ranks != not_said) config.tensor_model_parallel_size = o.ranks;
    dtype_size(config.params_dtype);  // refuses those that this program cannot convert
    return config;
}

std::string text_of(const Options &o, const std::string &folder, const mdlm_config &config, const Found &f,
                    double tolerance, bool fine) {
    const Errors &e = f.errors;
    std::string line = textf("%-4s  %s  %s %s", fine ? "ok" : "FAIL", one_line(folder).c_str(), o.device_name,
                             dtype_name(config.params_dtype));
    if (config.tensor_model_parallel_size > 1)
        line += textf("  t %lld%s", static_cast<long long>(config.tensor_model_parallel_size),
                      config.sequence_parallel != 0 ? " sp" : "");
    line += textf("  output %.2e  grad_input %.2e  grad %.2e %s  tolerance %.0e", e.output, e.grad_input, e.grad,
                  e.worst.c_str(), tolerance);
    if (o.sweep)
        line += textf("  %zu settings (worst: %s), bits %s", f.settings, f.setting.c_str(),
                      f.other_bits.empty() ? "the same" : ("differ: " + f.other_bits).c_str());
    return line + "\n";
}

std::string json_of(const Options &o, const std::string &folder, const mdlm_config &config, const Found &f,
                    double tolerance, bool fine) {
    const Errors &e = f.errors;
    std::string text = textf("{\"folder\": %s, \"device\": %s, \"dtype\": %s, \"tensor_model_parallel_size\": %lld, "
                             "\"tolerance\": %s, \"output\": %s, "
                             "\"grad_input\": %s, \"grad\": %s, \"grad_name\": %s",
                             json_string(folder).c_str(), json_string(o.device_name).c_str(),
                             json_string(dtype_name(config.params_dtype)).c_str(),
                             static_cast<long long>(config.tensor_model_parallel_size), json_number(tolerance).c_str(),
                             json_number(e.output).c_str(), json_number(e.grad_input).c_str(),
                             json_number(e.grad).c_str(), json_string(e.worst).c_str());
    if (o.sweep)
        text += textf(", \"settings\": %zu, \"worst_setting\": %s, \"same_bits\": %s", f.settings,
                      json_string(f.setting).c_str(), f.other_bits.empty() ? "true" : "false");
    return text + textf(", \"ok\": %s}", fine ? "true" : "false");
}

enum class Verdict { fine, past_tolerance, skipped };

// Runs one case and says its line.
Verdict check_case(const Options &o, Ranks &ranks, const std::string &folder, std::string *json) {
    Case c;
    mdlm_config config;
    ranks.together([&] {
        c = read_case(folder);
        config = config_with(o, c);
    });
    const std::string reason = why_not(c, config);
    if (!reason.empty()) {
        *json = textf("{\"folder\": %s, \"skipped\": %s}", json_string(folder).c_str(), json_string(reason).c_str());
        if (!o.json && ranks.leads()) std::printf("skip  %s  because %s\n", one_line(folder).c_str(), reason.c_str());
        return Verdict::skipped;
    }
    const auto size = static_cast<int32_t>(config.tensor_model_parallel_size);
    const std::vector<Named> settings = settings_of(c, config, o.sweep);
    Found found;
    ranks.run(size, [&](const Rank &rank) {
        const Context context =
            open_context(o.device, ranks.threads_each(o.threads, size), MDLM_MATMUL_AUTO, rank.comm);
        Found mine = find(rank, context.get(), c, settings, o.atol);
        if (rank.leads() || ranks.processes()) found = std::move(mine);
    });
    const double tolerance = o.tolerance.value_or(default_tolerance(config.params_dtype));
    const bool fine = found.errors.largest() <= tolerance && found.other_bits.empty();
    *json = json_of(o, folder, config, found, tolerance, fine);
    if (!o.json && ranks.leads()) std::fputs(text_of(o, folder, config, found, tolerance, fine).c_str(), stdout);
    return fine ? Verdict::fine : Verdict::past_tolerance;
}

}  // namespace

int check_command(const std::vector<std::string> &list) {
    Ranks ranks("mdlm check");
    const Options o = parse(list);
    int status = exit_fine;
    size_t skipped = 0;
    std::string cases;
    for (const std::string &folder : o.folders) {
        std::string json;
        try {
            const Verdict verdict = check_case(o, ranks, folder, &json);
            if (verdict == Verdict::past_tolerance && status == exit_fine) status = exit_past_tolerance;
            skipped += verdict == Verdict::skipped;
        } catch (const Bad &error) {
            if (ranks.leads()) std::fprintf(stderr, "%s\n", error.what());
            json = textf("{\"folder\": %s, \"ok\": false, \"error\": %s}", json_string(folder).c_str(),
                         json_string(error.what()).c_str());
            status = exit_bad;
        }
        cases += (cases.empty() ? "" : ",\n  ") + json;
    }
    if (skipped == o.folders.size()) {
        if (ranks.leads())
            std::fprintf(stderr, "mdlm check: every case was skipped: expected one whose sizes the ranks divide\n");
        status = exit_bad;
    }
    if (o.json && ranks.leads())
        std::printf("{\"version\": %s, \"ok\": %s, \"cases\": [\n  %s\n]}\n", json_string(mdlm_version()).c_str(),
                    status == exit_fine ? "true" : "false", cases.c_str());
    return status;
}

}  // namespace mdlm::tools
