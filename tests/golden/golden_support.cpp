// SPDX-License-Identifier: Apache-2.0
#include "golden_support.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>

#include "../../tools/text.hpp"
#include "support/late_context.hpp"

namespace golden {

namespace fs = std::filesystem;
using mdlm::tools::bad;
using mdlm::tools::Outcome;

std::vector<std::string> case_names() {
    std::vector<std::string> names;
    for (const auto &entry : fs::directory_iterator(MDLM_GOLDEN_DIR))
        if (entry.is_directory()) names.push_back(entry.path().filename().string());
    std::sort(names.begin(), names.end());
    return names;
}

std::string case_folder(const std::string &name) { return std::string(MDLM_GOLDEN_DIR) + "/" + name; }

const mdlm::tools::Case &case_named(const std::string &name) {
    static std::map<std::string, mdlm::tools::Case> cases;
    const auto found = cases.find(name);
    return found != cases.end() ? found->second
                                : cases.emplace(name, mdlm::tools::read_case(case_folder(name))).first->second;
}

// With MDLM_TEST_MATMUL=own or onednn in the environment the CPU device does linears by these, whatever it would pick
// on this machine.
static mdlm_matmul matmul() {
    const char *wanted = std::getenv("MDLM_TEST_MATMUL");
    if (wanted == nullptr) return MDLM_MATMUL_AUTO;
    if (std::strcmp(wanted, "own") == 0) return MDLM_MATMUL_OWN;
    if (std::strcmp(wanted, "onednn") == 0) return MDLM_MATMUL_ONEDNN;
    bad("MDLM_TEST_MATMUL: expected own or onednn, got %s", wanted);
}

mdlm_context *context_of(mdlm_device_kind kind) {
    static std::map<mdlm_device_kind, mdlm::tools::Context> contexts;
    auto &context = contexts[kind];
    if (context == nullptr && kind == late) context.reset(mdlm_test::make_late_context(7, 2));
    if (context == nullptr) context = mdlm::tools::open_context(kind, kind == MDLM_DEVICE_CPU ? 2 : 1, matmul());
    return context.get();
}

Outcome run(const std::string &name, mdlm_device_kind device, const SettingsOnTop &settings) {
    const mdlm::tools::Case &c = case_named(name);
    mdlm_config config = mdlm::tools::config_of(c);
    for (const auto &[key, value] : settings)
        if (mdlm_config_set(&config, key.c_str(), value.c_str()) != MDLM_OK) bad("%s", mdlm_last_error());
    return mdlm::tools::run_case(context_of(device), {}, c, config);
}

std::string difference(const Outcome &a, const Outcome &b) {
    const auto same = [](const std::vector<double> &x, const std::vector<double> &y) {
        return x.size() == y.size() && std::memcmp(x.data(), y.data(), x.size() * sizeof(double)) == 0;
    };
    if (!same(a.output, b.output)) return "output";
    if (!same(a.grad_input, b.grad_input)) return "grad_input";
    if (a.grads.size() != b.grads.size()) return "number of gradients";
    for (const auto &[name, values] : a.grads)
        if (b.grads.count(name) == 0 || !same(values, b.grads.at(name))) return name;
    return "";
}

TemporaryFolder::TemporaryFolder() {
    std::string pattern = (fs::temp_directory_path() / "mdlm-golden-XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr) bad("%s: could not be made", pattern.c_str());
    path_ = pattern;
}
TemporaryFolder::~TemporaryFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
}

fs::path TemporaryFolder::copy_case(const std::string &name, const std::string &as) const {
    const fs::path to = path_ / as;
    fs::remove_all(to);
    fs::copy(case_folder(name), to, fs::copy_options::recursive);
    for (const auto &entry : fs::recursive_directory_iterator(to))
        fs::permissions(entry, fs::perms::owner_write, fs::perm_options::add);
    return to;
}

std::string read_text(const fs::path &path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

void write_text(const fs::path &path, const std::string &text) {
    std::ofstream file(path, std::ios::binary | std::ios::trunc);
    file.write(text.data(), static_cast<std::streamsize>(text.size()));
    file.close();
    if (!file) bad("%s: could not be written", path.c_str());
}

}  // namespace golden
