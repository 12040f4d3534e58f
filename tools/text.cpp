// SPDX-License-Identifier: Apache-2.0
#include "text.hpp"

#include <cmath>
#include <cstdarg>
#include <cstdio>

namespace mdlm::tools {
namespace {

std::string vtextf(const char *format, va_list arguments) {
    va_list again;
    va_copy(again, arguments);
    const int length = std::vsnprintf(nullptr, 0, format, arguments);
    std::string text(length > 0 ? static_cast<size_t>(length) : 0, '\0');
    if (length > 0) std::vsnprintf(text.data(), text.size() + 1, format, again);
    va_end(again);
    return text;
}

// Bytes of the UTF-8 character that text begins with; 0 if it begins with none (overlong forms and surrogates are
// none).
size_t utf8_length(std::string_view text) {
    const auto at = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
    const unsigned char lead = at(0);
    const size_t length = lead < 0x80 ? 1 : lead < 0xc2 ? 0 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : lead < 0xf5 ? 4 : 0;
    if (length == 0 || length > text.size()) return 0;
    for (size_t i = 1; i < length; ++i)
        if ((at(i) & 0xc0) != 0x80) return 0;
    if (lead == 0xe0 && at(1) < 0xa0) return 0;
    if (lead == 0xed && at(1) > 0x9f) return 0;
    if (lead == 0xf0 && at(1) < 0x90) return 0;
    if (lead == 0xf4 && at(1) > 0x8f) return 0;
    return length;
}

}  // namespace

std::string textf(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    std::string text = vtextf(format, arguments);
    va_end(arguments);
    return text;
}

void bad(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    const std::string text = vtextf(format, arguments);
    va_end(arguments);
    throw Bad(one_line(text));
}

std::string one_line(std::string_view text) {
    std::string line(text);
    for (char &c : line)
        if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
    return line;
}

std::string json_string(std::string_view text) {
    std::string out = "\"";
    while (!text.empty()) {
        const size_t length = utf8_length(text);
        const char c = text[0];
        if (length == 0) {
            out += "\\ufffd";
        } else if (c == '"' || c == '\\') {
            out += '\\';
            out += c;
        } else if (static_cast<unsigned char>(c) < 0x20) {
            out += textf("\\u%04x", static_cast<unsigned>(c));
        } else {
            out += text.substr(0, length);
        }
        text.remove_prefix(length == 0 ? 1 : length);
    }
    return out + '"';
}

std::string json_number(double value) { return std::isfinite(value) ? textf("%.17g", value) : "null"; }

}  // namespace mdlm::tools
