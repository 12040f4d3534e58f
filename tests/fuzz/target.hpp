// SPDX-License-Identifier: Apache-2.0
// Targets: what is done with bytes that may come from anywhere, and what must hold of the answer. One list of them, run
// by libFuzzer (libfuzzer.cpp) and over the files of corpus/ (replay.cpp).
#pragma once
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "mdlm/mdlm.h"

namespace fuzz {

// An answer that is wrong. What crashes, leaks or overflows is seen by the sanitizers, what hangs by the driver.
struct Found : std::runtime_error {
    using std::runtime_error::runtime_error;
};
[[noreturn]] void found(const char *format, ...) __attribute__((format(printf, 1, 2)));

struct Target {
    const char *name;
    void (*run)(std::string_view input);  // throws Found
    const char *what;
};
extern const std::vector<Target> targets;
const Target *target_of(std::string_view name);  // nullptr when none is called that

void config(std::string_view input);
void flags(std::string_view input);
void chain(std::string_view input);
void plan(std::string_view input);
void table(std::string_view input);
void npy(std::string_view input);
void golden(std::string_view input);
void calls(std::string_view input);

// A status of the header that is no fault of the library; with it one line that says something. Returns status.
mdlm_status answered(mdlm_status status, const char *call);
// The same, and it must be one of those allowed.
mdlm_status answered(mdlm_status status, const char *call, std::initializer_list<mdlm_status> allowed);

// What a call that writes (buf, cap, out_len) has to say: asked with no room, with too little and with enough, which
// must agree.
template <class Call>
std::string text_of(const char *name, Call &&call) {
    size_t length = 0;
    if (answered(call(nullptr, 0, &length), name) != MDLM_OK) found("%s: refused: %s", name, mdlm_last_error());
    std::string text(length + 1, 'x'), part(length / 2 + 1, 'x');
    size_t again = 0;
    if (call(text.data(), text.size(), &again) != MDLM_OK || again != length || text[length] != 0 ||
        text.find('\0') != length)
        found("%s: %zu bytes are %zu the second time, or hold a 0", name, length, again);
    text.resize(length);
    if (call(part.data(), part.size(), nullptr) != MDLM_OK || part.back() != 0 ||
        part.compare(0, part.size() - 1, text, 0, part.size() - 1) != 0)
        found("%s: with room for half of it it is not its first half", name);
    return text;
}

// Every setting, one "key = value" a line: equal exactly when two configs are.
std::string settings(const mdlm_config &config);

}  // namespace fuzz
