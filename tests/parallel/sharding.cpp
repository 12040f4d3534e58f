// SPDX-License-Identifier: Apache-2.0
// Parameters of a group: every rank has its part of what was written, whole tensors come back from all of them, and
// initial values are those of one rank.
#include <cmath>
#include <limits>

#include "cases.hpp"
#include "support/hold.hpp"
#include "whole_step.hpp"

namespace parallel {
namespace {

using mdlm_test::hold;

struct Block {
    mdlm_context *context = nullptr;
    mdlm_block *block = nullptr;
    int64_t count = 0;
    Block(mdlm_comm *comm, const mdlm_config &config) {
        mdlm_context_desc desc = MDLM_CONTEXT_DESC_INIT;
        desc.num_threads = 1, desc.comm = comm;
        mdlm_shape shape = MDLM_SHAPE_INIT;
        shape.seq_length = 4, shape.micro_batch_size = 1;
        OK(mdlm_context_create(&desc, &context));
        OK(mdlm_block_create(context, &config, &block));
        OK(mdlm_block_reserve(block, &shape, nullptr));
        OK(mdlm_param_count(block, &count));
    }
    Block(const Block &) = delete;
    ~Block() {
        mdlm_block_destroy(block);
        mdlm_context_destroy(context);
    }
    mdlm_param_desc info(int64_t i) const {
        mdlm_param_desc info = MDLM_PARAM_DESC_INIT;
        OK(mdlm_param_info(block, i, &info));
        return info;
    }
    Values gathered(int64_t i) const {
        const mdlm_param_desc d = info(i);
        Values values(static_cast<size_t>(d.full_shape[0] * (d.ndim == 2 ? d.full_shape[1] : 1)));
        OK(mdlm_param_gather(block, i, MDLM_DTYPE_F64, values.data(), values.size() * sizeof(double)));
        return values;
    }
};

mdlm_config model(int t) {
    mdlm_config c = MDLM_CONFIG_INIT;
    set_all(c, {{"num_layers", "2"},
                {"layer_offset", "3"},
                {"hidden_size", "24"},
                {"num_attention_heads", "8"},
                {"num_query_groups", "4"},
                {"kv_channels", "6"},
                {"ffn_hidden_size", "20"},
                {"activation_func", "swiglu"},
                {"qk_layernorm", "1"},
                {"add_qkv_bias", "1"}});
    set_all(c, group_of(t, false));
    return c;
}

double value_of(int64_t param, int64_t element) { return static_cast<double>(param * 1000 + element % 997) / 64; }

// What a rank reads of a box is what it has: over all ranks every element once, or, of a replicated parameter, on every
// rank.
void read_box(const Block &b, mdlm_comm *comm, int size, int64_t i, const char *part, const int64_t *start,
              const int64_t *count, const Values &expected) {
    const double none = std::numeric_limits<double>::quiet_NaN();
    const mdlm_param_desc d = b.info(i);
    Values mine(expected.size(), none), all(expected.size() * static_cast<size_t>(size));
    OK(mdlm_param_read(b.block, i, part, start, count, MDLM_DTYPE_F64, mine.data(), mine.size() * sizeof(double)));
    OK(mdlm_comm_all_gather(comm, mine.data(), all.data(), static_cast<int64_t>(mine.size()), MDLM_DTYPE_F64, 0));
    for (size_t e = 0; e < expected.size(); ++e) {
        int have = 0;
        for (int r = 0; r < size; ++r) {
            const double seen = all[static_cast<size_t>(r) * expected.size() + e];
            if (std::isnan(seen)) continue;
            ++have;
            hold(seen == expected[e], std::string(d.name) + ": element " + std::to_string(e) +
                                          " of a box is wrong on rank " + std::to_string(r));
        }
        hold(have == (d.partition_dim < 0 ? size : 1),
             std::string(d.name) + ": " + std::to_string(have) + " ranks have element " + std::to_string(e));
    }
}

std::string boxes(mdlm_comm *comm, int, int size) {
    const Block b(comm, model(size));
    for (int64_t i = 0; i < b.count; ++i) {
        const mdlm_param_desc d = b.info(i);
        const int64_t n = d.full_shape[0], k = d.ndim == 2 ? d.full_shape[1] : 1;
        Values whole;
        for (int64_t e = 0; e < n * k; ++e) whole.push_back(value_of(i, e));
        OK(mdlm_param_write(b.block, i, nullptr, nullptr, nullptr, MDLM_DTYPE_F64, whole.data(),
                            whole.size() * sizeof(double)));
        hold(b.gathered(i) == whole, std::string(d.name) + ": gathered is not what was written");
        const int64_t elements = d.local_shape[0] * (d.ndim == 2 ? d.local_shape[1] : 1);
        hold(elements * (d.partition_dim < 0 ? 1 : size) == n * k, std::string(d.name) + ": elements of a rank's part");

        const int64_t starts[][2] = {{0, 0}, {1, 0}, {n / 2, k / 2}, {n - 1, k - 1}};
        for (const auto &start : starts) {
            const int64_t count[] = {std::max<int64_t>(1, (n - start[0]) * 2 / 3),
                                     std::max<int64_t>(1, (k - start[1]) * 2 / 3)};
            Values box;
            for (int64_t r = start[0]; r < start[0] + count[0]; ++r)
                for (int64_t c = start[1]; c < start[1] + count[1]; ++c)
                    box.push_back(whole[static_cast<size_t>(r * k + c)]);
            read_box(b, comm, size, i, nullptr, start, count, box);
        }
        const std::string name = d.name;
        const bool qkv = name.find("linear_qkv") != std::string::npos;
        const int64_t per = 2, head = 6, group = (per + 2) * head;  // rows
        std::vector<std::string> parts;
        if (qkv) parts = {"q", "k", "v"};
        else if (d.partition_stride == 2) parts = {"gate", "up"};
        for (const std::string &part : parts) {
            Values values;
            for (int64_t r = 0; r < n; ++r) {
                const int64_t slot = r % group / head;
                const std::string of = qkv ? slot < per ? "q" : slot == per ? "k" : "v" : r < n / 2 ? "gate" : "up";
                if (of == part) values.insert(values.end(), whole.begin() + r * k, whole.begin() + (r + 1) * k);
            }
            read_box(b, comm, size, i, part.c_str(), nullptr, nullptr, values);
        }
    }
    return "";
}

// What boxes() says of parameters, of float32 memory of the rank's own beside bf16 parameters: full tensors go in,
// boxes and whole tensors come out.
std::string shards(mdlm_comm *comm, int rank, int size) {
    mdlm_config config = model(size);
    set_all(config, {{"params_dtype", "bf16"}});
    const Block b(comm, config);
    for (int64_t i = 0; i < b.count; ++i) {
        const mdlm_param_desc d = b.info(i);
        const int64_t n = d.full_shape[0], k = d.ndim == 2 ? d.full_shape[1] : 1;
        const size_t elements = static_cast<size_t>(d.local_shape[0] * (d.ndim == 2 ? d.local_shape[1] : 1));
        Values whole, before(static_cast<size_t>(n * k)), after = before;
        for (int64_t e = 0; e < n * k; ++e)
            whole.push_back(1.0 + value_of(i, e) / 65536);  // exact in float32, not in bf16
        const size_t full_bytes = whole.size() * sizeof(double), bytes = elements * sizeof(float);
        std::vector<float> moment(elements, -1.0f);
        OK(mdlm_param_gather(b.block, i, MDLM_DTYPE_F64, before.data(), full_bytes));
        OK(mdlm_param_shard_write(b.block, i, moment.data(), MDLM_DTYPE_F32, bytes, nullptr, nullptr, nullptr,
                                  MDLM_DTYPE_F64, whole.data(), full_bytes));
        Values gathered(whole.size());
        OK(mdlm_param_shard_gather(b.block, i, moment.data(), MDLM_DTYPE_F32, bytes, MDLM_DTYPE_F64, gathered.data(),
                                   full_bytes));
        hold(gathered == whole, std::string(d.name) + ": a gathered shard is not what was written");
        OK(mdlm_param_gather(b.block, i, MDLM_DTYPE_F64, after.data(), full_bytes));
        hold(before == after, std::string(d.name) + ": writing a shard has changed the parameter");
        // A read fills in what the rank has, and leaves the rest; a write takes what it has, and nothing else.
        Values mine(whole.size(), -7.0);
        OK(mdlm_param_shard_read(b.block, i, moment.data(), MDLM_DTYPE_F32, bytes, nullptr, nullptr, nullptr,
                                 MDLM_DTYPE_F64, mine.data(), full_bytes));
        size_t have = 0;
        for (size_t e = 0; e < whole.size(); ++e) {
            hold(mine[e] == whole[e] || mine[e] == -7.0,
                 std::string(d.name) + ": element " + std::to_string(e) + " that was read is wrong");
            have += mine[e] != -7.0;
        }
        hold(have == elements, std::string(d.name) + ": elements that were read");
        const int64_t start[] = {n - 1, 0}, count[] = {1, k};  // the last row: the last rank's, where rows are split
        const std::vector<float> moments_before = moment;
        const Values row(static_cast<size_t>(k), -3.0);
        OK(mdlm_param_shard_write(b.block, i, moment.data(), MDLM_DTYPE_F32, bytes, nullptr, start, count,
                                  MDLM_DTYPE_F64, row.data(), row.size() * sizeof(double)));
        hold((moment == moments_before) == (d.partition_dim == 0 && rank != size - 1),
             std::string(d.name) + ": another rank's row was written");
    }
    return "";
}

std::string initial_values(mdlm_comm *comm, int, int size) {
    const Block one(nullptr, model(1)), b(comm, model(size));
    OK(mdlm_params_init(one.block, 77));
    OK(mdlm_params_init(b.block, 77));
    for (int64_t i = 0; i < b.count; ++i)
        hold(b.gathered(i) == one.gathered(i),
             std::string(b.info(i).name) + ": another initial value than on one rank");
    return "";
}

}  // namespace

std::vector<Case> sharding_cases() {
    std::vector<Case> list;
    for (const int t : {2, 4}) {
        list.push_back({"parameters: boxes and parts, t = " + std::to_string(t), t, boxes});
        list.push_back({"parameters: shards of the rank's own memory, t = " + std::to_string(t), t, shards});
        list.push_back(
            {"parameters: initial values are those of one rank, t = " + std::to_string(t), t, initial_values});
    }
    return list;
}

}  // namespace parallel
