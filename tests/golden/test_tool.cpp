// SPDX-License-Identifier: Apache-2.0
// The program mdlm, run as a process: exit statuses, and what it writes where.
#include <algorithm>
#include <cstdlib>
#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../../tools/npy.hpp"
#include "../../tools/text.hpp"
#include "golden_support.hpp"

namespace golden {
namespace {

namespace fs = std::filesystem;

struct Ended {
    int status;  // exit status; 128 + the signal if one ended it
    std::string out, err;
};

class Tool {
public:
    Tool() {
        const char *other = std::getenv("MDLM_TOOL");  // an installed one, say
        path_ = other != nullptr ? other : MDLM_TOOL_PATH;
    }
    Ended operator()(std::vector<std::string> words, const char *out_to = nullptr) const {
        const std::string out = out_to != nullptr ? out_to : (folder_.path() / "out").string(),
                          err = (folder_.path() / "err").string();
        words.insert(words.begin(), path_);
        std::vector<char *> argv;
        for (std::string &word : words) argv.push_back(word.data());
        argv.push_back(nullptr);
        const pid_t child = fork();
        REQUIRE(child >= 0);
        if (child == 0) {
            const int to = open(out.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600),
                      errors = open(err.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
            if (to < 0 || errors < 0 || dup2(to, 1) < 0 || dup2(errors, 2) < 0) _exit(99);
            execv(path_.c_str(), argv.data());
            _exit(98);
        }
        int status = 0;
        REQUIRE(waitpid(child, &status, 0) == child);
        return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status),
                out_to != nullptr ? "" : read_text(out), read_text(err)};
    }

private:
    std::string path_;
    TemporaryFolder folder_;
};

std::ptrdiff_t lines(const std::string &text) { return std::count(text.begin(), text.end(), '\n'); }
bool holds(const std::string &text, const std::string &part) { return text.find(part) != std::string::npos; }

// Refused: status 2, nothing on standard output, one line on standard error that holds every part.
void expect_refused(const Ended &ended, const std::vector<std::string> &parts) {
    CAPTURE(ended.err);
    CHECK(ended.status == 2);
    CHECK(ended.out == "");
    CHECK(lines(ended.err) == 1);
    for (const std::string &part : parts) {
        CAPTURE(part);
        CHECK(holds(ended.err, part));
    }
}

void replace_line(const fs::path &config, const std::string &key, const std::string &line) {
    std::string text = read_text(config);
    const size_t begin = text.find(key + " =");
    REQUIRE(begin != std::string::npos);
    text.replace(begin, text.find('\n', begin) - begin, line);
    write_text(config, text);
}

}  // namespace

TEST_CASE("golden: mdlm says what it is") {
    const Tool tool;
    const Ended version = tool({"--version"});
    CHECK(version.status == 0);
    CHECK(version.out == std::string("mdlm ") + mdlm_version() + "\n");
    for (const std::vector<std::string> &words : std::vector<std::vector<std::string>>{
             {"--help"}, {"info", "--help"}, {"check", "--help"}, {"bench", "--help"}}) {
        const Ended help = tool(words);
        CHECK(help.status == 0);
        CHECK(help.err == "");
        CHECK(holds(help.out, "SYNOPSIS"));
    }
    for (const Place &place : places) {
        const Ended info = tool({"info", "--device", place.name, "--threads=2"});
        CHECK(info.status == 0);
        CHECK(lines(info.out) == 5);
        CHECK(holds(info.out, mdlm_version()));
        CHECK(holds(info.out, place.name));
        const Ended json = tool({"info", "--json", "--device", place.name});
        CHECK(json.status == 0);
        CHECK(holds(json.out, "\"api_version\": " + std::to_string(MDLM_API_VERSION)));
    }
    CHECK(tool({"--help"}, "/dev/full").status == 2);
}

TEST_CASE("golden: mdlm refuses what it is not asked right") {
    const Tool tool;
    const std::string dlm = case_folder("dlm");
    expect_refused(tool({}), {"command"});
    expect_refused(tool({"dance"}), {"dance"});
    expect_refused(tool({"info", "--device", "cuda9"}), {"--device", "cuda9"});
    expect_refused(tool({"info", "--device"}), {"--device"});
    expect_refused(tool({"info", "x"}), {"x"});
    expect_refused(tool({"info", "--threads", "-1"}), {"--threads", "-1"});
    expect_refused(tool({"check"}), {"folder"});
    expect_refused(tool({"check", "--wrong", dlm}), {"--wrong"});
    expect_refused(tool({"check", "--tolerance", "1e-5x", dlm}), {"--tolerance", "1e-5x"});
    expect_refused(tool({"check", "--tolerance", "nan", dlm}), {"--tolerance"});
    expect_refused(tool({"check", "--dtype", "f8", dlm}), {"--dtype", "f8"});
    expect_refused(tool({"check", "--dtype", "f64", dlm}), {"f64"});  // not on the cpu
    expect_refused(tool({"check", "--recompute-granularity", "half", dlm}), {"half"});
    expect_refused(tool({"check", "--recompute-granularity", "full", "--recompute-method", "uniform", dlm}),
                   {dlm, "recompute_num_layers"});
}

// Suite tool has the rest of bench.
TEST_CASE("golden: mdlm bench times, writes its files, and refuses in one line") {
    const Tool tool;
    const TemporaryFolder folder;
    const auto bench = [&](std::vector<std::string> more, const char *out_to = nullptr) {
        more.insert(more.begin(), {"bench", "--num-layers=2", "--hidden-size=16", "--num-attention-heads=2",
                                   "--seq-length=8", "--repeats=2"});
        return tool(more, out_to);
    };
    const std::string svg = (folder.path() / "sweep.svg").string(), trace = (folder.path() / "trace.json").string();
    const Ended sweep = bench({"--sweep", "--profile", "--svg", svg, "--trace", trace});
    CHECK(sweep.status == 0);
    CHECK(sweep.err == "");  // no terminal, no progress
    for (const char *part : {"matmul peak", "selective layernorm,mlp_act", "full uniform 2", "replay"}) {
        CAPTURE(std::string(part));
        CHECK(holds(sweep.out, part));
    }
    CHECK(holds(read_text(svg), "</svg>"));
    CHECK(holds(read_text(trace), "\"ph\":\"X\""));
    const Ended json = bench({"--json", "--recompute-activations", "--device", "reference"});
    CHECK(json.status == 0);
    CHECK(holds(json.out, "\"saved_bytes\": "));
    CHECK(bench({}, "/dev/full").status == 2);

    expect_refused(bench({"--wrong"}), {"--wrong"});
    expect_refused(bench({"--num-attention-heads=3"}), {"num_attention_heads"});
    expect_refused(bench({"--trace", (folder.path() / "none" / "x").string()}), {"--trace", "none"});
    expect_refused(bench({"--trace", "/dev/full"}), {"--trace", "/dev/full"});
    expect_refused(bench({"--sweep", "--svg", folder.path().string()}), {"--svg"});
    // A file that was there keeps what is in it when nothing could be measured; one that was not does not appear.
    const fs::path kept = folder.path() / "kept", made = folder.path() / "made";
    write_text(kept, "x");
    expect_refused(bench({"--params-dtype=f64", "--trace", kept.string()}), {"f64"});
    expect_refused(bench({"--params-dtype=f64", "--trace", made.string()}), {"f64"});
    CHECK(read_text(kept) == "x");
    CHECK(!fs::exists(made));
}

TEST_CASE("golden: mdlm check passes what is right and fails what is past the tolerance") {
    const Tool tool;
    std::vector<std::string> all = {"check", "--device", "reference", "--dtype", "f64"};
    for (const std::string &name : case_names()) all.push_back(case_folder(name));
    const Ended fine = tool(all);
    CHECK(fine.status == 0);
    CHECK(fine.err == "");
    CHECK(lines(fine.out) == 8);

    const std::string dlm = case_folder("dlm");
    CHECK(tool({"check", dlm}).status == 0);
    CHECK(tool({"check", "--dtype=bf16", "--threads", "1", dlm}).status == 0);
    CHECK(tool({"check", "--recompute-granularity", "full", "--recompute-method", "uniform", "--recompute-num-layers",
                "2", dlm})
              .status == 0);
    CHECK(tool({"check", "--recompute-activations", "--batch-first", "--", dlm}).status == 0);
    const Ended past = tool({"check", "--tolerance", "1e-12", dlm, case_folder("gpt")});
    CHECK(past.status == 1);
    CHECK(past.err == "");
    CHECK(lines(past.out) == 2);
    CHECK(holds(past.out, "FAIL"));
    CHECK(tool({"check", "--tolerance", "1e-12", "--atol", "1e-2", dlm}).status == 0);

    const Ended json = tool({"check", "--json", "--tolerance=0", dlm, dlm + "/param"});
    CHECK(json.status == 2);
    CHECK(lines(json.err) == 1);
    CHECK(holds(json.out, "\"ok\": false"));
    CHECK(holds(json.out, "\"error\": "));
}

TEST_CASE("golden: mdlm check on ranks, under every recompute setting") {
    const Tool tool;
    std::vector<std::string> all;
    for (const std::string &name : case_names()) all.push_back(case_folder(name));
    const auto check = [&](std::vector<std::string> words) {
        words.insert(words.begin(), "check");
        words.insert(words.end(), all.begin(), all.end());
        return tool(words);
    };
    const Ended pair = check({"--tensor-model-parallel-size=2", "--sweep", "--threads=1"});
    CHECK(pair.status == 0);
    CHECK(pair.err == "");
    CHECK(lines(pair.out) == 8);
    CHECK(!holds(pair.out, "skip"));
    CHECK(holds(pair.out, "dlm  cpu f32  t 2  "));
    CHECK(holds(pair.out, "bits the same"));
    // What t does not divide is skipped, with the reason.
    const Ended four =
        check({"--tensor-model-parallel-size=4", "--sequence-parallel", "--device=reference", "--dtype=f64"});
    CHECK(four.status == 0);
    CHECK(lines(four.out) == 8);
    CHECK(holds(four.out, "gqa  because num_attention_heads = 6"));
    CHECK(holds(four.out, "odd  because seq_length = 7"));
    CHECK(holds(four.out, "dlm  reference f64  t 4 sp  "));
    all = {case_folder("gqa"), case_folder("dlm")};
    const Ended json = check({"--tensor-model-parallel-size=4", "--json", "--sweep"});
    CHECK(json.status == 0);
    CHECK(holds(json.out, "\"skipped\": \"num_attention_heads"));
    CHECK(holds(json.out, "\"same_bits\": true"));
    all = {case_folder("gqa")};
    const Ended none = check({"--tensor-model-parallel-size=4"});
    CHECK(none.status == 2);
    CHECK(lines(none.err) == 1);
    all = {case_folder("dlm")};
    CHECK(check({"--tensor-model-parallel-size=2", "--tolerance=1e-12"}).status == 1);
    CHECK(check({"--sweep", "--tolerance=1e-12"}).status == 1);
    expect_refused(check({"--sweep", "--recompute-activations"}), {"--sweep"});
    expect_refused(check({"--tensor-model-parallel-size=0"}), {"tensor_model_parallel_size"});
    expect_refused(check({"--tensor-model-parallel-size=2", "--dtype=f64"}), {"f64"});
    expect_refused(
        check({"--tensor-model-parallel-size=2", "--recompute-granularity=full", "--recompute-method=uniform",
               "--recompute-num-layers=1", "--sequence-parallel", "--distribute-saved-activations"}),
        {"distribute_saved_activations"});
}

TEST_CASE("golden: mdlm check refuses hostile folders in one line") {
    const Tool tool;
    const TemporaryFolder folder;
    const auto check = [&](const fs::path &path) { return tool({"check", path.string()}); };

    expect_refused(check(folder.path() / "none"), {"none", "folder"});
    fs::create_directory(folder.path() / "empty");
    expect_refused(check(folder.path() / "empty"), {"config.txt"});

    for (const char *name :
         {"input.npy", "output.npy", "grad_output.npy", "grad_input.npy", "cu_seqlens.npy", "config.txt",
          "param/final_layernorm.weight.npy", "grad/layers.1.mlp.linear_fc1.weight.npy"}) {
        CAPTURE(std::string(name));
        const fs::path copy = folder.copy_case("packed", "truncated");
        const std::string whole = read_text(copy / name);
        for (const size_t length : {size_t{0}, size_t{1}, size_t{9}, size_t{11}, size_t{40}, whole.size() - 1}) {
            // Only the last newline is gone.
            if (name == std::string("config.txt") && length + 1 == whole.size()) continue;
            CAPTURE(length);
            write_text(copy / name, whole.substr(0, length));
            expect_refused(check(copy), {name});
        }
        // Without it, nothing is packed: another case, and a right one.
        if (name == std::string("cu_seqlens.npy")) continue;
        fs::remove(copy / name);
        expect_refused(check(copy), {name});
        fs::create_directory(copy / name);
        expect_refused(check(copy), {name});
    }

    fs::path copy = folder.copy_case("gpt", "extra");
    fs::copy(copy / "param/final_layernorm.bias.npy", copy / "param/final_layernorm.extra.npy");
    expect_refused(check(copy), {"final_layernorm.extra"});
    fs::remove(copy / "param/final_layernorm.extra.npy");
    write_text(copy / "grad/notes", "x");
    expect_refused(check(copy), {"grad/notes"});

    copy = folder.copy_case("gpt", "shape");
    mdlm::tools::Npy array = mdlm::tools::read_npy((copy / "param/final_layernorm.bias.npy").string());
    array.shape = {4, 8};
    write_npy((copy / "param/final_layernorm.bias.npy").string(), array);
    expect_refused(check(copy), {"param/final_layernorm.bias.npy", "(32,)", "(4, 8)"});

    copy = folder.copy_case("gpt", "number");
    array = mdlm::tools::read_npy((copy / "input.npy").string());
    std::fill(array.data.begin(), array.data.begin() + 8, std::byte{0xff});
    write_npy((copy / "input.npy").string(), array);
    expect_refused(check(copy), {"input.npy", "nan"});
}

TEST_CASE("golden: mdlm check refuses hostile settings in one line") {
    const Tool tool;
    const TemporaryFolder folder;
    const std::vector<std::pair<std::string, std::string>> lines_for_keys = {
        {"hidden_size", "hidden_size = 16777216"},
        {"hidden_size", "hidden_size = 99999999999999999999"},
        {"hidden_size", "hidden_size = -32"},
        {"hidden_size", "hidden_size = 32x"},
        {"hidden_size", "hidden_size"},
        {"hidden_size", ""},
        {"num_layers", "num_layers = 4096"},
        {"num_layers", "num_layers = 4097"},
        {"num_attention_heads", "num_attention_heads = 65536"},
        {"seq_length", "seq_length = 16777216"},
        {"seq_length", "seq_length = 0"},
        {"seq_length", "seq_length = 12.0"},
        {"micro_batch_size", "micro_batch_size = 9223372036854775807"},
        {"layernorm_epsilon", "layernorm_epsilon = nan"},
        {"layernorm_epsilon", "layernorm_epsilon = 1e-5\nlayernorm_epsilon = 1e-5"},
        {"activation_func", "activation_func = \x01\x02\xff"},
        {"activation_func", "no_such_key = 1"},
        {"activation_func", " = "},
        {"activation_func", "activation_func = swiglu"},  // other shapes than the files have
        {"rotary_base", std::string(5000, 'a') + " = 1"},
    };
    for (const auto &key_and_line : lines_for_keys) {
        const std::string &key = key_and_line.first, &line = key_and_line.second;
        CAPTURE(line);
        const fs::path copy = folder.copy_case("gpt", "setting");
        replace_line(copy / "config.txt", key, line);
        expect_refused(tool({"check", copy.string()}), {copy.string()});
    }
    const fs::path copy = folder.copy_case("gpt", "garbage");
    write_text(copy / "config.txt", std::string("\0\x01\x02garbage\xff", 11));
    expect_refused(tool({"check", copy.string()}), {"config.txt:1"});
    write_text(copy / "config.txt", std::string((1 << 20) + 1, '\n'));
    expect_refused(tool({"check", copy.string()}), {"config.txt"});
}

}  // namespace golden
