// SPDX-License-Identifier: Apache-2.0
// Calls on settings; shapes and batches for others.
#include <algorithm>
#include <iterator>

#include "fuzz/calls_machine.hpp"

namespace fuzz {
namespace {

constexpr const char *values[] = {"0",
                                  "1",
                                  "2",
                                  "3",
                                  "4",
                                  "8",
                                  "16",
                                  "32",
                                  "64",
                                  "true",
                                  "false",
                                  "none",
                                  "full",
                                  "selective",
                                  "uniform",
                                  "block",
                                  "rope",
                                  "no_mask",
                                  "causal",
                                  "block_causal",
                                  "fused",
                                  "unfused",
                                  "gelu_tanh",
                                  "squared_relu",
                                  "swiglu",
                                  "geglu",
                                  "RMSNorm",
                                  "bf16",
                                  "f64",
                                  "f32",
                                  "f16",
                                  "0.1",
                                  "0.5",
                                  "layernorm,mlp_act",
                                  "qkv,core_attn",
                                  "mlp",
                                  "20000",
                                  "60000",
                                  "100KiB",
                                  "9223372036854775807",
                                  "-1",
                                  "nan",
                                  "inf",
                                  "1e308",
                                  "1e-308",
                                  "",
                                  "x"};

}  // namespace

void Machine::preset() {
    mdlm_config &c = configs[in.pick(3)];
    c = MDLM_CONFIG_INIT;
    c.num_layers = 2, c.hidden_size = 16, c.num_attention_heads = 2;
    switch (in.pick(10)) {
    case 1: c.recompute_granularity = MDLM_RECOMPUTE_GRANULARITY_FULL; break;
    case 2:
        c.recompute_granularity = MDLM_RECOMPUTE_GRANULARITY_SELECTIVE, c.hidden_dropout = c.attention_dropout = 0.1;
        break;
    case 3:
        c.recompute_granularity = MDLM_RECOMPUTE_GRANULARITY_FULL, c.recompute_method = MDLM_RECOMPUTE_METHOD_UNIFORM,
        c.recompute_num_layers = 2;
        break;
    case 4:
        c.normalization = MDLM_NORM_RMSNORM, c.activation_func = MDLM_ACT_SWIGLU, c.qk_layernorm = 1,
        c.num_query_groups = 1;
        break;
    case 5: c.params_dtype = MDLM_DTYPE_BF16, c.batch_first = 1; break;
    case 6: c.params_dtype = MDLM_DTYPE_F64, c.attention_backend = MDLM_ATTENTION_UNFUSED; break;
    case 7: c.cpu_offloading = 1, c.cpu_offloading_num_layers = 2; break;
    case 8: c.tensor_model_parallel_size = 2, c.sequence_parallel = static_cast<int32_t>(in.pick(2)); break;
    case 9: c.num_layers = 3, c.memory_budget = 1000 * (1 + static_cast<int64_t>(in.pick(64))); break;
    default: break;
    }
}

void Machine::setting() {
    mdlm_config &c = configs[in.pick(3)];
    const mdlm_config before = c;
    const char *key = mdlm_config_key(static_cast<int32_t>(in.pick(64)));
    const char *value = in.pick(30) == 29 ? nullptr : values[in.pick(std::size(values))];
    if (call("mdlm_config_set", [&] { return mdlm_config_set(&c, key, value); }) != MDLM_OK &&
        std::memcmp(&c, &before, sizeof c) != 0)
        found("%s = %s was refused and changed the config", key, value);
    call("mdlm_config_validate", [&] { return mdlm_config_validate(Struct(c, in).get()); });
    char text[16];
    call("mdlm_config_get", [&] { return mdlm_config_get(&c, key, text, in.pick(sizeof text), nullptr); });
}

void Machine::flags() {
    mdlm_config &c = configs[in.pick(3)];
    constexpr const char *words[] = {"--swiglu",
                                     "--bf16",
                                     "--num-layers",
                                     "2",
                                     "--recompute-activations",
                                     "--recompute-modules",
                                     "mlp",
                                     "layernorm",
                                     "--no-qk-layernorm",
                                     "--window-left=3",
                                     "--",
                                     "",
                                     "--num-layers="};
    std::vector<const char *> argv;
    for (size_t n = in.pick(6); n > 0; --n) argv.push_back(words[in.pick(std::size(words))]);
    int used = -7;
    const mdlm_config before = c;
    const int argc = in.pick(20) == 19 ? -1 : static_cast<int>(argv.size());
    if (call("mdlm_config_parse_flags", [&] { return mdlm_config_parse_flags(&c, argc, argv.data(), &used); }) ==
        MDLM_OK) {
        if (used < 0 || used > argc) found("%d of %d words were taken", used, argc);
    } else if (used != -7 || std::memcmp(&c, &before, sizeof c) != 0) {
        found("flags were refused and changed something");
    }
}

// Any number in any field.
void Machine::poke() {
    mdlm_config &c = configs[in.pick(3)];
    const size_t size = 4 + 4 * in.pick(2), places = (sizeof c - sizeof(size_t)) / size,
                 place = sizeof(size_t) + size * (in.next() % places);
    const int64_t value = in.number();
    std::memcpy(reinterpret_cast<char *>(&c) + place, &value, size);
}

void Machine::shape() {
    shape_ = MDLM_SHAPE_INIT;
    shape_.seq_length = in.number(), shape_.micro_batch_size = in.number();
    shape_.max_documents = in.number(), shape_.in_flight = in.number32();
    const size_t bits = in.pick(32);
    shape_.evaluate_in_flight = bits & 1, shape_.input_requires_grad = (bits & 2) == 0;
    shape_.input_storage = (bits & 4) != 0 ? MDLM_INPUT_BORROW : MDLM_INPUT_COPY,
    shape_.share_scratch = (bits & 8) != 0;
    if ((bits & 16) != 0)
        shape_.max_tokens = in.number(), shape_.max_bytes = static_cast<uint64_t>(in.number()),
        shape_.reserved = in.number32() % 2;
}

void Machine::batch() {
    batch_ = MDLM_BATCH_INIT;
    batch_.seq_length = in.number(), batch_.micro_batch_size = in.number();
    batch_.training = in.number32(), batch_.attention_mask_type = in.number32();
    batch_.num_documents = in.number();
    documents.clear();
    if (batch_.num_documents == 0) return;
    // As many offsets as it says, but for numbers that nothing can have reserved.
    for (int64_t i = 0; i <= batch_.num_documents && batch_.num_documents <= 5000; ++i)
        documents.push_back(i < 8 ? in.number32() : static_cast<int32_t>(batch_.seq_length));
    documents.resize(std::max<size_t>(documents.size(), 1));
    if (!in.chance()) batch_.cu_seqlens = documents.data();
}

}  // namespace fuzz
