// SPDX-License-Identifier: Apache-2.0
#include "case.hpp"

#include <charconv>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <set>

#include "../npy.hpp"
#include "../text.hpp"

namespace mdlm::tools {
namespace {

namespace fs = std::filesystem;

constexpr uintmax_t most_config_bytes = 1 << 20;

std::string_view trimmed(std::string_view text) {
    const auto first = text.find_first_not_of(" \t\r");
    if (first == std::string_view::npos) return {};
    return text.substr(first, text.find_last_not_of(" \t\r") - first + 1);
}

int64_t size_of(const std::string &place, const std::string &key, const std::string &value) {
    int64_t n = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), n);
    if (error != std::errc() || end != value.data() + value.size() || n < 1)
        bad("%s: %s: expected a whole number from 1, seen '%.60s'", place.c_str(), key.c_str(), value.c_str());
    return n;
}

void read_config(Case &c) {
    const std::string path = c.folder + "/config.txt";
    std::error_code error;
    if (!fs::is_regular_file(path, error)) bad("%s: expected a file of settings, seen none", path.c_str());
    const uintmax_t bytes = fs::file_size(path, error);
    if (error || bytes > most_config_bytes)
        bad("%s: expected at most %ju bytes, seen more", path.c_str(), most_config_bytes);
    std::ifstream file(path, std::ios::binary);
    if (!file) bad("%s: expected a file that can be read, seen one that cannot", path.c_str());

    mdlm_config scratch = MDLM_CONFIG_INIT;
    std::set<std::string> seen;
    std::string text;
    for (int number = 1; std::getline(file, text); ++number) {
        const std::string place = path + ":" + std::to_string(number);
        const std::string_view line = trimmed(std::string_view(text).substr(0, text.find('#')));
        if (line.empty()) continue;
        const size_t equals = line.find('=');
        if (equals == std::string_view::npos || line.find('\0') != std::string_view::npos)
            bad("%s: expected key = value, seen '%.60s'", place.c_str(), std::string(line).c_str());
        const std::string key(trimmed(line.substr(0, equals))), value(trimmed(line.substr(equals + 1)));
        if (!seen.insert(key).second) bad("%s: expected each key once, seen %.60s again", place.c_str(), key.c_str());
        if (key == "seq_length") {
            c.seq_length = size_of(place, key, value);
        } else if (key == "micro_batch_size") {
            c.micro_batch_size = size_of(place, key, value);
        } else {
            if (mdlm_config_set(&scratch, key.c_str(), value.c_str()) != MDLM_OK)
                bad("%s: %s", place.c_str(), mdlm_last_error());
            c.settings.emplace_back(key, value);
        }
    }
    for (const char *key : {"num_layers", "hidden_size", "num_attention_heads", "seq_length", "micro_batch_size"})
        if (seen.count(key) == 0) bad("%s: expected the key %s, seen none", path.c_str(), key);
}

Array read_array(const std::string &path) {
    const Npy npy = read_npy(path);
    if (npy.type != NpyType::f64 && npy.type != NpyType::f32)
        bad("%s: expected elements of <f8 or <f4, seen integers", path.c_str());
    Array array{npy.shape, npy.doubles()};
    for (size_t i = 0; i < array.values.size(); ++i)
        if (!std::isfinite(array.values[i]))
            bad("%s: expected finite numbers, seen %g at element %zu", path.c_str(), array.values[i], i);
    return array;
}

std::map<std::string, Array> read_folder(const std::string &folder) {
    std::map<std::string, Array> arrays;
    std::error_code error;
    fs::directory_iterator entry(folder, error);
    if (error) bad("%s: expected a folder of parameters, seen: %s", folder.c_str(), error.message().c_str());
    for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
        const fs::path path = entry->path();
        if (path.extension() != ".npy") bad("%s: expected only files NAME.npy beside it, seen this", path.c_str());
        arrays.emplace(path.stem().string(), read_array(path.string()));
    }
    if (error) bad("%s: expected a folder that can be read, seen: %s", folder.c_str(), error.message().c_str());
    return arrays;
}

void read_documents(Case &c) {
    const std::string path = c.folder + "/cu_seqlens.npy";
    std::error_code error;
    if (!fs::exists(fs::symlink_status(path, error))) return;
    const Npy npy = read_npy(path);
    if (npy.type != NpyType::i32 && npy.type != NpyType::i64)
        bad("%s: expected elements of <i4 or <i8, seen floating point", path.c_str());
    if (npy.shape.size() != 1 || npy.shape[0] < 2)
        bad("%s: expected shape (documents + 1,), seen %s", path.c_str(), shape_text(npy.shape).c_str());
    int64_t before = -1;
    for (const int64_t offset : npy.integers()) {
        const bool fits = before < 0 ? offset == 0 : offset > before && offset <= c.seq_length;
        if (!fits || offset > std::numeric_limits<int32_t>::max())
            bad("%s: expected offsets that rise from 0 to seq_length %lld, seen %lld after %lld", path.c_str(),
                static_cast<long long>(c.seq_length), static_cast<long long>(offset), static_cast<long long>(before));
        c.cu_seqlens.push_back(static_cast<int32_t>(offset));
        before = offset;
    }
    if (before != c.seq_length)
        bad("%s: expected seq_length %lld as the last offset, seen %lld", path.c_str(),
            static_cast<long long>(c.seq_length), static_cast<long long>(before));
}

void expect_shape(const std::string &path, const Array &array, const std::vector<int64_t> &shape) {
    if (array.shape != shape)
        bad("%s: expected shape %s, seen %s", path.c_str(), shape_text(shape).c_str(), shape_text(array.shape).c_str());
}

}  // namespace

Case read_case(const std::string &folder) {
    Case c;
    c.folder = folder;
    std::error_code error;
    if (!fs::is_directory(folder, error)) bad("%s: expected a folder, seen none", folder.c_str());
    read_config(c);
    c.input = read_array(folder + "/input.npy");
    c.output = read_array(folder + "/output.npy");
    c.grad_output = read_array(folder + "/grad_output.npy");
    c.grad_input = read_array(folder + "/grad_input.npy");
    read_documents(c);
    c.params = read_folder(folder + "/param");
    c.grads = read_folder(folder + "/grad");
    return c;
}

mdlm_config config_of(const Case &c) {
    mdlm_config config = MDLM_CONFIG_INIT;
    for (const auto &[key, value] : c.settings)
        if (mdlm_config_set(&config, key.c_str(), value.c_str()) != MDLM_OK)
            bad("%s/config.txt: %s", c.folder.c_str(), mdlm_last_error());
    return config;
}

void match_case(const Case &c, const mdlm_config &config, const mdlm_block *block) {
    const std::vector<int64_t> shape = {c.seq_length, c.micro_batch_size, config.hidden_size};
    expect_shape(c.folder + "/input.npy", c.input, shape);
    expect_shape(c.folder + "/output.npy", c.output, shape);
    expect_shape(c.folder + "/grad_output.npy", c.grad_output, shape);
    expect_shape(c.folder + "/grad_input.npy", c.grad_input, shape);

    int64_t count = 0;
    if (mdlm_param_count(block, &count) != MDLM_OK) bad("%s: %s", c.folder.c_str(), mdlm_last_error());
    for (int64_t i = 0; i < count; ++i) {
        mdlm_param_desc desc = MDLM_PARAM_DESC_INIT;
        if (mdlm_param_info(block, i, &desc) != MDLM_OK) bad("%s: %s", c.folder.c_str(), mdlm_last_error());
        const std::vector<int64_t> full(desc.full_shape, desc.full_shape + desc.ndim);
        for (const auto &[sub, arrays] : {std::pair{"/param/", &c.params}, std::pair{"/grad/", &c.grads}}) {
            const std::string path = c.folder + sub + desc.name + ".npy";
            const auto found = arrays->find(desc.name);
            if (found == arrays->end())
                bad("%s: expected this file of shape %s, seen none", path.c_str(), shape_text(full).c_str());
            expect_shape(path, found->second, full);
        }
    }
    for (const auto &[sub, arrays] : {std::pair{"/param/", &c.params}, std::pair{"/grad/", &c.grads}})
        for (const auto &[name, array] : *arrays) {
            int64_t index = 0;
            if (mdlm_param_find(block, name.c_str(), &index) != MDLM_OK)
                bad("%s%s%s.npy: expected one of the config's %lld parameters, seen another name", c.folder.c_str(),
                    sub, name.c_str(), static_cast<long long>(count));
        }
}

}  // namespace mdlm::tools
