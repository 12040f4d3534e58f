// SPDX-License-Identifier: Apache-2.0
// How long collectives take: on threads of this process, or between processes when the build has MPI and mpirun has
// started it.
//   collectives RANKS                    threads
//   mpirun -n RANKS collectives_mpi      processes
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#ifdef WITH_MPI
#include <mdlm/mpi.h>
#else
#include <mdlm/mdlm.h>
#endif

namespace {

void check(mdlm_status status) {
    if (status == MDLM_OK) return;
    std::fprintf(stderr, "%s: %s\n", mdlm_status_name(status), mdlm_last_error());
    std::exit(1);
}

// Of 15 measurements the median, in microseconds for one call.
template <class F>
double time_of(mdlm_comm *comm, int calls, F &&f) {
    std::vector<double> times;
    for (int i = 0; i < 16; ++i) {
        float ready = 0;
        check(mdlm_comm_all_reduce(comm, &ready, &ready, 1, MDLM_DTYPE_F32, MDLM_REDUCE_SUM, 0));
        const auto begin = std::chrono::steady_clock::now();
        for (int k = 0; k < calls; ++k) f();
        if (i > 0)
            times.push_back(
                std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count() / calls);
    }
    std::nth_element(times.begin(), times.begin() + 7, times.end());
    return times[7];
}

void measure(mdlm_comm *comm) {
    int32_t rank = 0, size = 0;
    check(mdlm_comm_rank(comm, &rank, &size));
    if (rank == 0)
        std::printf("%12s %14s %14s %14s   us for one call, float32, %d ranks\n", "bytes", "all_reduce", "all_gather",
                    "reduce_scatter", size);
    for (const int64_t bytes :
         {int64_t{1} << 10, int64_t{1} << 14, int64_t{1} << 17, int64_t{1} << 20, int64_t{1} << 22, int64_t{1} << 24}) {
        const int64_t count = bytes / 4, part = count / size;
        const int calls = bytes <= 1 << 17 ? 50 : bytes <= 1 << 20 ? 10 : 2;
        std::vector<float> send(static_cast<size_t>(count), 1), recv(static_cast<size_t>(count));
        const double reduce = time_of(comm, calls, [&] {
            check(mdlm_comm_all_reduce(comm, send.data(), recv.data(), count, MDLM_DTYPE_F32, MDLM_REDUCE_SUM, 0));
        });
        const double gather = time_of(
            comm, calls, [&] { check(mdlm_comm_all_gather(comm, send.data(), recv.data(), part, MDLM_DTYPE_F32, 0)); });
        const double scatter = time_of(comm, calls, [&] {
            check(mdlm_comm_reduce_scatter(comm, send.data(), recv.data(), part, MDLM_DTYPE_F32, MDLM_REDUCE_SUM, 0));
        });
        if (rank == 0)
            std::printf("%12lld %14.1f %14.1f %14.1f\n", static_cast<long long>(bytes), reduce, gather, scatter);
    }
}

}  // namespace

#ifdef WITH_MPI
int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    mdlm_comm *comm = nullptr;
    check(mdlm_comm_create_mpi(MPI_COMM_WORLD, &comm));
    measure(comm);
    mdlm_comm_destroy(comm);
    MPI_Finalize();
}
#else
int main(int argc, char **argv) {
    const int size = argc > 1 ? std::atoi(argv[1]) : 2;
    std::vector<mdlm_comm *> comms(static_cast<size_t>(size > 0 ? size : 1));
    check(mdlm_comm_create_threads(size, comms.data()));
    std::vector<std::thread> threads;
    for (mdlm_comm *c : comms) threads.emplace_back(measure, c);
    for (std::thread &t : threads) t.join();
    for (mdlm_comm *c : comms) mdlm_comm_destroy(c);
}
#endif
