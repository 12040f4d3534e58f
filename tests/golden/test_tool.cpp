// SPDX-License-Identifier: Apache-2.0
// The program mdlm, run as a process: exit statuses, and what it writes where.
#include <span>

#include "tool.hpp"

namespace golden {

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
    for (const Place &place : std::span(places).first(built_in)) {
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

}  // namespace golden
