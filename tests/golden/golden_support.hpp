// SPDX-License-Identifier: Apache-2.0
// What the golden tests share: the cases, a run of one with settings on top, and a temporary folder.
#pragma once
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "../../tools/mdlm/case.hpp"
#include "../../tools/mdlm/run.hpp"

namespace golden {

using SettingsOnTop = std::vector<std::pair<std::string, std::string>>;

// Names of the cases, sorted.
std::vector<std::string> case_names();
std::string case_folder(const std::string &name);
const mdlm::tools::Case &case_named(const std::string &name);  // read once

// The devices that every case runs on, with a context of two threads each (the reference has one of its own).
struct Place {
    const char *name;
    mdlm_device_kind kind;
};
// late: the CPU's kernels, done late (support/late_device.hpp), under the kind of a device that this build has not.
inline constexpr mdlm_device_kind late = MDLM_DEVICE_CUDA;
inline constexpr Place places[] = {{"cpu", MDLM_DEVICE_CPU}, {"reference", MDLM_DEVICE_REFERENCE}, {"late", late}};
inline constexpr int built_in = 2;  // of the places, the first
mdlm_context *context_of(mdlm_device_kind kind);

// One forward and backward of a case with settings over its own, given as mdlm_config_set takes them.
mdlm::tools::Outcome run(const std::string &name, mdlm_device_kind device, const SettingsOnTop &settings);

// "" if both outcomes are the same to the bit, else the first thing that differs.
std::string difference(const mdlm::tools::Outcome &a, const mdlm::tools::Outcome &b);

// A fresh folder that goes with the object.
class TemporaryFolder {
public:
    TemporaryFolder();
    ~TemporaryFolder();
    TemporaryFolder(const TemporaryFolder &) = delete;
    TemporaryFolder &operator=(const TemporaryFolder &) = delete;
    const std::filesystem::path &path() const { return path_; }
    // A copy of a case inside, under a name.
    std::filesystem::path copy_case(const std::string &name, const std::string &as) const;

private:
    std::filesystem::path path_;
};

std::string read_text(const std::filesystem::path &path);
void write_text(const std::filesystem::path &path, const std::string &text);

}  // namespace golden
