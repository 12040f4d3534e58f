// SPDX-License-Identifier: Apache-2.0
// The readers of .npy files and of case folders, on hostile input: one clear line or a valid result, never a crash.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <doctest/doctest.h>
#include <random>

#include "../../tools/mdlm/convert.hpp"
#include "../../tools/npy.hpp"
#include "../../tools/text.hpp"
#include "bf16_oracle.hpp"
#include "golden_support.hpp"

namespace golden {
namespace {

namespace fs = std::filesystem;
using mdlm::tools::Bad;
using mdlm::tools::Npy;
using mdlm::tools::NpyType;
using mdlm::tools::read_npy;

// A version 1 or 2 file with this dictionary and so many bytes of data.
std::string npy_text(const std::string &dictionary, size_t bytes, int version = 1) {
    std::string text("\x93NUMPY", 6);
    text += static_cast<char>(version);
    text += '\0';
    for (int i = 0; i < (version == 1 ? 2 : 4); ++i) text += static_cast<char>(dictionary.size() >> (8 * i) & 0xff);
    return text + dictionary + std::string(bytes, '\0');
}

// The line with which a file of this text is refused; "" if it is not.
std::string refusal(const TemporaryFolder &folder, const std::string &text) {
    const fs::path path = folder.path() / "a.npy";
    write_text(path, text);
    try {
        read_npy(path.string());
        return "";
    } catch (const Bad &error) {
        const std::string line = error.what();
        CHECK(line.find(path.string()) == 0);
        CHECK(line.find("expected") != std::string::npos);
        CHECK(line.find("seen") != std::string::npos);
        CHECK(line.find('\n') == std::string::npos);
        return line;
    }
}

std::string header(const std::string &descr, const std::string &fortran, const std::string &shape) {
    return "{'descr': '" + descr + "', 'fortran_order': " + fortran + ", 'shape': " + shape + ", }";
}

}  // namespace

TEST_CASE("golden: .npy files that are right") {
    const TemporaryFolder folder;
    CHECK(refusal(folder, npy_text(header("<f8", "False", "(2, 3)"), 48)) == "");
    CHECK(refusal(folder, npy_text(header("<f4", "False", "(5,)"), 20)) == "");
    CHECK(refusal(folder, npy_text(header("<i8", "False", "()"), 8)) == "");
    CHECK(refusal(folder, npy_text(header("<i4", "False", "(2, 0, 7)"), 0)) == "");
    CHECK(refusal(folder, npy_text("{\"shape\":(1,1,1,2),'fortran_order':False,'descr':\"<f4\"}\n", 8)) == "");
    CHECK(refusal(folder, npy_text(header("<f8", "False", "(1,)") + std::string(500, ' ') + "\n", 8, 2)) == "");

    Npy array{NpyType::f64, {2, 3}, std::vector<std::byte>(48)};
    const double values[6] = {1, -2.5, 1e300, 0x1p-1074, -0.0, 3};
    std::memcpy(array.data.data(), values, 48);
    const std::string path = (folder.path() / "b.npy").string();
    write_npy(path, array);
    const Npy back = read_npy(path);
    CHECK(back.shape == array.shape);
    CHECK(back.data == array.data);
    CHECK(back.doubles() == std::vector<double>(values, values + 6));
    CHECK(fs::file_size(path) % 64 == 48);  // data begins at a multiple of 64, as numpy writes it
}

TEST_CASE("golden: .npy files that are not") {
    const TemporaryFolder folder;
    const std::string fine = npy_text(header("<f8", "False", "(2, 3)"), 48);
    for (size_t length = 0; length < fine.size(); ++length) CHECK(refusal(folder, fine.substr(0, length)) != "");
    CHECK(refusal(folder, fine + "x") != "");
    const char *shapes[] = {"(2, 4)",
                            "(2)",
                            "(2, 3",
                            "2, 3)",
                            "(-2, -3)",
                            "(2,, 3)",
                            "(,)",
                            "(1, 1, 1, 2, 3)",
                            "(6L,)",
                            "[2, 3]",
                            "(2 3)",
                            "('2', 3)",
                            "(9223372036854775807, 2)",
                            "(4294967296, 4294967296)",
                            "(99999999999999999999,)",
                            "(0x2, 3)",
                            "(2.0, 3)"};
    for (const char *shape : shapes) {
        CAPTURE(std::string(shape));
        CHECK(refusal(folder, npy_text(header("<f8", "False", shape), 48)) != "");
    }
    for (const char *descr : {">f8", "<f2", "<u4", "|b1", "<c16", "O", "", "<f8'x"}) {
        CAPTURE(std::string(descr));
        CHECK(refusal(folder, npy_text(header(descr, "False", "(2, 3)"), 48)) != "");
    }
    CHECK(refusal(folder, npy_text(header("<f8", "True", "(2, 3)"), 48)).find("fortran_order True") !=
          std::string::npos);
    CHECK(refusal(folder, npy_text(header("<f8", "None", "(2, 3)"), 48)) != "");
    CHECK(refusal(folder, npy_text("{'descr': '<f8', 'fortran_order': False}", 48)) != "");
    CHECK(refusal(folder, npy_text("{'descr': '<f8', 'descr': '<f8', 'fortran_order': False, 'shape': (6,)}", 48)) !=
          "");
    CHECK(refusal(folder, npy_text("{'extra': 1, 'descr': '<f8', 'fortran_order': False, 'shape': (6,)}", 48)) != "");
    CHECK(refusal(folder, npy_text(header("<f8", "False", "(6,)") + " x", 48)) != "");
    CHECK(refusal(folder, npy_text("", 48)) != "");
    CHECK(refusal(folder, npy_text("{", 48)) != "");
    CHECK(refusal(folder, npy_text(header("<f8", "False", "(6,)"), 48, 3)) != "");
    CHECK(refusal(folder, npy_text(header("<f8", "False", "(6,)") + std::string(70000, ' '), 48, 2)) != "");
    CHECK(refusal(folder, std::string("\x93NUMPY\x02\x00\xff\xff\xff\xff", 12)) != "");
    CHECK(refusal(folder, "\x93NUMPX" + fine.substr(6)) != "");
    CHECK_THROWS_AS(read_npy(folder.path().string()), Bad);
    CHECK_THROWS_AS(read_npy((folder.path() / "none.npy").string()), Bad);
}

TEST_CASE("golden: a mutated case is refused in one line or read") {
    const TemporaryFolder folder;
    const fs::path copy = folder.copy_case("packed", "mutant");
    std::vector<fs::path> files;
    for (const auto &entry : fs::recursive_directory_iterator(copy))
        if (entry.is_regular_file()) files.push_back(entry.path());
    std::sort(files.begin(), files.end());
    std::mt19937 random(20240607);
    const auto below = [&](size_t n) { return static_cast<size_t>(random() % n); };
    int refused = 0, taken = 0;
    for (int i = 0; i < 600; ++i) {
        // Half of the mutants are of the texts: config.txt and the headers.
        const fs::path &path = i % 4 == 0   ? copy / "config.txt"
                               : i % 4 == 1 ? copy / "cu_seqlens.npy"
                                            : files[below(files.size())];
        const std::string before = read_text(path);
        std::string after = before;
        const size_t reach = i % 2 == 0 ? std::min<size_t>(before.size(), 128) : before.size();
        switch (below(4)) {
        case 0: after.resize(below(before.size())); break;
        case 1: after[below(reach)] ^= static_cast<char>(1 << below(8)); break;
        case 2: after[below(reach)] = static_cast<char>(below(256)); break;
        default: after.insert(below(reach), 1 + below(9), "0123456789=\n#("[below(14)]); break;
        }
        write_text(path, after);
        try {
            const mdlm::tools::Case c = mdlm::tools::read_case(copy.string());
            mdlm::tools::config_of(c);
            ++taken;
        } catch (const Bad &error) {
            const std::string line = error.what();
            CHECK(line.find(copy.string()) == 0);
            CHECK(line.find('\n') == std::string::npos);
            ++refused;
        }
        write_text(path, before);
    }
    MESSAGE(refused, " mutants refused, ", taken, " read");
    CHECK(refused > 100);
    CHECK(taken > 30);
}

TEST_CASE("golden: numbers become bf16 and f32 as the oracle's own rounding says") {
    std::mt19937_64 random(1);
    for (int i = 0; i < 20000; ++i) {
        // A random sign, exponent (past both ends of float) and fraction, often near a tie.
        uint64_t bits = random();
        if (i % 2 == 0) bits = (bits >> 44 << 44) + static_cast<uint64_t>(static_cast<int64_t>(random() % 3) - 1);
        double value = 0;
        std::memcpy(&value, &bits, 8);
        if (!std::isfinite(value)) continue;
        int exponent = 0;
        value = std::ldexp(std::frexp(value, &exponent), static_cast<int>(random() % 290) - 150);
        std::byte bytes[2];
        mdlm::tools::store(MDLM_DTYPE_BF16, bytes, value);
        CHECK(mdlm::tools::load(MDLM_DTYPE_BF16, bytes) == to_bf16(value));
    }
}

TEST_CASE("golden: JSON strings and numbers") {
    using mdlm::tools::json_number, mdlm::tools::json_string;
    CHECK(json_string("a\"b\\c\n\x01") == "\"a\\\"b\\\\c\\u000a\\u0001\"");
    CHECK(json_string("\xc3\xa9 \xf0\x9f\x98\x80") == "\"\xc3\xa9 \xf0\x9f\x98\x80\"");
    CHECK(json_string("\xff\xc3") == "\"\\ufffd\\ufffd\"");
    CHECK(json_string("\xed\xa0\x80") == "\"\\ufffd\\ufffd\\ufffd\"");
    CHECK(json_number(0.5) == "0.5");
    CHECK(json_number(HUGE_VAL) == "null");
    CHECK(json_number(std::nan("")) == "null");
}

}  // namespace golden
