// SPDX-License-Identifier: Apache-2.0
// The program mdlm check, run as a process: what passes, what fails, and what is refused in one line.
#include "tool.hpp"

namespace golden {

TEST_CASE("golden: mdlm check passes what is right and fails what is past the tolerance") {
    const Tool tool;
    std::vector<std::string> all = {"check", "--device", "reference", "--dtype", "f64"};
    for (const std::string &name : case_names()) all.push_back(case_folder(name));
    const Ended fine = tool(all);
    CHECK(fine.status == 0);
    CHECK(fine.err == "");
    CHECK(lines(fine.out) == std::ssize(case_names()));

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
    CHECK(lines(pair.out) == std::ssize(case_names()));
    CHECK(!holds(pair.out, "skip"));
    CHECK(holds(pair.out, "dlm  cpu f32  t 2  "));
    CHECK(holds(pair.out, "bits the same"));
    // What t does not divide is skipped, with the reason.
    const Ended four =
        check({"--tensor-model-parallel-size=4", "--sequence-parallel", "--device=reference", "--dtype=f64"});
    CHECK(four.status == 0);
    CHECK(lines(four.out) == std::ssize(case_names()));
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
