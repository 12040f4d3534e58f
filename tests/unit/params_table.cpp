// SPDX-License-Identifier: Apache-2.0
// The header's table of parameters against what blocks have: names, order, shapes, split, and with which settings.
#include <doctest/doctest.h>

#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "support/checks.hpp"
#include "support/ranks.hpp"

using namespace mdlm_test;

namespace {

struct Row {
    std::string name, shape, split;
    std::vector<std::string> with;
};

// Lines of the table, which stands between its heading and an empty line. Columns are at least two blanks apart.
std::vector<Row> table() {
    std::ifstream file("include/mdlm/mdlm.h");
    std::vector<Row> rows;
    bool inside = false;
    for (std::string line; std::getline(file, line);) {
        if (line.find("full shape      dim  there with") != std::string::npos) {
            inside = true;
        } else if (inside && line.empty()) {
            break;
        } else if (inside) {
            std::vector<std::string> cells;
            for (size_t at = line.find_first_not_of(' '); at != std::string::npos;
                 at = line.find_first_not_of(' ', at)) {
                const size_t end = std::min(line.find("  ", at), line.size());
                cells.push_back(line.substr(at, end - at));
                at = end;
            }
            REQUIRE_MESSAGE(cells.size() == 4, line);
            Row row{cells[0], cells[1], cells[2], {}};
            std::istringstream with(cells[3]);
            for (std::string one; std::getline(with >> std::ws, one, ',');) row.with.push_back(one);
            rows.push_back(row);
        }
    }
    REQUIRE(rows.size() == 18);
    return rows;
}

bool holds(const mdlm_config &c, const std::string &condition) {
    if (condition == "always") return true;
    if (condition == "LayerNorm") return c.normalization == MDLM_NORM_LAYERNORM;
    if (condition == "qk_layernorm") return c.qk_layernorm != 0;
    if (condition == "add_bias_linear") return c.add_bias_linear != 0;
    if (condition == "add_bias_linear or add_qkv_bias") return c.add_bias_linear != 0 || c.add_qkv_bias != 0;
    if (condition == "final_layernorm") return c.final_layernorm != 0;
    FAIL("the table has a condition that this test does not know: " << condition);
    return false;
}

std::vector<int64_t> shape_of(const mdlm_config &c, const std::string &text) {
    const bool gated = c.activation_func == MDLM_ACT_SWIGLU || c.activation_func == MDLM_ACT_GEGLU;
    const std::map<std::string, int64_t> sizes = {
        {"h", c.hidden_size},
        {"d", c.kv_channels},
        {"ad", c.num_attention_heads * c.kv_channels},
        {"(a + 2g)d", (c.num_attention_heads + 2 * c.num_query_groups) * c.kv_channels},
        {"f", c.ffn_hidden_size},
        {"F", c.ffn_hidden_size * (gated ? 2 : 1)}};
    std::vector<int64_t> shape;
    std::istringstream list(text.substr(1, text.size() - 2));
    for (std::string one; std::getline(list >> std::ws, one, ',');) {
        REQUIRE_MESSAGE(sizes.count(one) == 1, one);
        shape.push_back(sizes.at(one));
    }
    return shape;
}

void check(mdlm_context *context, const mdlm_config &c, const std::vector<Row> &rows) {
    mdlm_block *block = nullptr;
    REQUIRE_OK(mdlm_block_create(context, &c, &block));  // and no reserve
    int64_t count = 0, at = 0;
    CHECK_OK(mdlm_param_count(block, &count));
    const auto expect = [&](const Row &row, int64_t layer, const std::string &name) {
        for (const std::string &condition : row.with)
            if (!holds(c, condition)) return;
        mdlm_param_desc p = MDLM_PARAM_DESC_INIT;
        CAPTURE(name);
        REQUIRE_OK(mdlm_param_info(block, at, &p));
        CHECK(std::string(p.name) == name);
        int64_t found = -1;
        CHECK_OK(mdlm_param_find(block, name.c_str(), &found));
        CHECK(found == at++);
        const std::vector<int64_t> shape = shape_of(c, row.shape);
        CHECK(p.layer == layer);
        CHECK(p.ndim == static_cast<int32_t>(shape.size()));
        CHECK(std::to_string(p.partition_dim) == (row.split == "-" ? "-1" : row.split));
        CHECK(p.partition_stride ==
              (row.shape.find('F') != std::string::npos && c.ffn_hidden_size != shape[0] ? 2 : 1));
        for (int32_t i = 0; i < p.ndim; ++i) {
            CHECK(p.full_shape[i] == shape[static_cast<size_t>(i)]);
            CHECK(p.local_shape[i] == p.full_shape[i] / (i == p.partition_dim ? c.tensor_model_parallel_size : 1));
        }
    };
    const std::string prefix = "layers.L.";
    for (int64_t layer = 0; layer < c.num_layers; ++layer)
        for (const Row &row : rows)
            if (row.name.rfind(prefix, 0) == 0)
                expect(row, layer,
                       "layers." + std::to_string(c.layer_offset + layer) + "." + row.name.substr(prefix.size()));
    for (const Row &row : rows)
        if (row.name.rfind(prefix, 0) != 0) expect(row, c.num_layers, row.name);
    CHECK(at == count);
    mdlm_block_destroy(block);
}

}  // namespace

TEST_CASE("the header's table of parameters is what blocks have, before they are reserved") {
    const std::vector<Row> rows = table();
    mdlm_comm *comms[2] = {};
    REQUIRE_OK(mdlm_comm_create_threads(2, comms));
    mdlm_context *alone = nullptr, *first_of_two = nullptr;
    mdlm_context_desc desc = MDLM_CONTEXT_DESC_INIT;
    desc.device = MDLM_DEVICE_REFERENCE;
    REQUIRE_OK(mdlm_context_create(&desc, &alone));
    desc.comm = comms[0];
    REQUIRE_OK(mdlm_context_create(&desc, &first_of_two));
    for (unsigned bits = 0; bits < 256; ++bits) {
        const auto bit = [&](int i) { return static_cast<int32_t>(bits >> i & 1u); };
        mdlm_config c = MDLM_CONFIG_INIT;
        c.num_layers = 2, c.layer_offset = 3 * bit(0), c.hidden_size = 20, c.num_attention_heads = 4, c.kv_channels = 6,
        c.ffn_hidden_size = 14;
        c.num_query_groups = bit(1) != 0 ? 2 : 4;
        c.normalization = bit(2) != 0 ? MDLM_NORM_RMSNORM : MDLM_NORM_LAYERNORM;
        c.qk_layernorm = bit(3), c.add_bias_linear = bit(4), c.add_qkv_bias = bit(5), c.final_layernorm = bit(6);
        c.activation_func = bit(7) == 0 ? MDLM_ACT_GELU : bit(0) != 0 ? MDLM_ACT_SWIGLU : MDLM_ACT_GEGLU;
        c.tensor_model_parallel_size = 1 + bit(1);
        CAPTURE(bits);
        check(bit(1) != 0 ? first_of_two : alone, c, rows);
    }
    mdlm_context_destroy(alone);
    mdlm_context_destroy(first_of_two);
    for (mdlm_comm *comm : comms) mdlm_comm_destroy(comm);
}
