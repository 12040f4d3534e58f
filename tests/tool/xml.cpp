// SPDX-License-Identifier: Apache-2.0
#include "xml.hpp"

#include <set>
#include <stdexcept>

namespace bench_test {
namespace {

bool is_name(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == ':' ||
           c == '_';
}

class Reader {
public:
    explicit Reader(const std::string &source) : s_(source) {}
    Xml read() {
        try {
            skip_blanks();
            element();
            skip_blanks();
            if (at_ != s_.size()) fail("something behind the element");
        } catch (const std::runtime_error &error) {
            xml_.wrong = error.what();
        }
        return xml_;
    }

private:
    [[noreturn]] void fail(const std::string &what) const {
        throw std::runtime_error(what + " at byte " + std::to_string(at_));
    }
    char peek() const { return at_ < s_.size() ? s_[at_] : '\0'; }
    void skip_blanks() {
        while (peek() == ' ' || peek() == '\n') ++at_;
    }
    void expect(const std::string &word) {
        if (s_.compare(at_, word.size(), word) != 0) fail("expected " + word);
        at_ += word.size();
    }
    std::string name() {
        const size_t begin = at_;
        while (is_name(peek())) ++at_;
        if (at_ == begin) fail("expected a name");
        return s_.substr(begin, at_ - begin);
    }
    // One character of text or of an attribute.
    char character() {
        const char c = peek();
        if (c == '<' || (static_cast<unsigned char>(c) < 0x20 && c != '\n') || static_cast<unsigned char>(c) >= 0x80)
            fail("a character that may not be here");
        if (c != '&') {
            ++at_;
            return c;
        }
        for (const auto &entity : {std::pair{"&amp;", '&'}, {"&lt;", '<'}, {"&gt;", '>'}, {"&quot;", '"'}})
            if (s_.compare(at_, std::string(entity.first).size(), entity.first) == 0) {
                at_ += std::string(entity.first).size();
                return entity.second;
            }
        fail("an entity that is none");
    }
    void element() {
        expect("<");
        const std::string tag = name();
        xml_.tags.push_back(tag);
        std::set<std::string> seen;
        for (skip_blanks(); is_name(peek()); skip_blanks()) {
            if (!seen.insert(name()).second) fail("an attribute twice");
            expect("=\"");
            while (peek() != '"') character();
            expect("\"");
        }
        if (peek() == '/') return expect("/>");
        expect(">");
        while (s_.compare(at_, 2, "</") != 0) {
            if (peek() == '<') element();
            else xml_.text += character();
        }
        expect("</" + tag + ">");
    }

    const std::string &s_;
    size_t at_ = 0;
    Xml xml_;
};

}  // namespace

Xml read_xml(const std::string &source) { return Reader(source).read(); }

}  // namespace bench_test
