// SPDX-License-Identifier: Apache-2.0
#include "progress.hpp"

#include <cstdio>
#include <unistd.h>

#include "../../text.hpp"

namespace mdlm::tools::bench {

ProgressBar::ProgressBar() : terminal_(isatty(STDERR_FILENO) == 1), began_(std::chrono::steady_clock::now()) {}

ProgressBar::~ProgressBar() {
    if (terminal_) std::fputs("\r\033[K", stderr);
}

void ProgressBar::show(int64_t done, int64_t of, const std::string &name) {
    if (!terminal_ || of == 0) return;
    constexpr int64_t cells = 30;
    const auto full = static_cast<size_t>(cells * done / of);
    std::string line = "\r\033[K[" + std::string(full, '#') + std::string(cells - full, '.') + "] " +
                       std::to_string(done) + "/" + std::to_string(of);
    if (done > 0) {
        const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began_).count();
        line += textf(", %.0f s left", seconds / static_cast<double>(done) * static_cast<double>(of - done));
    }
    line += "  " + one_line(name).substr(0, 30);
    std::fputs(line.c_str(), stderr);
    std::fflush(stderr);
}

}  // namespace mdlm::tools::bench
