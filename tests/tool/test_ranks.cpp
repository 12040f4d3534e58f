// SPDX-License-Identifier: Apache-2.0
// The ranks that mdlm bench and mdlm check run on.
#include <doctest/doctest.h>

#include <atomic>
#include <cstdlib>
#include <stdexcept>

#include "../../tools/mdlm/ranks.hpp"
#include "../../tools/text.hpp"

using namespace mdlm::tools;

namespace {

// A launcher's words in the environment, gone at the end.
class Environment {
public:
    void set(const char *name, const char *value) {
        names_.push_back(name);
        setenv(name, value, 1);
    }
    ~Environment() {
        for (const char *name : names_) unsetenv(name);
    }

private:
    std::vector<const char *> names_;
};

template <class F>
std::string line_of(F f) {
    try {
        f();
    } catch (const Bad &error) {
        return error.what();
    }
    return "";
}

}  // namespace

TEST_CASE("ranks: what a launcher says in the environment") {
    CHECK(launched().size == 1);
    struct Said {
        const char *size, *rank, *local;
    };
    for (const Said &names : {Said{"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"},
                              Said{"PMI_SIZE", "PMI_RANK", "MPI_LOCALNRANKS"}}) {
        CAPTURE(std::string(names.size));
        Environment e;
        e.set(names.size, "4");
        CHECK(launched().size == 1);  // who is this?
        e.set(names.rank, "3");
        CHECK(launched().size == 4);
        CHECK(launched().rank == 3);
        CHECK(launched().local_size == 4);
        e.set(names.local, "2");
        CHECK(launched().local_size == 2);
        for (const char *wrong : {"4", "-1", "", "1x", "99999999999999999999"}) {
            CAPTURE(std::string(wrong));
            e.set(names.rank, wrong);
            CHECK(launched().size == 1);
        }
        e.set(names.rank, "0");
        e.set(names.size, "1");
        CHECK(launched().size == 1);
    }
    CHECK(launched().size == 1);
}

TEST_CASE("ranks: the size of a group") {
    CHECK(group_size("x", not_said) == 1);
    CHECK(group_size("x", 3) == 3);
    for (const int64_t wrong : {int64_t{0}, int64_t{-2}, int64_t{1025}, int64_t{1} << 40}) {
        const std::string line = line_of([&] { group_size("mdlm x", wrong); });
        CHECK(line.find("mdlm x: --tensor-model-parallel-size") == 0);
        CHECK(line.find(std::to_string(wrong)) != std::string::npos);
    }
    Environment e;
    e.set("PMI_SIZE", "2");
    e.set("PMI_RANK", "1");
    CHECK(group_size("x", not_said) == 2);
    CHECK(group_size("x", 2) == 2);
    CHECK(line_of([] { group_size("x", 1); }).find("expected 2") != std::string::npos);
    CHECK(line_of([] { group_size("x", 4); }).find("seen 4") != std::string::npos);
    // Built without MPI: one line, and nobody waits for anybody.
    CHECK(line_of([] { Ranks ranks("x"); }).find("built without MPI") != std::string::npos);
}

TEST_CASE("ranks: cores are shared, unless threads are asked for") {
    const Ranks ranks("x");
    CHECK(ranks.threads_each(0, 1) == 0);
    CHECK(ranks.threads_each(5, 1) == 5);
    CHECK(ranks.threads_each(5, 4) == 5);
    CHECK(ranks.threads_each(0, 1024) == std::max(1, cores() / 1024));
    CHECK(ranks.threads_each(0, 2) == std::max(1, cores() / 2));
    CHECK(ranks.leads());
    CHECK(!ranks.processes());
}

TEST_CASE("ranks: all run at once, and tell each other") {
    Ranks ranks("x");
    for (const int32_t size : {1, 2, 5}) {
        CAPTURE(size);
        std::atomic<int> ran{0}, wrong{0};
        ranks.run(size, [&](const Rank &rank) {
            ++ran;
            wrong += rank.size != size || (rank.comm == nullptr) != (size == 1);
            rank.meet();
            wrong += ran != size;  // nobody passes the barrier before all have come
            wrong += rank.largest(rank.rank) != size - 1;
            for (const std::string &text : {std::string(), std::string("a"), std::string(1000, 'x') + "yz"})
                wrong += rank.of_first(rank.leads() ? text : "another text") != text;
            const std::vector<double> all = rank.gather({rank.rank + 0.5, -1.0});
            wrong += all.size() != 2 * static_cast<size_t>(size);
            for (int32_t r = 0; r < size && wrong == 0; ++r) wrong += all[2 * static_cast<size_t>(r)] != r + 0.5;
        });
        CHECK(ran == size);
        CHECK(wrong == 0);
    }
}

TEST_CASE("ranks: one that fails ends it for all, with its own line") {
    Ranks ranks("x");
    for (const int32_t who : {0, 1, 2}) {
        CAPTURE(who);
        std::atomic<int> released{0};
        const std::string line = line_of([&] {
            ranks.run(3, [&](const Rank &rank) {
                if (rank.rank == who) bad("this is why");
                const std::string mine = line_of([&] { rank.meet(); });  // would wait for ever
                released += mine.find("MDLM_ERROR_COMM") != std::string::npos;
                throw Bad(mine);
            });
        });
        CHECK(line == "this is why");
        CHECK(released == 2);
    }
    CHECK(line_of([&] {
              ranks.run(2, [](const Rank &rank) {
                  if (rank.rank == 1) throw std::runtime_error("odd\nthing");
              });
          }) == "mdlm: rank 1: odd?thing");
    ranks.run(2, [](const Rank &rank) { rank.meet(); });  // the next group is a new one
    CHECK(worst_of({"", ""}) == "");
    CHECK(worst_of({"MDLM_ERROR_COMM: b left", "", "c"}) == "c");
    CHECK(worst_of({"", "MDLM_ERROR_COMM: 1", "MDLM_ERROR_COMM: 2"}) == "MDLM_ERROR_COMM: 1");
}
