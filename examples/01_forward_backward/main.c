/* SPDX-License-Identifier: Apache-2.0 */
// clang-format off
#include <mdlm/mdlm.h>
#include <stdio.h>
#define TRY(call) if ((call) != MDLM_OK) return fprintf(stderr, "%s\n", mdlm_last_error()), 1

static float x[64 * 2 * 128], y[64 * 2 * 128], dy[64 * 2 * 128], dx[64 * 2 * 128]; // [s, b, h]

int main(void) {
    mdlm_config config = MDLM_CONFIG_INIT;
    mdlm_shape shape = MDLM_SHAPE_INIT;
    mdlm_batch batch = MDLM_BATCH_INIT;
    mdlm_memory memory = MDLM_MEMORY_INIT;
    mdlm_context *context;
    mdlm_block *block;
    mdlm_tape *tape;
    TRY(mdlm_config_set(&config, "num_layers", "4"));
    TRY(mdlm_config_set(&config, "hidden_size", "128"));
    TRY(mdlm_config_set(&config, "num_attention_heads", "4"));
    TRY(mdlm_config_set(&config, "recompute_granularity", "full"));
    shape.seq_length = batch.seq_length = 64;
    shape.micro_batch_size = batch.micro_batch_size = 2;
    TRY(mdlm_context_create(NULL, &context));
    TRY(mdlm_block_create(context, &config, &block));
    TRY(mdlm_block_reserve(block, &shape, NULL));
    TRY(mdlm_block_memory(block, &memory));
    TRY(mdlm_params_init(block, 1234));
    TRY(mdlm_tape_create(block, &tape));
    for (int i = 0; i < 64 * 2 * 128; i++) x[i] = dy[i] = (float)(i % 7) - 3.0f;
    TRY(mdlm_block_forward(block, &batch, x, tape, y));  // your loss turns y into dy
    TRY(mdlm_block_backward(block, tape, NULL, dy, dx)); // dx, and gradients of all parameters
    printf("peak %llu bytes, y[0] = %.6f, dx[0] = %.6f\n",
           (unsigned long long)memory.peak_bytes, y[0], dx[0]);
    mdlm_tape_destroy(tape);
    mdlm_block_destroy(block);
    mdlm_context_destroy(context);
    return 0;
}
