/* SPDX-License-Identifier: Apache-2.0 */
#include "model.h"

#include "layers.h"
#include "pool.h"

#include <stdlib.h>
#include <string.h>

static const struct {
    const char *key, *value;
} architecture[] = {
    {"num_layers", "4"},
    {"hidden_size", "128"},
    {"num_attention_heads", "4"},
    {"normalization", "LayerNorm"},
    {"activation_func", "gelu_tanh"},
    {"add_bias_linear", "1"},                        /* every linear has one, */
    {"add_qkv_bias", "1"},                           /* linear_qkv too */
    {"position_embedding_type", "learned_absolute"}, /* our table: its rows are in x */
    {"final_layernorm", "0"},                        /* ours as well */
    {"attention_mask_type", "causal"},
    {"attention_dropout", "0.1"},
    {"hidden_dropout", "0.1"},
};

static void create_block(model *m, const way *how) {
    mdlm_context_desc desc = MDLM_CONTEXT_DESC_INIT;
    mdlm_threadpool pool = pool_of(how->threads);
    desc.threadpool = &pool; /* copied */
    CHECK(mdlm_context_create(&desc, &m->context));
    mdlm_config config = MDLM_CONFIG_INIT;
    for (size_t i = 0; i < sizeof architecture / sizeof *architecture; i++)
        CHECK(mdlm_config_set(&config, architecture[i].key, architecture[i].value));
    CHECK(mdlm_config_set(&config, "recompute_granularity", how->granularity));
    CHECK(mdlm_block_create(m->context, &config, &m->block));
    m->hidden = (size_t)config.hidden_size;
}

/* Next place in the flat arrays. Places begin on multiples of 64 bytes, as mdlm_param_bind wants them. */
static size_t place(model *m, const char *name, size_t count, int decays) {
    size_t offset = m->size;
    m->tensors[m->tensor_count++] = (tensor){name, offset, count, decays};
    m->size += (count + 15) / 16 * 16;
    return offset;
}

/* Before any reservation: what the block has is known, and stands between the tables and the final norm in our order.
 */
static size_t lay_out(model *m, int64_t of_block) {
    m->tensors = allocate((size_t)of_block + 4, sizeof *m->tensors);
    m->wte = place(m, "wte", VOCABULARY * m->hidden, 1);
    m->wpe = place(m, "wpe", SEQ * m->hidden, 0);
    size_t first = m->tensor_count;
    for (int64_t i = 0; i < of_block; i++) {
        mdlm_param_desc desc = MDLM_PARAM_DESC_INIT;
        CHECK(mdlm_param_info(m->block, i, &desc));
        if (desc.dtype != MDLM_DTYPE_F32 || desc.grad_dtype != MDLM_DTYPE_F32)
            die(EXIT_FAILED, "%s: it is not float32", desc.name);
        place(m, desc.name, (size_t)desc.bytes / sizeof(float), desc.ndim == 2);
    }
    m->norm_weight = place(m, "ln_f.weight", m->hidden, 0);
    m->norm_bias = place(m, "ln_f.bias", m->hidden, 0);
    return first;
}

/* The block reads and writes our arrays: the optimizer and a checkpoint need not know what is whose. */
static void bind(model *m, int64_t of_block, size_t first) {
    m->params = allocate(m->size, sizeof(float));
    m->grads = allocate(m->size, sizeof(float));
    for (int64_t i = 0; i < of_block; i++) {
        size_t offset = m->tensors[first + (size_t)i].offset;
        CHECK(mdlm_param_bind(m->block, i, m->params + offset, m->grads + offset));
    }
}

/* Initial values: the library's for the block, by the same rule for the rest. */
static void initialise(model *m, uint64_t seed) {
    CHECK(mdlm_params_init(m->block, seed));
    rng generator = {seed ^ 0x4750542d32u};
    for (size_t i = 0; i < VOCABULARY * m->hidden; i++) m->params[m->wte + i] = 0.02f * rng_normal(&generator);
    for (size_t i = 0; i < SEQ * m->hidden; i++) m->params[m->wpe + i] = 0.01f * rng_normal(&generator);
    for (size_t k = 0; k < m->hidden; k++) m->params[m->norm_weight + k] = 1.0f;
}

void model_create(model *m, const way *how, uint64_t seed) {
    memset(m, 0, sizeof *m);
    create_block(m, how);
    int64_t of_block = 0;
    CHECK(mdlm_param_count(m->block, &of_block));
    size_t first = lay_out(m, of_block);
    bind(m, of_block, first);
    initialise(m, seed);

    mdlm_shape shape = MDLM_SHAPE_INIT;
    shape.seq_length = SEQ;
    shape.micro_batch_size = COUNT;
    CHECK(mdlm_block_reserve(m->block, &shape, NULL));
    CHECK(mdlm_tape_create(m->block, &m->tape));

    const size_t tokens = (size_t)SEQ * COUNT;
    m->x = allocate(tokens * m->hidden, sizeof(float));
    m->y = allocate(tokens * m->hidden, sizeof(float));
    m->dy = allocate(tokens * m->hidden, sizeof(float));
    m->dx = allocate(tokens * m->hidden, sizeof(float));
    m->features = allocate(tokens * m->hidden, sizeof(float));
    m->statistics = allocate(2 * tokens, sizeof(float));
    m->logits = allocate(tokens * VOCABULARY, sizeof(float));
    m->turned = allocate((tokens > m->hidden ? tokens : m->hidden) * VOCABULARY, sizeof(float));
    m->input = allocate(tokens, 1);
    m->target = allocate(tokens, 1);
}

void model_destroy(model *m) {
    mdlm_tape_destroy(m->tape);
    mdlm_block_destroy(m->block);
    mdlm_context_destroy(m->context);
    void *const ours[] = {m->tensors,  m->params,     m->grads,  m->x,      m->y,     m->dy,    m->dx,
                          m->features, m->statistics, m->logits, m->turned, m->input, m->target};
    for (size_t i = 0; i < sizeof ours / sizeof *ours; i++) free(ours[i]);
    memset(m, 0, sizeof *m);
}

/* Puts a window of seq bytes in as the j-th of count sequences. */
static void put(model *m, const unsigned char *window, size_t seq, size_t j, size_t count) {
    for (size_t i = 0; i < seq; i++) {
        m->input[i * count + j] = window[i];
        m->target[i * count + j] = window[i + 1];
    }
}

/* Embedding, block, final norm, head: logits of every token. tape NULL = evaluation. */
static void forward(model *m, mdlm_batch *batch, size_t seq, size_t count, mdlm_tape *tape) {
    const size_t h = m->hidden, tokens = seq * count;
    const float *wte = m->params + m->wte, *wpe = m->params + m->wpe;
    for (size_t n = 0; n < tokens; n++) {
        const float *byte = wte + m->input[n] * h, *position = wpe + n / count * h;
        for (size_t k = 0; k < h; k++) m->x[n * h + k] = byte[k] + position[k];
    }
    batch->seq_length = (int64_t)seq;
    batch->micro_batch_size = (int64_t)count;
    CHECK(mdlm_block_forward(m->block, batch, m->x, tape, m->y));
    layernorm(m->features, m->statistics, m->y, m->params + m->norm_weight, m->params + m->norm_bias, tokens, h);
    transpose(m->turned, wte, VOCABULARY, h);
    memset(m->logits, 0, tokens * VOCABULARY * sizeof(float));
    matmul_add(m->logits, m->features, m->turned, tokens, h, VOCABULARY);
}

/* From the gradient of the logits back to all parameters. */
static void backward(model *m, size_t seq, size_t count) {
    const size_t h = m->hidden, tokens = seq * count;
    float *wte_grad = m->grads + m->wte, *wpe_grad = m->grads + m->wpe;
    transpose(m->turned, m->logits, tokens, VOCABULARY);
    matmul_add(wte_grad, m->turned, m->features, VOCABULARY, tokens, h);
    memset(m->dy, 0, tokens * h * sizeof(float));
    matmul_add(m->dy, m->logits, m->params + m->wte, tokens, VOCABULARY, h);
    layernorm_backward(m->dy, m->grads + m->norm_weight, m->grads + m->norm_bias, m->dy, m->y,
                       m->params + m->norm_weight, m->statistics, tokens, h);
    CHECK(mdlm_block_backward(m->block, m->tape, NULL, m->dy, m->dx));
    for (size_t n = 0; n < tokens; n++) {
        float *byte = wte_grad + m->input[n] * h, *position = wpe_grad + n / count * h;
        for (size_t k = 0; k < h; k++) {
            byte[k] += m->dx[n * h + k];
            position[k] += m->dx[n * h + k];
        }
    }
}

double model_gradients(model *m, const corpus *text, rng *generator, uint64_t seed, uint32_t step) {
    const size_t tokens = (size_t)SEQ * COUNT;
    double loss = 0.0;
    memset(m->grads, 0,
           m->size * sizeof(float)); /* the block's among them, so no mdlm_params_zero_grads and no overwrite_grads */
    for (uint32_t micro = 0; micro < MICRO_BATCHES; micro++) {
        mdlm_batch batch = MDLM_BATCH_INIT;
        batch.training = 1;
        batch.seed = seed;
        batch.step = step;
        batch.micro_batch_index = micro;
        for (size_t j = 0; j < COUNT; j++) put(m, corpus_window(text, generator), SEQ, j, COUNT);
        forward(m, &batch, SEQ, COUNT, m->tape);
        loss += cross_entropy(m->logits, m->target, tokens, VOCABULARY, 1.0f / (float)(tokens * MICRO_BATCHES));
        backward(m, SEQ, COUNT);
    }
    return loss / (double)(tokens * MICRO_BATCHES);
}

double model_evaluate(model *m, const corpus *text, size_t windows) {
    double loss = 0.0;
    for (size_t first = 0; first < windows; first += COUNT) {
        mdlm_batch batch = MDLM_BATCH_INIT;
        for (size_t j = 0; j < COUNT; j++) put(m, corpus_held_out(text, first + j), SEQ, j, COUNT);
        forward(m, &batch, SEQ, COUNT, NULL);
        loss += cross_entropy(m->logits, m->target, (size_t)SEQ * COUNT, VOCABULARY, 0.0f);
    }
    return loss / (double)(windows * SEQ);
}

const float *model_next(model *m, const unsigned char *bytes, size_t length) {
    mdlm_batch batch = MDLM_BATCH_INIT;
    memcpy(m->input, bytes, length);
    forward(m, &batch, length, 1, NULL); /* any shape within what was reserved */
    return m->logits + (length - 1) * VOCABULARY;
}
