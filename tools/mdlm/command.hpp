// SPDX-License-Identifier: Apache-2.0
// The commands of the program mdlm: each takes the words behind its name and returns the exit status.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "mdlm/mdlm.h"

namespace mdlm::tools {

// Exit statuses, the same for every command.
inline constexpr int exit_fine = 0, exit_past_tolerance = 1, exit_bad = 2;

int info_command(const std::vector<std::string> &words);
int check_command(const std::vector<std::string> &words);
int bench_command(const std::vector<std::string> &words);
int plan_command(const std::vector<std::string> &words);
extern const char info_help[];
extern const char check_help[];
extern const char bench_help[];
extern const char plan_help[];

// Walks over words: options "--name value" or "--name=value", the rest left to the command.
class Words {
public:
    explicit Words(const std::vector<std::string> &words) : words_(words) {}
    bool done() const { return next_ == words_.size(); }
    size_t place() const { return next_; }
    const std::string &peek() const { return words_[next_]; }
    void skip(size_t count) { next_ += count; }
    // Takes the next word if it is exactly this.
    bool flag(std::string_view name);
    // Takes the option and its value if it is this one; Bad when the value is missing.
    bool option(std::string_view name, std::string *value);

private:
    const std::vector<std::string> &words_;
    size_t next_ = 0;
};

mdlm_device_kind device_of(const std::string &name);
int32_t threads_of(const std::string &text);
// A file's text; - is standard input.
std::string read_all(const std::string &path);
// Words of a file of flags: split at blanks and line ends; # begins a remark, a backslash at a line's end is left out.
std::vector<std::string> flag_words(const std::string &text);
// A table of what operations cost, as the library takes it, out of its name or of a file.
std::string device_table_of(const std::string &value);

}  // namespace mdlm::tools
