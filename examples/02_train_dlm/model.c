/* SPDX-License-Identifier: Apache-2.0 */
#include "model.h"

#include "matmul.h"

#include <stdlib.h>
#include <string.h>

/* About a million parameters: 3 x 13 hidden^2 in the block, 2 x 257 hidden around it. Heads are four, for up to four
   ranks. Sequences are short and steps are few, so positions turn faster and initial weights are larger than by
   default: attention then finds the neighbouring bytes several times sooner. */
static const setting architecture[] = {
    {"num_layers", "3"},
    {"hidden_size", "160"},
    {"num_attention_heads", "4"},
    {"ffn_hidden_size", "480"},
    {"normalization", "RMSNorm"},
    {"qk_layernorm", "1"},
    {"activation_func", "swiglu"},
    {"add_bias_linear", "0"},
    {"position_embedding_type", "rope"},
    {"rotary_base", "100"},
    {"attention_mask_type", "no_mask"},
    {"init_method_std", "0.05"},
    {NULL, NULL},
};

static void configure(mdlm_config *config, const setting *settings) {
    for (; settings->key != NULL; settings++) CHECK(mdlm_config_set(config, settings->key, settings->value));
}

static void create_block(model *m, int threads, const char *dtype, const setting *settings) {
    mdlm_context_desc desc = MDLM_CONTEXT_DESC_INIT;
    desc.num_threads = threads != 0 ? threads : group_threads(m->self->size);
    desc.comm = m->self->comm;
    CHECK(mdlm_context_create(&desc, &m->context));

    mdlm_config config = MDLM_CONFIG_INIT;
    configure(&config, architecture);
    CHECK(mdlm_config_set(&config, "params_dtype", dtype));
    configure(&config, settings);
    config.tensor_model_parallel_size = m->self->size;
    config.sequence_parallel = m->self->sequence_parallel;
    CHECK(mdlm_block_create(m->context, &config, &m->block));
    m->hidden = (size_t)config.hidden_size;
    m->dtype = config.params_dtype;

    mdlm_shape shape = MDLM_SHAPE_INIT;
    shape.seq_length = (int64_t)m->max_seq;
    shape.micro_batch_size = (int64_t)m->max_count;
    CHECK(mdlm_block_reserve(m->block, &shape, NULL));
    CHECK(mdlm_tape_create(m->block, &m->tape));
}

static void list_parameters(model *m) {
    int64_t of_block = 0;
    CHECK(mdlm_param_count(m->block, &of_block));
    m->parameters = allocate(2 + (size_t)of_block, sizeof *m->parameters);
    m->parameters[0] = (parameter){m->embedding, m->embedding_grad, MDLM_DTYPE_F32, INPUTS * m->hidden, 0, 0};
    m->parameters[1] = (parameter){m->head, m->head_grad, MDLM_DTYPE_F32, m->hidden * BYTES, 1, 0};
    m->parameter_count = 2;
    for (int64_t i = 0; i < of_block; i++) {
        mdlm_param_desc desc = MDLM_PARAM_DESC_INIT;
        void *stored = NULL, *grad = NULL;
        CHECK(mdlm_param_info(m->block, i, &desc));
        CHECK(mdlm_param_data(m->block, i, &stored, &grad));
        if (desc.grad_dtype != MDLM_DTYPE_F32) die(EXIT_FAILED, "%s: its gradient is not float32", desc.name);
        m->parameters[m->parameter_count++] = (parameter){
            stored, grad, desc.dtype, (size_t)desc.grad_bytes / sizeof(float), desc.ndim == 2, desc.partition_dim >= 0};
    }
}

void model_create(model *m, const rank *self, int threads, const char *dtype, size_t seq, size_t count,
                  const setting *settings, uint64_t seed) {
    memset(m, 0, sizeof *m);
    m->self = self;
    m->max_seq = seq;
    m->max_count = count;
    create_block(m, threads, dtype, settings);
    CHECK(mdlm_params_init(m->block, seed));

    size_t tokens = seq * count, element = m->dtype == MDLM_DTYPE_BF16 ? sizeof(uint16_t) : sizeof(float);
    m->embedding = allocate(INPUTS * m->hidden, sizeof(float));
    m->embedding_grad = allocate(INPUTS * m->hidden, sizeof(float));
    m->head = allocate(m->hidden * BYTES, sizeof(float));
    m->head_grad = allocate(m->hidden * BYTES, sizeof(float));
    m->x = allocate(tokens * m->hidden, element);
    m->y = allocate(tokens * m->hidden, element);
    m->dy = allocate(tokens * m->hidden, element);
    m->dx = allocate(tokens * m->hidden, element);
    m->part = allocate(tokens * m->hidden, element);
    m->features = allocate(tokens * m->hidden, sizeof(float));
    m->logits = allocate(tokens * BYTES, sizeof(float));
    m->turned = allocate((tokens > BYTES ? tokens : BYTES) * m->hidden, sizeof(float));

    rng generator = rng_stream(seed, 'P');
    for (size_t i = 0; i < INPUTS * m->hidden; i++) m->embedding[i] = 0.1f * rng_normal(&generator);
    for (size_t i = 0; i < m->hidden * BYTES; i++) m->head[i] = 0.02f * rng_normal(&generator);
    list_parameters(m);
}

void model_destroy(model *m) {
    mdlm_tape_destroy(m->tape);
    mdlm_block_destroy(m->block);
    mdlm_context_destroy(m->context);
    void *const ours[] = {m->embedding, m->embedding_grad, m->head,     m->head_grad, m->parameters, m->x, m->y, m->dy,
                          m->dx,        m->part,           m->features, m->logits,    m->turned};
    for (size_t i = 0; i < sizeof ours / sizeof *ours; i++) free(ours[i]);
    memset(m, 0, sizeof *m);
}

size_t model_size(const model *m) {
    size_t size = 0;
    for (size_t i = 0; i < m->parameter_count; i++) size += m->parameters[i].count;
    return size;
}

uint64_t model_hash(const model *m, size_t *size) {
    const size_t element = m->dtype == MDLM_DTYPE_BF16 ? sizeof(uint16_t) : sizeof(float);
    size_t ours = m->parameters[0].count + m->parameters[1].count, of_block = 0;
    uint64_t hash = FNV1A_START;
    for (size_t i = 0; i < 2; i++) hash = fnv1a(hash, m->parameters[i].stored, m->parameters[i].count * sizeof(float));
    for (size_t i = 2; i < m->parameter_count; i++) {
        mdlm_param_desc desc = MDLM_PARAM_DESC_INIT;
        CHECK(mdlm_param_info(m->block, (int64_t)i - 2, &desc));
        size_t count = (size_t)desc.full_shape[0] * (desc.ndim == 2 ? (size_t)desc.full_shape[1] : 1);
        void *full = allocate(count, element);
        CHECK(mdlm_param_gather(m->block, (int64_t)i - 2, m->dtype, full, count * element));
        hash = fnv1a(hash, full, count * element);
        free(full);
        of_block += count;
    }
    if (size != NULL) *size = ours + of_block;
    return hash;
}

/* Row n of one of the block's four arrays, to and from float. */
static void put_row(const model *m, void *array, size_t n, const float *row) {
    if (m->dtype == MDLM_DTYPE_F32) {
        memcpy((float *)array + n * m->hidden, row, m->hidden * sizeof(float));
    } else {
        for (size_t k = 0; k < m->hidden; k++) ((uint16_t *)array)[n * m->hidden + k] = float_to_bf16(row[k]);
    }
}

static void get_row(const model *m, const void *array, size_t n, float *row) {
    if (m->dtype == MDLM_DTYPE_F32) {
        memcpy(row, (const float *)array + n * m->hidden, m->hidden * sizeof(float));
    } else {
        for (size_t k = 0; k < m->hidden; k++) row[k] = bf16_to_float(((const uint16_t *)array)[n * m->hidden + k]);
    }
}

/* With sequence parallelism the block takes and gives this rank's part of the sequence, which in [s, b, h] is in one
   piece. Everything around the block is done on all ranks, in full: so a part goes in, and all parts are gathered from
   what comes out. */
static const void *own_part(const model *m, const void *array, size_t tokens) {
    if (!m->self->sequence_parallel) return array;
    size_t element = m->dtype == MDLM_DTYPE_BF16 ? sizeof(uint16_t) : sizeof(float);
    return (const char *)array + (size_t)m->self->number * (tokens / (size_t)m->self->size) * m->hidden * element;
}

static void *room_for_part(const model *m, void *array) { return m->self->sequence_parallel ? m->part : array; }

static void gather_parts(const model *m, void *array, size_t tokens) {
    if (!m->self->sequence_parallel) return;
    CHECK(mdlm_comm_all_gather(m->self->comm, m->part, array, (int64_t)(tokens / (size_t)m->self->size * m->hidden),
                               m->dtype, 0));
}

static mdlm_batch batch_of(const sample *s) {
    mdlm_batch batch = MDLM_BATCH_INIT;
    batch.seq_length = (int64_t)s->seq;
    batch.micro_batch_size = (int64_t)s->count;
    return batch;
}

/* Embedding, block, head; the head only where a byte is masked, for nothing else has a loss. */
static void forward(model *m, const sample *s, const mdlm_batch *batch, mdlm_tape *tape) {
    size_t tokens = s->seq * s->count;
    for (size_t n = 0; n < tokens; n++) put_row(m, m->x, n, m->embedding + s->input[n] * m->hidden);
    CHECK(mdlm_block_forward(m->block, batch, own_part(m, m->x, tokens), tape, room_for_part(m, m->y)));
    gather_parts(m, m->y, tokens);
    for (size_t i = 0; i < s->masked; i++) get_row(m, m->y, s->place[i], m->features + i * m->hidden);
    matmul(m->logits, m->features, m->head, s->masked, m->hidden, BYTES);
}

float *model_predict(model *m, const sample *s) {
    mdlm_batch batch = batch_of(s);
    forward(m, s, &batch, NULL);
    return m->logits;
}

double model_gradients(model *m, const sample *s, uint64_t seed, uint32_t step, mdlm_tape_stats *stats) {
    size_t tokens = s->seq * s->count, hidden = m->hidden;
    mdlm_batch batch = batch_of(s);
    batch.training = 1;
    batch.seed = seed;
    batch.step = step;
    forward(m, s, &batch, m->tape);
    if (stats != NULL) CHECK(mdlm_tape_get_stats(m->tape, stats));
    double loss = masked_loss(s, m->logits);

    transpose(m->turned, m->features, s->masked, hidden);
    matmul(m->head_grad, m->turned, m->logits, hidden, s->masked, BYTES);
    transpose(m->turned, m->head, hidden, BYTES);
    matmul(m->features, m->logits, m->turned, s->masked, BYTES, hidden); /* their gradient now */
    memset(m->dy, 0, tokens * hidden * (m->dtype == MDLM_DTYPE_BF16 ? sizeof(uint16_t) : sizeof(float)));
    for (size_t i = 0; i < s->masked; i++) put_row(m, m->dy, s->place[i], m->features + i * hidden);

    mdlm_backward_options options = MDLM_BACKWARD_OPTIONS_INIT;
    options.overwrite_grads = 1;
    CHECK(mdlm_block_backward(m->block, m->tape, &options, own_part(m, m->dy, tokens), room_for_part(m, m->dx)));
    gather_parts(m, m->dx, tokens);

    memset(m->embedding_grad, 0, INPUTS * hidden * sizeof(float));
    for (size_t n = 0; n < tokens; n++) {
        float *row = m->features; /* free again */
        get_row(m, m->dx, n, row);
        for (size_t k = 0; k < hidden; k++) m->embedding_grad[s->input[n] * hidden + k] += row[k];
    }
    return loss;
}
