// SPDX-License-Identifier: Apache-2.0
#include "check_case.hpp"

#include <algorithm>

#include "../text.hpp"
#include "bench/settings.hpp"

namespace mdlm::tools {

std::string why_not(const Case &c, const mdlm_config &config) {
    const int64_t t = config.tensor_model_parallel_size;
    const struct {
        const char *name;
        int64_t size;
        bool shared;
    } sizes[] = {
        {"num_attention_heads", config.num_attention_heads, true},
        {"num_query_groups", config.num_query_groups != 0 ? config.num_query_groups : config.num_attention_heads, true},
        {"ffn_hidden_size", config.ffn_hidden_size != 0 ? config.ffn_hidden_size : 4 * config.hidden_size, true},
        {"seq_length", c.seq_length, config.sequence_parallel != 0}};
    for (const auto &s : sizes)
        if (t > 1 && s.shared && s.size % t != 0)
            return textf("%s = %lld is not divisible by tensor_model_parallel_size = %lld", s.name,
                         static_cast<long long>(s.size), static_cast<long long>(t));
    return "";
}

std::vector<Named> settings_of(const Case &c, const mdlm_config &config, bool sweep) {
    if (!sweep) return {{"", config, 0}};
    std::vector<Named> all;
    std::vector<mdlm_config> layouts = {config};
    mdlm_config split = config;
    split.sequence_parallel = 1;
    if (config.tensor_model_parallel_size > 1 && config.sequence_parallel == 0 && why_not(c, split).empty())
        layouts.push_back(split);
    for (const mdlm_config &layout : layouts) {
        const size_t first = all.size();
        for (const mdlm_config &s : bench::recompute_settings(layout))
            all.push_back(
                {bench::recompute_name(s) + (s.sequence_parallel != 0 ? ", sequence parallel" : ""), s, first});
    }
    return all;
}

Found find(const Rank &rank, mdlm_context *context, const Case &c, const std::vector<Named> &settings, double atol) {
    Found found;
    found.settings = settings.size();
    Outcome like;
    double most = -1;
    for (size_t i = 0; i < settings.size(); ++i) {
        const Named &s = settings[i];
        Outcome outcome = run_case(context, rank, c, s.config);
        Errors e = errors_of(outcome, c, atol);
        e.output = rank.largest(e.output), e.grad_input = rank.largest(e.grad_input), e.grad = rank.largest(e.grad);
        if (e.largest() > most) most = e.largest(), found.setting = s.name;
        found.errors.output = std::max(found.errors.output, e.output);
        found.errors.grad_input = std::max(found.errors.grad_input, e.grad_input);
        if (i == 0 || e.grad > found.errors.grad) found.errors.grad = e.grad, found.errors.worst = e.worst;
        if (s.like == i) like = std::move(outcome);
        else if (rank.largest(outcome == like ? 0 : 1) != 0 && found.other_bits.empty()) found.other_bits = s.name;
    }
    return found;
}

}  // namespace mdlm::tools
