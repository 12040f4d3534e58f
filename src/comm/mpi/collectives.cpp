// SPDX-License-Identifier: Apache-2.0
// Collectives as rounds of messages between all ranks, with the next round on its way while one is summed. Sums are
// reduce_ranks' as in a group of threads, so they have its bits.
#include "comm/mpi/collectives.hpp"

#include <algorithm>

#include "base/float_environment.hpp"
#include "comm/reduce.hpp"

namespace mdlm {
namespace {

// Below that many bytes, every rank gets everything and sums it itself: one wait instead of two.
constexpr int64_t small = 1 << 15;

int64_t rounds_of(int64_t count, int64_t step) { return std::max<int64_t>(1, (count + step - 1) / step); }

void copy(void *to, const void *from, int64_t bytes) {
    if (bytes > 0 && to != from) std::memcpy(to, from, static_cast<size_t>(bytes));
}

template <class Send, class Use>
void stream(int64_t rounds, Send &&send, Use &&use) {
    send(0);
    for (int64_t k = 0; k < rounds; ++k) {
        if (k + 1 < rounds) send(k + 1);
        use(k);
    }
}

Header header_of(Kind kind, int64_t count, DType dtype, mdlm_reduce_op op) {
    Header h{};
    h.kind = kind, h.count = count, h.dtype = static_cast<int32_t>(dtype), h.op = op;
    return h;
}

}  // namespace

// to = the sum over ranks of a round's messages, with this rank's own where they would be.
void Collectives::reduce(Tag stream, int64_t round, const char *own, int64_t count, DType dtype, mdlm_reduce_op op,
                         void *to) {
    for (int32_t p = 0; p < link_.size(); ++p)
        parts_[static_cast<size_t>(p)] = p == link_.rank() ? own : link_.from(stream, round, p);
    const LibraryFloats floats;
    reduce_ranks(dtype, op, parts_.data(), link_.size(), count, to);
}

mdlm_status Collectives::all_gather(const void *send, void *recv, int64_t count, DType dtype,
                                    int64_t timeout_ms) noexcept {
    return link_.collective(header_of(Kind::all_gather, count, dtype, MDLM_REDUCE_SUM), timeout_ms, [&] {
        const int64_t bytes = count * size_of(dtype), step = link_.chunk();
        const auto *const mine = static_cast<const char *>(send);
        auto *const all = static_cast<char *>(recv);
        const auto length = [&](int64_t k) { return std::min(step, bytes - k * step); };
        stream(
            rounds_of(bytes, step),
            [&](int64_t k) {
                link_.send_all(tag_first, k, [&](char *to) {
                    copy(to, mine + k * step, length(k));
                    return length(k);
                });
            },
            [&](int64_t k) {
                copy(all + link_.rank() * bytes + k * step, mine + k * step, length(k));
                link_.receive(tag_first, k);
                for (int32_t p = 0; p < link_.size(); ++p)
                    if (p != link_.rank()) copy(all + p * bytes + k * step, link_.from(tag_first, k, p), length(k));
            });
    });
}

mdlm_status Collectives::reduce_scatter(const void *send, void *recv, int64_t count, DType dtype, mdlm_reduce_op op,
                                        int64_t timeout_ms) noexcept {
    return link_.collective(header_of(Kind::reduce_scatter, count, dtype, op), timeout_ms, [&] {
        const int64_t element = size_of(dtype), step = link_.chunk() / element;
        const auto *const all = static_cast<const char *>(send);
        const auto length = [&](int64_t k) { return std::min(step, count - k * step); };
        const auto part = [&](int32_t p, int64_t k) { return all + (p * count + k * step) * element; };
        stream(
            rounds_of(count, step),
            [&](int64_t k) {
                link_.send_each(tag_first, k, [&](int32_t p, char *to) {
                    copy(to, part(p, k), length(k) * element);
                    return length(k) * element;
                });
            },
            [&](int64_t k) {
                link_.receive(tag_first, k);
                reduce(tag_first, k, part(link_.rank(), k), length(k), dtype, op,
                       static_cast<char *>(recv) + k * step * element);
            });
    });
}

mdlm_status Collectives::all_reduce(const void *send, void *recv, int64_t count, DType dtype, mdlm_reduce_op op,
                                    int64_t timeout_ms) noexcept {
    return link_.collective(header_of(Kind::all_reduce, count, dtype, op), timeout_ms, [&] {
        const bool one_step = link_.size() <= 2 || count * size_of(dtype) <= small;
        if (one_step) reduce_in_one_step(static_cast<const char *>(send), static_cast<char *>(recv), count, dtype, op);
        else reduce_in_two_steps(static_cast<const char *>(send), static_cast<char *>(recv), count, dtype, op);
    });
}

void Collectives::reduce_in_one_step(const char *send, char *recv, int64_t count, DType dtype, mdlm_reduce_op op) {
    const int64_t element = size_of(dtype), step = link_.chunk() / element;
    const auto length = [&](int64_t k) { return std::min(step, count - k * step); };
    stream(
        rounds_of(count, step),
        [&](int64_t k) {
            link_.send_all(tag_first, k, [&](char *to) {
                copy(to, send + k * step * element, length(k) * element);
                return length(k) * element;
            });
        },
        [&](int64_t k) {
            link_.receive(tag_first, k);
            reduce(tag_first, k, send + k * step * element, length(k), dtype, op, recv + k * step * element);
        });
}

// Of every window each rank sums one slice and sends it to all. The slices of a window are on their way while the next
// window is summed.
void Collectives::reduce_in_two_steps(const char *send, char *recv, int64_t count, DType dtype, mdlm_reduce_op op) {
    const int32_t size = link_.size(), rank = link_.rank();
    const int64_t element = size_of(dtype), window = link_.chunk() / element * size, rounds = rounds_of(count, window);
    const auto begin = [&](int64_t k, int32_t p) {
        return k * window + std::min(window, count - k * window) * p / size;
    };
    const auto length = [&](int64_t k, int32_t p) { return begin(k, p + 1) - begin(k, p); };

    const auto send_parts = [&](int64_t k) {
        link_.send_each(tag_first, k, [&](int32_t p, char *to) {
            copy(to, send + begin(k, p) * element, length(k, p) * element);
            return length(k, p) * element;
        });
    };
    const auto send_sums = [&](int64_t k) {
        link_.receive(tag_first, k);
        link_.send_all(tag_second, k, [&](char *to) {
            reduce(tag_first, k, send + begin(k, rank) * element, length(k, rank), dtype, op, to);
            return length(k, rank) * element;
        });
    };
    const auto take_sums = [&](int64_t k) {
        copy(recv + begin(k, rank) * element, link_.own(tag_second, k), length(k, rank) * element);
        link_.receive(tag_second, k);
        for (int32_t p = 0; p < size; ++p)
            if (p != rank) copy(recv + begin(k, p) * element, link_.from(tag_second, k, p), length(k, p) * element);
    };

    send_parts(0);
    for (int64_t k = 0; k < rounds; ++k) {
        if (k + 1 < rounds) send_parts(k + 1);
        send_sums(k);
        if (k > 0) take_sums(k - 1);
    }
    take_sums(rounds - 1);
}

}  // namespace mdlm
