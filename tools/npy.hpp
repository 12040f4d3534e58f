// SPDX-License-Identifier: Apache-2.0
// Files of numpy's .npy format, versions 1 and 2: little-endian numbers in C order, up to four dimensions.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace mdlm::tools {

enum class NpyType { f64, f32, i64, i32 };

struct Npy {
    NpyType type = NpyType::f64;
    std::vector<int64_t> shape;
    std::vector<std::byte> data;

    int64_t count() const;
    // The elements as doubles (exact but for integers past 2^53), or as integers (only for integer types).
    std::vector<double> doubles() const;
    std::vector<int64_t> integers() const;
};

// Throws Bad (text.hpp) with one line that names the file, what was expected and what was seen. The file is not
// believed: its size is held against its header before anything is allocated.
Npy read_npy(const std::string &path);
void write_npy(const std::string &path, const Npy &array);

// "(12, 2, 40)", as the header spells it.
std::string shape_text(const std::vector<int64_t> &shape);

}  // namespace mdlm::tools
