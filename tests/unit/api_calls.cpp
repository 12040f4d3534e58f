// SPDX-License-Identifier: Apache-2.0
// The table of calls that other cases go through has every call of the header.
#include "support/api_calls.hpp"

#include <doctest/doctest.h>

#include <fstream>
#include <regex>
#include <set>
#include <sstream>
#include <string>

TEST_CASE("calls: the table has every call on a context, a block or a tape that mdlm.h declares") {
    std::ifstream file(MDLM_SOURCE_ROOT "/include/mdlm/mdlm.h");
    std::stringstream header;
    header << file.rdbuf();
    const std::string text = header.str();
    // Names of all functions that return a status and take a handle of these first.
    const std::regex declaration(
        R"(MDLM_API\s+mdlm_status\s+(mdlm_\w+)\(\s*(?:const\s+)?mdlm_(?:context|block|tape)\s*\*)");
    std::set<std::string> declared, called;
    for (std::sregex_iterator i(text.begin(), text.end(), declaration), end; i != end; ++i) declared.insert((*i)[1]);
    for (const mdlm_test::ApiCall &c : mdlm_test::api_calls()) called.insert(c.name);
    REQUIRE(declared.size() > 40);
    for (const std::string &name : declared) CHECK_MESSAGE(called.count(name) == 1, "not in the table: " << name);
    for (const std::string &name : called) CHECK_MESSAGE(declared.count(name) == 1, "not in the header: " << name);
}
