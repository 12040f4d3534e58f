// SPDX-License-Identifier: Apache-2.0
// Collectives over MPI have the bits of a group of threads, which the same code gets from one in this process.
#include <cstring>
#include <thread>

#include "base/dtype.hpp"
#include "ranks.hpp"
#include "step.hpp"
#include "support/split_mix.hpp"

namespace mpi_test {
namespace {

using namespace mdlm;
using Bytes = std::vector<unsigned char>;

constexpr int64_t sizes[] = {0,    1,     7,     1000,
                             8191, 65539, 200001};  // of one message, several, and over the limits between algorithms
constexpr DType dtypes[] = {DType::f32, DType::bf16, DType::f16, DType::f64};

// A rank's numbers: of very different sizes, so that the order of a sum shows.
double number(mdlm_test::Random &random, int rank, int64_t i) {
    return std::ldexp(static_cast<double>(static_cast<int64_t>(random.next())),
                      -63 + static_cast<int>((i * 7 + rank * 5) % 12));
}

// With a few NaN, infinities and zeros of both signs for MAX.
Bytes data_of(int rank, int64_t count, DType dtype, bool strange) {
    Bytes bytes(static_cast<size_t>(count * size_of(dtype)));
    mdlm_test::Random random(static_cast<uint64_t>(rank) + 17);
    for (int64_t i = 0; i < count; ++i) {
        double v = number(random, rank, i);
        if (strange && i % 97 == rank) v = i % 2 != 0 ? NAN : -INFINITY;
        if (strange && i % 31 == 3) v = rank % 2 != 0 ? 0.0 : -0.0;
        store(dtype, bytes.data(), i, v);
    }
    return bytes;
}

struct Result {
    std::string what;
    Bytes bytes;
};

std::vector<Result> collect(mdlm_comm *comm, int rank, int size) {
    std::vector<Result> all;
    for (const DType dtype : dtypes)
        for (const int64_t count : sizes) {
            const auto abi = static_cast<mdlm_dtype>(dtype);
            const std::string suffix = " of " + std::to_string(count) + " " + name_of(dtype);
            const auto bytes = static_cast<size_t>(count * size_of(dtype));
            for (const mdlm_reduce_op op : {MDLM_REDUCE_SUM, MDLM_REDUCE_MAX}) {
                const Bytes mine = data_of(rank, count, dtype, op == MDLM_REDUCE_MAX),
                            whole = data_of(rank, count * size, dtype, op == MDLM_REDUCE_MAX);
                const std::string name = op == MDLM_REDUCE_SUM ? " SUM" : " MAX";
                Bytes out(bytes + 8, 0xa5);
                OK(mdlm_comm_all_reduce(comm, mine.data(), out.data(), count, abi, op, 60000));
                all.push_back({"all_reduce" + name + suffix, out});
                Bytes in_place = mine;
                in_place.resize(bytes + 8, 0xa5);
                OK(mdlm_comm_all_reduce(comm, in_place.data(), in_place.data(), count, abi, op, 60000));
                all.push_back({"all_reduce in place" + name + suffix, in_place});
                Bytes part(bytes + 8, 0xa5);
                OK(mdlm_comm_reduce_scatter(comm, whole.data(), part.data(), count, abi, op, 60000));
                all.push_back({"reduce_scatter" + name + suffix, part});
            }
            // Bits that need not be numbers.
            Bytes mine(bytes), gathered(bytes * static_cast<size_t>(size) + 8, 0xa5);
            for (size_t i = 0; i < bytes; ++i)
                mine[i] = static_cast<unsigned char>(i * 31 + i / 251 + static_cast<size_t>(rank) * 101);
            OK(mdlm_comm_all_gather(comm, mine.data(), gathered.data(), count, abi, 60000));
            all.push_back({"all_gather" + suffix, gathered});
        }
    return all;
}

std::string compare(mdlm_comm *comm, int rank, int size) {
    const std::vector<Result> ours = collect(comm, rank, size);
    std::vector<mdlm_comm *> comms(static_cast<size_t>(size));
    OK(mdlm_comm_create_threads(size, comms.data()));
    std::vector<Result> theirs;
    std::vector<std::thread> threads;
    for (int r = 0; r < size; ++r)
        threads.emplace_back([&, r] {
            std::vector<Result> results = collect(comms[static_cast<size_t>(r)], r, size);
            if (r == rank) theirs = std::move(results);
        });
    for (std::thread &t : threads) t.join();
    for (mdlm_comm *c : comms) mdlm_comm_destroy(c);
    if (ours.size() != theirs.size()) return "other cases than the threads'";
    for (size_t i = 0; i < ours.size(); ++i)
        if (ours[i].bytes != theirs[i].bytes) {
            size_t at = 0;
            while (ours[i].bytes[at] == theirs[i].bytes[at]) ++at;
            return ours[i].what + ": byte " + std::to_string(at) + " of " + std::to_string(ours[i].bytes.size()) +
                   " is not that of a group of threads";
        }
    return "";
}

// What a group of threads cannot show: that all ranks have the same. Sums of three numbers whose order can be told from
// their bits.
std::string same_on_all(mdlm_comm *comm, int rank, int size) {
    constexpr int64_t count = 100003;
    const Bytes mine = data_of(rank, count, DType::f32, false);
    Bytes sum(mine.size()), all(mine.size() * static_cast<size_t>(size));
    OK(mdlm_comm_all_reduce(comm, mine.data(), sum.data(), count, MDLM_DTYPE_F32, MDLM_REDUCE_SUM, 60000));
    OK(mdlm_comm_all_gather(comm, sum.data(), all.data(), count, MDLM_DTYPE_F32, 60000));
    for (int r = 0; r < size; ++r)
        if (std::memcmp(all.data() + static_cast<size_t>(r) * sum.size(), sum.data(), sum.size()) != 0)
            return "rank " + std::to_string(r) + " has another sum than rank " + std::to_string(rank);
    std::vector<mdlm_test::Random> random;
    for (int r = 0; r < size; ++r) random.emplace_back(static_cast<uint64_t>(r) + 17);
    for (int64_t i = 0; i < count; ++i) {
        float s = 0;
        for (int r = 0; r < size; ++r) {
            const auto v = static_cast<float>(number(random[static_cast<size_t>(r)], r, i));
            s = r == 0 ? v : s + v;
        }
        if (load(DType::f32, sum.data(), i) != static_cast<double>(s))
            return "element " + std::to_string(i) + " is not the sum in rank order";
    }
    return "";
}

}  // namespace

std::vector<Case> conformance_cases() {
    return {{"conformance: collectives have the bits of a group of threads", 0, compare},
            {"conformance: all ranks have the sum in rank order", 0, same_on_all}};
}

}  // namespace mpi_test
