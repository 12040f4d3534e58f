// SPDX-License-Identifier: Apache-2.0
#include "whole_step.hpp"

#include <algorithm>
#include <cstring>

#include "base/dtype.hpp"
#include "support/hold.hpp"
#include "support/rig.hpp"

namespace parallel {
namespace {

using mdlm_test::Buffer;
using mdlm_test::fnv;
using mdlm_test::hold;

class Runner {
public:
    Runner(mdlm_comm *comm, const WholeStep &step)
        : comm_(comm), s_(step), type_(static_cast<mdlm::DType>(step.config.params_dtype)) {
        if (comm != nullptr) OK(mdlm_comm_rank(comm, &rank_, &size_));
        if (step.config.sequence_parallel != 0) parts_ = size_;
    }
    Runner(const Runner &) = delete;
    ~Runner() {
        mdlm_tape_destroy(tape_);
        mdlm_block_destroy(block_);
        mdlm_context_destroy(context_);
    }

    WholeResult run(bool gather_params) {
        open();
        WholeResult r;
        for (int64_t i = 0; i < params_; ++i) load(i);
        forward_and_backward(r);
        for (int64_t i = 0; i < params_ && s_.numbers; ++i) {
            mdlm_param_desc info = MDLM_PARAM_DESC_INIT;
            OK(mdlm_param_info(block_, i, &info));
            if (gather_params) r.params.emplace(info.name, gathered(i, info, false));
            if (info.requires_grad == 0) continue;
            r.grads.emplace(info.name, gathered(i, info, true));
            void *grad = nullptr;
            OK(mdlm_param_data(block_, i, nullptr, &grad));
            append(r.bits, grad, info.grad_bytes);
        }
        return r;
    }

private:
    static int64_t elements(const mdlm_param_desc &info) { return info.full_shape[0] * columns(info); }
    static int64_t columns(const mdlm_param_desc &info) { return info.ndim == 2 ? info.full_shape[1] : 1; }
    static void append(std::vector<unsigned char> &to, const void *from, size_t bytes) {
        const auto *begin = static_cast<const unsigned char *>(from);
        to.insert(to.end(), begin, begin + bytes);
    }

    void open() {
        mdlm_context_desc desc = MDLM_CONTEXT_DESC_INIT;
        desc.device = s_.device, desc.num_threads = s_.threads, desc.matmul = s_.matmul, desc.comm = comm_;
        OK(mdlm_context_create(&desc, &context_));
        OK(mdlm_block_create(context_, &s_.config, &block_));
        OK(mdlm_param_count(block_, &params_));
        for (int64_t i = 0; i < params_; ++i) {
            mdlm_param_desc info = MDLM_PARAM_DESC_INIT;
            OK(mdlm_param_info(block_, i, &info));
            for (const std::string &name : s_.frozen)
                if (std::string(info.name).ends_with(name)) OK(mdlm_param_set_requires_grad(block_, i, 0));
        }
        shape_.seq_length = s_.seq, shape_.micro_batch_size = s_.batch;
        shape_.max_documents = s_.documents.empty() ? 0 : static_cast<int64_t>(s_.documents.size()) - 1;
        shape_.input_requires_grad = s_.input_gradient;
        OK(mdlm_block_reserve(block_, &shape_, nullptr));
        OK(mdlm_tape_create(block_, &tape_));
        OK(mdlm_params_zero_grads(block_));
    }

    void load(int64_t i) {
        mdlm_param_desc info = MDLM_PARAM_DESC_INIT;
        OK(mdlm_param_info(block_, i, &info));
        const Values values = s_.parameter(info.name, info.full_shape[0], columns(info));
        hold(values.size() == static_cast<size_t>(elements(info)), std::string(info.name) + ": values of another size");
        const std::string name = info.name;
        if (s_.loading == Loading::parts && name.find("linear_qkv") != std::string::npos)
            return load_qkv(i, info, values);
        if (s_.loading == Loading::parts && info.partition_stride == 2) return load_gated(i, info, values);
        if (s_.loading == Loading::boxes) return load_boxes(i, info, values);
        OK(mdlm_param_write(block_, i, nullptr, nullptr, nullptr, MDLM_DTYPE_F64, values.data(),
                            values.size() * sizeof(double)));
    }
    void load_part(int64_t i, const char *part, const Values &values) {
        OK(mdlm_param_write(block_, i, part, nullptr, nullptr, MDLM_DTYPE_F64, values.data(),
                            values.size() * sizeof(double)));
    }
    // Out of rows packed by group: its query heads, its key, its value.
    void load_qkv(int64_t i, const mdlm_param_desc &info, const Values &values) {
        const mdlm_config &c = s_.config;
        const int64_t groups = c.num_query_groups != 0 ? c.num_query_groups : c.num_attention_heads,
                      per = c.num_attention_heads / groups;
        const int64_t head = values.size() / static_cast<size_t>(groups * (per + 2));  // elements
        Values q, k, v;
        for (int64_t g = 0; g < groups; ++g) {
            const auto at = values.begin() + g * (per + 2) * head;
            q.insert(q.end(), at, at + per * head);
            k.insert(k.end(), at + per * head, at + (per + 1) * head);
            v.insert(v.end(), at + (per + 1) * head, at + (per + 2) * head);
        }
        hold(q.size() + k.size() + v.size() == static_cast<size_t>(elements(info)), "parts of linear_qkv");
        load_part(i, "q", q), load_part(i, "k", k), load_part(i, "v", v);
    }
    void load_gated(int64_t i, const mdlm_param_desc &, const Values &values) {
        const auto half = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
        load_part(i, "gate", Values(values.begin(), half)), load_part(i, "up", Values(half, values.end()));
    }
    void load_boxes(int64_t i, const mdlm_param_desc &info, const Values &values) {
        const int64_t n = info.full_shape[0], k = columns(info), rows[] = {0, (n + 2) / 3, n},
                      cols[] = {0, (2 * k + 2) / 3, k};
        for (int a = 0; a < 2; ++a)
            for (int b = 0; b < 2; ++b) {
                const int64_t start[] = {rows[a], cols[b]}, count[] = {rows[a + 1] - rows[a], cols[b + 1] - cols[b]};
                Values box;
                for (int64_t r = 0; r < count[0]; ++r)
                    for (int64_t c = 0; c < count[1]; ++c)
                        box.push_back(values[static_cast<size_t>((start[0] + r) * k + start[1] + c)]);
                if (info.ndim == 1 && b == 1) continue;  // a vector has one column, which the first box has
                OK(mdlm_param_write(block_, i, nullptr, start, count, MDLM_DTYPE_F64, box.data(),
                                    box.size() * sizeof(double)));
            }
    }

    Values gathered(int64_t i, const mdlm_param_desc &info, bool gradient) {
        Values values(static_cast<size_t>(elements(info)));
        const auto gather = gradient ? mdlm_param_grad_gather : mdlm_param_gather;
        OK(gather(block_, i, MDLM_DTYPE_F64, values.data(), values.size() * sizeof(double)));
        return values;
    }

    // f(index in the whole [s, b, h], index in the part of a rank), for that part.
    template <class F>
    void each(int64_t rank, F &&f) const {
        const int64_t h = s_.config.hidden_size, part = s_.seq / parts_;
        for (int64_t s = 0; s < part; ++s)
            for (int64_t b = 0; b < s_.batch; ++b)
                for (int64_t c = 0, row = s_.config.batch_first != 0 ? b * part + s : s * s_.batch + b; c < h; ++c)
                    f(static_cast<size_t>((((parts_ > 1 ? rank : 0) * part + s) * s_.batch + b) * h + c), row * h + c);
    }
    void put(const Values &whole, Buffer &to) const {
        each(rank_, [&](size_t i, int64_t local) { mdlm::store(type_, to.get(), local, whole[i]); });
    }
    Values take(Buffer &from) const {
        const auto count = static_cast<int64_t>(from.size()) / mdlm::size_of(type_);
        Values mine(static_cast<size_t>(count)), all(static_cast<size_t>(count * parts_));
        for (int64_t i = 0; i < count; ++i) mine[static_cast<size_t>(i)] = mdlm::load(type_, from.get(), i);
        if (parts_ == 1) all = mine;
        else OK(mdlm_comm_all_gather(comm_, mine.data(), all.data(), count, MDLM_DTYPE_F64, 0));
        Values whole(all.size());
        for (int64_t r = 0; r < parts_; ++r)
            each(r, [&](size_t i, int64_t local) { whole[i] = all[static_cast<size_t>(r * count + local)]; });
        return whole;
    }

    void forward_and_backward(WholeResult &r) {
        mdlm_batch batch = MDLM_BATCH_INIT;
        batch.seq_length = s_.seq, batch.micro_batch_size = s_.batch, batch.training = 1, batch.seed = 11,
        batch.micro_batch_index = 3;
        if (!s_.documents.empty()) batch.cu_seqlens = s_.documents.data(), batch.num_documents = shape_.max_documents;
        mdlm_io io = MDLM_IO_INIT;
        OK(mdlm_block_io(block_, &batch, &io));
        Buffer x(io.bytes), y(io.bytes), dy(io.bytes), dx(io.bytes);
        put(s_.x, x), put(s_.dy, dy);
        const uint64_t before = fnv(x.get(), x.size());
        OK(mdlm_block_forward(block_, &batch, x.get(), tape_, y.get()));
        hold(fnv(x.get(), x.size()) == before, "forward changed x");
        OK(mdlm_block_backward(block_, tape_, nullptr, dy.get(), s_.input_gradient ? dx.get() : nullptr));
        hold(fnv(x.get(), x.size()) == before, "backward changed x");
        OK(mdlm_tape_get_stats(tape_, &r.stats));
        OK(mdlm_block_memory(block_, &r.memory));
        mdlm_plan *plan = nullptr;
        OK(mdlm_block_plan(block_, &shape_, &plan));
        for (int64_t i = 0; i < s_.config.num_layers; ++i) {
            mdlm_plan_layer layer = MDLM_PLAN_LAYER_INIT;
            OK(mdlm_plan_get_layer(plan, i, &layer));
            r.planned_saved.push_back(layer.saved_bytes);
        }
        mdlm_plan_destroy(plan);
        if (!s_.numbers) return;
        append(r.bits, y.get(), y.size());
        r.y = take(y);
        if (!s_.input_gradient) return;
        append(r.bits, dx.get(), dx.size());
        r.dx = take(dx);
    }

    mdlm_comm *comm_;
    const WholeStep &s_;
    mdlm::DType type_;
    int32_t rank_ = 0, size_ = 1;
    int64_t parts_ = 1, params_ = 0;
    mdlm_shape shape_ = MDLM_SHAPE_INIT;
    mdlm_context *context_ = nullptr;
    mdlm_block *block_ = nullptr;
    mdlm_tape *tape_ = nullptr;
};

}  // namespace

void set_all(mdlm_config &config, const Settings &settings) {
    for (const auto &[key, value] : settings) OK(mdlm_config_set(&config, key.c_str(), value.c_str()));
}

Settings group_of(int t, bool sequence_parallel) {
    return {{"tensor_model_parallel_size", std::to_string(t)}, {"sequence_parallel", sequence_parallel ? "1" : "0"}};
}

std::vector<Recompute> recompute_settings(int64_t num_layers, bool distributable) {
    std::vector<Recompute> list = {{"none", {}}, {"selective", {{"recompute_granularity", "selective"}}}};
    for (const char *module : {"core_attn", "qkv", "qk_norm_rope", "layernorm", "mlp_act", "mlp"})
        list.push_back({std::string("selective ") + module,
                        {{"recompute_granularity", "selective"}, {"recompute_modules", module}}});
    for (const std::string method : {"uniform", "block"})
        for (int64_t n = 1; n <= num_layers; ++n) {
            const Settings settings = {{"recompute_granularity", "full"},
                                       {"recompute_method", method},
                                       {"recompute_num_layers", std::to_string(n)}};
            list.push_back({"full " + method + " " + std::to_string(n), settings});
            if (distributable)
                list.push_back(
                    {list.back().name + ", distributed", settings + Settings{{"distribute_saved_activations", "1"}}});
        }
    return list;
}

WholeResult run_step(mdlm_comm *comm, const WholeStep &step, bool gather_params) {
    return Runner(comm, step).run(gather_params);
}

bool same_on_all_ranks(mdlm_comm *comm, const void *bytes, size_t count) {
    int32_t size = 1;
    OK(mdlm_comm_rank(comm, nullptr, &size));
    const uint64_t mine = fnv(bytes, count);
    std::vector<uint64_t> all(static_cast<size_t>(size));
    OK(mdlm_comm_all_gather(comm, &mine, all.data(), 2, MDLM_DTYPE_F32, 0));
    return std::count(all.begin(), all.end(), all[0]) == size;
}

}  // namespace parallel
