// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "api/objects.hpp"
#include "base/structs.hpp"

using namespace mdlm;

namespace {

DType dtype_of(mdlm_dtype type, const char *name = "dtype") {
    if (type < MDLM_DTYPE_F32 || type > MDLM_DTYPE_F64)
        fail(MDLM_ERROR_ARGUMENT, "%s = %d: expected one of MDLM_DTYPE", name, type);
    return static_cast<DType>(type);
}

Device &device_of(mdlm_block *block) { return *block->block.engine().device; }

size_t host_size(int64_t bytes, const char *name) {
    if (!std::in_range<size_t>(bytes))
        fail(MDLM_ERROR_OVERFLOW, "%s: %lld bytes are past what a size_t holds", name, (long long)bytes);
    return static_cast<size_t>(bytes);
}

}  // namespace

mdlm_status mdlm_param_count(const mdlm_block *block, int64_t *out) {
    return call(block, "block", [&] {
        not_null(out, "out");
        *out = static_cast<int64_t>(const_cast<mdlm_block *>(block)->block.params().entries().size());
    });
}

mdlm_status mdlm_param_info(const mdlm_block *block, int64_t index, mdlm_param_desc *desc) {
    return call(block, "block", [&] {
        Block &b = const_cast<mdlm_block *>(block)->block;
        const ParamEntry &p = b.params().at(index);
        const int64_t t = b.config().tensor_model_parallel_size;
        mdlm_param_desc d = MDLM_PARAM_DESC_INIT;
        d.name = p.name.c_str();
        d.layer = p.item;
        d.ndim = p.spec->ndim;
        d.requires_grad = p.requires_grad;
        for (int i = 0; i < 2; ++i) d.full_shape[i] = p.spec->full[i], d.local_shape[i] = p.spec->local(i, t);
        d.partition_dim = p.spec->partition_dim, d.partition_stride = p.spec->partition_stride;
        d.dtype = static_cast<mdlm_dtype>(b.params().dtype()),
        d.grad_dtype = static_cast<mdlm_dtype>(b.params().grad_dtype());
        d.offset_bytes = static_cast<uint64_t>(p.offset), d.bytes = static_cast<uint64_t>(p.bytes);
        d.grad_offset_bytes = static_cast<uint64_t>(p.grad_offset), d.grad_bytes = static_cast<uint64_t>(p.grad_bytes);
        copy_out(desc, d, "desc");
    });
}

mdlm_status mdlm_param_find(const mdlm_block *block, const char *name, int64_t *out) {
    return call(block, "block", [&] {
        not_null(name, "name");
        not_null(out, "out");
        *out = const_cast<mdlm_block *>(block)->block.params().find(name);
    });
}

mdlm_status mdlm_param_set_requires_grad(mdlm_block *block, int64_t index, int32_t requires_grad) {
    return call(block, "block", [&] {
        if (requires_grad != 0 && requires_grad != 1)
            fail(MDLM_ERROR_ARGUMENT, "requires_grad = %d: expected 0 or 1", requires_grad);
        block->block.set_requires_grad(index, requires_grad != 0);
    });
}

mdlm_status mdlm_params_bind(mdlm_block *block, void *params, size_t params_bytes, void *grads, size_t grads_bytes) {
    return call(block, "block", [&] { block->block.bind(params, params_bytes, grads, grads_bytes); });
}

mdlm_status mdlm_param_bind(mdlm_block *block, int64_t index, void *param, void *grad) {
    return call(block, "block", [&] { block->block.bind_one(index, param, grad); });
}

mdlm_status mdlm_params_data(mdlm_block *block, void **params, size_t *params_bytes, void **grads,
                             size_t *grads_bytes) {
    return call(block, "block", [&] {
        const Params &all = block->block.params();
        const size_t bytes = host_size(all.flat_bytes(), "params"),
                     of_grads = host_size(all.flat_grad_bytes(), "grads");
        if (params != nullptr) *params = all.flat();
        if (params_bytes != nullptr) *params_bytes = bytes;
        if (grads != nullptr) *grads = all.flat_grads();
        if (grads_bytes != nullptr) *grads_bytes = of_grads;
    });
}

mdlm_status mdlm_param_data(mdlm_block *block, int64_t index, void **param, void **grad) {
    return call(block, "block", [&] {
        const ParamEntry &p = block->block.params().at(index);
        if (p.data == nullptr)
            fail(MDLM_ERROR_STATE, "%s: it has no memory yet: expected mdlm_block_reserve or a bind before",
                 p.name.c_str());
        if (param != nullptr) *param = p.data;
        if (grad != nullptr) *grad = p.grad;
    });
}

mdlm_status mdlm_params_init(mdlm_block *block, uint64_t seed) {
    return call(block, "block", [&] { block->block.init_params(seed); });
}

mdlm_status mdlm_param_write(mdlm_block *block, int64_t index, const char *part, const int64_t *start,
                             const int64_t *count, mdlm_dtype dtype, const void *host, size_t bytes) {
    return call(block, "block", [&] {
        not_null(host, "host");
        Params &params = block->block.params();
        params.write(device_of(block), index, params.elements(index, false),
                     {part, start, count, dtype_of(dtype), bytes}, host);
        ++params.version;
    });
}

mdlm_status mdlm_param_read(mdlm_block *block, int64_t index, const char *part, const int64_t *start,
                            const int64_t *count, mdlm_dtype dtype, void *host, size_t bytes) {
    return call(block, "block", [&] {
        not_null(host, "host");
        const Params &params = block->block.params();
        params.read(device_of(block), index, params.elements(index, false),
                    {part, start, count, dtype_of(dtype), bytes}, host);
    });
}

mdlm_status mdlm_param_grad_read(mdlm_block *block, int64_t index, const char *part, const int64_t *start,
                                 const int64_t *count, mdlm_dtype dtype, void *host, size_t bytes) {
    return call(block, "block", [&] {
        not_null(host, "host");
        const Params &params = block->block.params();
        params.read(device_of(block), index, params.elements(index, true), {part, start, count, dtype_of(dtype), bytes},
                    host);
    });
}

mdlm_status mdlm_param_shard_write(mdlm_block *block, int64_t index, void *shard, mdlm_dtype shard_dtype,
                                   size_t shard_bytes, const char *part, const int64_t *start, const int64_t *count,
                                   mdlm_dtype dtype, const void *host, size_t bytes) {
    return call(block, "block", [&] {
        not_null(host, "host");
        const Params &params = block->block.params();
        const Params::Elements to = params.callers(index, shard, dtype_of(shard_dtype, "shard_dtype"), shard_bytes);
        params.write(device_of(block), index, to, {part, start, count, dtype_of(dtype), bytes}, host);
    });
}

mdlm_status mdlm_param_shard_read(mdlm_block *block, int64_t index, const void *shard, mdlm_dtype shard_dtype,
                                  size_t shard_bytes, const char *part, const int64_t *start, const int64_t *count,
                                  mdlm_dtype dtype, void *host, size_t bytes) {
    return call(block, "block", [&] {
        not_null(host, "host");
        const Params &params = block->block.params();
        const Params::Elements from = params.callers(index, shard, dtype_of(shard_dtype, "shard_dtype"), shard_bytes);
        params.read(device_of(block), index, from, {part, start, count, dtype_of(dtype), bytes}, host);
    });
}

mdlm_status mdlm_param_gather(mdlm_block *block, int64_t index, mdlm_dtype dtype, void *host, size_t bytes) {
    return call(block, "block", [&] {
        const auto find = [&](Statement &) { return block->block.params().elements(index, false); };
        block->block.gather("mdlm_param_gather", index, find, dtype, host, bytes);
    });
}

mdlm_status mdlm_param_grad_gather(mdlm_block *block, int64_t index, mdlm_dtype dtype, void *host, size_t bytes) {
    return call(block, "block", [&] {
        const auto find = [&](Statement &) { return block->block.params().elements(index, true); };
        block->block.gather("mdlm_param_grad_gather", index, find, dtype, host, bytes);
    });
}

mdlm_status mdlm_param_shard_gather(mdlm_block *block, int64_t index, const void *shard, mdlm_dtype shard_dtype,
                                    size_t shard_bytes, mdlm_dtype dtype, void *host, size_t bytes) {
    return call(block, "block", [&] {
        const auto find = [&](Statement &statement) {
            const DType type = dtype_of(shard_dtype, "shard_dtype");
            statement.say("shard_dtype", MDLM_ERROR_COMM, shard_dtype);
            return block->block.params().callers(index, shard, type, shard_bytes);
        };
        block->block.gather("mdlm_param_shard_gather", index, find, dtype, host, bytes);
    });
}

mdlm_status mdlm_params_changed(mdlm_block *block) {
    return call(block, "block", [&] { ++block->block.params().version; });
}

mdlm_status mdlm_params_zero_grads(mdlm_block *block) {
    return call(block, "block", [&] { block->block.params().zero_grads(device_of(block)); });
}
