// SPDX-License-Identifier: Apache-2.0
// How commands read their words.
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <memory>

#include "../text.hpp"
#include "command.hpp"

namespace mdlm::tools {

bool Words::flag(std::string_view name) {
    if (done() || peek() != name) return false;
    ++next_;
    return true;
}

bool Words::option(std::string_view name, std::string *value) {
    if (done()) return false;
    const std::string_view word = peek();
    if (word.substr(0, name.size()) != name) return false;
    if (word.size() > name.size() && word[name.size()] == '=') {
        *value = word.substr(name.size() + 1);
        ++next_;
        return true;
    }
    if (word.size() != name.size()) return false;
    if (next_ + 1 == words_.size())
        bad("mdlm: %s: expected a value, seen the end of the line", std::string(name).c_str());
    *value = words_[next_ + 1];
    next_ += 2;
    return true;
}

mdlm_device_kind device_of(const std::string &name) {
    if (name == "cpu") return MDLM_DEVICE_CPU;
    if (name == "reference") return MDLM_DEVICE_REFERENCE;
    bad("mdlm: --device: expected cpu or reference, seen '%s'", name.c_str());
}

std::string read_all(const std::string &path) {
    const auto close = [](std::FILE *f) {
        if (f != stdin) std::fclose(f);
    };
    const std::unique_ptr<std::FILE, decltype(close)> file(path == "-" ? stdin : std::fopen(path.c_str(), "rb"), close);
    if (file == nullptr) bad("mdlm: %s: %s", path.c_str(), std::strerror(errno));
    std::string text;
    char part[65536];
    for (size_t n; (n = std::fread(part, 1, sizeof part, file.get())) > 0;) text.append(part, n);
    if (std::ferror(file.get()) != 0) bad("mdlm: %s: %s", path.c_str(), std::strerror(errno));
    return text;
}

std::vector<std::string> flag_words(const std::string &text) {
    std::vector<std::string> words;
    std::string word;
    bool remark = false;
    const auto end = [&] {
        if (!word.empty() && word != "\\") words.push_back(word);
        word.clear();
    };
    for (const char c : text) {
        if (c == '\n') end(), remark = false;
        else if (remark) continue;
        else if (c == '#' && word.empty()) remark = true;
        else if (c == ' ' || c == '\t' || c == '\r') end();
        else if (c != '"' && c != '\'') word += c;
    }
    end();
    return words;
}

std::string device_table_of(const std::string &value) {
    for (int32_t i = 0; mdlm_device_table_name(i) != nullptr; ++i)
        if (value == mdlm_device_table_name(i)) return value;
    const std::string text = read_all(value);
    if (mdlm_device_table(text.find('{') != std::string::npos ? text.c_str() : "{}", nullptr, 0, nullptr) != MDLM_OK)
        bad("mdlm: --device-table %s: %s", one_line(value).c_str(), mdlm_last_error());
    return text;
}

int32_t threads_of(const std::string &text) {
    int32_t n = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n);
    if (error != std::errc() || end != text.data() + text.size() || n < 0 || n > 1024)
        bad("mdlm: --threads: expected 0 .. 1024, seen '%s'", text.c_str());
    return n;
}

}  // namespace mdlm::tools
