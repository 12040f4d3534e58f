// Command-line flags as Megatron-LM spells them. Every key is a flag with dashes for underscores; a boolean's may stand alone or have
// "=true" or "=false", and "--no-" before it means false. "--no-position-embedding" is left to the caller on purpose: scripts give it
// together with rope, where it turns learned positions off, which a block never had.
#include <string>

#include "base/config.hpp"
#include "base/config_table.hpp"
#include "base/status.hpp"

namespace mdlm {
namespace {

// Flags without a value that set a field.
struct Preset {
    const char *flag, *key, *value;
    bool only_unset = false;  // yields to a value given by another flag, before or after
};
constexpr Preset presets[] = {
    {"disable-bias-linear", "add_bias_linear", "false"},
    {"swiglu", "activation_func", "swiglu"},
    {"squared-relu", "activation_func", "squared_relu"},
    {"openai-gelu", "activation_func", "gelu_tanh"},
    {"use-rotary-position-embeddings", "position_embedding_type", "rope"},
    {"group-query-attention", "num_query_groups", "1", true},  // Megatron's default of --num-query-groups
    {"use-flash-attn", "attention_backend", "fused"},
    {"bf16", "params_dtype", "bf16"},
    {"fp16", "params_dtype", "f16"},
    {"accumulate-allreduce-grads-in-fp32", "grad_dtype", "f32"},
    {"recompute-activations", "recompute_granularity", "selective"},
};

bool is_flag_of(std::string_view flag, const table::Field &field) {
    if (field.flag != nullptr && flag == field.flag) return true;
    const std::string_view key = field.key;
    if (flag.size() != key.size()) return false;
    for (size_t i = 0; i < key.size(); ++i)
        if (flag[i] != (key[i] == '_' ? '-' : key[i])) return false;
    return true;
}

const table::Field *field_of_flag(std::string_view flag) {
    for (const table::Field &field : table::fields())
        if (is_flag_of(flag, field)) return &field;
    return nullptr;
}

struct Words {
    int argc;
    const char *const *argv;
    int next = 0;
    const char *peek() const { return next < argc ? argv[next] : nullptr; }
};

bool take_preset(mdlm_config &config, std::string_view flag, bool has_value, std::string_view value) {
    for (const Preset &preset : presets) {
        if (flag != preset.flag) continue;
        if (has_value && value != "true" && value != "1")
            fail(MDLM_ERROR_CONFIG, "--%s = \"%.*s\": expected no value, or true", preset.flag, static_cast<int>(value.size()), value.data());
        const table::Field &field = *table::find(preset.key);
        if (!preset.only_unset || table::is_default(config, field)) table::parse(config, field, preset.value);
        return true;
    }
    return false;
}

// The value of a flag whose word has none: the next word, and for modules further names, as Megatron lists them with blanks.
std::string following(Words &words, const table::Field &field) {
    const char *word = words.peek();
    if (word == nullptr) fail(MDLM_ERROR_CONFIG, "--%s: expected a value, seen the end", words.argv[words.next - 1] + 2);
    std::string value = word;
    ++words.next;
    if (field.kind == table::Kind::modules)
        while (words.peek() != nullptr && table::is_module_name(words.peek())) value += std::string(",") + words.argv[words.next++];
    return value;
}

// Takes one flag with its value; false, with nothing taken, when the next word is no flag of ours.
bool take_flag(mdlm_config &config, Words &words) {
    const char *word = words.peek();
    if (word == nullptr) return false;
    std::string_view flag = word;
    if (!flag.starts_with("--")) return false;
    flag.remove_prefix(2);
    const size_t equals = flag.find('=');
    const bool has_value = equals != std::string_view::npos;
    const std::string_view value = has_value ? flag.substr(equals + 1) : std::string_view{};
    flag = flag.substr(0, equals);

    if (take_preset(config, flag, has_value, value)) {
        ++words.next;
        return true;
    }
    const table::Field *field = field_of_flag(flag);
    bool inverse = false;
    if (field == nullptr && flag.starts_with("no-")) {
        field = field_of_flag(flag.substr(3));
        inverse = true;
        if (field != nullptr && (field->kind != table::Kind::boolean || has_value)) return false;
    }
    if (field == nullptr) return false;
    ++words.next;
    if (has_value) table::parse(config, *field, value);
    else if (field->kind == table::Kind::boolean) table::parse(config, *field, inverse ? "false" : "true");
    else table::parse(config, *field, following(words, *field));
    return true;
}

}  // namespace

int config_parse_flags(mdlm_config &config, int argc, const char *const *argv) {
    Words words{argc, argv};
    while (take_flag(config, words)) {}
    return words.next;
}

}  // namespace mdlm
