/* SPDX-License-Identifier: Apache-2.0 */
#include "step.h"

#include <math.h>
#include <stdio.h>

/* A call that fails ends the step; what there is by then is destroyed at its end. */
#define TRY(call)                                                                                                      \
    do {                                                                                                               \
        status = (call);                                                                                               \
        if (status != MDLM_OK) goto done;                                                                              \
    } while (0)

enum { SEQ = 32, COUNT = 2, HIDDEN = 64, SIZE = SEQ * COUNT * HIDDEN };

static mdlm_status configure(mdlm_config *config, int32_t ranks, int sequence_parallel) {
    static const char *const settings[][2] = {
        {"num_layers", "2"},           {"hidden_size", "64"},        {"num_attention_heads", "4"},
        {"ffn_hidden_size", "192"},    {"normalization", "RMSNorm"}, {"qk_layernorm", "1"},
        {"activation_func", "swiglu"}, {"add_bias_linear", "0"},     {"attention_mask_type", "no_mask"},
        {"final_layernorm", "0"},      {"hidden_dropout", "0.1"},    {"recompute_granularity", "full"},
    };
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        mdlm_status status = mdlm_config_set(config, settings[i][0], settings[i][1]);
        if (status != MDLM_OK) return status;
    }
    config->tensor_model_parallel_size = ranks;
    config->sequence_parallel = sequence_parallel;
    return MDLM_OK;
}

static double squares(const float *values, int64_t count) {
    double sum = 0.0;
    for (int64_t i = 0; i < count; i++) sum += (double)values[i] * values[i];
    return sum;
}

/* Gradients of all parameters: this rank's parts of those that are split, and those that all ranks have. */
static mdlm_status gradient_squares(mdlm_block *block, double *split, double *same) {
    int64_t count = 0;
    mdlm_status status = mdlm_param_count(block, &count);
    for (int64_t i = 0; i < count && status == MDLM_OK; i++) {
        mdlm_param_desc desc = MDLM_PARAM_DESC_INIT;
        void *grad = NULL;
        if ((status = mdlm_param_info(block, i, &desc)) != MDLM_OK) break;
        if ((status = mdlm_param_data(block, i, NULL, &grad)) != MDLM_OK) break;
        *(desc.partition_dim >= 0 ? split : same) += squares(grad, (int64_t)(desc.grad_bytes / sizeof(float)));
    }
    return status;
}

mdlm_status step_run(mdlm_comm *comm, const step_options *options, step_result *result) {
    _Alignas(64) float x[SIZE], y[SIZE], dy[SIZE], dx[SIZE]; /* of this rank: all of it, or its part of the sequence */
    mdlm_context_desc desc = MDLM_CONTEXT_DESC_INIT;
    mdlm_config config = MDLM_CONFIG_INIT;
    mdlm_shape shape = MDLM_SHAPE_INIT;
    mdlm_batch batch = MDLM_BATCH_INIT;
    mdlm_io io = MDLM_IO_INIT;
    mdlm_context *context = NULL;
    mdlm_block *block = NULL;
    mdlm_tape *tape = NULL;
    mdlm_status status = MDLM_OK;
    int32_t rank = 0, ranks = 1;

    if (comm != NULL) TRY(mdlm_comm_rank(comm, &rank, &ranks));
    desc.comm = comm;
    desc.comm_timeout_ms = options->timeout_ms;
    desc.num_threads = 1; /* the ranks share the cores */
    TRY(mdlm_context_create(&desc, &context));
    TRY(configure(&config, ranks, options->sequence_parallel));
    TRY(mdlm_block_create(context, &config, &block));
    shape.seq_length = batch.seq_length = SEQ;
    shape.micro_batch_size = batch.micro_batch_size = COUNT;
    TRY(mdlm_block_reserve(block, &shape, NULL));
    TRY(mdlm_params_init(block, 1234)); /* each rank makes its part of the same values */
    TRY(mdlm_params_zero_grads(block));
    TRY(mdlm_tape_create(block, &tape));

    batch.training = 1;
    TRY(mdlm_block_io(block, &batch, &io));
    const int64_t size = (int64_t)(io.bytes / sizeof(float)), first = size < SIZE ? rank * size : 0;
    for (int64_t i = 0; i < size; i++) {
        x[i] = (float)((first + i) % 7) - 3.0f;
        dy[i] = (float)((first + i) % 5) - 2.0f;
    }
    TRY(mdlm_block_forward(block, &batch, x, tape, y));
    if (options->before_backward != NULL) options->before_backward();
    TRY(mdlm_block_backward(block, tape, NULL, dy, dx));

    /* Sums over the group: of what is split. What all ranks have counts once. */
    double same[3] = {squares(y, size), squares(dx, size), 0.0}, split[3] = {0.0, 0.0, 0.0};
    TRY(gradient_squares(block, &split[2], &same[2]));
    for (int i = 0; i < 2 && size < SIZE; i++) {
        split[i] = same[i];
        same[i] = 0.0;
    }
    if (comm != NULL)
        TRY(mdlm_comm_all_reduce(comm, split, split, 3, MDLM_DTYPE_F64, MDLM_REDUCE_SUM, options->timeout_ms));
    result->output = sqrt((split[0] + same[0]) / SIZE);
    result->grad_input = sqrt((split[1] + same[1]) / SIZE);
    result->grad = sqrt(split[2] + same[2]);

done:
    mdlm_tape_destroy(tape);
    mdlm_block_destroy(block);
    mdlm_context_destroy(context);
    return status;
}

static int near_to(double a, double b) { return fabs(a - b) <= 1e-5 * fabs(b); }

int step_report(const char *name, mdlm_status status, const step_result *seen, const step_result *one_rank) {
    if (status != MDLM_OK) {
        printf("%-36s %s: %s\n", name, mdlm_status_name(status), mdlm_last_error());
        return 0;
    }
    const int same = near_to(seen->output, one_rank->output) && near_to(seen->grad_input, one_rank->grad_input) &&
                     near_to(seen->grad, one_rank->grad);
    printf("%-36s |y| %.5f  |dx| %.5f  |gradients| %.3f%s\n", name, seen->output, seen->grad_input, seen->grad,
           same ? "" : "  DIFFERS");
    fflush(stdout);
    return same;
}
