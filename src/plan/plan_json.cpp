// SPDX-License-Identifier: Apache-2.0
// Reading a plan's JSON. The text may come from anywhere: it is read event by event (nlohmann::json's SAX interface),
// nothing in it is believed but units and storages, and the place of a fault is named.
#include <algorithm>
#include <cinttypes>
#include <nlohmann/json.hpp>

#include "base/status.hpp"
#include "plan/plan.hpp"

namespace mdlm {
namespace {

using nlohmann::json;

class Reader {
public:
    explicit Reader(const Plan &plan) : plan_(plan), policies_(plan.policies()) {
        unit_first_.assign(plan.chain().items(), -1);
    }

    bool null() { return other(); }
    bool boolean(bool) { return other(); }
    bool number_float(json::number_float_t, const std::string &) { return other(); }
    bool binary(json::binary_t &) { return other(); }
    bool number_integer(json::number_integer_t v) { return integer(v); }
    bool number_unsigned(json::number_unsigned_t v) {
        return integer(v > uint64_t{INT64_MAX} ? INT64_MAX : static_cast<int64_t>(v));
    }
    bool key(std::string &name) {
        key_ = name;
        if (depth_ == 1) {
            for (const char *known : {"format", "version", "digest", "num_layers", "tensor_model_parallel_size",
                                      "peak_bytes", "fixed_bytes", "saved_bytes", "host_bytes", "layers"})
                if (name == known) return true;
        } else if (depth_ == 3) {
            for (const char *known : {"layer", "unit_first", "saved_bytes", "storage"})
                if (name == known) return true;
        } else if (depth_ == 4) {
            return true;
        }
        bad("a key of the format");
    }
    bool start_object(size_t) {
        if (!(depth_ == 0 || depth_ == 2 || (depth_ == 3 && key_ == "storage"))) bad("no object here");
        if (depth_ == 2) {
            if (item_ + 1 >= plan_.chain().items()) bad("as many layers as the block has");
            ++item_;
            key_ = "layer";
        }
        ++depth_;
        return true;
    }
    bool end_object() { return --depth_, true; }
    bool start_array(size_t) {
        if (depth_ != 1 || key_ != "layers" || item_ >= 0) bad("no array here");
        ++depth_;
        return true;
    }
    bool end_array() { return --depth_, true; }
    bool string(std::string &value) {
        if (depth_ == 1 && key_ == "format") {
            if (value != "mdlm-plan") bad("\"mdlm-plan\"");
            format_ = true;
        } else if (depth_ == 1 && key_ == "digest") {
            char expected[32];
            std::snprintf(expected, sizeof expected, "%016" PRIx64, plan_.digest());
            if (value != expected) bad((std::string("\"") + expected + "\", that of this config and shape").c_str());
            digest_ = true;
        } else if (depth_ == 4) {
            storage(value);
        } else {
            bad("no string here");
        }
        return true;
    }
    bool parse_error(size_t position, const std::string &, const json::exception &) {
        fail(MDLM_ERROR_FORMAT, "plan: byte %zu: this is not JSON", position);
    }

    Policies take() {
        if (!format_) missing("format");
        if (!digest_) missing("digest");
        if (!version_) missing("version");
        const int64_t items = plan_.chain().items();
        if (item_ + 1 != items)
            fail(MDLM_ERROR_FORMAT, "plan: %" PRId64 " layers: expected %" PRId64 ", the final norm included",
                 item_ + 1, items);
        policies_.units.clear();
        for (int64_t i = 0; i < items; ++i) {
            const int64_t first = unit_first_[i];
            if (first < 0) fail(MDLM_ERROR_FORMAT, "plan: layers[%" PRId64 "].unit_first is missing", i);
            const bool joins =
                first < i && first == policies_.units.back().first && plan_.chain().unit_fits(first, i - first + 1);
            if (first != i && !joins)
                fail(MDLM_ERROR_FORMAT,
                     "plan: layers[%" PRId64 "].unit_first = %" PRId64 ": expected the layer or its unit's first", i,
                     first);
            if (joins) ++policies_.units.back().count;
            else policies_.units.push_back({i, 1});
        }
        return std::move(policies_);
    }

private:
    [[noreturn]] void bad(const char *expected) const {
        if (item_ >= 0)
            fail(MDLM_ERROR_FORMAT, "plan: layers[%" PRId64 "].%.60s: expected %s", item_, key_.c_str(), expected);
        fail(MDLM_ERROR_FORMAT, "plan: %.60s: expected %s", key_.empty() ? "start" : key_.c_str(), expected);
    }
    [[noreturn]] static void missing(const char *name) { fail(MDLM_ERROR_FORMAT, "plan: %s is missing", name); }
    bool other() const { bad("a string, an integer, an object or an array where the format has one"); }

    bool integer(int64_t v) {
        if (depth_ == 0 || depth_ == 2) bad("an object, got a number");
        if (depth_ == 1 && key_ == "version") {
            if (v != 1) bad("1");
            version_ = true;
        } else if (depth_ == 3 && key_ == "layer") {
            if (v != item_) bad("the layers in order");
        } else if (depth_ == 3 && key_ == "unit_first") {
            unit_first_[item_] = v < 0 ? INT64_MAX : v;
        } else if (depth_ == 4 || key_ == "format" || key_ == "digest" || key_ == "storage" || key_ == "layers") {
            bad("no number here");
        }
        return true;  // byte counts are for people
    }
    void storage(const std::string &value) {
        const Program &p = plan_.chain().of(item_);
        const BufferId b = p.find(key_);
        if (b == no_buffer || b == p.output || p.is_side(b)) bad("the name of a tensor of this layer");
        for (Storage s : {Storage::keep, Storage::replay, Storage::shard, Storage::host})
            if (value == name_of(s)) {
                policies_.items[item_][b] = s;
                return;
            }
        bad("keep, replay, shard or host");
    }

    const Plan &plan_;
    Policies policies_;
    std::vector<int64_t> unit_first_;
    std::string key_;
    int depth_ = 0;
    int64_t item_ = -1;
    bool format_ = false, digest_ = false, version_ = false;
};

}  // namespace

void from_json(Plan &plan, std::string_view text) {
    Reader reader(plan);
    json::sax_parse(text.begin(), text.end(), &reader);
    plan.set_policies(reader.take());
}

}  // namespace mdlm
