#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <optional>

#include "../text.hpp"
#include "command.hpp"
#include "convert.hpp"
#include "run.hpp"

namespace mdlm::tools {

const char check_help[] = R"(NAME
    mdlm check - runs golden cases and says how far the results are from theirs

SYNOPSIS
    mdlm check [OPTION...] [CONFIG FLAG...] DIR...

DESCRIPTION
    Each DIR is a case: settings, inputs, parameters, and outputs and gradients that were computed elsewhere. check runs a forward and
    a backward and prints one line a case with three relative errors, max|a - b| / max|b|: of the output, of the gradient of the
    input, and of the parameter gradient that is off most, with its name. A folder that cannot be read is named on standard error in
    one line, and the next is taken.

OPTIONS
    --device D       cpu (default) or reference
    --dtype T        f32, bf16 or f64 (reference only) of parameters and activations (default: what the config says, f32)
    --threads N      threads of the library's pool (default 0: all cores that this process may use)
    --tolerance E    largest relative error that passes (default: f64 1e-12, f32 2e-5, bf16 5e-2)
    --atol A         elements that differ by at most A count as equal; none (default): only equal ones do
    --json           one JSON object instead of lines
    --               what follows are folders

CONFIG FLAGS
    Every setting of the library by its Megatron flag, applied after config.txt. The results must not change with, for example,
        --recompute-granularity full --recompute-method uniform --recompute-num-layers 2
        --recompute-granularity selective --recompute-modules qkv,core_attn
        --attention-backend unfused
        --batch-first

FILES
    DIR/config.txt        one "key = value" a line: keys of mdlm_config, seq_length and micro_batch_size; '#' begins a comment
    DIR/input.npy         hidden states [s, b, h], float64 or float32, as are all but the last
    DIR/output.npy        what the block makes of them
    DIR/grad_output.npy   gradient of the output
    DIR/grad_input.npy    gradient of the input
    DIR/param/NAME.npy    every parameter of the block, in full
    DIR/grad/NAME.npy     its gradient
    DIR/cu_seqlens.npy    int32 or int64 [documents + 1]: bounds of packed documents, if any

EXIT STATUS
    0  every case is within the tolerance
    1  one is not
    2  a folder or an option is not what it should be, or the library refused
)";

namespace {

struct Options {
    mdlm_device_kind device = MDLM_DEVICE_CPU;
    const char *device_name = "cpu";
    std::string dtype;  // empty: the config's
    int32_t threads = 0;
    std::optional<double> tolerance;
    double atol = 0;
    bool json = false;
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
    bool only_folders = false;
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
        } else if (words.flag("--")) {
            only_folders = true;
        } else {
            mdlm_config scratch = MDLM_CONFIG_INIT;
            const size_t used = config_flags(&scratch, list, words.place());
            if (used == 0) bad("mdlm check: expected an option, a config flag or a folder, seen '%s' (see mdlm check --help)", words.peek().c_str());
            for (size_t i = 0; i < used; ++i) o.flags.push_back(list[words.place() + i]);
            words.skip(used);
        }
    }
    if (o.folders.empty()) bad("mdlm check: expected the folder of a case, seen none (see mdlm check --help)");
    return o;
}

double default_tolerance(mdlm_dtype type) { return type == MDLM_DTYPE_F64 ? 1e-12 : type == MDLM_DTYPE_F32 ? 2e-5 : 5e-2; }

mdlm_config config_with(const Options &o, const Case &c) {
    mdlm_config config = config_of(c);
    const size_t used = o.flags.empty() ? 0 : config_flags(&config, o.flags, 0);
    if (used != o.flags.size()) bad("mdlm check: expected flags of the config, seen '%s'", o.flags[used].c_str());
    if (!o.dtype.empty() && mdlm_config_set(&config, "params_dtype", o.dtype.c_str()) != MDLM_OK) bad("mdlm check: %s", mdlm_last_error());
    dtype_size(config.params_dtype);  // refuses those that this program cannot convert
    return config;
}

std::string json_case(const Options &o, const std::string &folder, mdlm_dtype type, const Errors &e, double tolerance, bool fine) {
    return textf("{\"folder\": %s, \"device\": %s, \"dtype\": %s, \"tolerance\": %s, \"output\": %s, \"grad_input\": %s, \"grad\": %s, "
                 "\"grad_name\": %s, \"ok\": %s}",
                 json_string(folder).c_str(), json_string(o.device_name).c_str(), json_string(dtype_name(type)).c_str(),
                 json_number(tolerance).c_str(), json_number(e.output).c_str(), json_number(e.grad_input).c_str(),
                 json_number(e.grad).c_str(), json_string(e.worst).c_str(), fine ? "true" : "false");
}

// Runs one case and says its line; true if it is within the tolerance.
bool check_case(const Options &o, mdlm_context *context, const std::string &folder, std::string *json) {
    const Case c = read_case(folder);
    const mdlm_config config = config_with(o, c);
    const Errors e = errors_of(run_case(context, c, config), c, o.atol);
    const double tolerance = o.tolerance.value_or(default_tolerance(config.params_dtype));
    const bool fine = e.largest() <= tolerance;
    if (o.json)
        *json = json_case(o, folder, config.params_dtype, e, tolerance, fine);
    else
        std::printf("%-4s  %s  %s %s  output %.2e  grad_input %.2e  grad %.2e %s  tolerance %.0e\n", fine ? "ok" : "FAIL",
                    one_line(folder).c_str(), o.device_name, dtype_name(config.params_dtype), e.output, e.grad_input, e.grad,
                    e.worst.c_str(), tolerance);
    return fine;
}

}  // namespace

int check_command(const std::vector<std::string> &list) {
    const Options o = parse(list);
    const Context context = open_context(o.device, o.threads);
    int status = exit_fine;
    std::string cases;
    for (const std::string &folder : o.folders) {
        std::string json;
        try {
            if (!check_case(o, context.get(), folder, &json) && status == exit_fine) status = exit_past_tolerance;
        } catch (const Bad &error) {
            std::fprintf(stderr, "%s\n", error.what());
            json = textf("{\"folder\": %s, \"ok\": false, \"error\": %s}", json_string(folder).c_str(), json_string(error.what()).c_str());
            status = exit_bad;
        }
        cases += (cases.empty() ? "" : ",\n  ") + json;
    }
    if (o.json)
        std::printf("{\"version\": %s, \"ok\": %s, \"cases\": [\n  %s\n]}\n", json_string(mdlm_version()).c_str(),
                    status == exit_fine ? "true" : "false", cases.c_str());
    return status;
}

}  // namespace mdlm::tools
