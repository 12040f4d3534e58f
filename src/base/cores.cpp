// SPDX-License-Identifier: Apache-2.0
#include "base/cores.hpp"

#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace mdlm {
namespace {

// "" when it cannot be read. Files of /proc and of a cgroup tell no size.
std::string contents(const std::string &path) {
    std::string text;
    std::FILE *file = std::fopen(path.c_str(), "re");
    if (file == nullptr) return text;
    char block[4096];
    for (size_t n; (n = std::fread(block, 1, sizeof block, file)) > 0;) text.append(block, n);
    std::fclose(file);
    return text;
}

std::vector<std::string_view> split(std::string_view text, char at) {
    std::vector<std::string_view> parts;
    for (size_t begin = 0; begin <= text.size();) {
        const size_t end = std::min(text.find(at, begin), text.size());
        if (end > begin) parts.push_back(text.substr(begin, end - begin));
        begin = end + 1;
    }
    return parts;
}

// Whether one of the names in a list with commas is name.
bool lists(std::string_view list, std::string_view name) {
    const auto names = split(list, ',');
    return std::find(names.begin(), names.end(), name) != names.end();
}

bool number(std::string_view text, int64_t &value) {
    text = text.substr(0, text.find('\n'));
    const auto end = std::from_chars(text.data(), text.data() + text.size(), value);
    return end.ec == std::errc{} && end.ptr == text.data() + text.size();
}

int32_t cores(int64_t quota, int64_t period) {
    if (quota <= 0 || period <= 0) return INT32_MAX;  // -1 is version 1's word for none
    return static_cast<int32_t>(std::clamp<int64_t>(quota / period + (quota % period != 0), 1, INT32_MAX));
}

// Of one cgroup. "max 100000" is version 2's word for none.
int32_t quota_of(const std::string &folder, bool version_2) {
    int64_t quota = 0, period = 0;
    if (version_2) {
        const std::string text = contents(folder + "/cpu.max");
        const auto words = split(text, ' ');
        return words.size() == 2 && number(words[0], quota) && number(words[1], period) ? cores(quota, period)
                                                                                        : INT32_MAX;
    }
    const bool known = number(contents(folder + "/cpu.cfs_quota_us"), quota) &&
                       number(contents(folder + "/cpu.cfs_period_us"), period);
    return known ? cores(quota, period) : INT32_MAX;
}

// A path of mountinfo, where blanks, tabs, newlines and backslashes are written as three octal digits.
std::string unescaped(std::string_view text) {
    std::string path;
    for (size_t i = 0; i < text.size(); ++i) {
        const auto octal = [&](size_t j) {
            return j < text.size() && text[j] >= '0' && text[j] <= '7' ? text[j] - '0' : -1;
        };
        if (text[i] == '\\' && octal(i + 1) >= 0 && octal(i + 2) >= 0 && octal(i + 3) >= 0) {
            path += static_cast<char>(octal(i + 1) * 64 + octal(i + 2) * 8 + octal(i + 3));
            i += 3;
        } else {
            path += text[i];
        }
    }
    return path;
}

// The process's cgroup in the hierarchy of version 2 or in version 1's of the CPU; "" when it is in none.
std::string cgroup_of(std::string_view list, bool version_2) {
    for (const std::string_view line : split(list, '\n')) {  // "4:cpu,cpuacct:/a/b", "0::/a/b"
        const size_t first = line.find(':'), second = first == line.npos ? first : line.find(':', first + 1);
        if (second == line.npos) continue;
        const std::string_view controllers = line.substr(first + 1, second - first - 1);
        if (version_2 ? controllers.empty() && line.substr(0, first) == "0" : lists(controllers, "cpu"))
            return std::string(line.substr(second + 1));
    }
    return "";
}

}  // namespace

int32_t quota_cores(const char *root) {
    const std::string base = root, groups = contents(base + "/proc/self/cgroup"),
                      mounts = contents(base + "/proc/self/mountinfo");
    int32_t least = INT32_MAX;
    for (const std::string_view line : split(mounts, '\n')) {
        // "33 24 0:29 /its/root /where rw,nosuid shared:9 - cgroup cgroup rw,cpu,cpuacct": any number of words before
        // the dash
        const auto words = split(line, ' ');
        const auto dash = std::find(words.begin(), words.end(), "-");
        if (words.size() < 6 || words.end() - dash < 4) continue;
        const bool version_2 = dash[1] == "cgroup2";
        if (!version_2 && !(dash[1] == "cgroup" && lists(dash[3], "cpu"))) continue;
        std::string inside = cgroup_of(groups, version_2);
        const std::string top = unescaped(words[3]), where = base + unescaped(words[4]);
        // What is mounted is often a part of the hierarchy, the container's own: its root is then the beginning of the
        // cgroup's path. Of a cgroup outside of what is mounted nothing can be seen but the mount's root, which limits
        // it where that is an ancestor.
        if (top != "/") inside = inside.compare(0, top.size(), top) == 0 ? inside.substr(top.size()) : "";
        if (inside.find("/..") != inside.npos) inside.clear();
        while (!inside.empty() && inside.back() == '/') inside.pop_back();
        for (;;) {
            least = std::min(least, quota_of(where + inside, version_2));
            if (inside.empty()) break;
            inside.resize(inside.rfind('/'));
        }
    }
    return least;
}

static int32_t affinity_cores() {
    // The kernel refuses a set smaller than its own; sizes of machines are not known at compile time.
    for (int cpus = 1024; cpus <= 1 << 20; cpus *= 2) {
        cpu_set_t *set = CPU_ALLOC(cpus);
        if (set == nullptr) break;
        const size_t bytes = CPU_ALLOC_SIZE(cpus);
        CPU_ZERO_S(bytes, set);
        const bool known = sched_getaffinity(0, bytes, set) == 0;
        const bool too_small = !known && errno == EINVAL;
        const int count = known ? CPU_COUNT_S(bytes, set) : 0;
        CPU_FREE(set);
        if (known && count > 0) return count;
        if (!too_small) break;
    }
    const unsigned count = std::thread::hardware_concurrency();
    return count == 0 ? 1 : static_cast<int32_t>(count);
}

int32_t usable_cores() { return std::min(affinity_cores(), quota_cores("")); }

}  // namespace mdlm
