// SPDX-License-Identifier: Apache-2.0
#include "fuzz/target.hpp"

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstring>

namespace fuzz {

const std::vector<Target> targets = {
    {"config", config, "lines key=value for mdlm_config_set; what is read is written back and read again"},
    {"flags", flags, "words of a file of flags for mdlm_config_parse_flags; in another order they mean the same"},
    {"chain", chain,
     "an abstract chain; its plans against the planner's own walk, and those of small chains against all there are"},
    {"plan", plan, "a plan's JSON; what is taken holds, and is written back and read again"},
    {"table", table, "a device table; written back and read again, and a block planned by it"},
    {"npy", npy, "a file of numpy's; written back and read again"},
    {"golden", golden, "config.txt of a golden case"},
    {"calls", calls,
     "calls of the C ABI, any arguments in any order; bytes foretold are bytes used, refused calls change nothing, "
     "nothing leaks"},
};

const Target *target_of(std::string_view name) {
    const auto at = std::find_if(targets.begin(), targets.end(), [&](const Target &t) { return t.name == name; });
    return at == targets.end() ? nullptr : &*at;
}

void found(const char *format, ...) {
    char text[4096];
    va_list arguments;
    va_start(arguments, format);
    std::vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    throw Found(text);
}

mdlm_status answered(mdlm_status status, const char *call) {
    if (std::strcmp(mdlm_status_name(status), "unknown status") == 0)
        found("%s: status %d is none of the header's", call, status);
    if (status == MDLM_OK) return status;
    const char *line = mdlm_last_error();
    if (status == MDLM_ERROR_INTERNAL) found("%s: INTERNAL: %s", call, line);
    if (*line == 0) found("%s: %s without a line", call, mdlm_status_name(status));
    if (std::strpbrk(line, "\n\r") != nullptr) found("%s: more than one line: %s", call, line);
    return status;
}

mdlm_status answered(mdlm_status status, const char *call, std::initializer_list<mdlm_status> allowed) {
    answered(status, call);
    if (std::find(allowed.begin(), allowed.end(), status) == allowed.end())
        found("%s: %s is not what it may answer: %s", call, mdlm_status_name(status), mdlm_last_error());
    return status;
}

std::string settings(const mdlm_config &config) {
    std::string all;
    for (int32_t i = 0; i < mdlm_config_key_count(); ++i) {
        char value[256];
        size_t length = 0;
        const char *key = mdlm_config_key(i);
        if (mdlm_config_get(&config, key, value, sizeof value, &length) != MDLM_OK)
            found("%s cannot be written: %s", key, mdlm_last_error());
        if (length >= sizeof value) found("%s takes %zu bytes", key, length);
        all += std::string(key) + " = " + value + "\n";
    }
    return all;
}

}  // namespace fuzz
