// SPDX-License-Identifier: Apache-2.0
// How many cores a process may use, from trees of files that stand for /proc and for cgroups.
#include "base/cores.hpp"

#include <doctest/doctest.h>

#include <sched.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

using namespace mdlm;

namespace {

struct Tree {
    std::string root;
    Tree() {
        char name[] = "/tmp/mdlm-cores-XXXXXX";
        root = mkdtemp(name);
    }
    ~Tree() { std::filesystem::remove_all(root); }
    Tree &put(const std::string &path, const std::string &text) {
        std::filesystem::create_directories(std::filesystem::path(root + path).parent_path());
        std::ofstream(root + path) << text;
        return *this;
    }
    Tree &proc(const std::string &cgroup, const std::string &mountinfo) {
        return put("/proc/self/cgroup", cgroup).put("/proc/self/mountinfo", mountinfo);
    }
    int32_t cores() const { return quota_cores(root.c_str()); }
};

const std::string other_mounts =
    "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n23 22 0:21 / /proc rw shared:12 - proc proc rw\n";
const std::string v2 =
    other_mounts + "30 22 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n";
const std::string v1 = other_mounts +
                       "31 22 0:27 / /sys/fs/cgroup/cpu,cpuacct rw shared:11 master:3 - cgroup cgroup rw,cpu,cpuacct\n"
                       "32 22 0:28 / /sys/fs/cgroup/memory rw shared:13 - cgroup cgroup rw,memory\n";
constexpr int32_t none = INT32_MAX;

}  // namespace

TEST_CASE("cores: quotas of cgroups, version 2") {
    // Rounded up.
    CHECK(Tree().proc("0::/a/b\n", v2).put("/sys/fs/cgroup/a/b/cpu.max", "150000 100000\n").cores() == 2);
    CHECK(Tree().proc("0::/a/b\n", v2).put("/sys/fs/cgroup/a/b/cpu.max", "200000 100000\n").cores() == 2);
    CHECK(Tree().proc("0::/a/b\n", v2).put("/sys/fs/cgroup/a/b/cpu.max", "1000 100000\n").cores() == 1);
    CHECK(Tree().proc("0::/a/b\n", v2).put("/sys/fs/cgroup/a/b/cpu.max", "max 100000\n").cores() == none);
    // The least of those that it is nested in.
    const auto nested = [](const char *top, const char *middle, const char *leaf) {
        Tree t;
        t.proc("0::/a/b/c\n", v2).put("/sys/fs/cgroup/a/cpu.max", top).put("/sys/fs/cgroup/a/b/cpu.max", middle);
        return t.put("/sys/fs/cgroup/a/b/c/cpu.max", leaf).cores();
    };
    CHECK(nested("300000 100000\n", "max 100000\n", "800000 100000\n") == 3);
    CHECK(nested("max 100000\n", "50000 20000\n", "max 100000\n") == 3);
    CHECK(nested("900000 100000\n", "800000 100000\n", "700000 100000\n") == 7);
    CHECK(nested("max 100000\n", "max 100000\n", "max 100000\n") == none);
    // Middle folders without the controller have no such file; the root of a container has one.
    CHECK(Tree().proc("0::/\n", v2).put("/sys/fs/cgroup/cpu.max", "400000 100000\n").cores() == 4);
    CHECK(Tree().proc("0::/a/b\n", v2).put("/sys/fs/cgroup/a/cpu.max", "400000 100000\n").cores() == 4);
}

TEST_CASE("cores: quotas of cgroups, version 1") {
    const auto quota = [](const std::string &folder, const char *quota, const char *period, const std::string &groups,
                          const std::string &mounts) {
        return Tree()
            .proc(groups, mounts)
            .put(folder + "/cpu.cfs_quota_us", quota)
            .put(folder + "/cpu.cfs_period_us", period)
            .cores();
    };
    const std::string groups = "12:memory:/m\n4:cpu,cpuacct:/a/b\n1:name=systemd:/user.slice\n0::/user.slice\n";
    CHECK(quota("/sys/fs/cgroup/cpu,cpuacct/a/b", "250000\n", "100000\n", groups, v1) == 3);
    CHECK(quota("/sys/fs/cgroup/cpu,cpuacct/a", "250000\n", "50000\n", groups, v1) == 5);
    CHECK(quota("/sys/fs/cgroup/cpu,cpuacct/a/b", "-1\n", "100000\n", groups, v1) == none);
    CHECK(quota("/sys/fs/cgroup/memory/m", "250000\n", "100000\n", groups, v1) == none);
    // As a container sees it that has no namespace for its cgroup: what is mounted is its own part.
    const std::string part =
        other_mounts +
        "31 22 0:27 /docker/0f1e /sys/fs/cgroup/cpu,cpuacct ro,nosuid master:3 - cgroup cgroup rw,cpu,cpuacct\n";
    CHECK(quota("/sys/fs/cgroup/cpu,cpuacct", "50000\n", "100000\n", "4:cpu,cpuacct:/docker/0f1e\n", part) == 1);
    CHECK(quota("/sys/fs/cgroup/cpu,cpuacct/job", "450000\n", "100000\n", "4:cpu,cpuacct:/docker/0f1e/job\n", part) ==
          5);
    CHECK(quota("/sys/fs/cgroup/cpu,cpuacct", "450000\n", "100000\n", "4:cpu,cpuacct:/elsewhere\n", part) == 5);
    // Both versions side by side: the CPU's is of version 1.
    const std::string both = v1 + "33 22 0:29 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
    CHECK(quota("/sys/fs/cgroup/cpu,cpuacct/a/b", "250000\n", "100000\n", groups, both) == 3);
}

TEST_CASE("cores: mount points with blanks, and files that say nothing") {
    const std::string odd = other_mounts + "30 22 0:26 / /sys/my\\040cgroups rw - cgroup2 cgroup2 rw\n";
    CHECK(Tree().proc("0::/a\n", odd).put("/sys/my cgroups/a/cpu.max", "300000 100000\n").cores() == 3);
    // Outside of the namespace's root: only what is mounted can be seen.
    CHECK(Tree().proc("0::/../b\n", v2).put("/sys/fs/cgroup/cpu.max", "300000 100000\n").cores() == 3);
    CHECK(Tree().cores() == none);
    for (const char *text :
         {"", "\n", "100000", "100000 0\n", "x 100000\n", "-5 100000\n", "99999999999999999999 1\n", "1 2 3\n"}) {
        CAPTURE(text);
        CHECK(Tree().proc("0::/\n", v2).put("/sys/fs/cgroup/cpu.max", text).cores() == none);
    }
    for (const char *mounts :
         {"", "30 22 0:26 / /sys/fs/cgroup rw -\n", "- - - - - -\n", "30 22 0:26 / /sys/fs/cgroup rw - cgroup2\n"}) {
        CAPTURE(mounts);
        CHECK(Tree().proc("0::/\n", mounts).put("/sys/fs/cgroup/cpu.max", "100000 100000\n").cores() == none);
    }
    CHECK(Tree().proc("garbage\n0:\n::\n", v2).put("/sys/fs/cgroup/cpu.max", "300000 100000\n").cores() == 3);
}

TEST_CASE("cores: of this process, never more than its affinity mask has") {
    CHECK(usable_cores() >= 1);
    CHECK(usable_cores() <= quota_cores(""));
    cpu_set_t all;
    REQUIRE(sched_getaffinity(0, sizeof all, &all) == 0);
    CHECK(usable_cores() == std::min(CPU_COUNT(&all), quota_cores("")));
    std::thread([&] {
        cpu_set_t one;
        CPU_ZERO(&one);
        for (int c = 0; c < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++c)
            if (CPU_ISSET(c, &all)) CPU_SET(c, &one);
        CHECK(sched_setaffinity(0, sizeof one, &one) == 0);
        CHECK(usable_cores() == 1);
    }).join();
}
