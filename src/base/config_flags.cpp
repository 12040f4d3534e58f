// SPDX-License-Identifier: Apache-2.0
// Command-line flags as Megatron-LM spells them. Every key is a flag with dashes for underscores; a boolean's may stand
// alone or have a value (true, false, 1 or 0), and "--no-" before it means false. "--no-position-embedding" is left to
// the caller on purpose: scripts give it together with rope, where it turns learned positions off, which a block never
// had.
#include <algorithm>
#include <charconv>
#include <optional>
#include <string>
#include <utility>

#include "base/config.hpp"
#include "base/config_table.hpp"
#include "base/status.hpp"

namespace mdlm {
namespace {

// Flags that set a field by being there; with a value that means false they are as good as not there.
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

// Of two such flags Megatron takes neither or one.
constexpr std::pair<const char *, const char *> exclusive[] = {{"bf16", "fp16"}, {"swiglu", "squared-relu"}};

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

// "--name", or "--name=value".
struct Flag {
    std::string_view name, value;
    bool has_value = false;
};
std::optional<Flag> flag_of(const char *word) {
    if (word == nullptr) return std::nullopt;
    std::string_view text = word;
    if (!text.starts_with("--")) return std::nullopt;
    text.remove_prefix(2);
    const size_t equals = text.find('=');
    if (equals == std::string_view::npos) return Flag{text, {}};
    return Flag{text.substr(0, equals), text.substr(equals + 1), true};
}

// The value of a flag that may stand alone, its word being taken: behind "=", or the next word where that can be
// nothing else.
bool boolean_value(Words &words, const Flag &flag) {
    if (flag.has_value) {
        if (const std::optional<bool> value = table::boolean_of(flag.value)) return *value;
        fail(MDLM_ERROR_CONFIG, "--%.*s = \"%.*s\": expected true or false", static_cast<int>(flag.name.size()),
             flag.name.data(), static_cast<int>(flag.value.size()), flag.value.data());
    }
    const char *next = words.peek();
    const std::optional<bool> value = next != nullptr ? table::boolean_of(next) : std::nullopt;
    if (value.has_value()) ++words.next;
    return value.value_or(true);
}

// Whether the flag is among the words, those behind another flag's that the caller takes included.
bool is_given(Words words, std::string_view name) {
    while (const char *word = words.peek()) {
        ++words.next;
        const std::optional<Flag> flag = flag_of(word);
        if (flag.has_value() && flag->name == name && boolean_value(words, *flag)) return true;
    }
    return false;
}

// Of what follows a flag that was taken: what precedes it was asked when the other was.
void refuse_both(const Words &words, std::string_view taken) {
    for (const auto &[one, other] : exclusive)
        if ((taken == one && is_given(words, other)) || (taken == other && is_given(words, one)))
            fail(MDLM_ERROR_CONFIG, "--%s and --%s: expected one of them, seen both", one, other);
}

bool take_preset(mdlm_config &config, Words &words, const Flag &flag) {
    for (const Preset &preset : presets) {
        if (flag.name != preset.flag) continue;
        ++words.next;
        if (!boolean_value(words, flag)) return true;
        refuse_both(words, flag.name);
        const table::Field &field = *table::find(preset.key);
        if (!preset.only_unset || table::is_default(config, field)) table::parse(config, field, preset.value);
        return true;
    }
    return false;
}

// The value of a flag whose word has none: the next word, and for modules all words up to the next flag, as Megatron
// lists them.
std::string following(Words &words, const table::Field *field) {
    const char *word = words.peek();
    if (word == nullptr) fail(MDLM_ERROR_CONFIG, "%s: expected a value, seen the end", words.argv[words.next - 1]);
    std::string value = word;
    ++words.next;
    if (field != nullptr && field->kind == table::FieldType::modules)
        while (words.peek() != nullptr && words.peek()[0] != '-') value += std::string(" ") + words.argv[words.next++];
    return value;
}

// "127,0" or "(127, 0)": keys to the left and to the right of a query, -1 for all of them.
void set_window(mdlm_config &config, std::string_view text) {
    std::string digits;
    for (const char c : text)
        if (c != ' ') digits += c;
    if (digits.starts_with('(') && digits.ends_with(')')) digits = digits.substr(1, digits.size() - 2);
    const char *at = digits.data(), *const end = at + digits.size();
    int64_t sides[2] = {-2, -2};
    for (int64_t &side : sides) {
        const auto read = std::from_chars(at, end, side);
        if (read.ec != std::errc{}) side = -2;
        at = read.ptr + (&side == sides && read.ptr != end && *read.ptr == ',');
    }
    if (sides[0] < -1 || sides[1] < -1 || at != end)
        fail(MDLM_ERROR_CONFIG, "--window-size = \"%.*s\": expected two integers >= -1, as 127,0 or (127,0)",
             static_cast<int>(std::min<size_t>(text.size(), 80)), text.data());
    config.window_left = sides[0], config.window_right = sides[1];
}

// Takes one flag with its value; false, with nothing taken, when the next word is no flag of ours.
bool take_flag(mdlm_config &config, Words &words) {
    const std::optional<Flag> flag = flag_of(words.peek());
    if (!flag.has_value()) return false;
    if (take_preset(config, words, *flag)) return true;
    const auto value = [&](const table::Field *field) {
        return flag->has_value ? std::string(flag->value) : following(words, field);
    };
    if (flag->name == "window-size") {
        ++words.next;
        set_window(config, value(nullptr));
        return true;
    }
    const table::Field *field = field_of_flag(flag->name);
    if (field == nullptr && flag->name.starts_with("no-")) {
        field = field_of_flag(flag->name.substr(3));
        if (field == nullptr || field->kind != table::FieldType::boolean || flag->has_value) return false;
        ++words.next;
        table::parse(config, *field, "false");
        return true;
    }
    if (field == nullptr) return false;
    ++words.next;
    if (field->kind == table::FieldType::boolean)
        table::parse(config, *field, boolean_value(words, *flag) ? "true" : "false");
    else table::parse(config, *field, value(field));
    // Megatron has no other flag for it.
    if (std::string_view(field->key) == "cpu_offloading_num_layers" && config.cpu_offloading_num_layers > 0)
        config.cpu_offloading = 1;
    return true;
}

}  // namespace

int config_parse_flags(mdlm_config &config, int argc, const char *const *argv) {
    Words words{argc, argv};
    while (take_flag(config, words)) {
    }
    return words.next;
}

}  // namespace mdlm
