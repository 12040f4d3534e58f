// SPDX-License-Identifier: Apache-2.0
// Ranks that do not want the same: every rank gets an error that names what differs, with both values; nothing has
// changed, and the right step afterwards has the right bits. One group lives through all of them.
#pragma once
#include <doctest/doctest.h>

#include <functional>
#include <string>
#include <utility>

#include "support/rank_rig.hpp"

namespace mdlm_test {

using Act = std::function<mdlm_status(Rig &)>;

struct Member {
    Rank &r;
    int odd;  // the rank that does something else
    Rig rig;
    uint64_t good = 0;

    Member(Rank &rank, int odd_rank) : r(rank), odd(odd_rank) { join_group(rig, rank); }
    bool is_odd() const { return r.rank == odd; }

    std::string open() {
        EXPECT_OK(rig.open());
        EXPECT_OK(rig.step());
        good = rig.digest();
        return "";
    }
    // The right step, with the right bits.
    std::string right() {
        if (rig.tape == nullptr) EXPECT_OK(mdlm_tape_create(rig.block, &rig.tape));
        EXPECT_OK(mdlm_tape_reset(rig.tape));
        EXPECT_OK(rig.step());
        EXPECT(rig.digest() == good);
        return "";
    }
    // All ranks get status and the same line, which has `line` in it.
    std::string differ(const Act &usual, const Act &other, mdlm_status status, const std::string &line) {
        const Soon soon;
        mdlm_set_last_error("");
        const mdlm_status got = is_odd() ? other(rig) : usual(rig);
        EXPECT_SAID(got, status, line.c_str());
        EXPECT(!soon.over());
        return "";
    }
    std::string differ(const Act &usual, const Act &other, mdlm_status status, const std::string &name,
                       const std::string &here, const std::string &there) {
        const std::string first = odd == 0 ? there : here, second = odd == 0 ? here : there;
        return differ(usual, other, status,
                      name + " differs between ranks: " + first + " on rank 0, " + second + " on rank " +
                          std::to_string(odd == 0 ? 1 : odd));
    }
    // The odd rank gets its own error; the others COMM with its number, its call, and its error.
    std::string refused(const char *call, const Act &usual, const Act &other, mdlm_status status,
                        const std::string &line) {
        const Soon soon;
        mdlm_set_last_error("");
        const mdlm_status got = is_odd() ? other(rig) : usual(rig);
        if (is_odd()) EXPECT_SAID(got, status, line.c_str());
        const std::string told =
            "rank " + std::to_string(odd) + " failed in " + call + " with " + mdlm_status_name(status) + ": ";
        if (!is_odd()) EXPECT_SAID(got, MDLM_ERROR_COMM, told.c_str());
        if (!is_odd()) EXPECT(wrong_with(mdlm_last_error(), line.c_str()) == "");
        EXPECT(!soon.over());
        return "";
    }
};

#define EXPECT_GOOD(call)                                                                                              \
    do {                                                                                                               \
        const std::string wrong_ = (call);                                                                             \
        if (!wrong_.empty())                                                                                           \
            return std::string(__FILE__ ":") + std::to_string(__LINE__) + ": " #call "\n        " + wrong_;            \
    } while (0)

// For every odd rank of a pair, and one in the midst of four.
inline void on_groups(
    const std::function<std::string(Member &)> &body, const std::function<void(Rig &)> &prepare = [](Rig &) {}) {
    for (const auto &group : {std::pair{2, 0}, {2, 1}, {4, 2}}) {
        const int size = group.first, odd = group.second;
        CAPTURE(size);
        CAPTURE(odd);
        const std::string wrong = on_threads(size, [&](Rank &r) -> std::string {
            Member m(r, odd);
            prepare(m.rig);
            EXPECT_GOOD(m.open());
            EXPECT_GOOD(body(m));
            return m.right();
        });
        CHECK(wrong == "");
    }
}

inline mdlm_status forward(Rig &rig) { return rig.forward(); }
inline mdlm_status backward(Rig &rig) { return rig.backward(); }
inline mdlm_status reserve(Rig &rig) { return mdlm_block_reserve(rig.block, &rig.shape, rig.plan); }
inline mdlm_status gather(Rig &rig, int64_t index = 0, bool gradient = false, mdlm_dtype dtype = MDLM_DTYPE_F32,
                          size_t more = 0) {
    mdlm_param_desc desc = MDLM_PARAM_DESC_INIT;
    mdlm_param_info(rig.block, index, &desc);
    std::vector<float> host(static_cast<size_t>(desc.full_shape[0] * (desc.ndim == 2 ? desc.full_shape[1] : 1)));
    const auto call = gradient ? mdlm_param_grad_gather : mdlm_param_gather;
    return call(rig.block, index, dtype, host.data(), host.size() * sizeof(float) + more);
}

}  // namespace mdlm_test
