// SPDX-License-Identifier: Apache-2.0
// Text results by (buf, cap, out_len), as mdlm.h says at mdlm_config_get.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string_view>

#include "base/status.hpp"

namespace mdlm {

inline void write_text(std::string_view text, char *buf, size_t cap, size_t *out_len) {
    if (buf == nullptr && cap != 0) fail(MDLM_ERROR_ARGUMENT, "buf is NULL with cap = %zu: expected cap = 0", cap);
    if (cap != 0) {
        const size_t length = std::min(text.size(), cap - 1);
        std::memcpy(buf, text.data(), length);
        buf[length] = 0;
    }
    if (out_len != nullptr) *out_len = text.size();
}

}  // namespace mdlm
