// SPDX-License-Identifier: Apache-2.0
// A draw's step while it runs: what step_setup.cpp makes, and what step.cpp does with it, event by event.
#pragma once
#include "api/objects.hpp"
#include "step.hpp"
#include "support/hold.hpp"
#include "support/rig.hpp"

namespace property {

using mdlm_test::Buffer;
using mdlm_test::fnv;
using mdlm_test::hold;

// A handle of the C ABI, destroyed with its owner.
template <class T, void (*Destroy)(T *)>
struct Owned {
    T *at = nullptr;
    Owned() = default;
    Owned(Owned &&o) noexcept : at(std::exchange(o.at, nullptr)) {}
    ~Owned() { Destroy(at); }
    operator T *() const { return at; }
};

// The caller's arrays of one micro-batch.
struct MicroBuffers {
    size_t bytes = 0;
    Buffer x, y, dy, dx;
    size_t tape = 0;
};

class StepRun {
public:
    StepRun(const Draw &d, const How &how, Outcome &out)
        : d_(d), how_(how), which_(how.which), intruder_(how.intruder), out_(out),
          type_(static_cast<mdlm::DType>(d.config.params_dtype)),
          parts_(d.config.sequence_parallel != 0 ? d.config.tensor_model_parallel_size : 1) {
        mdlm_context_desc desc = MDLM_CONTEXT_DESC_INIT;
        desc.num_threads = how.threads;
        desc.comm = how.comm;
        int32_t rank = 0;
        if (how.comm != nullptr) OK(mdlm_comm_rank(how.comm, &rank, nullptr));
        rank_ = rank;
        auto device = make_device();
        Intruder *intruder = intruder_;
        if (intruder != nullptr) device = intruder->device(std::move(device));
        mdlm::Comms comms{how.comm != nullptr ? how.comm->comm : mdlm::make_self_comm(), nullptr, 0};
        context_.at = new mdlm_context(std::make_shared<mdlm::Gate>(), std::move(device), std::move(comms), desc);
    }

    void all();

private:
    struct Param {
        mdlm_param_desc info = MDLM_PARAM_DESC_INIT;
        void *grad = nullptr;
    };
    struct Evaluation {
        size_t micro;
        bool training;
        std::vector<unsigned char> y;
    };

    std::unique_ptr<mdlm::Device> make_device() const;

    // This rank's part of an array [s, b, h], or [b, s, h], of numbers drawn for the whole of it; where all is coarse,
    // of each what bf16 holds.
    void fill(uint64_t seed, size_t micro, void *to) const;
    // f(index in the whole, index in this rank's part or -1), in the order of the whole.
    template <class F>
    void each(size_t micro, F &&f) const {
        const mdlm_batch &b = d_.micro[micro].batch;
        const int64_t hidden = d_.config.hidden_size, part = b.seq_length / parts_,
                      first = parts_ > 1 ? rank_ * part : 0;
        for (int64_t i = 0; i < d_.micro[micro].elements(hidden); ++i) {
            const int64_t row = i / hidden,
                          seq = d_.config.batch_first != 0 ? row % b.seq_length : row / b.micro_batch_size;
            const int64_t within =
                d_.config.batch_first != 0 ? row / b.seq_length * part + seq - first : row - first * b.micro_batch_size;
            f(i, seq < first || seq >= first + part ? -1 : within * hidden + i % hidden);
        }
    }

    void open();
    void make_plan();
    void uses_shards();
    // The same plan, out of its text.
    void read_back();

    int64_t items() const { return d_.config.num_layers + (d_.config.final_layernorm != 0); }

    void write_param(int64_t i);

    void one(const Event &e);

    // Calls forward with documents and an input that are gone when it returns, as far as the contract allows.
    void pass(size_t m, mdlm_tape *tape, bool training, void *y, bool borrowed);

    void forward(size_t m, bool goes_on);

    struct Ready {
        StepRun *run;
        std::vector<int64_t> layers;
        std::vector<uint64_t> digests;
    };
    static mdlm_status ready(void *payload, int64_t layer);
    uint64_t digest(int64_t layer) const;

    void backward(size_t m);

    void check_ready(const Ready &called) const;

    void check_stats(size_t m, mdlm_tape *tape);

    void evaluate(const Event &e);

    // An evaluation gives the bits of a forward with a tape.
    void check_evaluations();

    // Of x's shape.
    void keep_rows(const std::string &name, size_t m, const void *at);
    void keep(std::string name, const void *at, size_t bytes);

    const Draw &d_;
    const How how_;
    Which which_;
    Intruder *intruder_;
    Outcome &out_;
    mdlm::DType type_;
    int64_t parts_, rank_ = 0;  // that the sequence is cut into, and which is this rank's
    Owned<mdlm_context, mdlm_context_destroy> context_;
    Owned<mdlm_block, mdlm_block_destroy> block_;
    Owned<mdlm_plan, mdlm_plan_destroy> plan_;
    std::vector<Owned<mdlm_tape, mdlm_tape_destroy>> tapes_;
    std::vector<size_t> free_;
    std::vector<Param> params_;
    std::vector<MicroBuffers> slots_;
    std::vector<Buffer> spent_;
    std::vector<Evaluation> evaluations_;
    uint64_t predicted_ops_ = 0, predicted_flops_ = 0, forward_flops_ = 0, backward_flops_ = 0;
    bool begun_ = false;
};

}  // namespace property
