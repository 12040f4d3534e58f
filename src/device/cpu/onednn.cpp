// SPDX-License-Identifier: Apache-2.0
// Matrix products by oneDNN's C API, 2.6 and later or 3.x. All that differs between the two is in this file.
#include <dnnl.h>
#include <dnnl_debug.h>

#include <cstdio>
#include <cstring>
#include <type_traits>
#include <vector>

#include "base/status.hpp"
#include "device/cpu/matmul.hpp"
#include "device/device.hpp"

// Of the OpenMP runtime that oneDNN itself links. Declared here, since -fopenmp of another compiler would bring another
// runtime.
extern "C" {
int omp_get_max_threads(void);
void omp_set_num_threads(int);
}

namespace mdlm::cpu {
namespace {

void check(dnnl_status_t status, const char *call) {
    if (status != dnnl_success)
        fail(MDLM_ERROR_DEVICE, "oneDNN: %s returned %d (%s)", call, static_cast<int>(status), dnnl_status2str(status));
}
#define CHECK(function, ...) check(function(__VA_ARGS__), #function)

// oneDNN picks its kernels and their split by the threads of the calling thread: always 1 here.
class OneThread {
public:
    OneThread() : before_(omp_get_max_threads()) {
        if (before_ != 1) omp_set_num_threads(1);
    }
    ~OneThread() {
        if (before_ != 1) omp_set_num_threads(before_);
    }
    OneThread(const OneThread &) = delete;
    OneThread &operator=(const OneThread &) = delete;

private:
    int before_;
};

template <class T, dnnl_status_t (*destroy)(T)>
struct Destroy {
    using pointer = T;
    void operator()(T handle) const { destroy(handle); }
};
template <class T, dnnl_status_t (*destroy)(T)>
using DnnlHandle = std::unique_ptr<std::remove_pointer_t<T>, Destroy<T, destroy>>;
using EngineHandle = DnnlHandle<dnnl_engine_t, dnnl_engine_destroy>;
using StreamHandle = DnnlHandle<dnnl_stream_t, dnnl_stream_destroy>;
using MemoryHandle = DnnlHandle<dnnl_memory_t, dnnl_memory_destroy>;
using AttributesHandle = DnnlHandle<dnnl_primitive_attr_t, dnnl_primitive_attr_destroy>;
using PostOpsHandle = DnnlHandle<dnnl_post_ops_t, dnnl_post_ops_destroy>;
using PrimitiveDescHandle = DnnlHandle<dnnl_primitive_desc_t, dnnl_primitive_desc_destroy>;
using PrimitiveHandle = DnnlHandle<dnnl_primitive_t, dnnl_primitive_destroy>;

dnnl_data_type_t type_of(DType t) { return t == DType::bf16 ? dnnl_bf16 : dnnl_f32; }

// A memory descriptor: a struct by value in 2.x, a handle in 3.x.
#if DNNL_VERSION_MAJOR >= 3
using MemoryDescView = const_dnnl_memory_desc_t;
class MemoryDesc {
public:
    MemoryDesc(DType type, int64_t rows, int64_t columns, int64_t row, int64_t column) {
        const dnnl_dims_t sizes = {rows, columns}, strides = {row, column};
        dnnl_memory_desc_t made = nullptr;
        CHECK(dnnl_memory_desc_create_with_strides, &made, 2, sizes, type_of(type), strides);
        handle_.reset(made);
    }
    MemoryDescView view() const { return handle_.get(); }

private:
    DnnlHandle<dnnl_memory_desc_t, dnnl_memory_desc_destroy> handle_;
};
dnnl_status_t append_sum(dnnl_post_ops_t ops) { return dnnl_post_ops_append_sum(ops, 1.0f, 0, dnnl_data_type_undef); }
dnnl_status_t describe(dnnl_primitive_desc_t *to, dnnl_engine_t engine, MemoryDescView a, MemoryDescView b,
                       MemoryDescView bias, MemoryDescView c, dnnl_primitive_attr_t attributes) {
    return dnnl_matmul_primitive_desc_create(to, engine, a, b, bias, c, attributes);
}
constexpr const char *describe_name = "dnnl_matmul_primitive_desc_create";
#else
using MemoryDescView = const dnnl_memory_desc_t *;
class MemoryDesc {
public:
    MemoryDesc(DType type, int64_t rows, int64_t columns, int64_t row, int64_t column) {
        const dnnl_dims_t sizes = {rows, columns}, strides = {row, column};
        CHECK(dnnl_memory_desc_init_by_strides, &value_, 2, sizes, type_of(type), strides);
    }
    MemoryDescView view() const { return &value_; }

private:
    dnnl_memory_desc_t value_;
};
dnnl_status_t append_sum(dnnl_post_ops_t ops) { return dnnl_post_ops_append_sum(ops, 1.0f); }
dnnl_status_t describe(dnnl_primitive_desc_t *to, dnnl_engine_t engine, MemoryDescView a, MemoryDescView b,
                       MemoryDescView bias, MemoryDescView c, dnnl_primitive_attr_t attributes) {
    dnnl_matmul_desc_t matmul;
    CHECK(dnnl_matmul_desc_init, &matmul, a, b, bias, c);
    return dnnl_primitive_desc_create(to, &matmul, attributes, engine, nullptr);
}
constexpr const char *describe_name = "dnnl_primitive_desc_create";
#endif

MemoryHandle memory(dnnl_engine_t engine, MemoryDescView view) {
    dnnl_memory_t made = nullptr;
    CHECK(dnnl_memory_create, &made, view, engine, DNNL_MEMORY_NONE);
    return MemoryHandle(made);
}

AttributesHandle attributes_of(const Matmul &p) {
    dnnl_primitive_attr_t made = nullptr;
    CHECK(dnnl_primitive_attr_create, &made);
    AttributesHandle attributes(made);
    CHECK(dnnl_primitive_attr_set_scratchpad_mode, made, dnnl_scratchpad_mode_user);
    // Whatever the environment says: bits are a function of shape, dtype, build and CPU.
    CHECK(dnnl_primitive_attr_set_fpmath_mode, made, dnnl_fpmath_mode_strict);
#if DNNL_VERSION_MAJOR > 3 || (DNNL_VERSION_MAJOR == 3 && DNNL_VERSION_MINOR >= 5)
    CHECK(dnnl_primitive_attr_set_deterministic, made, 1);
#endif
    if (p.accumulate) {
        dnnl_post_ops_t list = nullptr;
        CHECK(dnnl_post_ops_create, &list);
        const PostOpsHandle ops(list);
        check(append_sum(list), "dnnl_post_ops_append_sum");
        CHECK(dnnl_primitive_attr_set_post_ops, made, list);
    }
    return attributes;
}

// a, b, bias, c of one product.
struct MatmulDescs {
    MemoryDesc a, b, bias, c;
    explicit MatmulDescs(const Matmul &p)
        : a(p.type, p.m, p.k, p.a_transposed ? 1 : p.lda, p.a_transposed ? p.lda : 1),
          b(p.type, p.k, p.n, p.b_transposed ? 1 : p.ldb, p.b_transposed ? p.ldb : 1), bias(p.type, 1, p.n, p.n, 1),
          c(p.out, p.m, p.n, p.ldc, 1) {}
};

// Null when oneDNN has no implementation, or only a slow one: its reference, or for bf16 what is no kernel for blocks
// of a matrix (oneDNN 2.6 without AMX), which takes 1.6 times as long as our own.
PrimitiveDescHandle description(dnnl_engine_t engine, const Matmul &p, const MatmulDescs &d) {
    const AttributesHandle attributes = attributes_of(p);
    dnnl_primitive_desc_t made = nullptr;
    const dnnl_status_t status =
        describe(&made, engine, d.a.view(), d.b.view(), p.bias ? d.bias.view() : nullptr, d.c.view(), attributes.get());
    if (status == dnnl_unimplemented) return nullptr;
    check(status, describe_name);
    PrimitiveDescHandle result(made);
    const char *implementation = "";
    CHECK(dnnl_primitive_desc_query, made, dnnl_query_impl_info_str, 0, static_cast<void *>(&implementation));
    if (std::strncmp(implementation, "ref", 3) == 0) return nullptr;
    if (p.type == DType::bf16 && std::strncmp(implementation, "gemm", 4) == 0) return nullptr;
    return result;
}

class OneDnnPrimitive final : public Primitive {
public:
    OneDnnPrimitive(dnnl_engine_t engine, const std::vector<StreamHandle> &streams, dnnl_primitive_desc_t description,
                    const Matmul &p, const MatmulDescs &d, int32_t sets)
        : streams_(streams), bias_(p.bias) {
        dnnl_primitive_t made = nullptr;
        CHECK(dnnl_primitive_create, &made, description);
        ready_.reset(made);
        const MemoryDescView scratch = dnnl_primitive_desc_query_md(description, dnnl_query_scratchpad_md, 0);
        sets_.resize(static_cast<size_t>(sets));
        for (ArgumentSet &set : sets_) {
            set.a = memory(engine, d.a.view());
            set.b = memory(engine, d.b.view());
            set.c = memory(engine, d.c.view());
            if (bias_) set.bias = memory(engine, d.bias.view());
            if (scratch != nullptr && dnnl_memory_desc_get_size(scratch) > 0) set.scratch = memory(engine, scratch);
        }
    }

    void run(int32_t set, int32_t worker, const Operands &o, void *scratch) override {
        const OneThread one;
        const ArgumentSet &s = sets_[static_cast<size_t>(set)];
        dnnl_exec_arg_t arguments[5];
        int count = 0;
        const auto bind = [&](int what, const MemoryHandle &to, const void *from) {
            if (!to) return;
            CHECK(dnnl_memory_set_data_handle, to.get(), const_cast<void *>(from));
            arguments[count++] = {what, to.get()};
        };
        bind(DNNL_ARG_SRC, s.a, o.a);
        bind(DNNL_ARG_WEIGHTS, s.b, o.b);
        bind(DNNL_ARG_DST, s.c, o.c);
        bind(DNNL_ARG_BIAS, s.bias, o.bias);
        bind(DNNL_ARG_SCRATCHPAD, s.scratch, scratch);
        const dnnl_stream_t stream = streams_[static_cast<size_t>(worker)].get();
        CHECK(dnnl_primitive_execute, ready_.get(), stream, count, arguments);
        CHECK(dnnl_stream_wait, stream);
    }

private:
    struct ArgumentSet {
        MemoryHandle a, b, c, bias, scratch;
    };
    const std::vector<StreamHandle> &streams_;  // the library's, which lives longer
    bool bias_;
    PrimitiveHandle ready_;
    std::vector<ArgumentSet> sets_;
};

class OneDnn final : public Library {
public:
    explicit OneDnn(int32_t workers) {
        const OneThread one;
        const dnnl_version_t *version = dnnl_version();
        std::snprintf(name_, sizeof name_, "oneDNN %d.%d.%d", version->major, version->minor, version->patch);
        dnnl_engine_t engine = nullptr;
        CHECK(dnnl_engine_create, &engine, dnnl_cpu, 0);
        engine_.reset(engine);
        streams_.resize(static_cast<size_t>(workers));
        for (StreamHandle &stream : streams_) {
            dnnl_stream_t made = nullptr;
            CHECK(dnnl_stream_create, &made, engine, dnnl_stream_default_flags);
            stream.reset(made);
        }
        f32_ = probe(DType::f32);
        bf16_ = probe(DType::bf16);
    }
    const char *name() const override { return name_; }
    bool runs(DType type) const override { return type == DType::bf16 ? bf16_ : f32_; }

    std::unique_ptr<Primitive> make(const Matmul &p, int32_t sets, int64_t scratch_cap, int64_t *scratch) override {
        const OneThread one;
        *scratch = 0;
        const MatmulDescs d(p);
        const PrimitiveDescHandle made = description(engine_.get(), p, d);
        if (!made) return nullptr;
        const MemoryDescView wanted = dnnl_primitive_desc_query_md(made.get(), dnnl_query_scratchpad_md, 0);
        if (wanted != nullptr) *scratch = static_cast<int64_t>(dnnl_memory_desc_get_size(wanted));
        if (*scratch > scratch_cap) return nullptr;
        return std::make_unique<OneDnnPrimitive>(engine_.get(), streams_, made.get(), p, d, sets);
    }

private:
    bool probe(DType type) const {
        const Matmul p{type, type, 64, 64, 64, false, false, 64, 64, 64, false, false};
        return static_cast<bool>(description(engine_.get(), p, MatmulDescs(p)));
    }

    char name_[32] = "";
    EngineHandle engine_;
    std::vector<StreamHandle> streams_;  // one a worker
    bool f32_ = false, bf16_ = false;
};

}  // namespace

std::unique_ptr<Library> make_library(int32_t workers) { return std::make_unique<OneDnn>(workers); }

}  // namespace mdlm::cpu

bool mdlm::cpu_has_onednn() { return true; }
