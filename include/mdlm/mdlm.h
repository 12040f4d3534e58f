/* libmdlm: checkpointed transformer blocks behind a stable C ABI.
   SPDX-License-Identifier: Apache-2.0

A block is a stack of transformer layers. libmdlm runs it forward and backward, keeps between the
two only what a *plan* says, replays the rest, and gives the same gradients to the bit under every
plan. Its peak memory is known before it runs.

A whole program (compiles as C99 and as C++; cc first.c $(pkg-config --cflags --libs mdlm)):

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

The fifteen functions that a newcomer needs: mdlm_last_error, mdlm_config_init, mdlm_config_set,
mdlm_context_create, mdlm_context_destroy, mdlm_block_create, mdlm_block_destroy,
mdlm_block_reserve, mdlm_block_memory, mdlm_params_init, mdlm_param_info, mdlm_tape_create,
mdlm_tape_destroy, mdlm_block_forward, mdlm_block_backward. The rest can wait. They stand in this
order: status; config; context; block, shape, memory; parameters; batch and tape; forward and
backward; then plans, device tables, the observer and groups of ranks. mdlm/chain.h has the planner
for layers that are not the library's, mdlm/mpi.h groups of processes.

Words
    block    the stack of layers of one pipeline stage on one rank
    unit     what is replayed as one: one layer, or consecutive layers of which only the first input
             is kept
    policy   where each tensor of one layer is until backward reads it: MDLM_STORAGE_KEEP, _REPLAY,
             _SHARD or _HOST
    plan     a policy and a unit for every layer, with the bytes they need
    tape     what one forward leaves for its backward. One per micro-batch in flight
    saved    lives from a forward to its backward;  scratch: dies within the call
    replay   the second forward of a tensor, during backward
    s, b, h  sequence length, micro-batch size, hidden size;  t: tensor-model-parallel size

Rules that hold for every function, unless its comment says otherwise
    Status      Every function that can fail returns an mdlm_status; MDLM_OK is 0. On failure
                mdlm_last_error() of the same thread has one line that names the argument, what was
                expected and what was seen. Nothing prints, exits, aborts or throws. A call that
                failed has changed nothing, except where said.
    NULL        A pointer may be NULL only where the comment says so; otherwise NULL is
                MDLM_ERROR_ARGUMENT.
    Structs     Begin with struct_size and are set up by an INIT macro or by mdlm_X_init(p, sizeof
                *p). A field added in a later version is 0 by default. A struct larger than this
                library knows is taken if its unknown tail is all zero; output structs are filled up
                to the smaller of the two sizes. A size that no such struct can have, too small or
                no multiple of its alignment, is ARGUMENT.
    Handles     Opaque. *out is written only on success; a parameter "mdlm_X **out" is exactly one
                handle that the caller owns from then on. _destroy takes NULL. Children keep their
                parents alive, so handles may be destroyed in any order and from any thread.
    Threads     Calls on objects of one context exclude each other: a second thread gets
                MDLM_ERROR_BUSY and nothing happens. _destroy never returns BUSY: during another
                call it marks the handle, and that call frees it before returning. Two contexts
                never interfere. Configs, shapes, batches are plain structs of yours. Threads of the
                library block all signals but those of their own faults, so handlers for what is
                sent to the process run on yours. A call needs at most 128 KiB of its thread's
                stack.
    Devices     On the CPU and the reference device all work is done when a call returns. On a
                device with streams (CUDA) calls of the groups "forward and backward" and
                "parameters" that say "enqueued" return when their work is in the context's stream,
                in order behind what was there. Device memory that was handed to such a call is
                borrowed until the work is done: what follows in the same stream may use it at once,
                the host and other streams only after mdlm_context_synchronize or an event of their
                own. Host memory is never borrowed beyond a call. A device that fails later reports
                it in whatever call on the context sees it first, at the latest in
                mdlm_context_synchronize; the error sticks (MDLM_ERROR_DEVICE from then on, from all
                but destroying, reading the last error and what needs no device), tapes are spent
                and gradients undefined.
    Cancelling  mdlm_context_desc, mdlm_target and the functions of mdlm/chain.h take a function
                cancelled(payload), asked between ops, while waiting for other ranks, and during
                searches and calibration, on the thread that made the call, never more often than a
                thousand times a second by the searches and the waits. Anything but 0 ends the call
                with MDLM_ERROR_CANCELLED. Then nothing has changed, except, once anything has run:
                a forward leaves y undefined and the tape empty, a backward leaves the tape empty,
                dx undefined and the gradients dirty, and where other ranks were already on the way
                the group is aborted. It must return and may not call into the context (BUSY).
    Fork        In a child that fork made, handles from before can only be destroyed: other calls on
                them are MDLM_ERROR_STATE (plans are plain data and stay usable), and contexts made
                in the child work. Destroying there calls no function of yours, tells no rank of a
                group, and frees what the library allocated, or nothing where a call was running at
                the fork; threads were not copied. The parent notices nothing. A function of yours
                that forks during a call must not return in the child (exec or _exit).
    Memory      Pointers to your data are borrowed until the call returns, device memory on a device
                with streams until its work is done. They must be aligned to the size of an element;
                what a device asks of x, y, dx and dy is in mdlm_io. Host memory of functions on
                parameters may be anywhere. dx may be dy; nothing else may overlap. Only
                mdlm_block_reserve and mdlm_block_prepare allocate for running; forward and backward
                do not.
    Numbers     Sizes are bytes where the name says bytes, elements or tokens otherwise. Layouts are
                row-major, last dimension contiguous.
    Bits        Same build, device, shapes and group size: the same bits, for every number of
                threads and every plan, and whatever the caller's floating-point environment: calls,
                the library's threads and its tasks on yours round to nearest, keep denormals and
                trap no exception, and the caller's environment, its flags too, is as it was on
                return. Functions of yours run in yours, and what they change in it stays.
    Bindings    An enumeration stands directly behind the typedef of its type. For a language whose
                tasks change threads, make the call and read mdlm_last_error in one C function. Keep
                alive what the library borrows beyond a call: bound parameters and gradients (with
                the block), x under MDLM_INPUT_BORROW (with the tape), functions and their payloads
                (with the context). */
#ifndef MDLM_MDLM_H
#define MDLM_MDLM_H

#include <stddef.h>
#include <stdint.h>

#define MDLM_VERSION_MAJOR 0
#define MDLM_VERSION_MINOR 1
#define MDLM_VERSION_PATCH 0
/* Grows by one whenever the ABI gains something; goes into mdlm_context_desc. */
#define MDLM_API_VERSION 1

#if defined(MDLM_BUILD) && defined(__GNUC__)
#define MDLM_API __attribute__((visibility("default")))
#else
#define MDLM_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* --------------------------------------------------------------------------- status, version */

typedef int32_t mdlm_status;
enum {
    MDLM_OK = 0,
    MDLM_ERROR_ARGUMENT = 1,     /* NULL, misaligned, too small a struct, an unknown enumeration
                                    value, an index out of range */
    MDLM_ERROR_CONFIG = 2,       /* a setting, or two that exclude each other */
    MDLM_ERROR_SHAPE = 3,        /* a batch that was not reserved for, or sizes that do not fit
                                    together */
    MDLM_ERROR_OVERFLOW = 4,     /* a size, a step's FLOPs or their predicted time that does not fit
                                    in 63 bits */
    MDLM_ERROR_FORMAT = 5,       /* text, JSON or a file that cannot be read as what it should be */
    MDLM_ERROR_NOT_FOUND = 6,    /* no such key, parameter, tensor or file */
    MDLM_ERROR_STATE = 20,       /* right call, wrong moment: not reserved, tape empty, parameters
                                    changed since; after fork */
    MDLM_ERROR_BUSY = 21,        /* another thread is inside a call on this context */
    MDLM_ERROR_MEMORY = 40,      /* an allocation failed */
    MDLM_ERROR_BUDGET = 41,      /* the plan needs more than max_bytes, or no plan fits in
                                    memory_budget */
    MDLM_ERROR_THREAD = 42,      /* a thread could not be made */
    MDLM_ERROR_DEVICE = 43,      /* the device's library returned an error */
    MDLM_ERROR_CALLBACK = 44,    /* a function of yours returned an error, or broke a rule of its
                                    own */
    MDLM_ERROR_COMM = 45,        /* the tensor-parallel group: a rank failed, left, did something
                                    else, or did not come in time */
    MDLM_ERROR_CANCELLED = 46,   /* a function of yours, cancelled, said so */
    MDLM_ERROR_UNSUPPORTED = 60, /* this build or device cannot do it */
    MDLM_ERROR_INTERNAL = 90     /* a fault of the library; please report it */
};

/* "0.1.0", of the library that is loaded. Never NULL, never freed. Any thread. */
MDLM_API const char *mdlm_version(void);
/* MDLM_API_VERSION of the library that is loaded. Any thread. */
MDLM_API int32_t mdlm_api_version(void);
/* "MDLM_OK", "MDLM_ERROR_ARGUMENT", ...; "unknown status" for other values. Never NULL, never
   freed. Any thread. */
MDLM_API const char *mdlm_status_name(mdlm_status status);
/* The line that the last failed call on this thread left; "" if none failed. Never NULL. Valid
   until the next failing call on this thread. Successful calls do not clear it. Never allocates. */
MDLM_API const char *mdlm_last_error(void);
/* Sets this thread's line: for callbacks, before they return an error. Cut at 511 bytes. NULL means
   "". */
MDLM_API void mdlm_set_last_error(const char *text);

/* How many objects of each kind this copy of the library has that are not freed yet: for tests of
   programs and bindings. A handle that was destroyed lives on while children of it do. */
typedef struct mdlm_object_counts {
    size_t struct_size;
    int64_t contexts;
    int64_t blocks;
    int64_t tapes;
    int64_t plans;
    int64_t comms;
} mdlm_object_counts;
#define MDLM_OBJECT_COUNTS_INIT { sizeof(mdlm_object_counts), 0, 0, 0, 0, 0 }
MDLM_API mdlm_status mdlm_object_counts_init(mdlm_object_counts *counts, size_t struct_size);
/* Any thread, at any time. */
MDLM_API mdlm_status mdlm_count_objects(mdlm_object_counts *counts);

/* ------------------------------------------------------------------------------ enumerations */

typedef int32_t mdlm_dtype;
enum {
    MDLM_DTYPE_DEFAULT = 0,
    MDLM_DTYPE_F32 = 1,
    MDLM_DTYPE_BF16 = 2,
    MDLM_DTYPE_F16 = 3,
    MDLM_DTYPE_F64 = 4
};

typedef int32_t mdlm_device_kind;
enum {
    MDLM_DEVICE_CPU = 0,       /* f32, bf16 */
    MDLM_DEVICE_REFERENCE = 1, /* plain loops with double accumulation: f32, bf16, f64. Slow; the
                                  measure of the others */
    MDLM_DEVICE_CUDA = 2       /* not in this version: MDLM_ERROR_UNSUPPORTED */
};

/* What computes the matrix products of linears on the CPU. Results of the two differ in their last
   bits. */
typedef int32_t mdlm_matmul;
enum {
    MDLM_MATMUL_AUTO = 0,   /* oneDNN on processors with AVX-512 where this build has it, else
                               OWN */
    MDLM_MATMUL_ONEDNN = 1, /* also elsewhere; what oneDNN lacks or does slowly is still done by the
                               library's own */
    MDLM_MATMUL_OWN = 2
};

typedef int32_t mdlm_normalization;
enum { MDLM_NORM_LAYERNORM = 0, MDLM_NORM_RMSNORM = 1 };

typedef int32_t mdlm_activation;
enum {
    MDLM_ACT_GELU = 0,         /* x/2 (1 + erf(x / sqrt 2)) */
    MDLM_ACT_GELU_TANH = 1,    /* the tanh form of GELU */
    MDLM_ACT_SQUARED_RELU = 2, /* max(x, 0)^2 */
    MDLM_ACT_SWIGLU = 3,       /* silu(gate) * up; linear_fc1 is twice ffn_hidden_size wide, gate
                                  first */
    MDLM_ACT_GEGLU = 4         /* gelu_tanh(gate) * up */
};

typedef int32_t mdlm_position_embedding;
enum { MDLM_POSITION_NONE = 0, MDLM_POSITION_ROPE = 1 };

typedef int32_t mdlm_mask_type;
enum {
    MDLM_MASK_DEFAULT = 0, /* in a batch: the config's */
    MDLM_MASK_NO_MASK = 1, /* bidirectional: diffusion models */
    MDLM_MASK_CAUSAL = 2,
    MDLM_MASK_BLOCK_CAUSAL = 3 /* own block of mask_block_size tokens and all before it; counted
                                  from the document's start */
};

typedef int32_t mdlm_attention_backend;
enum {
    MDLM_ATTENTION_AUTO = 0,   /* = fused */
    MDLM_ATTENTION_FUSED = 1,  /* tiled with an online softmax: memory O(s) */
    MDLM_ATTENTION_UNFUSED = 2 /* scores and probabilities [b, heads, s, s] are tensors that a
                                  policy can keep or replay */
};

typedef int32_t mdlm_recompute_granularity;
enum {
    MDLM_RECOMPUTE_GRANULARITY_NONE = 0,
    MDLM_RECOMPUTE_GRANULARITY_SELECTIVE = 1,
    MDLM_RECOMPUTE_GRANULARITY_FULL = 2
};

typedef int32_t mdlm_recompute_method;
enum {
    MDLM_RECOMPUTE_METHOD_NONE = 0,
    MDLM_RECOMPUTE_METHOD_UNIFORM = 1,
    MDLM_RECOMPUTE_METHOD_BLOCK = 2
};

/* Bits: what selective replays; as text, names joined by commas or blanks. Megatron knows
   core_attn, layernorm and mlp of these; its core_attn keeps the context, and its layernorm does
   nothing under its default layer spec. */
typedef uint32_t mdlm_recompute_modules;
enum {
    MDLM_RECOMPUTE_MODULE_CORE_ATTN = 1,    /* "core_attn": scores, probabilities, context, their
                                               statistics */
    MDLM_RECOMPUTE_MODULE_QKV = 2,          /* "qkv": linear_qkv's output, rotated q and k */
    MDLM_RECOMPUTE_MODULE_QK_NORM_ROPE = 4, /* "qk_norm_rope": rotated q and k */
    MDLM_RECOMPUTE_MODULE_LAYERNORM = 8,    /* "layernorm": outputs of both norms */
    MDLM_RECOMPUTE_MODULE_MLP_ACT = 16,     /* "mlp_act": output of the activation */
    MDLM_RECOMPUTE_MODULE_MLP = 32          /* "mlp": linear_fc1's output and the activation's */
};

typedef int32_t mdlm_storage;
enum {
    MDLM_STORAGE_KEEP = 0,   /* stays in the arena */
    MDLM_STORAGE_REPLAY = 1, /* computed again during backward */
    MDLM_STORAGE_SHARD = 2,  /* 1/t of it stays on each rank; only the input of a unit */
    MDLM_STORAGE_HOST = 3    /* copied to host memory, and back one layer ahead of need */
};

typedef int32_t mdlm_input_storage;
enum {
    MDLM_INPUT_COPY = 0,  /* x may be used again as soon as forward returns, on a device with
                             streams by what is behind it in the stream */
    MDLM_INPUT_BORROW = 1 /* x stays unchanged until the tape is finished; saves its bytes where the
                             plan keeps x */
};

typedef int32_t mdlm_reduce_op;
enum { MDLM_REDUCE_SUM = 0, MDLM_REDUCE_MAX = 1 };

/* On the CPU and the reference device both are the same memory. */
typedef int32_t mdlm_memory_space;
enum { MDLM_MEMORY_SPACE_HOST = 0, MDLM_MEMORY_SPACE_DEVICE = 1 };

/* ------------------------------------------------------------------------------------ config
 Every field has a key of the same name for mdlm_config_set, and a flag as Megatron spells it for
mdlm_config_parse_flags (underscores become dashes). Booleans are 0 or 1. Names are Megatron-LM's
where it has one, and then a field means what that field of its TransformerConfig means. Megatron's
command line sometimes means something else, since it derives fields from several flags (--swiglu
alone makes ffn_hidden_size 8/3 h there; dropout is 0.1, positions are learned): set those yourself.
Other defaults than TransformerConfig's are named below. */
typedef struct mdlm_config {
    size_t struct_size;
    /* sizes */
    int64_t num_layers;          /* layers of this block (range 1 .. 4096, no default: must be
                                    set) */
    int64_t layer_offset;        /* layers before this block, in earlier pipeline stages (range 0 ..
                                    4095, default 0) */
    int64_t total_num_layers;    /* layers of all pipeline stages, on which the default of
                                    output_init_std depends (range layer_offset + num_layers ..
                                    4096, default 0 = layer_offset + num_layers: right for the last
                                    stage only) */
    int64_t hidden_size;         /* h (range 1 .. 2^24, no default: must be set) */
    int64_t num_attention_heads; /* (range 1 .. 65536, no default: must be set) */
    int64_t num_query_groups;    /* key/value heads; divides num_attention_heads (default 0 =
                                    num_attention_heads) */
    int64_t kv_channels;         /* d, size of a head (default 0 = hidden_size /
                                    num_attention_heads) */
    int64_t ffn_hidden_size;     /* (default 0 = 4 hidden_size, gated or not) */
    /* norms */
    mdlm_normalization normalization;      /* "LayerNorm" | "RMSNorm" (default LayerNorm) */
    int32_t layernorm_zero_centered_gamma; /* the weight is stored as gamma - 1 (default 0); flag
                                              --apply-layernorm-1p too */
    double layernorm_epsilon;              /* (range > 0, default 1e-5); flag --norm-epsilon too */
    int32_t qk_layernorm;                  /* norm of q and k per head, before the rotary embedding
                                              (default 0) */
    int32_t final_layernorm;               /* one more norm after the last layer; only on the last
                                              stage (default 1) */
    /* linears and activation */
    int32_t add_bias_linear;         /* biases of all linears (default 1); flag
                                        --disable-bias-linear */
    int32_t add_qkv_bias;            /* bias of linear_qkv even without add_bias_linear (default
                                        0) */
    mdlm_activation activation_func; /* "gelu" | "gelu_tanh" | "squared_relu" | "swiglu" | "geglu"
                                        (default gelu). The two tanh forms are what Megatron runs
                                        with bias_activation_fusion */
    /* positions */
    /* "none" | "rope" (default rope); as text also "learned_absolute" = "none": the table is yours,
       in x */
    mdlm_position_embedding position_embedding_type;
    double rotary_base;                  /* (range > 1, default 10000) */
    double rotary_percent;               /* share of a head's channels that turn (range (0, 1],
                                            default 1) */
    int32_t rotary_interleaved;          /* pairs even and odd channels instead of halves (default
                                            0) */
    int32_t use_rope_scaling;            /* Llama 3's scaling of the frequencies, by the four below
                                            (default 0) */
    double rope_scaling_factor;          /* (range >= 1, default 8) */
    double rope_low_freq_factor;         /* (range > 0, default 1) */
    double rope_high_freq_factor;        /* (range > low, default 4) */
    int64_t rope_original_max_position;  /* (range >= 1, default 8192) */
    double seq_len_interpolation_factor; /* positions are divided by it (range > 0, default 1) */
    /* attention */
    mdlm_mask_type attention_mask_type; /* "no_mask" | "causal" (also as "causal_bottom_right") |
                                           "block_causal" (default causal) */
    int32_t mask_block_size;            /* B of block_causal (range >= 1 with block_causal, default
                                           0) */
    int64_t window_left;                /* keys before the query that it may see (-1 = all, default
                                           -1) */
    int64_t window_right;               /* keys after the query that it may see (-1 = all, default
                                           -1) */
    double softmax_scale;               /* (range >= 0, default 0 = 1 / sqrt(kv_channels)) */
    mdlm_attention_backend attention_backend; /* "auto" | "fused" | "unfused" (default auto) */
    /* dropout */
    double attention_dropout; /* of the probabilities (range [0, 1), default 0; Megatron's is
                                 0.1) */
    double hidden_dropout;    /* of the outputs of linear_proj and linear_fc2 (range [0, 1), default
                                 0; Megatron's is 0.1) */
    /* layout, precision, initial values */
    int32_t batch_first;     /* x, y, dx, dy are [b, s, h] instead of [s, b, h] (default 0) */
    mdlm_dtype params_dtype; /* "f32" | "bf16" | "f16" | "f64": parameters and activations (default
                                f32) */
    mdlm_dtype grad_dtype;   /* of parameter gradients (default 0 = f32; f64 where params_dtype is
                                f64) */
    double init_method_std;  /* of initial weights (range >= 0, default 0.02) */
    double output_init_std;  /* of initial linear_proj and linear_fc2 (default 0 = init_method_std /
                                sqrt(2 total_num_layers)) */
    /* parallel */
    int64_t tensor_model_parallel_size; /* t: size of the context's communicator; plans need none
                                           (range >= 1, default 1) */
    int32_t sequence_parallel;          /* x, y and what lies between the linears are split over
                                           ranks along the sequence, which t must divide; with t = 1
                                           the same as without (default 0) */
    /* recompute */
    /* "none" | "selective" | "full" (default none); --recompute-activations = selective */
    mdlm_recompute_granularity recompute_granularity;
    mdlm_recompute_method recompute_method; /* "none" | "uniform" | "block"; only with full. full
                                               without a method is uniform with 1 layer a unit,
                                               unless recompute_num_layers says more; Megatron
                                               refuses that */
    int64_t recompute_num_layers;           /* layers of a unit (uniform) or layers that replay
                                               (block) (range 1 .. num_layers; 0 = not set, which
                                               full with a method refuses, default 0) */
    /* bits for selective (default 0 = qkv,core_attn; Megatron's is core_attn) */
    mdlm_recompute_modules recompute_modules;
    int32_t distribute_saved_activations;   /* each rank keeps 1/t of a unit's input; needs t > 1,
                                               full and a method (default 0) */
    int32_t cpu_offloading;                 /* saved tensors of the first cpu_offloading_num_layers
                                               layers wait on the host; with full the units' inputs
                                               (default 0). Megatron refuses it together with
                                               recompute, and on all layers. With a memory_budget:
                                               the planner may use the host for those layers */
    int64_t cpu_offloading_num_layers;      /* (range 1 .. num_layers with cpu_offloading, default
                                               0) */
    /* the planner */
    int64_t memory_budget; /* bytes: the fastest plan whose peak fits is found, instead of the
                              recompute settings, which it excludes; as text also "40GiB", "1.5 GB"
                              (range >= 0, default 0 = off) */
    /* the budget holds parameters and gradients too, not the arena alone (default 0) */
    int32_t memory_budget_includes_parameters;
} mdlm_config;

/* clang-format off */
#define MDLM_CONFIG_INIT { sizeof(mdlm_config), \
    0, 0, 0, 0, 0, 0, 0, 0, \
    MDLM_NORM_LAYERNORM, 0, 1e-5, 0, 1, \
    1, 0, MDLM_ACT_GELU, \
    MDLM_POSITION_ROPE, 10000.0, 1.0, 0, 0, 8.0, 1.0, 4.0, 8192, 1.0, \
    MDLM_MASK_CAUSAL, 0, -1, -1, 0.0, MDLM_ATTENTION_AUTO, \
    0.0, 0.0, \
    0, MDLM_DTYPE_F32, MDLM_DTYPE_DEFAULT, 0.02, 0.0, \
    1, 0, \
    MDLM_RECOMPUTE_GRANULARITY_NONE, MDLM_RECOMPUTE_METHOD_NONE, 0, 0, 0, 0, 0, \
    0, 0 }
/* clang-format on */

/* Sets every field that fits into struct_size to its default. struct_size = sizeof(mdlm_config) of
   the caller. */
MDLM_API mdlm_status mdlm_config_init(mdlm_config *config, size_t struct_size);
/* Sets one field from text: key as in the struct, value as its comment spells it
   ("true"/"false"/"1"/"0" for booleans; case does not matter). NOT_FOUND for an unknown key, CONFIG
   for a value that cannot be read; the config is then unchanged. Rules between fields are checked
   by mdlm_config_validate, not here. */
MDLM_API mdlm_status mdlm_config_set(mdlm_config *config, const char *key, const char *value);
/* Writes one field as text that mdlm_config_set takes back. *out_len (NULL allowed) gets the length
   without the final 0; with a cap too small (0 allowed, buf then may be NULL) nothing more than cap
   bytes is written, always ended by 0, and the status is OK: compare out_len with cap. This holds
   for every (buf, cap, out_len) below. */
MDLM_API mdlm_status mdlm_config_get(const mdlm_config *config, const char *key, char *buf,
                                     size_t cap, size_t *out_len);
/* Number of keys, and the key with an index (NULL past the end). The text is the library's. */
MDLM_API int32_t mdlm_config_key_count(void);
MDLM_API const char *mdlm_config_key(int32_t index);
/* Reads Megatron's command-line flags from argv[0 .. argc): "--num-layers 24", "--num-layers=24",
   and those that may stand alone or have true, false, 1 or 0 behind them: "--sequence-parallel",
   "--final-layernorm 0", "--disable-bias-linear", "--swiglu", "--recompute-activations", ...;
   "--no-X" for a boolean X. Each flag sets its own field, a later one wins, and nothing is derived
   from several, with these exceptions:
     --window-size 127,0            window_left and window_right
     --recompute-modules mlp core_attn   takes all words up to the next that begins with "-"
     --cpu-offloading-num-layers N  N > 0 sets cpu_offloading too
     --bf16 with --fp16, --swiglu with --squared-relu: refused, anywhere in argv, in either order
   Stops at the first word that is no flag of the library's and writes to *used how many words were
   taken; call again behind a word that you handle yourself. A bad value is CONFIG, and the config
   and *used are unchanged. argv may be NULL with argc 0. */
MDLM_API mdlm_status mdlm_config_parse_flags(mdlm_config *config, int argc, const char *const *argv,
                                             int *used);
/* Applies every rule on settings; the text of a failure names all that are broken, separated by ";
   ". */
MDLM_API mdlm_status mdlm_config_validate(const mdlm_config *config);

/* ------------------------------------------------------------------------------------ context */

typedef struct mdlm_context mdlm_context;
typedef struct mdlm_comm mdlm_comm; /* one rank of a group: at the end */

/* Memory of yours. alloc returns bytes > 0 bytes aligned to alignment (a power of two, at most
   4096) or NULL; free gets what alloc was given. Called on the thread that called the library,
   never from two threads of one context at once. stream is the context's, in whose order the memory
   is used; NULL on the CPU and the reference device, and for host memory. */
typedef struct mdlm_allocator {
    size_t struct_size;
    void *(*alloc)(void *payload, size_t bytes, size_t alignment, void *stream);
    void (*free)(void *payload, void *memory, size_t bytes, size_t alignment, void *stream);
    void *payload;
} mdlm_allocator;
#define MDLM_ALLOCATOR_INIT { sizeof(mdlm_allocator), NULL, NULL, NULL }
MDLM_API mdlm_status mdlm_allocator_init(mdlm_allocator *allocator, size_t struct_size);

/* Threads of yours. parallel_for calls task(argument, index, worker) once for every index in [0,
   count), from any threads, and returns when all are done. worker is in [0, num_threads), and no
   two running tasks have the same. A pool that breaks a rule is CALLBACK: the call has failed
   inside, tasks with a wrong index or worker did not run, and with a pool that works all can go on.
   num_threads does not change results, only the scratch memory that is reserved. */
typedef struct mdlm_threadpool {
    size_t struct_size;
    int32_t num_threads; /* (range 1 .. 65536) */
    int32_t reserved;    /* 0 */
    void (*parallel_for)(void *payload, int64_t count,
                         void (*task)(void *argument, int64_t index, int32_t worker),
                         void *argument);
    void *payload;
} mdlm_threadpool;
#define MDLM_THREADPOOL_INIT { sizeof(mdlm_threadpool), 0, 0, NULL, NULL }
MDLM_API mdlm_status mdlm_threadpool_init(mdlm_threadpool *threadpool, size_t struct_size);

typedef struct mdlm_context_desc {
    size_t struct_size;
    int32_t api_version;                    /* MDLM_API_VERSION of the header you compiled with; 0 =
                                               not told */
    mdlm_device_kind device;                /* (default CPU) */
    int32_t device_index;                   /* which of several devices of the kind, as its runtime
                                               counts those that the process sees (default 0; CPU
                                               and reference have only 0) */
    int32_t num_threads;                    /* threads of the library's own pool (range 0 .. 1024; 0
                                               = all cores this process may use: of its affinity
                                               mask, and of its cgroups' CPU quotas, rounded up) */
    const mdlm_threadpool *threadpool;      /* yours instead; the struct is copied, the pool
                                               outlives the context (default NULL) */
    const mdlm_allocator *device_allocator; /* arena, parameters, gradients; copied (default NULL =
                                               the library's) */
    const mdlm_allocator *host_allocator;   /* host storage of offloaded tensors; copied (default
                                               NULL = the library's) */
    /* called with remarks, during calls, on the calling thread (default NULL): the device; a plan
       that is reserved, costs time and needs hardly less than keeping everything; initial values of
       a stage without total_num_layers */
    void (*log)(void *payload, const char *line);
    void *log_payload;
    mdlm_matmul matmul;                  /* CPU; UNSUPPORTED for ONEDNN in a build without it
                                            (default AUTO) */
    int32_t reserved;                    /* 0 */
    void *stream;                        /* device with streams: where everything is enqueued;
                                            borrowed as long as the context lives (default NULL =
                                            one of the context's own). NULL on CPU and reference
                                            (ARGUMENT) */
    int32_t (*cancelled)(void *payload); /* see Cancelling (default NULL = never) */
    void *cancelled_payload;
    mdlm_comm *comm;         /* the rank's communicator, one context at a time (STATE); kept alive
                                (default NULL = a group of 1) */
    int64_t comm_timeout_ms; /* how long a rank waits for the others (range >= 0, default 0 =
                                600000, ten minutes) */
    mdlm_comm *host_comm;    /* of the same rank and size, for host memory: what ranks compare and
                                agree on goes through it where comm is for device memory; kept
                                alive, one context at a time (STATE), NULL where comm is for host
                                memory (default NULL = small buffers on the device, for which every
                                call of the group waits) */
} mdlm_context_desc;
/* clang-format off */
#define MDLM_CONTEXT_DESC_INIT { sizeof(mdlm_context_desc), MDLM_API_VERSION, MDLM_DEVICE_CPU, \
    0, 0, NULL, NULL, NULL, NULL, NULL, MDLM_MATMUL_AUTO, 0, NULL, NULL, NULL, NULL, 0, NULL }
/* clang-format on */
MDLM_API mdlm_status mdlm_context_desc_init(mdlm_context_desc *desc, size_t struct_size);

/* Makes a device, its threads and its memory available. desc NULL = CPU with all cores. UNSUPPORTED
   for a device that this build does not have, THREAD when a thread cannot be made, MEMORY. */
MDLM_API mdlm_status mdlm_context_create(const mdlm_context_desc *desc, mdlm_context **out);
/* NULL allowed. Blocks, plans and tapes made from it stay usable; the memory goes with the last of
   them. */
MDLM_API void mdlm_context_destroy(mdlm_context *context);
/* One line about the device: kind, threads, instruction set, matmul library and its version, what
   each dtype runs on; the rank in a group. */
MDLM_API mdlm_status mdlm_context_info(const mdlm_context *context, char *buf, size_t cap,
                                       size_t *out_len);
/* The last line that a call on this context left on any thread; BUSY, creating and what needs no
   context leave none here. */
MDLM_API mdlm_status mdlm_context_last_error(const mdlm_context *context, char *buf, size_t cap,
                                             size_t *out_len);
/* Returns when everything enqueued is done, and reports its errors. At once on CPU and
   reference. */
MDLM_API mdlm_status mdlm_context_synchronize(mdlm_context *context);
/* Device memory for languages without the device's runtime: bytes > 0, aligned to 256; free with
   the same bytes. On a device with streams free waits for what is enqueued. */
MDLM_API mdlm_status mdlm_context_alloc(mdlm_context *context, size_t bytes, void **out);
MDLM_API mdlm_status mdlm_context_free(mdlm_context *context, void *memory, size_t bytes);
/* Copies bytes between host and device memory in either direction; done on return. 0 bytes
   allowed. */
MDLM_API mdlm_status mdlm_context_copy(mdlm_context *context, void *destination, const void *source,
                                       size_t bytes);

typedef struct mdlm_context_stats {
    size_t struct_size;
    uint64_t arena_bytes;      /* reserved now, all blocks of the context */
    uint64_t high_water_bytes; /* most of the arena that any call has used, from its start */
    uint64_t host_bytes;       /* host storage reserved now */
    uint64_t parameter_bytes;  /* owned by the library, with tables derived from the config */
    uint64_t gradient_bytes;   /* owned by the library */
    uint64_t allocations;      /* calls of the two allocators so far */
} mdlm_context_stats;
#define MDLM_CONTEXT_STATS_INIT { sizeof(mdlm_context_stats), 0, 0, 0, 0, 0, 0 }
MDLM_API mdlm_status mdlm_context_stats_init(mdlm_context_stats *stats, size_t struct_size);
MDLM_API mdlm_status mdlm_context_get_stats(const mdlm_context *context, mdlm_context_stats *stats);

/* ----------------------------------------------------------------------- block, shape, memory */

typedef struct mdlm_block mdlm_block;
typedef struct mdlm_plan mdlm_plan; /* see plan */

/* What is reserved: upper bounds, within which shapes may change from batch to batch. */
typedef struct mdlm_shape {
    size_t struct_size;
    int64_t seq_length;               /* longest sequence, in tokens (range 1 .. 2^24, must be
                                         set) */
    int64_t micro_batch_size;         /* most sequences of a micro-batch (range 1 .. 2^20, must be
                                         set) */
    int64_t max_tokens;               /* most tokens of a micro-batch (default 0 = seq_length *
                                         micro_batch_size) */
    int64_t max_documents;            /* most packed documents (range 0 .. seq_length, default 0 =
                                         none are packed) */
    int32_t in_flight;                /* most tapes between their forward and their backward (range
                                         1 .. 65536, default 1) */
    int32_t evaluate_in_flight;       /* forward without a tape is called while tapes are in flight
                                         (default 0) */
    int32_t input_requires_grad;      /* dx is wanted (default 1); 0 on a first stage whose
                                         embedding is frozen */
    mdlm_input_storage input_storage; /* (default COPY) */
    uint64_t max_bytes;               /* a plan whose peak_bytes exceeds it is refused with BUDGET
                                         (default 0 = no limit) */
    int32_t share_scratch;            /* slots and scratch lie in memory that all such blocks of the
                                         context share, as large as the largest needs; saved tensors
                                         stay apart. For several blocks on one context (default
                                         0) */
    int32_t reserved;                 /* 0 */
} mdlm_shape;
#define MDLM_SHAPE_INIT { sizeof(mdlm_shape), 0, 0, 0, 0, 1, 0, 1, MDLM_INPUT_COPY, 0, 0, 0 }
MDLM_API mdlm_status mdlm_shape_init(mdlm_shape *shape, size_t struct_size);

/* Bytes, known before anything runs. peak_bytes is the size of the arena (with share_scratch: of
   the block's own part and the shared part that it needs). It lies between fixed_bytes +
   scratch_bytes and fixed_bytes + in_flight * saved_bytes + scratch_bytes. */
typedef struct mdlm_memory {
    size_t struct_size;
    uint64_t peak_bytes;      /* the arena: everything that forward, replay and backward use on the
                                 device, except what follows */
    uint64_t fixed_bytes;     /* slots for the running hidden state and its gradient, staging slots
                                 of host storage */
    uint64_t saved_bytes;     /* what one tape keeps from its forward to its backward */
    uint64_t scratch_bytes;   /* the most scratch at once: of a layer, forward or backward, or of a
                                 unit of several layers while it is replayed, with all that its
                                 layers hold for their backward */
    uint64_t host_bytes;      /* host storage, all tapes */
    uint64_t parameter_bytes; /* flat parameter buffer, and tables derived from the config (rotary).
                                 mdlm_block_memory: owned by the library, so without bound ones */
    uint64_t gradient_bytes;  /* flat gradient buffer, likewise */
} mdlm_memory;
#define MDLM_MEMORY_INIT { sizeof(mdlm_memory), 0, 0, 0, 0, 0, 0, 0 }
MDLM_API mdlm_status mdlm_memory_init(mdlm_memory *memory, size_t struct_size);

/* A block of config (copied, validated) on the context's device. Allocates no device memory.
   UNSUPPORTED for a dtype or t that the device cannot run. */
MDLM_API mdlm_status mdlm_block_create(mdlm_context *context, const mdlm_config *config,
                                       mdlm_block **out);
MDLM_API void mdlm_block_destroy(mdlm_block *block);
/* Allocates everything that running needs: parameters and gradients (the first time, unless bound;
   zeroed), the arena, host storage, the tape pool. plan: what each layer keeps; only its units and
   storages are used, so one from JSON or for other bounds will do (NULL = the config's settings or
   memory_budget). Again with another shape or plan: parameters and gradients stay. STATE while
   tapes exist, BUDGET past max_bytes (the text says the peak), MEMORY; after a failure the
   reservation is what it was before. On a device with streams this and destroying wait for what is
   enqueued before they free. */
MDLM_API mdlm_status mdlm_block_reserve(mdlm_block *block, const mdlm_shape *shape,
                                        const mdlm_plan *plan);
/* Memory of the reservation; STATE before the first. */
MDLM_API mdlm_status mdlm_block_memory(const mdlm_block *block, mdlm_memory *memory);

/* --------------------------------------------------------------------------------- parameters */

/* mdlm_param_count, _info and _find and mdlm_params_data need no reservation: a block knows its
parameters, their shapes and their places from mdlm_block_create on.

A block has these parameters, in this order: those of its first layer, of the next, ..., of the
final norm. L counts from the model's first layer, layer_offset included. h = hidden_size,
d = kv_channels, a = num_attention_heads, g = num_query_groups, f = ffn_hidden_size, F = 2f when
gated (swiglu, geglu: gate first, then up), else f. dim: which one is split over ranks.

    name                                        full shape      dim  there with
    layers.L.input_layernorm.weight             [h]             -    always
    layers.L.input_layernorm.bias               [h]             -    LayerNorm
    layers.L.self_attention.linear_qkv.weight   [(a + 2g)d, h]  0    always
    layers.L.self_attention.linear_qkv.bias     [(a + 2g)d]     0    add_bias_linear or add_qkv_bias
    layers.L.self_attention.q_layernorm.weight  [d]             -    qk_layernorm
    layers.L.self_attention.q_layernorm.bias    [d]             -    qk_layernorm, LayerNorm
    layers.L.self_attention.k_layernorm.weight  [d]             -    qk_layernorm
    layers.L.self_attention.k_layernorm.bias    [d]             -    qk_layernorm, LayerNorm
    layers.L.self_attention.linear_proj.weight  [h, ad]         1    always
    layers.L.self_attention.linear_proj.bias    [h]             -    add_bias_linear
    layers.L.pre_mlp_layernorm.weight           [h]             -    always
    layers.L.pre_mlp_layernorm.bias             [h]             -    LayerNorm
    layers.L.mlp.linear_fc1.weight              [F, h]          0    always
    layers.L.mlp.linear_fc1.bias                [F]             0    add_bias_linear
    layers.L.mlp.linear_fc2.weight              [h, f]          1    always
    layers.L.mlp.linear_fc2.bias                [h]             -    add_bias_linear
    final_layernorm.weight                      [h]             -    final_layernorm
    final_layernorm.bias                        [h]             -    final_layernorm, LayerNorm

A linear computes x weight^T + bias: its weight is [outputs, inputs]. Rows of linear_qkv stand group
by group: the a/g query heads of the group, its key, its value.

Megatron's names have "decoder." in front, and count layers from the stage's first in a torch state
dict. The rest is the same with its local layer spec. With its Transformer Engine spec, which is its
default, and in distributed checkpoints of either, four of a layer differ:

    input_layernorm.weight      self_attention.linear_qkv.layer_norm_weight
    input_layernorm.bias        self_attention.linear_qkv.layer_norm_bias
    pre_mlp_layernorm.weight    mlp.linear_fc1.layer_norm_weight
    pre_mlp_layernorm.bias      mlp.linear_fc1.layer_norm_bias */
typedef struct mdlm_param_desc {
    size_t struct_size;
    const char *name; /* the library's, as long as the block lives */
    int64_t layer;    /* 0 .. num_layers - 1 in this block, num_layers for the final norm */
    int32_t ndim;     /* 1 or 2 */
    int32_t requires_grad;
    int64_t full_shape[2];    /* over all ranks */
    int64_t local_shape[2];   /* on this rank */
    int32_t partition_dim;    /* dimension that is split over ranks; -1 = replicated (count it once
                                 in a norm) */
    int32_t partition_stride; /* as Megatron's: 2 for a gated linear_fc1 (gate and up split apart),
                                 else 1 */
    mdlm_dtype dtype;
    mdlm_dtype grad_dtype;
    uint64_t offset_bytes; /* in the flat parameter buffer */
    uint64_t bytes;
    uint64_t grad_offset_bytes; /* in the flat gradient buffer; frozen parameters take no room
                                   there */
    uint64_t grad_bytes;        /* 0 when frozen */
} mdlm_param_desc;
/* clang-format off */
#define MDLM_PARAM_DESC_INIT { sizeof(mdlm_param_desc), NULL, 0, 0, 0, { 0, 0 }, { 0, 0 }, 0, 0, \
    0, 0, 0, 0, 0, 0 }
/* clang-format on */
MDLM_API mdlm_status mdlm_param_desc_init(mdlm_param_desc *desc, size_t struct_size);

MDLM_API mdlm_status mdlm_param_count(const mdlm_block *block, int64_t *out);
MDLM_API mdlm_status mdlm_param_info(const mdlm_block *block, int64_t index, mdlm_param_desc *desc);
/* Index of the parameter with a name; NOT_FOUND. */
MDLM_API mdlm_status mdlm_param_find(const mdlm_block *block, const char *name, int64_t *out);
/* Freezes (0) or frees (1) a parameter. Before the first reserve and before gradients are bound
   (their places depend on it); STATE after either. */
MDLM_API mdlm_status mdlm_param_set_requires_grad(mdlm_block *block, int64_t index,
                                                  int32_t requires_grad);
/* The flat buffers. *params_bytes and *grads_bytes: what mdlm_params_bind needs, padding behind the
   last parameter included, from create on (grads_bytes depends on what is frozen, and is 0 where
   all is). *params and *grads: where the buffers are, the library's or bound; NULL before there are
   some, and where parameters were bound one by one to other places than those of a flat buffer. Any
   out may be NULL. OVERFLOW for sizes past a size_t. */
MDLM_API mdlm_status mdlm_params_data(mdlm_block *block, void **params, size_t *params_bytes,
                                      void **grads, size_t *grads_bytes);
/* Uses your memory instead of the library's, before or after reserve, while no tape is in flight
   (STATE): flat buffers laid out as mdlm_param_info says, at least as large as mdlm_params_data
   says, aligned to 64, alive as long as the block or until other memory is bound. NULL with 0 bytes
   = leave that one. Values are taken as they are: parameters count as changed, gradients are not
   zeroed. A flat buffer of the library's in which nothing stands any more is freed at once, behind
   what is enqueued. */
MDLM_API mdlm_status mdlm_params_bind(mdlm_block *block, void *params, size_t params_bytes,
                                      void *grads, size_t grads_bytes);
/* The same for one parameter, aligned to 64; NULL = leave that one. */
MDLM_API mdlm_status mdlm_param_bind(mdlm_block *block, int64_t index, void *param, void *grad);
/* Device addresses of a parameter and of its gradient (*grad NULL when frozen); either out may be
   NULL. STATE before reserve or bind. Say mdlm_params_changed after writing through them. */
MDLM_API mdlm_status mdlm_param_data(mdlm_block *block, int64_t index, void **param, void **grad);
/* Initial values: weights normal (init_method_std, output_init_std), biases 0, norms 1. Depends on
   seed, names and shapes only. Done on return. */
MDLM_API mdlm_status mdlm_params_init(mdlm_block *block, uint64_t seed);
/* Writes (reads) a box of a parameter from (to) host memory, in coordinates of the full tensor, or
   of a part of it: "q", "k", "v" of linear_qkv, "gate", "up" of a gated linear_fc1 (NULL = the
   whole). start and count have ndim entries (NULL = all of it). host holds the product of the
   counts in dtype (converted, rounding to nearest even), bytes is its size and must be exact. A
   rank takes (fills in) what it has of the box and ignores (leaves as it was) the rest, so the same
   call on every rank loads from (stores to) full tensors. In stream order, and done on return, as
   are all functions below that touch host memory. */
MDLM_API mdlm_status mdlm_param_write(mdlm_block *block, int64_t index, const char *part,
                                      const int64_t *start, const int64_t *count, mdlm_dtype dtype,
                                      const void *host, size_t bytes);
MDLM_API mdlm_status mdlm_param_read(mdlm_block *block, int64_t index, const char *part,
                                     const int64_t *start, const int64_t *count, mdlm_dtype dtype,
                                     void *host, size_t bytes);
/* The same for the gradient; STATE when frozen. */
MDLM_API mdlm_status mdlm_param_grad_read(mdlm_block *block, int64_t index, const char *part,
                                          const int64_t *start, const int64_t *count,
                                          mdlm_dtype dtype, void *host, size_t bytes);
/* The whole of a parameter, and of its gradient (STATE when frozen), from all ranks' parts, on
   every rank: full_shape in dtype, bytes is its size and must be exact. A call of the whole group.
   With mdlm_param_write the way from any sharding to any other. */
MDLM_API mdlm_status mdlm_param_gather(mdlm_block *block, int64_t index, mdlm_dtype dtype,
                                       void *host, size_t bytes);
MDLM_API mdlm_status mdlm_param_grad_gather(mdlm_block *block, int64_t index, mdlm_dtype dtype,
                                            void *host, size_t bytes);
/* mdlm_param_write, _read and _gather on memory of yours that holds one element of shard_dtype for
   each element of the parameter on this rank, in the parameter's order (local_shape, row by row):
   moments of an optimizer, master copies, averages, say in float32 beside bf16 parameters. How they
   stand from parameter to parameter is yours: shard is where this parameter's begin, in device
   memory at any address; shard_bytes is their size and must be exact. Needs no reservation, and
   frozen parameters are as good as others. */
MDLM_API mdlm_status mdlm_param_shard_write(mdlm_block *block, int64_t index, void *shard,
                                            mdlm_dtype shard_dtype, size_t shard_bytes,
                                            const char *part, const int64_t *start,
                                            const int64_t *count, mdlm_dtype dtype,
                                            const void *host, size_t bytes);
MDLM_API mdlm_status mdlm_param_shard_read(mdlm_block *block, int64_t index, const void *shard,
                                           mdlm_dtype shard_dtype, size_t shard_bytes,
                                           const char *part, const int64_t *start,
                                           const int64_t *count, mdlm_dtype dtype, void *host,
                                           size_t bytes);
MDLM_API mdlm_status mdlm_param_shard_gather(mdlm_block *block, int64_t index, const void *shard,
                                             mdlm_dtype shard_dtype, size_t shard_bytes,
                                             mdlm_dtype dtype, void *host, size_t bytes);
/* Say that parameters were written from outside (an optimizer step through mdlm_param_data). A tape
   remembers the version that its forward ran with, and a backward after a change is STATE. */
MDLM_API mdlm_status mdlm_params_changed(mdlm_block *block);
/* Sets all gradients to 0: for each step, unless its first backward has overwrite_grads. Not needed
   for the first of all when the gradients are the library's own, which are 0 when reserve has made
   them; bound ones are what you left there. After a backward that failed, this or overwrite_grads
   is needed (STATE). STATE while a gradient has no memory. Enqueued. */
MDLM_API mdlm_status mdlm_params_zero_grads(mdlm_block *block);

/* -------------------------------------------------------------------------------- batch, tape */

typedef struct mdlm_batch {
    size_t struct_size;
    int64_t seq_length;                 /* s (range 1 .. reserved, must be set) */
    int64_t micro_batch_size;           /* b (range 1 .. reserved, must be set; 1 with packed
                                           documents) */
    int32_t training;                   /* dropout on; independent of whether there is a tape
                                           (default 0) */
    mdlm_mask_type attention_mask_type; /* (default 0 = the config's) */
    const int32_t *cu_seqlens;          /* num_documents + 1 rising offsets from 0 to s, host
                                           memory, copied; NULL = the tape's (see
                                           mdlm_tape_set_documents), or none if that has none */
    int64_t num_documents;              /* (range 0 .. reserved; 0 with cu_seqlens NULL) */
    uint64_t seed;                      /* of dropout (default 0) */
    uint32_t step;                      /* training step, for dropout (default 0) */
    uint32_t micro_batch_index;         /* within the step, for dropout (range 0 .. 65535, default
                                           0) */
} mdlm_batch;
#define MDLM_BATCH_INIT { sizeof(mdlm_batch), 0, 0, 0, MDLM_MASK_DEFAULT, NULL, 0, 0, 0, 0 }
MDLM_API mdlm_status mdlm_batch_init(mdlm_batch *batch, size_t struct_size);

typedef struct mdlm_io {
    size_t struct_size;
    int32_t ndim; /* 3 */
    mdlm_dtype dtype;
    int64_t shape[3];   /* of x, y, dx and dy on this rank: [s, b, h], or [b, s, h] with
                           batch_first */
    uint64_t bytes;     /* of each */
    uint64_t alignment; /* of each address; on the CPU and the reference device the size of an
                           element */
} mdlm_io;
#define MDLM_IO_INIT { sizeof(mdlm_io), 0, 0, { 0, 0, 0 }, 0, 0 }
MDLM_API mdlm_status mdlm_io_init(mdlm_io *io, size_t struct_size);
/* What forward expects and makes for a batch. */
MDLM_API mdlm_status mdlm_block_io(const mdlm_block *block, const mdlm_batch *batch, mdlm_io *io);
/* Does what a new shape needs ahead of time (matmul primitives), so that forward and backward
   allocate nothing for it. The reserved bounds are prepared by reserve; other shapes by their first
   forward, if not here. The 16 shapes that the block used last stay prepared, whatever other blocks
   of the context do. */
MDLM_API mdlm_status mdlm_block_prepare(mdlm_block *block, const mdlm_batch *batch);

typedef struct mdlm_tape mdlm_tape;
/* Takes a tape from the pool of in_flight that reserve made; STATE when all are taken. */
MDLM_API mdlm_status mdlm_tape_create(mdlm_block *block, mdlm_tape **out);
/* Empties a tape that ran forward and shall not run backward. */
MDLM_API mdlm_status mdlm_tape_reset(mdlm_tape *tape);
/* Gives the tape back to the pool. */
MDLM_API void mdlm_tape_destroy(mdlm_tape *tape);
/* Copies packed documents for the next forwards with this tape whose batch has no cu_seqlens:
   num_documents + 1 offsets. NULL with 0 = none. For languages that may not pass a pointer inside a
   struct. */
MDLM_API mdlm_status mdlm_tape_set_documents(mdlm_tape *tape, const int32_t *cu_seqlens,
                                             int64_t num_documents);

/* Counted while running, since the tape's last forward began. */
typedef struct mdlm_tape_stats {
    size_t struct_size;
    uint64_t saved_bytes;      /* arena bytes that the forward left, rounded as allocated */
    uint64_t host_bytes;       /* host bytes that it left */
    uint64_t high_water_bytes; /* most of the arena used, counted from its start */
    uint64_t forward_ops, forward_flops;
    uint64_t backward_ops, backward_flops; /* without the replay */
    uint64_t replayed_ops, replayed_flops;
    uint64_t replayed_matmul_flops; /* linears and attention only */
    /* Collectives of the group, and their bytes: of the whole tensor that is reduced, gathered or
       scattered, once. */
    uint64_t forward_collectives, forward_collective_bytes;
    uint64_t backward_collectives, backward_collective_bytes; /* without the next two */
    /* gathering sharded inputs of units too */
    uint64_t replayed_collectives, replayed_collective_bytes;
    /* of parameter gradients that are partial on each rank */
    uint64_t gradient_collectives, gradient_collective_bytes;
} mdlm_tape_stats;
/* clang-format off */
#define MDLM_TAPE_STATS_INIT { sizeof(mdlm_tape_stats), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, \
    0, 0, 0, 0 }
/* clang-format on */
MDLM_API mdlm_status mdlm_tape_stats_init(mdlm_tape_stats *stats, size_t struct_size);
MDLM_API mdlm_status mdlm_tape_get_stats(const mdlm_tape *tape, mdlm_tape_stats *stats);

/* ----------------------------------------------------------------------- forward and backward */

/* y = block(x). x and y: device memory as mdlm_block_io says. tape NULL: evaluation, nothing is
   saved. With a tape: it must be empty (new, reset or finished by backward). Errors: SHAPE for a
   batch that was not reserved for, STATE (not reserved; tape full; evaluation while tapes are in
   flight without evaluate_in_flight). After a failure inside, y is undefined and the tape empty.

   Enqueued: x is read and y written in the order of the context's stream; x is borrowed until the
   forward is done there, under MDLM_INPUT_BORROW until the tape is finished. The batch and its
   documents are copied before the call returns. */
MDLM_API mdlm_status mdlm_block_forward(mdlm_block *block, const mdlm_batch *batch, const void *x,
                                        mdlm_tape *tape, void *y);

typedef struct mdlm_backward_options {
    size_t struct_size;
    int32_t overwrite_grads; /* parameter gradients are assigned instead of added: first micro-batch
                                of a step (default 0) */
    /* Called once for each layer that has trainable parameters, from the last to the first, as soon
       as its gradients are final; the final norm is layer num_layers. On the calling thread.
       Another status than OK stops the backward with CALLBACK. It may not call into the same
       context (BUSY). On a device with streams what makes the gradients final is enqueued then, not
       done: enqueue what reads them in the context's stream, or behind an event that you record
       there. (default NULL) */
    mdlm_status (*grad_ready)(void *payload, int64_t layer);
    void *payload;
} mdlm_backward_options;
#define MDLM_BACKWARD_OPTIONS_INIT { sizeof(mdlm_backward_options), 0, NULL, NULL }
MDLM_API mdlm_status mdlm_backward_options_init(mdlm_backward_options *options, size_t struct_size);

/* Gradients of the forward that the tape holds: dx (NULL exactly when the shape was reserved with
   input_requires_grad 0) is assigned, parameter gradients are added. dy and dx: as mdlm_block_io
   says; dx may be dy. The tape is empty afterwards. STATE: tape empty; parameters changed since its
   forward; gradients dirty after a backward that failed inside (zero them, or overwrite). After a
   failure inside the tape is empty and the gradients are dirty.

   Enqueued: dy is read, dx and the gradients are written in the order of the context's stream; dy
   and dx are borrowed until the backward is done there. The tape may run the next forward
   at once. */
MDLM_API mdlm_status mdlm_block_backward(mdlm_block *block, mdlm_tape *tape,
                                         const mdlm_backward_options *options, const void *dy,
                                         void *dx);

/* --------------------------------------------------------------------------------------- plan */

/* For which machine a plan is made; needs none. */
typedef struct mdlm_target {
    size_t struct_size;
    mdlm_device_kind device;             /* (default CPU) */
    int32_t num_threads;                 /* scratch grows with it (default 0 = all cores this
                                            process may use) */
    const char *device_table;            /* what operations cost there: a name or JSON, see device
                                            tables (default NULL = "cpu"). A table with a cap of
                                            scratch stands for a device that need not be here, and
                                            device and num_threads do not matter */
    int32_t (*cancelled)(void *payload); /* see Cancelling; asked during searches (default NULL =
                                            never) */
    void *cancelled_payload;
} mdlm_target;
#define MDLM_TARGET_INIT { sizeof(mdlm_target), MDLM_DEVICE_CPU, 0, NULL, NULL, NULL }
MDLM_API mdlm_status mdlm_target_init(mdlm_target *target, size_t struct_size);

/* The plan that the config's recompute settings ask for, or, with a memory_budget, the fastest that
   fits (BUDGET names the smallest budget that any plan fits in). config, shape and target (NULL =
   defaults) are copied. A plan belongs to no context and is free of threads: do not use one from
   two at once. */
MDLM_API mdlm_status mdlm_plan_create(const mdlm_config *config, const mdlm_shape *shape,
                                      const mdlm_target *target, mdlm_plan **out);
MDLM_API void mdlm_plan_destroy(mdlm_plan *plan);
/* Storage of one tensor of one layer (0 .. num_layers - 1; num_layers is the final norm, whose only
   tensor is "input"; -1 = all layers that have the tensor). Statistics go with their tensor. The
   first tensor of a layer, "input", is REPLAY exactly inside a unit of several layers, and else
   KEEP, SHARD or HOST. Inside such a unit the others are KEEP or REPLAY. A storage that the tensor
   cannot have is CONFIG. */
MDLM_API mdlm_status mdlm_plan_set(mdlm_plan *plan, int64_t layer, const char *tensor,
                                   mdlm_storage storage);
MDLM_API mdlm_status mdlm_plan_get(const mdlm_plan *plan, int64_t layer, const char *tensor,
                                   mdlm_storage *out);
/* Makes one unit of layers [first, first + count): only its first input stays, and its layers are
   replayed together. count 1 splits whatever unit the layer was in. Layers of units that are cut
   become units of one. */
MDLM_API mdlm_status mdlm_plan_set_unit(mdlm_plan *plan, int64_t first, int64_t count);
/* Name of the tensor with an index in a layer (layer as above, not -1); NULL past the end. The text
   is the library's. */
MDLM_API const char *mdlm_plan_tensor(const mdlm_plan *plan, int64_t layer, int32_t index);

typedef struct mdlm_plan_layer {
    size_t struct_size;
    int64_t unit_first;        /* first layer of its unit */
    int64_t unit_count;        /* layers of its unit */
    uint64_t saved_bytes;      /* in the arena from forward to backward, owned by this layer */
    uint64_t host_bytes;       /* on the host from forward to backward */
    uint64_t forward_bytes;    /* most of the arena above the layers before it, during its
                                  forward */
    uint64_t backward_bytes;   /* the same during its replay and backward */
    uint64_t most_alive_bytes; /* most bytes alive at once, of the larger of those two: packing loss
                                  = larger / this */
    uint64_t replayed_ops;     /* ops that its backward runs again */
    uint64_t replayed_flops;   /* and their floating point operations, at the reserved shape */
    uint64_t forward_flops;
    uint64_t backward_flops; /* without the replay */
    uint64_t forward_ns;     /* predicted times, by the target's table */
    uint64_t backward_ns;    /* without what is next */
    uint64_t extra_ns;       /* replay, gathering of shards, copies to and from the host that
                                nothing hides */
} mdlm_plan_layer;
#define MDLM_PLAN_LAYER_INIT { sizeof(mdlm_plan_layer), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }
MDLM_API mdlm_status mdlm_plan_layer_init(mdlm_plan_layer *info, size_t struct_size);
MDLM_API mdlm_status mdlm_plan_get_layer(const mdlm_plan *plan, int64_t layer,
                                         mdlm_plan_layer *info);
MDLM_API mdlm_status mdlm_plan_memory(const mdlm_plan *plan, mdlm_memory *memory);

/* Predicted times of one micro-batch, and what is proven of a plan that the planner made. After an
   edit the times are those of the edited plan, and nothing is proven of it. */
typedef struct mdlm_plan_cost {
    size_t struct_size;
    uint64_t forward_ns;
    uint64_t backward_ns;               /* without what is next */
    uint64_t extra_ns;                  /* of the plan: replay, gathering of shards, copies that
                                           nothing hides */
    uint64_t budget_bytes;              /* memory_budget; 0 = the plan was not made for one */
    uint64_t minimum_budget_bytes;      /* smallest budget, counted alike, in which any plan fits */
    uint64_t gap_ns;                    /* extra_ns is at most this much above the least of any plan
                                           that fits; 0 when optimal */
    int32_t budget_includes_parameters; /* both budgets hold parameters and gradients too */
    int32_t optimal;                    /* no plan that fits has a smaller extra_ns, by this table:
                                           over single layers with any set of tensors kept, and over
                                           units of up to max(8, sqrt(num_layers) / 2) layers */
} mdlm_plan_cost;
#define MDLM_PLAN_COST_INIT { sizeof(mdlm_plan_cost), 0, 0, 0, 0, 0, 0, 0, 0 }
MDLM_API mdlm_status mdlm_plan_cost_init(mdlm_plan_cost *cost, size_t struct_size);
MDLM_API mdlm_status mdlm_plan_get_cost(const mdlm_plan *plan, mdlm_plan_cost *cost);
/* What any budget buys: the planner's best plans, peak_bytes[i] rising (of the arena) and
   extra_ns[i] falling. Writes the first cap of them to each array (NULL allowed with cap 0) and
   their number to *out_count. config's memory_budget is not looked at. 128 MiB of partial plans are
   kept while a frontier is found, and at most 65536 points of it, which may be too few for hundreds
   of layers: at no budget is there a plan that takes more than *out_gap_ns (NULL allowed) less; 0 =
   none is better. With several tapes and cpu_offloading not every size of staging is tried, and a
   plan for one of the budgets may be better. */
MDLM_API mdlm_status mdlm_plan_frontier(const mdlm_config *config, const mdlm_shape *shape,
                                        const mdlm_target *target, uint64_t *peak_bytes,
                                        uint64_t *extra_ns, size_t cap, size_t *out_count,
                                        uint64_t *out_gap_ns);
/* A table to read: units, storage of each tensor, bytes, replay. */
MDLM_API mdlm_status mdlm_plan_print(const mdlm_plan *plan, char *buf, size_t cap, size_t *out_len);
/* JSON with one entry per layer and a digest of config, shape and t. from_json: config, shape and
   target must be those that the plan was made for; all byte counts in the text are ignored and
   computed again. text need not end with 0. FORMAT names the place. */
MDLM_API mdlm_status mdlm_plan_to_json(const mdlm_plan *plan, char *buf, size_t cap,
                                       size_t *out_len);
MDLM_API mdlm_status mdlm_plan_from_json(const mdlm_config *config, const mdlm_shape *shape,
                                         const mdlm_target *target, const char *text, size_t length,
                                         mdlm_plan **out);

/* The plan that mdlm_block_reserve(block, shape, NULL) would take: as mdlm_plan_create, for this
   block's frozen parameters and this context's device, threads and table. Change it with
   mdlm_plan_set and hand it to reserve. */
MDLM_API mdlm_status mdlm_block_plan(mdlm_block *block, const mdlm_shape *shape, mdlm_plan **out);

/* ----------------------------------------------------------------------------- device tables

What a device's operations cost, for predicting times and for the planner: rates of matmul per
dtype and of attention, bandwidths, and a fixed time per operation. A table is text: the name of one
of the library's, or JSON as mdlm_device_table writes it. Times follow from table, config and shape
by integer arithmetic, so ranks that have the same table make the same plan. */

/* Name of a table with an index (NULL past the end): "cpu", "A100-40GB", "A100-80GB", "H100",
   "H200". All but "cpu" are from public datasheets, dense peak rates times a stated share; they
   have a fixed cap of scratch per call. The text is the library's. */
MDLM_API const char *mdlm_device_table_name(int32_t index);
/* A table as JSON. table: a name (NOT_FOUND) or JSON (FORMAT names the place). */
MDLM_API mdlm_status mdlm_device_table(const char *table, char *buf, size_t cap, size_t *out_len);
/* Measures the context's device with its own kernels, in well under a second, and makes the result
   the context's table. Times differ from run to run: save it (mdlm_context_get_device_table) and
   hand the same to all ranks. UNSUPPORTED for a dtype that the device does not have. */
MDLM_API mdlm_status mdlm_context_calibrate(mdlm_context *context, mdlm_dtype dtype);
/* The context's table as JSON, and another instead (a name, or JSON). Before the first calibration
   it is "cpu". */
MDLM_API mdlm_status mdlm_context_get_device_table(const mdlm_context *context, char *buf,
                                                   size_t cap, size_t *out_len);
MDLM_API mdlm_status mdlm_context_set_device_table(mdlm_context *context, const char *table);

/* ----------------------------------------------------------------------------------- observer */

typedef int32_t mdlm_phase;
enum {
    MDLM_PHASE_FORWARD = 0, /* with a tape, or evaluation */
    MDLM_PHASE_BACKWARD = 1,
    MDLM_PHASE_REPLAY = 2 /* the second forward of a tensor, during backward */
};

typedef int32_t mdlm_work;
enum {
    MDLM_WORK_OTHER = 0,     /* norms, rotary embedding, activation, bias, dropout, sums: bound by
                                memory */
    MDLM_WORK_MATMUL = 1,    /* a linear, or its gradient by input or weight */
    MDLM_WORK_ATTENTION = 2, /* products of attention, forward or backward; with attention_backend
                                fused all of it */
    MDLM_WORK_TRANSFER = 3   /* a copy, to or from the host too, or a collective: no FLOPs */
};

/* One op that ran. Made by the library, which may append fields in later versions. */
typedef struct mdlm_op_event {
    size_t struct_size; /* of the library that is loaded */
    const char *op;     /* what ran: "linear", "linear_dgrad", "linear_wgrad", "attention",
                           "norm_backward", ...; "copy_input", "to_host", "from_host",
                           "shard_input", "gather_input" for what a plan moves. Never freed */
    const char *tensor; /* that it makes, moves, or makes the gradient for: mdlm_plan_tensor's name,
                           perhaps with ".part". The block's */
    int64_t layer;      /* in the whole model: layer_offset + layer of the block; layer_offset +
                           num_layers is the final norm */
    mdlm_phase phase;
    mdlm_work work;
    int64_t m, n, k;  /* of MDLM_WORK_MATMUL: tokens, outputs and inputs of the linear, on this
                         rank; 0 for the others */
    uint64_t flops;   /* 2 m n k for a linear. Attention: of all pairs of a sequence, whatever the
                         mask leaves out */
    uint64_t bytes;   /* read and written, each operand once (a second reading of statistics and
                         parameters of norms not counted) */
    int64_t begin_ns; /* of a monotonic clock of this process, with any origin; */
    int64_t end_ns;   /* on the CPU and the reference device the work is done at end_ns */
} mdlm_op_event;

/* Calls observer after every op that a forward or backward on this context has run, on the thread
   that called forward or backward, in the order in which they ran. event dies with the call. NULL
   switches it off (payload is then ignored); there is one observer a context, and a call sees the
   one that was set when it began. Ops of the layers are those that mdlm_tape_stats counts; what the
   plan moves (see op) is told as well, but not counted there. Results keep their bits. The observer
   may not call into the same context (BUSY), must not throw or jump out, and its own time falls
   between two events. On a device with streams times are the device's, all events of a call come at
   its end, and the call waits for them: an observer makes calls synchronous. */
MDLM_API mdlm_status mdlm_context_set_observer(
    mdlm_context *context, void (*observer)(void *payload, const mdlm_op_event *event),
    void *payload);

/* ------------------------------------------------------------------------------------- group

A tensor-parallel group: t ranks, each with a communicator, a context on it and a block of the same
config, that make the same calls in the same order. A rank is a thread (mdlm_comm_create_threads), a
process (mdlm/mpi.h), or whatever your own functions connect.

    mdlm_comm *ranks[2];
    TRY(mdlm_comm_create_threads(2, ranks));   // then, in thread r:
    mdlm_context_desc desc = MDLM_CONTEXT_DESC_INIT;
    desc.comm = ranks[r], desc.num_threads = 1; // the cores are shared by the ranks
    TRY(mdlm_context_create(&desc, &context)); // and a block with tensor_model_parallel_size 2

x, y, dx and dy are the same on all ranks, or each rank's part of the sequence under
sequence_parallel (mdlm_block_io). Replicated parameters and their gradients have the same bits on
all ranks, if these run on the same kind of processor. Ranks may differ in num_threads,
input_storage, share_scratch, max_bytes and callbacks; settings, device, bounds, plan, frozen
parameters and batch (not its data) must be the same.

mdlm_block_reserve, _forward, _backward, mdlm_param_gather, _grad_gather and _shard_gather are calls
of the whole group: before anything runs, all ranks compare what they are about to do. Where that
differs, every rank gets an error that names what differs and both values: CONFIG (settings, device,
plan), SHAPE (bounds, batch) or COMM (another call, block or tape). Where one rank's arguments are
refused or its memory fails, it gets its own error and the others COMM with it. In all these cases
nothing has changed and all can go on. A rank that never comes, because its block is NULL or its
context BUSY, can only be waited for. After a failure inside a call the group is aborted: every rank
gets COMM, in that call or its next, and only destroying is left. A rank that is silent for
comm_timeout_ms, or is cancelled after anything ran, is such a failure; one that is cancelled before
is refused like one with a wrong argument, but waits a second at most for the others to hear it.
What ranks compare travels in host memory (through comm, or host_comm beside a comm for device
memory), or, without either, in small device buffers that the call waits for. While the context's
stream is being captured into a graph nothing is compared. */

/* A communicator of yours. Every function is called on the thread that called the library, on all
   ranks in the same order, never two at once. count = elements of one rank's part: all_reduce works
   on count elements, all_gather writes size * count (rank 0's part first), reduce_scatter reads
   size * count and writes count. send may be recv for all_reduce, nothing else overlaps. dtype is
   one of MDLM_DTYPE_F32, _BF16, _F16, _F64. Every rank must get the same bits; sums are best taken
   in rank order in float32 (float64 for F64) and rounded once. all_gather moves bits, which need
   not be numbers.

   memory_space says which memory all buffers are in. HOST: stream is NULL and the work is done on
   return; a context whose device has memory of its own copies. DEVICE: what the library's allocator
   or yours gave for the device, never host memory; the work is enqueued in stream, behind what is
   there, and errors that come later are the device's. On the CPU and the reference device stream is
   NULL in both cases, and the work done on return.

   timeout_ms > 0: after so long without the others return an error. On return, with an error too,
   nothing may touch the buffers any more, except enqueued work. Another status than OK is COMM for
   the library's caller, with the line that mdlm_set_last_error left; the group is then aborted. */
typedef struct mdlm_comm_table {
    size_t struct_size;
    int32_t rank;                   /* (range 0 .. size - 1) */
    int32_t size;                   /* (range 1 .. 65536) */
    mdlm_memory_space memory_space; /* (default HOST) */
    int32_t reserved;               /* 0 */
    mdlm_status (*all_reduce)(void *payload, const void *send, void *recv, int64_t count,
                              mdlm_dtype dtype, mdlm_reduce_op op,
                              int64_t timeout_ms, void *stream);
    mdlm_status (*all_gather)(void *payload, const void *send, void *recv, int64_t count,
                              mdlm_dtype dtype, int64_t timeout_ms, void *stream);
    mdlm_status (*reduce_scatter)(void *payload, const void *send, void *recv, int64_t count,
                                  mdlm_dtype dtype, mdlm_reduce_op op,
                                  int64_t timeout_ms, void *stream);
    void (*abort)(void *payload);   /* makes calls of all ranks, running and to come, return an
                                       error soon. From any thread, also during a call, and more
                                       than once (NULL = there is no such way, and the others wait
                                       for their timeout) */
    void (*destroy)(void *payload); /* called once, when the last user of the communicator is gone
                                       (NULL = nothing to do) */
    void *payload;
} mdlm_comm_table;
/* clang-format off */
#define MDLM_COMM_TABLE_INIT { sizeof(mdlm_comm_table), 0, 1, MDLM_MEMORY_SPACE_HOST, 0, NULL, \
    NULL, NULL, NULL, NULL, NULL }
/* clang-format on */
MDLM_API mdlm_status mdlm_comm_table_init(mdlm_comm_table *table, size_t struct_size);

/* A communicator from your functions; table is copied. When this fails, destroy is not called. */
MDLM_API mdlm_status mdlm_comm_create(const mdlm_comm_table *table, mdlm_comm **out);
/* size communicators of one group of threads in this process (range 1 .. 1024), for host memory,
   written to ranks[0 .. size): the one function that gives more than one handle. Collectives have
   the same bits on all ranks: sums in rank order, in float32 (float64 for F64), rounded once. */
MDLM_API mdlm_status mdlm_comm_create_threads(int32_t size, mdlm_comm **ranks);
/* A context keeps its communicator alive. The last user gone, a rank of a group of threads or
   processes has left it: the others get COMM when they call it. NULL allowed. From any thread, but
   not during a collective of the same handle. */
MDLM_API void mdlm_comm_destroy(mdlm_comm *comm);
/* Makes all calls of all ranks on the group, running and to come, fail with COMM. For a rank that
   cannot go on. From any thread, at any time. */
MDLM_API mdlm_status mdlm_comm_abort(mdlm_comm *comm);
/* For functions of a mdlm_comm_table while they wait for other ranks: not 0 when the call that they
   were made for is cancelled (see Cancelling). Then return an error soon: the call ends with
   CANCELLED. Asks at most every few milliseconds, so it may be called as often as you like, on the
   thread that the function was called on; 0 elsewhere. A function that does not use it ends when it
   ends, and the call after it. */
MDLM_API int32_t mdlm_comm_cancelled(void);
/* The rank's number and the size of the group; either out may be NULL. */
MDLM_API mdlm_status mdlm_comm_rank(const mdlm_comm *comm, int32_t *rank, int32_t *size);
/* Collectives for your own data (a loss, a norm of gradients, a shard), as mdlm_comm_table
   describes them; memory of the communicator's memory_space, done on return. All ranks call them in
   the same order among each other and among the group's calls. timeout_ms 0 = 600000. BUSY while
   another call uses this communicator. COMM: see above; the group is then aborted. */
MDLM_API mdlm_status mdlm_comm_all_reduce(mdlm_comm *comm, const void *send, void *recv,
                                          int64_t count, mdlm_dtype dtype, mdlm_reduce_op op,
                                          int64_t timeout_ms);
MDLM_API mdlm_status mdlm_comm_all_gather(mdlm_comm *comm, const void *send, void *recv,
                                          int64_t count, mdlm_dtype dtype, int64_t timeout_ms);
MDLM_API mdlm_status mdlm_comm_reduce_scatter(mdlm_comm *comm, const void *send, void *recv,
                                              int64_t count, mdlm_dtype dtype, mdlm_reduce_op op,
                                              int64_t timeout_ms);

#ifdef __cplusplus
}
#endif
#endif
