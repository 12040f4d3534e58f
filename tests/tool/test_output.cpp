// SPDX-License-Identifier: Apache-2.0
// What mdlm bench writes can be read by others: JSON, the timeline, the plots.
#include <doctest/doctest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "../../tools/mdlm/bench/plot.hpp"
#include "../../tools/mdlm/bench/trace.hpp"
#include "bench_case.hpp"
#include "xml.hpp"

using namespace bench_test;
using namespace mdlm::tools::bench;
using nlohmann::json;

namespace {

size_t count(const std::vector<std::string> &tags, const char *tag) {
    return static_cast<size_t>(std::count(tags.begin(), tags.end(), tag));
}

}  // namespace

TEST_CASE("bench: JSON has every setting with its bytes and times") {
    const Options o = parse(tiny({"--sweep", "--profile"}));
    const Measurement m = measured(o);
    const json all = json::parse(json_of(report_of(o, m)));
    CHECK(all["version"] == mdlm_version());
    CHECK(all["peak"]["flops_per_s"] > 0);
    CHECK(all["peak"]["matmul"]["work"] == "matmul");
    REQUIRE(all["settings"].size() == m.settings.size());
    CHECK(all.count("curve") == 0);
    for (size_t i = 0; i < m.settings.size(); ++i) {
        const json &one = all["settings"][i];
        CAPTURE(m.settings[i].setting.name);
        CHECK(one["name"] == m.settings[i].setting.name);
        CHECK(one["memory"]["saved_bytes"] == m.settings[i].memory.saved_bytes);
        CHECK(one["memory"]["peak_bytes"] == m.settings[i].memory.peak_bytes);
        CHECK(one["stats"]["replayed_flops"] == m.settings[i].stats.replayed_flops);
        CHECK(one["repeats"]["forward_ms"].size() == 3);
        CHECK(one["overhead"].is_number());
        double ops = 0;
        for (const json &op : one["profile"]["ops"]) ops += op["ms"].get<double>();
        CHECK(ops > 0);
        CHECK(one["profile"]["ops"].size() == m.settings[i].steps[0].ops.size());
    }
    // What has no value is null, and no text that is not JSON.
    const Options single = parse(tiny({"--recompute-granularity", "full", "--no-baseline"}));
    const json alone = json::parse(json_of(report_of(single, measured(single))));
    CHECK(alone["settings"][0]["overhead"].is_null());
    CHECK(alone["settings"][0].count("profile") == 0);
}

TEST_CASE("bench: budgets stand in a table and in JSON, with spreads and what was predicted") {
    const Options o = parse(tiny({"--budgets", "25,50", "--repeats", "4"}));
    const Measurement m = measured(o);
    const Report r = report_of(o, m);
    const json rows = json::parse(json_of(r))["budgets"];
    REQUIRE(rows.size() == 4);
    for (const json &row : rows) {
        CHECK(row["predicted_extra"] > 0);
        CHECK(row["extra_quartiles"][0] <= row["extra"]);
        CHECK(row["extra"] <= row["extra_quartiles"][1]);
        const bool planner = row["setting"].get<std::string>().starts_with("planner, ");
        CHECK(row.count("ratio") == (planner ? 1 : 0));
        if (planner) CHECK(row["ratio_quartiles"][0] <= row["ratio"]);
    }
    const std::string text = table_of(r);
    for (const char *part :
         {"of full/block: predicted", "in steps (quartiles)", "25 %", "50 %", "full block ", " .. "}) {
        CAPTURE(std::string(part));
        CHECK(text.find(part) != std::string::npos);
    }
    // Ratios always have theirs.
    CHECK(table_of(report_of(o, measured(parse(tiny({"--budgets", "50"}))))).find(" .. ") != std::string::npos);
}

TEST_CASE("bench: with ranks, tables, JSON and the timeline have collectives, and what one rank does") {
    const Options o = parse(tiny({"--tensor-model-parallel-size=2", "--threads=1", "--against-one-rank",
                                  "--recompute-granularity=full", "--profile"}));
    const Measurement m = measured(o);
    const Report r = report_of(o, m);
    const std::string text = table_of(r);
    for (const char *part :
         {"2 threads with 1 thread each; one rank: 2 threads", "vs one rank", "one rank: full uniform 1",
          "parameter gradients", "6, 24.0 KiB", "all_reduce ", "a rank, by"}) {
        CAPTURE(std::string(part));
        CHECK(text.find(part) != std::string::npos);
    }
    const json all = json::parse(json_of(r));
    CHECK(all["tensor_model_parallel_size"] == 2);
    CHECK(all["ranks_are"] == "threads");
    CHECK(all["threads_of_each_rank"] == 1);
    CHECK(all["one_rank_peak"]["flops_per_s"] > 0);
    REQUIRE(all["settings"].size() == 4);
    const json &full = all["settings"][1];
    CHECK(full["ranks"] == 2);
    CHECK(full["one_rank"] == "one rank: full uniform 1");
    CHECK(full["against_one_rank"].is_number());
    CHECK(full["stats"]["forward_collectives"] == 6);
    CHECK(full["stats"]["forward_collective_bytes"] == 6 * 4096);
    CHECK(full["stats"]["replayed_collectives"] == m.settings[1].stats.replayed_collectives);
    CHECK(full["stats"]["gradient_collective_bytes"] == m.settings[1].stats.gradient_collective_bytes);
    CHECK(full["collectives_ms"] > 0);
    CHECK(all["settings"][3]["ranks"] == 1);
    CHECK(all["settings"][3].count("one_rank") == 0);
    size_t reductions = 0;
    for (const json &e : json::parse(trace_of(m)))
        if (e["pid"] == 0 && e["name"].get<std::string>().find("all_reduce ") == 0) {
            ++reductions;
            CHECK(e["cat"] == "transfer");
        }
    CHECK(reductions == 12);
}

TEST_CASE("bench: tables have a row for every setting, point and op") {
    const Options o = parse({"--num-layers=1", "--hidden-size=8", "--num-attention-heads=1", "--seq-length=8",
                             "--repeats=2", "--threads=1", "--curve=micro-batch-size", "--points=1,3", "--profile"});
    const Measurement m = measured(o);
    const std::string text = table_of(report_of(o, m));
    for (const char *part : {"micro-batch-size 1", "micro-batch-size 3", "largest step", "matmul peak", "linear_wgrad",
                             "between ops", "1 layers, h 8"}) {
        CAPTURE(std::string(part));
        CHECK(text.find(part) != std::string::npos);
    }
    const json all = json::parse(json_of(report_of(o, m)));
    REQUIRE(all["curve"]["points"].size() == 2);
    CHECK(all["curve"]["points"][0]["step"].is_null());
    CHECK(all["curve"]["points"][1]["at"] == 3);
}

TEST_CASE("bench: the timeline is a JSON array of events that nest, with every op of the last step") {
    const Options o = parse(tiny({"--recompute-granularity", "full"}));
    const Measurement m = measured(o);
    const json events = json::parse(trace_of(m));
    REQUIRE(events.is_array());
    for (size_t process = 0; process < m.settings.size(); ++process) {
        struct Span {
            double begin, end;
            std::string category;
        };
        std::vector<Span> open;
        size_t ops = 0, layers = 0, replayed = 0, named = 0;
        double first = -1;
        for (const json &e : events) {
            if (e["pid"] != process) continue;
            if (e["ph"] == "M") {
                named += e["args"].value("name", "") == m.settings[process].setting.name;
                continue;
            }
            CHECK(e["ph"] == "X");
            const Span span{e["ts"], e["ts"].get<double>() + e["dur"].get<double>(), e["cat"]};
            if (first < 0) first = span.begin;
            CHECK(e["dur"] >= 0.0);
            // Parents stand before their children, and hold them: only rounding to a nanosecond is forgiven.
            while (!open.empty() && span.begin >= open.back().end - 1e-3 && span.end > open.back().end + 1e-3)
                open.pop_back();
            while (!open.empty() && open.back().category != "step" && open.back().category != "call" &&
                   open.back().category != "layer")
                open.pop_back();
            if (span.category == "layer") ++layers;
            else if (span.category == "step" || span.category == "call")
                CHECK(open.size() == (span.category == "call"));
            else {
                ++ops;
                replayed += e["args"]["phase"] == "replay";
                REQUIRE(open.size() == 3);  // step, call, layer
                CHECK(open.back().category == "layer");
                CHECK(e["args"]["layer"].is_number());
            }
            if (!open.empty()) {
                CHECK(span.begin >= open.back().begin - 1e-3);
                CHECK(span.end <= open.back().end + 1e-3);
            }
            open.push_back(span);
        }
        CHECK(named == 1);
        CHECK(first >= 0);
        CHECK(ops == m.settings[process].last.events.size());
        CHECK(layers == 3 + 1 + 1 + 3);  // forward with the final norm, and back
        CHECK(replayed == m.settings[process].stats.replayed_ops);
    }
}

TEST_CASE("bench: plots are well-formed, with a point for each setting") {
    const Options sweep = parse(tiny({"--sweep"}));
    const Measurement swept = measured(sweep);
    const Xml scatter = read_xml(svg_of(plot_of(report_of(sweep, swept))));
    CHECK(scatter.wrong == "");
    CHECK(scatter.tags.front() == "svg");
    CHECK(count(scatter.tags, "circle") == swept.settings.size() + 3);  // and the legend's
    CHECK(count(scatter.tags, "polyline") == 0);
    for (const char *part : {"layernorm,mlp_act", "uniform 3", "saved MiB", "selective"})
        CHECK(scatter.text.find(part) != std::string::npos);

    const Options curve = parse(tiny({"--curve", "seq-length", "--points", "4,8,16,32"}));
    const Measurement along = measured(curve);
    const Xml lines = read_xml(svg_of(plot_of(report_of(curve, along))));
    CHECK(lines.wrong == "");
    CHECK(count(lines.tags, "polyline") == 2);
    CHECK(count(lines.tags, "circle") == 4 + 1);
    for (const char *part : {"measured", "from FLOPs", "microseconds", "32"})
        CHECK(lines.text.find(part) != std::string::npos);
}

TEST_CASE("bench: charts stay well-formed whatever their texts and numbers are") {
    Chart chart;
    chart.title = "a < b & \"c\" > d\n\x01\xff]]>";
    chart.series = {{"<none>", "#000000", true, true, true, {{0, 0, "&amp;"}}}};
    for (const auto &xy : {std::pair{0.0, 0.0}, {1e-9, 1e-9}, {1.0, 1e15}, {5e12, 3.0}}) {
        chart.series[0].points.push_back({xy.first, xy.second, "</svg>"});
        const Xml xml = read_xml(svg_of(chart));
        CHECK(xml.wrong == "");
        CHECK(xml.text.find("a < b & \"c\" > d") != std::string::npos);
        CHECK(xml.tags.size() < 200);
    }
    chart.log_x = true;
    chart.series[0].points = {{64, 1, ""}};  // a single point
    CHECK(read_xml(svg_of(chart)).wrong == "");
    chart.series.clear();
    chart.log_x = false;
    CHECK(read_xml(svg_of(chart)).wrong == "");

    CHECK(read_xml("<a><b/></a>").wrong == "");
    for (const char *broken : {"", "<a>", "<a><b></a></b>", "<a b=\"<\"/>", "<a b=\"1\" b=\"2\"/>", "<a>&nbsp;</a>",
                               "<a/><b/>", "<a>\x01</a>"}) {
        CAPTURE(std::string(broken));
        CHECK(read_xml(broken).wrong != "");
    }
}
