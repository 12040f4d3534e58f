// SPDX-License-Identifier: Apache-2.0
// Stand-ins for the functions of oneDNN that the library calls (the linker's --wrap puts them between): each marks its
// thread as being inside oneDNN, and returns an error without making the call when told to. What destroys never fails,
// and nothing is injected inside.
#include <dnnl.h>

#include "fault/inject.hpp"

namespace {

std::atomic<int64_t> made = 0;

struct Inside {
    Inside() {
        ++mdlm_test::inject::inside_dnnl;
        ++made;
    }
    ~Inside() { --mdlm_test::inject::inside_dnnl; }
};

// Which error: the two that oneDNN itself would give, in turn.
bool fails(dnnl_status_t *status) {
    if (!mdlm_test::inject::strikes(mdlm_test::Fault::dnnl)) return false;
    *status = mdlm_test::inject::calls() % 2 == 0 ? dnnl_out_of_memory : dnnl_runtime_error;
    return true;
}

}  // namespace

int64_t mdlm_test::inject::dnnl_calls() { return made; }
bool mdlm_test::inject::have_dnnl() { return true; }

#define STAND_IN(name, parameters, arguments)                                                                          \
    extern "C" dnnl_status_t __real_##name parameters;                                                                 \
    extern "C" dnnl_status_t __wrap_##name parameters {                                                                \
        dnnl_status_t status = dnnl_success;                                                                           \
        if (fails(&status)) return status;                                                                             \
        const Inside inside;                                                                                           \
        return __real_##name arguments;                                                                                \
    }
#define ONLY_MARK(name, type)                                                                                          \
    extern "C" dnnl_status_t __real_##name(type);                                                                      \
    extern "C" dnnl_status_t __wrap_##name(type handle) {                                                              \
        const Inside inside;                                                                                           \
        return __real_##name(handle);                                                                                  \
    }

STAND_IN(dnnl_engine_create, (dnnl_engine_t * e, dnnl_engine_kind_t k, size_t i), (e, k, i))
STAND_IN(dnnl_stream_create, (dnnl_stream_t * s, dnnl_engine_t e, unsigned f), (s, e, f))
STAND_IN(dnnl_stream_wait, (dnnl_stream_t s), (s))
STAND_IN(dnnl_primitive_attr_create, (dnnl_primitive_attr_t * a), (a))
STAND_IN(dnnl_primitive_attr_set_scratchpad_mode, (dnnl_primitive_attr_t a, dnnl_scratchpad_mode_t m), (a, m))
STAND_IN(dnnl_primitive_attr_set_fpmath_mode, (dnnl_primitive_attr_t a, dnnl_fpmath_mode_t m), (a, m))
STAND_IN(dnnl_primitive_attr_set_post_ops, (dnnl_primitive_attr_t a, const_dnnl_post_ops_t p), (a, p))
STAND_IN(dnnl_post_ops_create, (dnnl_post_ops_t * p), (p))
STAND_IN(dnnl_primitive_desc_query, (const_dnnl_primitive_desc_t d, dnnl_query_t q, int i, void *r), (d, q, i, r))
STAND_IN(dnnl_primitive_create, (dnnl_primitive_t * p, const_dnnl_primitive_desc_t d), (p, d))
STAND_IN(dnnl_primitive_execute, (const_dnnl_primitive_t p, dnnl_stream_t s, int n, const dnnl_exec_arg_t *a),
         (p, s, n, a))
STAND_IN(dnnl_memory_set_data_handle, (dnnl_memory_t m, void *h), (m, h))
#if DNNL_VERSION_MAJOR >= 3
STAND_IN(dnnl_memory_desc_create_with_strides,
         (dnnl_memory_desc_t * m, int n, const dnnl_dims_t d, dnnl_data_type_t t, const dnnl_dims_t s), (m, n, d, t, s))
STAND_IN(dnnl_memory_create, (dnnl_memory_t * m, const_dnnl_memory_desc_t d, dnnl_engine_t e, void *h), (m, d, e, h))
STAND_IN(dnnl_post_ops_append_sum, (dnnl_post_ops_t p, float s, int32_t z, dnnl_data_type_t t), (p, s, z, t))
STAND_IN(dnnl_matmul_primitive_desc_create,
         (dnnl_primitive_desc_t * p, dnnl_engine_t e, const_dnnl_memory_desc_t a, const_dnnl_memory_desc_t b,
          const_dnnl_memory_desc_t bias, const_dnnl_memory_desc_t c, const_dnnl_primitive_attr_t t),
         (p, e, a, b, bias, c, t))
#if DNNL_VERSION_MAJOR > 3 || DNNL_VERSION_MINOR >= 5
STAND_IN(dnnl_primitive_attr_set_deterministic, (dnnl_primitive_attr_t a, int v), (a, v))
#endif
ONLY_MARK(dnnl_memory_desc_destroy, dnnl_memory_desc_t)
#else
STAND_IN(dnnl_memory_desc_init_by_strides,
         (dnnl_memory_desc_t * m, int n, const dnnl_dims_t d, dnnl_data_type_t t, const dnnl_dims_t s), (m, n, d, t, s))
STAND_IN(dnnl_memory_create, (dnnl_memory_t * m, const dnnl_memory_desc_t *d, dnnl_engine_t e, void *h), (m, d, e, h))
STAND_IN(dnnl_post_ops_append_sum, (dnnl_post_ops_t p, float s), (p, s))
STAND_IN(dnnl_matmul_desc_init,
         (dnnl_matmul_desc_t * m, const dnnl_memory_desc_t *a, const dnnl_memory_desc_t *b,
          const dnnl_memory_desc_t *bias, const dnnl_memory_desc_t *c),
         (m, a, b, bias, c))
STAND_IN(dnnl_primitive_desc_create,
         (dnnl_primitive_desc_t * p, const_dnnl_op_desc_t o, const_dnnl_primitive_attr_t a, dnnl_engine_t e,
          const_dnnl_primitive_desc_t h),
         (p, o, a, e, h))
#endif
ONLY_MARK(dnnl_engine_destroy, dnnl_engine_t)
ONLY_MARK(dnnl_stream_destroy, dnnl_stream_t)
ONLY_MARK(dnnl_memory_destroy, dnnl_memory_t)
ONLY_MARK(dnnl_primitive_attr_destroy, dnnl_primitive_attr_t)
ONLY_MARK(dnnl_post_ops_destroy, dnnl_post_ops_t)
ONLY_MARK(dnnl_primitive_desc_destroy, dnnl_primitive_desc_t)
ONLY_MARK(dnnl_primitive_destroy, dnnl_primitive_t)
