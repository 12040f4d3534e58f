// SPDX-License-Identifier: Apache-2.0
#include "step.hpp"

#include <cstring>

#include "base/dtype.hpp"
#include "support/random.hpp"

namespace mpi_test {

Step::Step(mdlm_comm *comm, const Settings &settings, int32_t (*cancelled)(void *payload), void *payload) {
    mdlm_context_desc desc = MDLM_CONTEXT_DESC_INIT;
    desc.comm = comm, desc.num_threads = 1, desc.comm_timeout_ms = 60000;
    desc.cancelled = cancelled, desc.cancelled_payload = payload;
    int32_t rank = 0, size = 1;
    OK(mdlm_comm_rank(comm, &rank, &size));
    mdlm_config config = MDLM_CONFIG_INIT;
    for (const auto &[key, value] : Settings{{"num_layers", "2"},
                                             {"hidden_size", "64"},
                                             {"num_attention_heads", "8"},
                                             {"num_query_groups", "4"},
                                             {"ffn_hidden_size", "96"},
                                             {"qk_layernorm", "1"},
                                             {"hidden_dropout", "0.1"}})
        OK(mdlm_config_set(&config, key, value));
    for (const auto &[key, value] : settings) OK(mdlm_config_set(&config, key, value));
    config.tensor_model_parallel_size = size;
    mdlm_shape shape = MDLM_SHAPE_INIT;
    shape.seq_length = batch.seq_length = 24;
    shape.micro_batch_size = batch.micro_batch_size = 2;
    batch.training = 1, batch.seed = 7;
    try {
        OK(mdlm_context_create(&desc, &context_));
        OK(mdlm_block_create(context_, &config, &block_));
        OK(mdlm_block_reserve(block_, &shape, nullptr));
        OK(mdlm_params_init(block_, 1234));
        OK(mdlm_params_zero_grads(block_));
        OK(mdlm_tape_create(block_, &tape_));
        mdlm_io io = MDLM_IO_INIT;
        OK(mdlm_block_io(block_, &batch, &io));
        bytes_ = io.bytes;
        memory_.assign(4 * bytes_ / sizeof(double), 0);
        // Replicated input is the same on all ranks; under sequence parallelism each has its own part.
        const auto dtype = static_cast<mdlm::DType>(config.params_dtype);
        const auto count = static_cast<int64_t>(bytes_) / mdlm::size_of(dtype);
        const int64_t first = config.sequence_parallel != 0 ? rank * count : 0;
        for (int64_t i = 0; i < count; ++i) {
            mdlm::store(dtype, at(0), i, mdlm_test::uniform(1, static_cast<uint64_t>(first + i)));
            mdlm::store(dtype, at(2), i, mdlm_test::uniform(2, static_cast<uint64_t>(first + i)));
        }
    } catch (...) {
        close();
        throw;
    }
}

Step::~Step() { close(); }

void Step::close() {
    mdlm_tape_destroy(tape_);
    mdlm_block_destroy(block_);
    mdlm_context_destroy(context_);
}

unsigned char *Step::at(int buffer) {
    return reinterpret_cast<unsigned char *>(memory_.data()) + static_cast<size_t>(buffer) * bytes_;
}

mdlm_status Step::forward() { return mdlm_block_forward(block_, &batch, at(0), tape_, at(1)); }

mdlm_status Step::backward(mdlm_status (*grad_ready)(void *payload, int64_t layer), void *payload) {
    mdlm_backward_options options = MDLM_BACKWARD_OPTIONS_INIT;
    options.grad_ready = grad_ready, options.payload = payload;
    return mdlm_block_backward(block_, tape_, &options, at(2), at(3));
}

std::vector<unsigned char> Step::results() {
    std::vector<unsigned char> all(at(1), at(2));
    all.insert(all.end(), at(3), at(4));
    int64_t count = 0;
    OK(mdlm_param_count(block_, &count));
    for (int64_t i = 0; i < count; ++i) {
        mdlm_param_desc desc = MDLM_PARAM_DESC_INIT;
        void *grad = nullptr;
        OK(mdlm_param_info(block_, i, &desc));
        OK(mdlm_param_data(block_, i, nullptr, &grad));
        const auto *bytes = static_cast<const unsigned char *>(grad);
        all.insert(all.end(), bytes, bytes + desc.grad_bytes);
    }
    return all;
}

}  // namespace mpi_test
