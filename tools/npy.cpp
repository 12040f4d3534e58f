// SPDX-License-Identifier: Apache-2.0
#include "npy.hpp"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <memory>
#include <optional>
#include <sys/stat.h>

#include "text.hpp"

namespace mdlm::tools {
namespace {

static_assert(std::endian::native == std::endian::little, "elements are copied as they lie in the file");

constexpr size_t most_dims = 4;
constexpr size_t most_header = 65536;
constexpr unsigned char magic[6] = {0x93, 'N', 'U', 'M', 'P', 'Y'};

struct TypeName {
    NpyType type;
    const char *descr;
    size_t size;
};
constexpr TypeName types[] = {
    {NpyType::f64, "<f8", 8}, {NpyType::f32, "<f4", 4}, {NpyType::i64, "<i8", 8}, {NpyType::i32, "<i4", 4}};

const TypeName &name_of(NpyType type) {
    for (const TypeName &t : types)
        if (t.type == type) return t;
    bad("unknown element type %d", static_cast<int>(type));
}

using File = std::unique_ptr<std::FILE, int (*)(std::FILE *)>;

// The header is one Python dictionary with three keys, in any order.
class Header {
public:
    Header(std::string path, std::string_view text) : path_(std::move(path)), text_(text) {}

    Npy parse() {
        std::optional<NpyType> type;
        std::optional<bool> fortran;
        std::optional<std::vector<int64_t>> shape;
        expect('{');
        while (!take('}')) {
            const std::string_view key = quoted();
            expect(':');
            if (key == "descr" && !type) type = descr();
            else if (key == "fortran_order" && !fortran) fortran = boolean();
            else if (key == "shape" && !shape) shape = tuple();
            else wrong("one each of the keys descr, fortran_order, shape", std::string(key));
            if (!take(',')) {
                expect('}');
                break;
            }
        }
        skip();
        if (!text_.empty()) wrong("nothing after the header's }", std::string(text_.substr(0, 20)));
        if (!type || !fortran || !shape) wrong("the keys descr, fortran_order, shape", "not all of them");
        if (*fortran) wrong("C order (fortran_order False)", "fortran_order True");
        return {*type, *shape, {}};
    }

private:
    [[noreturn]] void wrong(const char *expected, const std::string &seen) const {
        bad("%s: .npy header: expected %s, seen %.60s", path_.c_str(), expected, seen.c_str());
    }
    [[noreturn]] void wrong_here(const char *expected) const {
        wrong(expected, text_.empty() ? "its end" : "'" + std::string(text_.substr(0, 20)) + "'");
    }
    void skip() {
        while (!text_.empty() && (text_[0] == ' ' || text_[0] == '\t' || text_[0] == '\n' || text_[0] == '\r'))
            text_.remove_prefix(1);
    }
    bool take(char c) {
        skip();
        if (text_.empty() || text_[0] != c) return false;
        text_.remove_prefix(1);
        return true;
    }
    void expect(char c) {
        const char expected[] = {'\'', c, '\'', '\0'};
        if (!take(c)) wrong_here(expected);
    }
    std::string_view quoted() {
        skip();
        if (text_.empty() || (text_[0] != '\'' && text_[0] != '"')) wrong_here("a quoted word");
        const size_t end = text_.find(text_[0], 1);
        if (end == std::string_view::npos) wrong_here("a quoted word");
        const std::string_view word = text_.substr(1, end - 1);
        text_.remove_prefix(end + 1);
        return word;
    }
    NpyType descr() {
        const std::string_view word = quoted();
        for (const TypeName &t : types)
            if (word == t.descr) return t.type;
        wrong("descr <f8, <f4, <i8 or <i4", "'" + std::string(word) + "'");
    }
    bool boolean() {
        skip();
        for (const std::string_view word : {std::string_view("True"), std::string_view("False")})
            if (text_.substr(0, word.size()) == word) {
                text_.remove_prefix(word.size());
                return word == "True";
            }
        wrong_here("True or False");
    }
    std::vector<int64_t> tuple() {
        std::vector<int64_t> shape;
        bool comma = true;
        expect('(');
        while (!take(')')) {
            if (!comma) wrong_here("',' or ')'");
            if (shape.size() == most_dims) wrong("at most 4 dimensions", "more");
            skip();
            int64_t n = 0;
            const auto [end, error] = std::from_chars(text_.data(), text_.data() + text_.size(), n);
            if (error != std::errc() || n < 0) wrong_here("a dimension of 0 .. 2^63 - 1");
            text_.remove_prefix(static_cast<size_t>(end - text_.data()));
            shape.push_back(n);
            comma = take(',');
        }
        if (shape.size() == 1 && !comma) wrong("a tuple as shape", "a number in brackets");
        return shape;
    }

    std::string path_;
    std::string_view text_;
};

// False when the product does not fit.
bool product(const std::vector<int64_t> &shape, int64_t element, int64_t *out) {
    int64_t n = element;
    for (const int64_t dim : shape)
        if (__builtin_mul_overflow(n, dim, &n)) return false;
    *out = n;
    return true;
}

void read_exactly(std::FILE *file, const std::string &path, void *to, size_t bytes, const char *what) {
    const size_t got = bytes == 0 ? 0 : std::fread(to, 1, bytes, file);
    if (got != bytes) bad("%s: expected %zu bytes of %s, seen %zu", path.c_str(), bytes, what, got);
}

template <class From, class To>
std::vector<To> converted(const Npy &array) {
    std::vector<To> out(static_cast<size_t>(array.count()));
    for (size_t i = 0; i < out.size(); ++i) {
        From value;
        std::memcpy(&value, array.data.data() + i * sizeof value, sizeof value);
        out[i] = static_cast<To>(value);
    }
    return out;
}

}  // namespace

int64_t Npy::count() const { return static_cast<int64_t>(data.size() / name_of(type).size); }

std::vector<double> Npy::doubles() const {
    switch (type) {
    case NpyType::f64: return converted<double, double>(*this);
    case NpyType::f32: return converted<float, double>(*this);
    case NpyType::i64: return converted<int64_t, double>(*this);
    case NpyType::i32: return converted<int32_t, double>(*this);
    }
    bad("unknown element type %d", static_cast<int>(type));
}

std::vector<int64_t> Npy::integers() const {
    if (type == NpyType::i64) return converted<int64_t, int64_t>(*this);
    if (type == NpyType::i32) return converted<int32_t, int64_t>(*this);
    bad("expected integers, seen elements of %s", name_of(type).descr);
}

std::string shape_text(const std::vector<int64_t> &shape) {
    std::string text = "(";
    for (size_t i = 0; i < shape.size(); ++i) text += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
    return text + (shape.size() == 1 ? ",)" : ")");
}

Npy read_npy(const std::string &path) {
    struct stat info = {};
    if (stat(path.c_str(), &info) != 0) bad("%s: expected an .npy file, seen: %s", path.c_str(), std::strerror(errno));
    if (!S_ISREG(info.st_mode)) bad("%s: expected an .npy file, seen something else than a file", path.c_str());
    const File file(std::fopen(path.c_str(), "rb"), std::fclose);
    if (file == nullptr) bad("%s: expected a file that can be read, seen: %s", path.c_str(), std::strerror(errno));
    const auto size = static_cast<int64_t>(info.st_size);

    unsigned char start[12] = {};
    read_exactly(file.get(), path, start, 10, "header");
    if (std::memcmp(start, magic, sizeof magic) != 0)
        bad("%s: expected \\x93NUMPY as its first bytes, seen others", path.c_str());
    const int major = start[6], minor = start[7];
    if ((major != 1 && major != 2) || minor != 0)
        bad("%s: expected .npy version 1.0 or 2.0, seen %d.%d", path.c_str(), major, minor);
    if (major == 2) read_exactly(file.get(), path, start + 10, 2, "header");
    size_t length = size_t{start[8]} | size_t{start[9]} << 8;
    if (major == 2) length |= size_t{start[10]} << 16 | size_t{start[11]} << 24;
    const int64_t before = major == 1 ? 10 : 12;
    if (length > most_header || static_cast<int64_t>(length) > size - before)
        bad("%s: expected a header of at most %lld bytes, seen one of %zu", path.c_str(),
            static_cast<long long>(std::min<int64_t>(most_header, std::max<int64_t>(size - before, 0))), length);
    std::string text(length, '\0');
    read_exactly(file.get(), path, text.data(), length, "header");

    Npy array = Header(path, text).parse();
    int64_t bytes = 0;
    const int64_t present = size - before - static_cast<int64_t>(length);
    if (!product(array.shape, static_cast<int64_t>(name_of(array.type).size), &bytes))
        bad("%s: expected the %lld bytes of data that it has, seen shape %s, which needs more than 2^63", path.c_str(),
            static_cast<long long>(present), shape_text(array.shape).c_str());
    if (bytes != present)
        bad("%s: expected %lld bytes of data for %s of shape %s, seen %lld", path.c_str(),
            static_cast<long long>(bytes), name_of(array.type).descr, shape_text(array.shape).c_str(),
            static_cast<long long>(present));
    array.data.resize(static_cast<size_t>(bytes));
    read_exactly(file.get(), path, array.data.data(), array.data.size(), "data");
    return array;
}

void write_npy(const std::string &path, const Npy &array) {
    std::string header = textf("{'descr': '%s', 'fortran_order': False, 'shape': %s, }", name_of(array.type).descr,
                               shape_text(array.shape).c_str());
    header.append(63 - (10 + header.size()) % 64, ' ');
    header += '\n';
    File file(std::fopen(path.c_str(), "wb"), std::fclose);
    if (file == nullptr) bad("%s: expected a file that can be written, seen: %s", path.c_str(), std::strerror(errno));
    const unsigned char start[10] = {0x93,
                                     'N',
                                     'U',
                                     'M',
                                     'P',
                                     'Y',
                                     1,
                                     0,
                                     static_cast<unsigned char>(header.size() & 0xff),
                                     static_cast<unsigned char>(header.size() >> 8)};
    bool fine = std::fwrite(start, 1, sizeof start, file.get()) == sizeof start;
    fine = fine && std::fwrite(header.data(), 1, header.size(), file.get()) == header.size();
    fine = fine && (array.data.empty() ||
                    std::fwrite(array.data.data(), 1, array.data.size(), file.get()) == array.data.size());
    fine = std::fclose(file.release()) == 0 && fine;
    if (!fine) bad("%s: could not be written: %s", path.c_str(), std::strerror(errno));
}

}  // namespace mdlm::tools
