// SPDX-License-Identifier: Apache-2.0
// Reading a chain's JSON. The text may come from anywhere: it is read event by event (nlohmann::json's SAX interface),
// and the place of a fault is named.
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/status.hpp"
#include "planner/chain.hpp"

namespace mdlm::planner {
namespace {

using nlohmann::json;

enum class Kind { integer, boolean, text, list };
// A key of an object of the format, and where its value goes.
struct Field {
    const char *name;
    Kind kind;
    int64_t *number = nullptr;
    bool *flag = nullptr;
    std::string *text = nullptr;
};

class Reader {
public:
    bool null() { bad("seen null"); }
    bool binary(json::binary_t &) { bad("seen bytes"); }
    bool boolean(bool v) {
        Field &f = expect(Kind::boolean, "a boolean");
        *f.flag = v;
        return true;
    }
    bool number_integer(json::number_integer_t v) {
        if (v < 0) bad(("seen " + std::to_string(v)).c_str());
        return integer(v);
    }
    bool number_unsigned(json::number_unsigned_t v) {
        if (v > uint64_t{INT64_MAX}) overflow(std::to_string(v));
        return integer(static_cast<int64_t>(v));
    }
    bool number_float(json::number_float_t, const std::string &digits) {
        if (field_ != nullptr && field_->kind == Kind::integer &&
            digits.find_first_not_of("0123456789") == std::string::npos)
            overflow(digits);
        std::string seen = digits.substr(0, 40);
        for (char &c : seen)
            if (std::strchr("0123456789+-eE", c) == nullptr) c = '.';  // the parser's is the locale's
        bad(("seen " + seen).c_str());
    }
    bool string(std::string &v) {
        Field &f = expect(Kind::text, "a string");
        *f.text = v;
        return true;
    }
    bool key(std::string &name) {
        for (size_t i = 0; i < fields_.back().size(); ++i) {
            Field &f = fields_.back()[i];
            if (name != f.name) continue;
            field_ = &f;
            uint32_t &seen = seen_.back();
            if ((seen >> i & 1) != 0) bad("seen twice");
            seen |= uint32_t{1} << i;
            return true;
        }
        std::string known;
        for (const Field &f : fields_.back()) known += std::string(known.empty() ? "" : ", ") + f.name;
        fail(MDLM_ERROR_FORMAT, "chain: %sunknown field \"%.60s\": expected %s", place().c_str(), name.c_str(),
             known.c_str());
    }
    bool start_object(size_t) {
        const bool top = fields_.empty() && !ended_;
        if (!top && list_ == nullptr) bad("seen an object");
        if (top) {
            fields_.push_back({{"format", Kind::text, nullptr, nullptr, &format_},
                               {"version", Kind::integer, &version_},
                               {"in_flight", Kind::integer, &chain_.in_flight},
                               {"fixed_bytes", Kind::integer, &chain_.fixed_bytes},
                               {"loss_bytes", Kind::integer, &chain_.loss_bytes},
                               {"input_bytes", Kind::integer, &chain_.input_bytes},
                               {"max_unit_depth", Kind::integer, &chain_.max_unit_depth},
                               {"max_unit_layers", Kind::integer, &chain_.max_unit_layers},
                               {"layers", Kind::list}});
            chain_.input_bytes = -1;
        } else {
            begin_member();
        }
        seen_.push_back(0);
        field_ = nullptr;
        list_ = nullptr;
        return true;
    }
    bool end_object() {
        field_ = nullptr;
        const size_t depth = fields_.size();
        if (depth == 1) {
            require("format"), require("version"), require("layers");
            ended_ = true;
        } else if (depth == 2) {
            require("policies");
            end_layer();
        }
        fields_.pop_back(), seen_.pop_back();
        list_ = depth == 2 ? "layers" : depth == 3 ? inner_ : nullptr;
        return true;
    }
    bool start_array(size_t) {
        if (list_ != nullptr || field_ == nullptr || field_->kind != Kind::list) bad("seen a list");
        list_ = field_->name;
        if (fields_.size() == 2) inner_ = list_;
        return true;
    }
    bool end_array() {
        if (fields_.size() == 1 && chain_.types.empty()) bad("seen none");
        if (fields_.size() == 2 && list_ == policies_name && chain_.types.back().policies.empty()) bad("seen none");
        list_ = nullptr;
        field_ = nullptr;
        return true;
    }
    bool parse_error(size_t position, const std::string &, const json::exception &) {
        fail(MDLM_ERROR_FORMAT, "chain: byte %zu: this is not JSON", position);
    }

    Chain take() {
        if (format_ != "mdlm-chain")
            fail(MDLM_ERROR_FORMAT, "chain: format = \"%.60s\": expected \"mdlm-chain\"", format_.c_str());
        if (version_ != 1)
            fail(MDLM_ERROR_FORMAT, "chain: version = %lld: expected 1", static_cast<long long>(version_));
        if (chain_.input_bytes < 0) chain_.input_bytes = chain_.types[0].boundary_bytes;
        return std::move(chain_);
    }

private:
    static constexpr const char *policies_name = "policies";

    // "layers[0].policies[1]." of the object that is being read; "" at the top.
    std::string place() const {
        std::string text;
        if (fields_.size() > 1) text = "layers[" + std::to_string(chain_.types.size() - 1) + "].";
        if (fields_.size() > 2) {
            const LayerType &t = chain_.types.back();
            text += std::string(inner_) + "[" +
                    std::to_string((inner_ == policies_name ? t.policies.size() : t.unit_inputs.size()) - 1) + "].";
        }
        return text;
    }
    // What the value at hand should be.
    const char *expected() const {
        if (fields_.empty()) return "one object";
        if (list_ != nullptr) return "objects";
        switch (field_ == nullptr ? Kind::list : field_->kind) {
        case Kind::integer: return "an integer >= 0";
        case Kind::boolean: return "true or false";
        case Kind::text: return "a string";
        case Kind::list: break;
        }
        return "a list of at least one object";
    }
    std::string name() const {
        std::string text = place() + (list_ != nullptr ? list_ : field_ != nullptr ? field_->name : "");
        if (!text.empty() && text.back() == '.') text.pop_back();
        return text.empty() ? "start" : text;
    }
    [[noreturn]] void bad(const char *seen) const {
        fail(MDLM_ERROR_FORMAT, "chain: %s: expected %s, %s", name().c_str(), expected(), seen);
    }
    [[noreturn]] void overflow(const std::string &digits) const {
        fail(MDLM_ERROR_OVERFLOW, "chain: %s = %.40s: expected at most 2^63 - 1", name().c_str(), digits.c_str());
    }
    Field &expect(Kind kind, const char *seen) {
        if (list_ != nullptr || field_ == nullptr || field_->kind != kind) bad((std::string("seen ") + seen).c_str());
        return *field_;
    }
    bool integer(int64_t v) {
        Field &f = expect(Kind::integer, "an integer");
        if (f.number == &count_ && (v < 1 || v > most_layers))
            fail(MDLM_ERROR_FORMAT, "chain: %s = %lld: expected 1 .. %lld", name().c_str(), static_cast<long long>(v),
                 static_cast<long long>(most_layers));
        *f.number = v;
        return true;
    }
    void require(const char *field) const {
        for (size_t i = 0; i < fields_.back().size(); ++i)
            if (fields_.back()[i].name == std::string_view(field) && (seen_.back() >> i & 1) == 0)
                fail(MDLM_ERROR_FORMAT, "chain: %s%s is missing", place().c_str(), field);
    }

    void begin_member() {
        if (fields_.size() == 1) {
            chain_.types.emplace_back();
            LayerType &t = chain_.types.back();
            count_ = 1;
            fields_.push_back({{"name", Kind::text, nullptr, nullptr, &t.name},
                               {"count", Kind::integer, &count_},
                               {"boundary_bytes", Kind::integer, &t.boundary_bytes},
                               {"grad_boundary_bytes", Kind::integer, &t.grad_boundary_bytes},
                               {"forward_ns", Kind::integer, &t.forward_ns},
                               {"unsaved_forward_bytes", Kind::integer, &t.unsaved_forward_bytes},
                               {policies_name, Kind::list},
                               {"unit_inputs", Kind::list}});
        } else if (inner_ == policies_name) {
            auto &list = chain_.types.back().policies;
            list.emplace_back();
            PolicyCost &p = list.back();
            p.name = std::to_string(list.size() - 1);
            fields_.push_back({{"name", Kind::text, nullptr, nullptr, &p.name},
                               {"saved_bytes", Kind::integer, &p.saved_bytes},
                               {"extra_ns", Kind::integer, &p.extra_ns},
                               {"forward_bytes", Kind::integer, &p.forward_bytes},
                               {"backward_bytes", Kind::integer, &p.backward_bytes},
                               {"rebuild_ns", Kind::integer, &p.rebuild_ns}});
        } else {
            auto &list = chain_.types.back().unit_inputs;
            list.emplace_back();
            UnitInput &u = list.back();
            u.name = std::to_string(list.size() - 1);
            fields_.push_back({{"name", Kind::text, nullptr, nullptr, &u.name},
                               {"saved_bytes", Kind::integer, &u.saved_bytes},
                               {"restore_ns", Kind::integer, &u.restore_ns},
                               {"stays", Kind::boolean, nullptr, &u.stays}});
        }
    }
    void end_layer() {
        if (chain_.size() + count_ > most_layers)
            fail(MDLM_ERROR_FORMAT, "chain: layers: more than %lld of them with their counts",
                 static_cast<long long>(most_layers));
        chain_.layers.insert(chain_.layers.end(), static_cast<size_t>(count_),
                             static_cast<int32_t>(chain_.types.size() - 1));
    }

    Chain chain_;
    std::string format_;
    int64_t version_ = 0, count_ = 1;
    std::vector<std::vector<Field>> fields_;  // of the objects that are open
    std::vector<uint32_t> seen_;              // which of them had a value
    Field *field_ = nullptr;                  // whose value comes next
    const char *list_ = nullptr;              // the list whose members come next
    const char *inner_ = nullptr;             // the list of a layer that was opened last
    bool ended_ = false;
};

}  // namespace

Chain read_chain(std::string_view text) {
    Reader reader;
    json::sax_parse(text.begin(), text.end(), &reader);
    Chain chain = reader.take();
    try {
        check(chain);
    } catch (const Error &e) {
        if (e.status() != MDLM_ERROR_ARGUMENT) throw;
        fail(MDLM_ERROR_FORMAT, "%s", e.what());
    }
    return chain;
}

}  // namespace mdlm::planner
