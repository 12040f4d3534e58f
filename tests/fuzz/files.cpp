// SPDX-License-Identifier: Apache-2.0
// Files that the tools read: numpy's arrays, and the settings of golden cases.
#include <cstdlib>
#include <cstring>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fuzz/target.hpp"
#include "tools/mdlm/case.hpp"
#include "tools/npy.hpp"
#include "tools/text.hpp"

namespace fuzz {
namespace {

using namespace mdlm::tools;

void write(int file, std::string_view bytes) {
    for (size_t done = 0; done < bytes.size();) {
        const ssize_t n = ::write(file, bytes.data() + done, bytes.size() - done);
        if (n <= 0) found("a temporary file cannot be written: %s", std::strerror(errno));
        done += static_cast<size_t>(n);
    }
}

// A file that is nowhere but in memory.
struct Memory {
    int file = memfd_create("fuzz", 0);
    std::string path = "/proc/self/fd/" + std::to_string(file);
    explicit Memory(std::string_view bytes) { write(file, bytes); }
    ~Memory() { close(file); }
};

// A folder for one file.
struct Folder {
    std::string path = "/tmp/mdlm-fuzz-XXXXXX";
    std::string file;
    Folder() {
        if (mkdtemp(path.data()) == nullptr) found("no temporary folder: %s", std::strerror(errno));
        file = path + "/config.txt";
    }
    ~Folder() {
        unlink(file.c_str());
        rmdir(path.c_str());
    }
};

void one_line_of(const Bad &bad) {
    const std::string line = bad.what();
    if (line.empty() || line != one_line(line)) found("refused with no line, or more than one: %s", line.c_str());
}

}  // namespace

void npy(std::string_view input) {
    Npy array;
    try {
        array = read_npy(Memory(input).path);
    } catch (const Bad &bad) {
        return one_line_of(bad);
    }
    if (array.data.size() > input.size())
        found("%zu bytes of data from a file of %zu", array.data.size(), input.size());
    const Memory second("");
    write_npy(second.path, array);
    const Npy again = read_npy(second.path);
    if (again.type != array.type || again.shape != array.shape || again.data != array.data)
        found("written and read again it is another array");
    if (array.doubles().size() != static_cast<size_t>(array.count())) found("not as many doubles as elements");
}

void golden(std::string_view input) {
    static const Folder folder;  // the arrays are missing: settings that can be read end there
    std::FILE *file = std::fopen(folder.file.c_str(), "wb");
    if (file == nullptr) found("no temporary file: %s", std::strerror(errno));
    const bool whole = std::fwrite(input.data(), 1, input.size(), file) == input.size();
    if (std::fclose(file) != 0 || !whole) found("a temporary file cannot be written");
    try {
        read_case(folder.path);
    } catch (const Bad &bad) {
        return one_line_of(bad);
    }
    found("a case without arrays was read");
}

}  // namespace fuzz
