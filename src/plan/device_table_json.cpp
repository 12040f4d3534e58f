// SPDX-License-Identifier: Apache-2.0
// A device table as JSON: one flat object of integers. Read by events, as plans are.
#include <cinttypes>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/status.hpp"
#include "plan/device_table.hpp"

namespace mdlm {
namespace {

using nlohmann::json;

struct NamedField {
    const char *key;
    int64_t DeviceTable::*field;
};
constexpr NamedField named_fields[] = {
    {"pointwise_flops_per_s", &DeviceTable::pointwise},
    {"memory_bytes_per_s", &DeviceTable::memory},
    {"host_bytes_per_s", &DeviceTable::host},
    {"link_bytes_per_s", &DeviceTable::link},
    {"op_ns", &DeviceTable::op_ns},
    {"collective_ns", &DeviceTable::collective_ns},
    {"scratch_bytes", &DeviceTable::scratch_bytes},
};
constexpr const char *linear_keys[] = {"linear_f32_flops_per_s", "linear_bf16_flops_per_s", "linear_f16_flops_per_s",
                                       "linear_f64_flops_per_s"};
constexpr const char *attention_keys[] = {"attention_f32_flops_per_s", "attention_bf16_flops_per_s",
                                          "attention_f16_flops_per_s", "attention_f64_flops_per_s"};

int64_t *field_of(DeviceTable &t, const std::string &key) {
    for (const NamedField &e : named_fields)
        if (key == e.key) return &(t.*e.field);
    for (int i = 0; i < 4; ++i) {
        if (key == linear_keys[i]) return &t.linear[i];
        if (key == attention_keys[i]) return &t.attention[i];
    }
    return nullptr;
}

class Reader {
public:
    bool null() { return other(); }
    bool boolean(bool v) {
        if (depth_ != 1 || key_ != "host_overlaps") return other();
        table_.host_overlaps = v;
        return true;
    }
    bool number_float(json::number_float_t, const std::string &) { return other(); }
    bool binary(json::binary_t &) { return other(); }
    bool number_integer(json::number_integer_t) { bad("an integer that is not negative"); }
    bool number_unsigned(json::number_unsigned_t v) {
        if (depth_ != 1) return other();
        if (key_ == "version") {
            if (v != 1) bad("1");
            version_ = true;
            return true;
        }
        int64_t *field = field_of(table_, key_);
        if (field == nullptr) return other();
        if (v > uint64_t{INT64_MAX} / 4) bad("an integer below 2^61");
        *field = static_cast<int64_t>(v);
        return true;
    }
    bool string(std::string &v) {
        if (key_ == "format") {
            if (v != "mdlm-device-table") bad("\"mdlm-device-table\"");
            format_ = true;
        } else if (key_ == "name" || key_ == "source") {
            for (char &c : v)
                if (static_cast<unsigned char>(c) < 32 || c == '"' || c == '\\')
                    bad("a text of one line without quotes and backslashes");
            if (v.size() > 400) bad("at most 400 bytes");
            (key_ == "name" ? table_.name : table_.source) = v;
        } else {
            return other();
        }
        return true;
    }
    bool start_object(size_t) { return depth_++ == 0 || other(); }
    bool end_object() { return --depth_, true; }
    bool start_array(size_t) { return other(); }
    bool end_array() { return true; }
    bool key(std::string &name) {
        key_ = name;
        for (const char *known : {"format", "version", "name", "source", "host_overlaps"})
            if (name == known) return true;
        if (field_of(table_, name) == nullptr) bad("a key of the format");
        return true;
    }
    bool parse_error(size_t position, const std::string &, const json::exception &) {
        fail(MDLM_ERROR_FORMAT, "device table: byte %zu: this is not JSON", position);
    }
    DeviceTable take() {
        if (!format_ || !version_)
            fail(MDLM_ERROR_FORMAT, "device table: %s is missing", format_ ? "version" : "format");
        if (table_.memory == 0 || table_.pointwise == 0)
            fail(MDLM_ERROR_FORMAT,
                 "device table: memory_bytes_per_s and pointwise_flops_per_s: expected both, above 0");
        return std::move(table_);
    }

private:
    [[noreturn]] void bad(const char *expected) const {
        fail(MDLM_ERROR_FORMAT, "device table: %.60s: expected %s", key_.empty() ? "start" : key_.c_str(), expected);
    }
    bool other() const { bad(key_ == "host_overlaps" ? "true or false" : "the value that the format has there"); }
    DeviceTable table_;
    std::string key_;
    int depth_ = 0;
    bool format_ = false, version_ = false;
};

}  // namespace

DeviceTable read_device_table(std::string_view text) {
    Reader reader;
    json::sax_parse(text.begin(), text.end(), &reader);
    return reader.take();
}

std::string to_json(const DeviceTable &table) {
    DeviceTable t = table;
    std::string text = "{\"format\": \"mdlm-device-table\", \"version\": 1,\n \"name\": \"" + t.name +
                       "\",\n \"source\": \"" + t.source + "\"";
    const auto put = [&](const char *key) {
        text += std::string(",\n \"") + key + "\": " + std::to_string(*field_of(t, key));
    };
    for (const char *key : linear_keys) put(key);
    for (const char *key : attention_keys) put(key);
    for (const NamedField &e : named_fields) put(e.key);
    return text + ",\n \"host_overlaps\": " + (t.host_overlaps ? "true" : "false") + "}\n";
}

}  // namespace mdlm
