// SPDX-License-Identifier: Apache-2.0
// Settings from Megatron's flags, as a script's file has them.
#include <algorithm>
#include <set>

#include "fuzz/target.hpp"
#include "tools/mdlm/command.hpp"

namespace fuzz {
namespace {

using Words = std::vector<std::string>;

// How many words were taken, or -1 when refused; config is then what it was.
int parse(mdlm_config &config, const Words &words) {
    std::vector<const char *> argv;
    for (const std::string &w : words) argv.push_back(w.c_str());
    const std::string before = settings(config);
    int used = -1;
    const mdlm_status status =
        answered(mdlm_config_parse_flags(&config, static_cast<int>(argv.size()), argv.data(), &used),
                 "mdlm_config_parse_flags", {MDLM_OK, MDLM_ERROR_CONFIG});
    if (status == MDLM_OK && (used < 0 || used > static_cast<int>(words.size())))
        found("%d of %zu words were taken", used, words.size());
    if (status != MDLM_OK && (used != -1 || settings(config) != before))
        found("flags that are refused changed something");
    return used;
}

// A config that differs from the defaults in every setting, each made so by the first word that does it.
const mdlm_config &all_others() {
    static const mdlm_config config = [] {
        const mdlm_config defaults = MDLM_CONFIG_INIT;
        mdlm_config c = MDLM_CONFIG_INIT;
        for (int32_t i = 0; i < mdlm_config_key_count(); ++i) {
            const std::string before = settings(c);
            for (const char *word : {"false", "true", "RMSNorm", "swiglu", "none", "no_mask", "unfused", "bf16",
                                     "selective", "block", "mlp", "7", "0.5"})
                if (mdlm_config_set(&c, mdlm_config_key(i), word) == MDLM_OK && settings(c) != before) break;
            if (settings(c) == before) found("no value of %s is known that is not its default", mdlm_config_key(i));
        }
        if (settings(c) == settings(defaults)) found("two configs are one");
        return c;
    }();
    return config;
}

std::set<size_t> changed(const mdlm_config &a, const mdlm_config &b) {
    const std::string x = settings(a), y = settings(b);
    std::set<size_t> lines;
    for (size_t line = 0, i = 0, j = 0; i < x.size() && j < y.size(); ++line) {
        const size_t i_end = x.find('\n', i), j_end = y.find('\n', j);
        if (x.compare(i, i_end - i, y, j, j_end - j) != 0) lines.insert(line);
        i = i_end + 1, j = j_end + 1;
    }
    return lines;
}

// Flags that touch no setting twice, from the last to the first: the same config.
void in_another_order(const Words &words, const mdlm_config &expected) {
    std::vector<Words> groups;
    for (const std::string &w : words) {
        if (w.starts_with("--") || groups.empty()) groups.emplace_back();
        groups.back().push_back(w);
    }
    std::set<size_t> touched;
    for (const Words &group : groups) {
        std::set<size_t> mine;
        const mdlm_config defaults = MDLM_CONFIG_INIT;
        for (const mdlm_config &base : {defaults, all_others()}) {
            mdlm_config c = base;
            if (parse(c, group) != static_cast<int>(group.size())) return;
            mine.merge(changed(c, base));
        }
        for (const size_t line : mine)
            if (!touched.insert(line).second) return;
    }
    std::reverse(groups.begin(), groups.end());
    Words reversed;
    for (const Words &group : groups) reversed.insert(reversed.end(), group.begin(), group.end());
    mdlm_config c = MDLM_CONFIG_INIT;
    if (parse(c, reversed) != static_cast<int>(words.size()))
        found("flags are taken in one order and not in the other: %s", mdlm_last_error());
    if (settings(c) != settings(expected))
        found("flags mean something else in another order:\n%s", settings(c).c_str());
}

}  // namespace

void flags(std::string_view input) {
    Words words = mdlm::tools::flag_words(std::string(input));
    if (words.size() > 60) words.resize(60);
    mdlm_config config = MDLM_CONFIG_INIT;
    const int used = parse(config, words);
    if (used < 0) return;
    words.resize(static_cast<size_t>(used));
    mdlm_config again = MDLM_CONFIG_INIT;
    if (parse(again, words) != used || settings(again) != settings(config))
        found("the words that were taken mean something else alone");
    in_another_order(words, config);
}

}  // namespace fuzz
