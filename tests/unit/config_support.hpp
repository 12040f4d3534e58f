// SPDX-License-Identifier: Apache-2.0
// Small helpers of the tests on settings.
#pragma once
#include <string>

#include <doctest/doctest.h>

#include "mdlm/mdlm.h"

inline mdlm_config small() {
    mdlm_config c = MDLM_CONFIG_INIT;
    c.num_layers = 4;
    c.hidden_size = 64;
    c.num_attention_heads = 8;
    return c;
}

// "" when it is valid, otherwise the text; the status must fit.
inline std::string reasons(const mdlm_config &c, mdlm_status status = MDLM_ERROR_CONFIG) {
    const mdlm_status seen = mdlm_config_validate(&c);
    if (seen == MDLM_OK) return "";
    CHECK(seen == status);
    return mdlm_last_error();
}
