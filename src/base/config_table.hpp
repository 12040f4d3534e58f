// SPDX-License-Identifier: Apache-2.0
// The one table of settings, from which setting, getting, enumeration, flags and ranges derive. Only
// src/base/config_*.cpp include it.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "mdlm/mdlm.h"

namespace mdlm::table {

enum class FieldType {
    int64,
    bytes,
    int32,
    boolean,
    real,
    enumeration,
    modules
};  // bytes: an int64, as text also "40GiB"

// A name of an enumeration's value. The first name of a value is the one that is written; the others are read too.
struct Name {
    const char *text;
    int32_t value;
};

// Of an integer or a real number. A bound that is the type's limit is none.
struct Range {
    int64_t low = 0, high = 0;
    double real_low = 0, real_high = 0;
    bool low_open = false, high_open = false;
};

struct Field {
    const char *key;
    FieldType kind;
    size_t offset;
    Range range;
    std::span<const Name> names;
    bool model;                  // part of the model, so of its digest
    const char *flag = nullptr;  // Megatron's other spelling of the flag, without dashes
};

std::span<const Field> fields();
const Field *find(std::string_view key);  // nullptr if there is none

// The value as text that parse takes back; a value that has no name is written as a number.
std::string text(const mdlm_config &config, const Field &field);
bool has_text(const mdlm_config &config, const Field &field);
// Reads a value and checks its range; the default is always taken, so that a setting that must be set can be copied
// unset.
void parse(mdlm_config &config, const Field &field, std::string_view value);
// A line about a value out of its range, or "".
std::string out_of_range(const mdlm_config &config, const Field &field);
bool is_default(const mdlm_config &config, const Field &field);
std::optional<bool> boolean_of(std::string_view text);  // "true", "0", ...

}  // namespace mdlm::table
