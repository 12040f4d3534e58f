// SPDX-License-Identifier: Apache-2.0
// A set of buffers of one program, however many it has.
#pragma once
#include <compare>
#include <vector>

#include "op/op.hpp"

namespace mdlm {

class BufferSet {
public:
    BufferSet() = default;
    explicit BufferSet(size_t buffers) : words_((buffers + 63) / 64, 0) {}

    bool has(BufferId b) const { return (words_[word(b)] & bit(b)) != 0; }
    void add(BufferId b) { words_[word(b)] |= bit(b); }
    void add(const BufferSet &o) {
        for (size_t i = 0; i < words_.size(); ++i) words_[i] |= o.words_[i];
    }
    void remove(BufferId b) { words_[word(b)] &= ~bit(b); }
    BufferSet operator&(const BufferSet &o) const {
        BufferSet both = *this;
        for (size_t i = 0; i < words_.size(); ++i) both.words_[i] &= o.words_[i];
        return both;
    }
    bool meets(const BufferSet &o) const {
        uint64_t any = 0;
        for (size_t i = 0; i < words_.size(); ++i) any |= words_[i] & o.words_[i];
        return any != 0;
    }
    template <class F>
    void each(F &&f) const {
        for (size_t i = 0; i < words_.size(); ++i)
            for (uint64_t rest = words_[i]; rest != 0; rest &= rest - 1)
                f(static_cast<BufferId>(64 * i + static_cast<size_t>(__builtin_ctzll(rest))));
    }
    bool operator==(const BufferSet &) const = default;
    // As numbers, of which the last buffer is the highest digit.
    std::strong_ordering operator<=>(const BufferSet &o) const {
        for (size_t i = words_.size(); i-- > 0;)
            if (words_[i] != o.words_[i]) return words_[i] <=> o.words_[i];
        return std::strong_ordering::equal;
    }

private:
    static size_t word(BufferId b) { return static_cast<size_t>(b) / 64; }
    static uint64_t bit(BufferId b) { return uint64_t{1} << (static_cast<uint32_t>(b) % 64); }
    std::vector<uint64_t> words_;
};

}  // namespace mdlm
