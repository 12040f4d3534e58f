// SPDX-License-Identifier: Apache-2.0
// Enough of XML 1.0 to say whether a text is one well-formed element: tags that nest, attributes once and quoted, known
// entities.
#pragma once
#include <string>
#include <vector>

namespace bench_test {

struct Xml {
    std::string wrong;              // empty: well-formed
    std::vector<std::string> tags;  // of elements, in the order in which they begin
    std::string text;               // between tags, entities replaced
};
Xml read_xml(const std::string &source);

}  // namespace bench_test
