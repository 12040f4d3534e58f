// SPDX-License-Identifier: Apache-2.0
// Settings from and to text. Numbers do not depend on the locale, and doubles are written with the fewest digits that
// read back the same.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "base/config.hpp"
#include "base/config_table.hpp"
#include "base/status.hpp"

namespace mdlm {
namespace table {
namespace {

template <class T>
T load(const mdlm_config &config, const Field &field) {
    T value;
    std::memcpy(&value, reinterpret_cast<const char *>(&config) + field.offset, sizeof value);
    return value;
}
template <class T>
void store(mdlm_config &config, const Field &field, T value) {
    std::memcpy(reinterpret_cast<char *>(&config) + field.offset, &value, sizeof value);
}

// Any kind but a real number.
int64_t whole(const mdlm_config &config, const Field &field) {
    if (field.kind == FieldType::int64 || field.kind == FieldType::bytes) return load<int64_t>(config, field);
    return field.kind == FieldType::modules ? int64_t{load<uint32_t>(config, field)}
                                            : int64_t{load<int32_t>(config, field)};
}

template <class T>
std::string number(T value) {
    char digits[32];
    const auto end = std::to_chars(digits, digits + sizeof digits, value);
    return {digits, end.ptr};
}

template <class T>
bool read(std::string_view text, T &value) {
    const auto end = std::from_chars(text.data(), text.data() + text.size(), value);
    return end.ec == std::errc{} && end.ptr == text.data() + text.size();
}

// ASCII only, so that it does not depend on the locale.
bool same(std::string_view a, std::string_view b) {
    const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; };
    if (a.size() != b.size()) return false;
    for (size_t i = 0; i < a.size(); ++i)
        if (lower(a[i]) != lower(b[i])) return false;
    return true;
}

const Name *named(const Field &field, std::string_view text) {
    for (const Name &name : field.names)
        if (same(text, name.text)) return &name;
    return nullptr;
}
const Name *named(const Field &field, int64_t value) {
    for (const Name &name : field.names)
        if (name.value == value) return &name;
    return nullptr;
}

int64_t known_bits(const Field &field) {
    int64_t all = 0;
    for (const Name &name : field.names) all |= name.value;
    return all;
}

std::string expected(const Field &field, bool with_numbers) {
    const Range &r = field.range;
    switch (field.kind) {
    case FieldType::int64:
    case FieldType::int32: {
        const int64_t most =
            field.kind == FieldType::int64 ? std::numeric_limits<int64_t>::max() : std::numeric_limits<int32_t>::max();
        return r.high == most ? "an integer >= " + number(r.low)
                              : "an integer in " + number(r.low) + " .. " + number(r.high);
    }
    case FieldType::bytes:
        return with_numbers ? "bytes >= 0" : "bytes >= 0, a number alone or with KB, KiB, MB, MiB, GB, GiB, TB or TiB";
    case FieldType::real:
        if (std::isinf(r.real_high)) return (r.low_open ? "a number > " : "a number >= ") + number(r.real_low);
        return std::string("a number in ") + (r.low_open ? "(" : "[") + number(r.real_low) + ", " +
               number(r.real_high) + (r.high_open ? ")" : "]");
    case FieldType::boolean: return with_numbers ? "0 or 1" : "true or false";
    case FieldType::enumeration:
    case FieldType::modules: break;
    }
    std::string list = field.kind == FieldType::enumeration ? "one of "
                       : with_numbers                       ? "bits of "
                                                            : "default, or some joined by commas or blanks of ";
    const char *between = "";
    for (const Name &name : field.names) {
        if (named(field, name.value) != &name) continue;  // another spelling
        list += between + std::string(name.text) + (with_numbers ? " (" + number(name.value) + ")" : "");
        between = ", ";
    }
    return list;
}

// "1048576", "40GiB", "1.5 GB": digits after the point are cut at whole bytes.
bool read_bytes(std::string_view text, int64_t &value) {
    const size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
    if (!read(text.substr(0, digits), value)) return false;
    text.remove_prefix(digits);
    int64_t part = 0, parts = 1;
    if (text.starts_with('.')) {
        const size_t end = std::min(text.find_first_not_of("0123456789", 1), text.size());
        if (end == 1 || end > 10) return false;
        for (size_t i = 1; i < end; ++i) part = part * 10 + (text[i] - '0'), parts *= 10;
        text.remove_prefix(end);
    }
    if (text.starts_with(' ')) text.remove_prefix(1);
    int64_t unit = 1;
    if (!text.empty() && !same(text, "B")) {
        int power = 0;
        for (const char *name : {"K", "M", "G", "T"}) {
            ++power;
            for (const auto &[tail, base] : {std::pair<const char *, int64_t>{"B", 1000}, {"iB", 1024}})
                if (same(text, name + std::string(tail)))
                    for (int i = 0; i < power; ++i) unit *= base;
        }
        if (unit == 1) return false;
    }
    if (unit == 1 && parts > 1) return false;  // a part of a byte
    const __int128 all = static_cast<__int128>(value) * unit + static_cast<__int128>(part) * unit / parts;
    if (all > std::numeric_limits<int64_t>::max()) return false;
    value = static_cast<int64_t>(all);
    return true;
}

// Names with commas or blanks between. Where one is unknown, it is left in unknown; a list without names is none.
bool parse_modules(const Field &field, std::string_view text, uint32_t &bits, std::string_view *unknown = nullptr) {
    constexpr std::string_view between = ", \t\n";
    bits = 0;
    if (same(text, "default")) return true;
    for (size_t at = text.find_first_not_of(between); at != std::string_view::npos;
         at = text.find_first_not_of(between, at)) {
        const size_t end = std::min(text.find_first_of(between, at), text.size());
        const Name *name = named(field, text.substr(at, end - at));
        if (name == nullptr) {
            if (unknown != nullptr) *unknown = text.substr(at, end - at);
            return false;
        }
        bits |= static_cast<uint32_t>(name->value);
        at = end;
    }
    return bits != 0;
}

// False when the text is no value of that kind. The range is checked elsewhere.
bool read_value(mdlm_config &config, const Field &field, std::string_view text) {
    switch (field.kind) {
    case FieldType::int64: {
        int64_t value = 0;
        if (!read(text, value)) return false;
        store(config, field, value);
        return true;
    }
    case FieldType::bytes: {
        int64_t value = 0;
        if (!read_bytes(text, value)) return false;
        store(config, field, value);
        return true;
    }
    case FieldType::int32: {
        int32_t value = 0;
        if (!read(text, value)) return false;
        store(config, field, value);
        return true;
    }
    case FieldType::real: {
        double value = 0;
        if (!read(text, value)) return false;
        store(config, field, value);
        return true;
    }
    case FieldType::boolean: {
        const std::optional<bool> value = boolean_of(text);
        if (!value.has_value()) return false;
        store(config, field, int32_t{*value});
        return true;
    }
    case FieldType::enumeration: {
        const Name *name = named(field, text);
        if (name == nullptr) return false;
        store(config, field, name->value);
        return true;
    }
    case FieldType::modules: {
        uint32_t bits = 0;
        if (!parse_modules(field, text, bits)) return false;
        store(config, field, bits);
        return true;
    }
    }
    return false;
}

}  // namespace

bool has_text(const mdlm_config &config, const Field &field) {
    if (field.kind == FieldType::real) return true;
    const int64_t value = whole(config, field);
    if (field.kind == FieldType::boolean) return value == 0 || value == 1;
    if (field.kind == FieldType::enumeration) return named(field, value) != nullptr;
    return field.kind != FieldType::modules || (value & ~known_bits(field)) == 0;
}

std::string text(const mdlm_config &config, const Field &field) {
    if (field.kind == FieldType::real) return number(load<double>(config, field));
    const int64_t value = whole(config, field);
    if (!has_text(config, field) || field.kind == FieldType::int64 || field.kind == FieldType::bytes ||
        field.kind == FieldType::int32)
        return number(value);
    if (field.kind == FieldType::boolean) return value != 0 ? "true" : "false";
    if (field.kind == FieldType::enumeration) return named(field, value)->text;
    if (value == 0) return "default";
    std::string list;
    for (const Name &name : field.names)
        if ((value & name.value) != 0) list += (list.empty() ? "" : ",") + std::string(name.text);
    return list;
}

std::string out_of_range(const mdlm_config &config, const Field &field) {
    bool inside = has_text(config, field);
    const Range &r = field.range;
    if (field.kind == FieldType::real) {
        const double v = load<double>(config, field);  // comparisons with NaN are false
        inside = std::isfinite(v) && (r.low_open ? v > r.real_low : v >= r.real_low) &&
                 (r.high_open ? v < r.real_high : v <= r.real_high);
    } else if (field.kind == FieldType::int64 || field.kind == FieldType::bytes || field.kind == FieldType::int32) {
        const int64_t v = whole(config, field);
        inside = v >= r.low && v <= r.high;
        if (!inside && is_default(config, field)) return field.key + (" is not set: expected " + expected(field, true));
    }
    return inside ? "" : std::string(field.key) + " = " + text(config, field) + ": expected " + expected(field, true);
}

std::optional<bool> boolean_of(std::string_view text) {
    if (same(text, "true") || text == "1") return true;
    if (same(text, "false") || text == "0") return false;
    return std::nullopt;
}

void parse(mdlm_config &config, const Field &field, std::string_view value) {
    mdlm_config next = config;
    std::string_view unknown;
    uint32_t bits = 0;
    if (field.kind == FieldType::modules && !parse_modules(field, value, bits, &unknown) && !unknown.empty())
        fail(MDLM_ERROR_CONFIG, "%s: no module is called \"%.*s\": expected %s", field.key,
             static_cast<int>(std::min<size_t>(unknown.size(), 80)), unknown.data(), expected(field, false).c_str());
    if (!read_value(next, field, value) || (!out_of_range(next, field).empty() && !is_default(next, field)))
        fail(MDLM_ERROR_CONFIG, "%s = \"%.*s\": expected %s", field.key,
             static_cast<int>(value.size() < 80 ? value.size() : 80), value.data(), expected(field, false).c_str());
    config = next;
}

}  // namespace table

namespace {

const table::Field &field_of(std::string_view key) {
    const table::Field *field = table::find(key);
    if (field == nullptr)
        fail(MDLM_ERROR_NOT_FOUND, "no setting is called \"%.*s\"", static_cast<int>(key.size() < 80 ? key.size() : 80),
             key.data());
    return *field;
}

}  // namespace

void config_set(mdlm_config &config, std::string_view key, std::string_view value) {
    table::parse(config, field_of(key), value);
}

std::string config_get(const mdlm_config &config, std::string_view key) {
    const table::Field &field = field_of(key);
    if (!table::has_text(config, field)) fail(MDLM_ERROR_CONFIG, "%s", table::out_of_range(config, field).c_str());
    return table::text(config, field);
}

int32_t config_key_count() { return static_cast<int32_t>(table::fields().size()); }

const char *config_key(int32_t index) {
    return index < 0 || index >= config_key_count() ? nullptr : table::fields()[size_t(index)].key;
}

}  // namespace mdlm
