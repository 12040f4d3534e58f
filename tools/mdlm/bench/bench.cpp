// SPDX-License-Identifier: Apache-2.0
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <optional>
#include <unistd.h>

#include "../../text.hpp"
#include "../command.hpp"
#include "plot.hpp"
#include "progress.hpp"
#include "trace.hpp"

namespace mdlm::tools {

const char bench_help[] = R"(NAME
    mdlm bench - times forward and backward of a block, and says what replay costs and where the time goes

SYNOPSIS
    mdlm bench [OPTION...] CONFIG FLAG...

DESCRIPTION
    Runs steps (a forward and its backward, gradients assigned) of a block with the given settings, and of the same
    block without replay, in turn, and prints one row for each. With --sweep the rows are all recompute settings.
    Every repeat runs each setting once, so what disturbs the machine hits all alike; comparisons are within a
    repeat. All blocks use the same parameters, gradients and inputs.

    With --tensor-model-parallel-size t the block runs on t ranks: threads of this program, or the processes that
    mpirun has started (mpirun -n 4 mdlm bench ...), where t may be left out. A time begins and ends when all ranks
    have come. Rank 0 prints, for itself where figures are of a rank.

OPTIONS
    --seq-length N        s (default 1024)
    --micro-batch-size N  b (default 1)
    --device D            cpu (default) or reference
    --threads N           threads of each rank's pool (default 0: all cores that this process may use, shared by
                          its ranks and, under mpirun, by the processes on its host)
    --matmul M            auto (default), onednn or own: who multiplies on the CPU
    --device-table T      with --memory-budget and --budgets: what operations cost, as mdlm plan takes it (default:
                          the device is calibrated first)
    --repeats N           timed steps of every setting (default 9)
    --warmup N            steps before, not timed (default 1)
    --micro-batches N     the parameters count as changed once in N steps, as an optimizer would, so that what is
                          derived from them is made again (default 1)
    --sweep               none; selective with each sensible set of modules; full with block and uniform, both with
                          distributed inputs too where t > 1
    --budgets LIST        percentages joined by commas: the planner's plan at budgets so far between the smallest
                          that fits and what no replay needs, and full with method block and the fewest layers that
                          fit in it; both and none in turn
    --against-one-rank    with t > 1: every setting also on one rank that has the threads of all, in turn with the
                          others
    --no-baseline         do not run the same block without replay beside it
    --alive A             all blocks at once, or one (made anew for each step, and run once before it is timed);
                          auto (default): all, where they take at most 3/4 of the memory that is available
    --profile             time by op and phase, too
    --curve C             seq-length: the same tokens (s times b) as sequences of 256 to 8192;  micro-batch-size: 1
                          to 16 sequences
    --points LIST         rising sizes for --curve, joined by commas, at most 16
    --svg FILE            with --curve time per token against the size, with --sweep time against saved bytes
    --trace FILE          the last step of every setting as a timeline that chrome://tracing and ui.perfetto.dev open
    --json                one JSON object instead of tables

CONFIG FLAGS
    Every setting of the library by its Megatron flag; needed are --num-layers, --hidden-size and
    --num-attention-heads. For example
        mdlm bench --num-layers 4 --hidden-size 1024 --num-attention-heads 16 --ffn-hidden-size 3072 \
            --swiglu --qk-layernorm --normalization RMSNorm --disable-bias-linear --attention-mask-type no_mask \
            --micro-batch-size 2 --sweep --svg sweep.svg
    and --tensor-model-parallel-size 2 --sequence-parallel; --distribute-saved-activations.

OUTPUT
    matmul peak   the best rate that any single matmul of the layer's own shapes reached in this run, and which it was
    saved, peak   bytes kept from forward to backward, and of the whole arena, as mdlm_block_memory says
    forward, backward   medians over the repeats
    overhead      time over that without replay, less 1: median of the ratios within a repeat, and their quartiles
                  (from 4 repeats on). Two steps are compared, so a machine whose clock moves or that others use
                  moves it, too
    in steps      within each step: the time of replayed ops, of inputs gathered or sharded and of tensors that go
                  to the host and come back, over the time of all other ops; median and quartiles
    predicted     what was replayed, at the times that the same ops took in the forward, over the time without replay
    GFLOP/s       of linears (2 m n k each) and attention (4 s h a token forward and 8 s h backward, times the
                  share of pairs that the mask shows) without the replay's, over the whole time;  of peak: the same
                  over the matmul peak
    replay FLOPs, bytes   of the replay, as a share of those of forward and backward
    With --budgets predicted is by the device table, and the last columns are the planner's share over full/block's
    within a repeat step          on a curve: time over FLOPs against the point before
    With t > 1 bytes are of one rank, tokens/s and GFLOP/s of all, the matmul peak of one; and
    vs one rank   time over that of the same setting on one rank, less 1: median of the ratios within a repeat
    collectives   of one step, in calls and bytes (of the whole tensor, once), in forward, backward, replay, and of
                  parameter gradients; ms is rank 0's time in them, which is waiting for the slowest rank, too.
                  --profile and --trace show each (op all_reduce, ...) on rank 0

EXIT STATUS
    0  fine
    2  an option, a setting or a file is not what it should be, or the library refused; one line on standard error
       says which
)";

namespace {

// Tried before anything runs, so that a name that cannot be written costs no time. What was in the file stays until
// there is something to write, and a file that was not there goes again if it comes to nothing.
class OutputFile {
public:
    OutputFile(const char *option, const std::string &path) : option_(option), path_(path) {
        if (!wanted()) return;
        was_there_ = access(path.c_str(), F_OK) == 0;
        std::FILE *file = std::fopen(path.c_str(), "ab");
        if (file == nullptr) refuse();
        std::fclose(file);
    }
    ~OutputFile() {
        if (wanted() && !was_there_ && !written_) std::remove(path_.c_str());
    }
    OutputFile(const OutputFile &) = delete;

    bool wanted() const { return !path_.empty(); }
    void write(const std::string &text) {
        std::FILE *file = std::fopen(path_.c_str(), "wb");
        if (file == nullptr) refuse();
        written_ = std::fwrite(text.data(), 1, text.size(), file) == text.size();
        if (std::fclose(file) != 0) written_ = false;
        if (!written_) refuse();
    }

private:
    [[noreturn]] void refuse() const {
        bad("mdlm bench: %s: expected a file that can be written, seen '%s': %s", option_, path_.c_str(),
            std::strerror(errno));
    }
    const char *option_;
    std::string path_;
    bool was_there_ = true, written_ = false;
};

}  // namespace

int bench_command(const std::vector<std::string> &words) {
    using namespace bench;
    Ranks ranks("mdlm bench");
    const Options options = parse(words);
    const std::vector<Setting> settings = settings_of(options);
    // Rank 0 writes for all.
    std::optional<OutputFile> svg, trace;
    ranks.together([&] {
        svg.emplace("--svg", ranks.leads() ? options.svg : "");
        trace.emplace("--trace", ranks.leads() ? options.trace : "");
    });
    Measurement measurement;
    {
        std::optional<ProgressBar> bar;
        if (ranks.leads()) bar.emplace();
        measurement = measure(ranks, options, settings,
                              [&](int64_t done, int64_t of, const std::string &name) { bar->show(done, of, name); });
    }
    if (!ranks.leads()) return exit_fine;
    const Report report = report_of(options, measurement);
    if (svg->wanted()) svg->write(svg_of(plot_of(report)));
    if (trace->wanted()) trace->write(trace_of(measurement));
    std::fputs((options.json ? json_of(report) : table_of(report)).c_str(), stdout);
    return exit_fine;
}

}  // namespace mdlm::tools
