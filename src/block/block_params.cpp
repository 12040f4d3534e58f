// SPDX-License-Identifier: Apache-2.0
// What a block does with its parameters: where they stand, which are trained, their first values, and gathering them
// from all ranks.
#include "base/sizes.hpp"
#include "block/block.hpp"
#include "block/remarks.hpp"
#include "block/reservation.hpp"

namespace mdlm {

void Block::bind(void *params, size_t params_bytes, void *grads, size_t grads_bytes) {
    none_in_flight("bind");
    params_.bind(engine_, params, params_bytes, grads, grads_bytes);
}

void Block::bind_one(int64_t index, void *param, void *grad) {
    none_in_flight("bind");
    params_.bind_one(engine_, index, param, grad);
}

void Block::set_requires_grad(int64_t index, bool on) {
    if (reservation_ != nullptr) fail(MDLM_ERROR_STATE, "requires_grad: expected to be set before mdlm_block_reserve");
    params_.set_requires_grad(index, on);
}

void Block::init_params(uint64_t seed) {
    const std::string remark = engine_.log.listens() ? remark_on_initial_values(config_) : "";
    params_.init(*engine_.device, seed);
    if (!remark.empty()) engine_.log.write(remark.c_str());
}

void Block::gather(const char *call, int64_t index, Find find, const void *with, mdlm_dtype dtype, void *host,
                   size_t bytes) {
    Statement statement(call);
    std::vector<char> mine, all;
    const ParamEntry *p = nullptr;
    Params::Elements own;
    engine_.cancellation.begin(call);
    engine_.group.together(statement, [&] {
        engine_.cancellation.check("at its start");
        if (dtype < MDLM_DTYPE_F32 || dtype > MDLM_DTYPE_F64)
            fail(MDLM_ERROR_ARGUMENT, "dtype = %d: expected one of MDLM_DTYPE", dtype);
        if (host == nullptr) fail(MDLM_ERROR_ARGUMENT, "host is NULL");
        p = &params_.whole(index, static_cast<DType>(dtype), bytes);
        own = find(with, statement);
        const auto part = static_cast<size_t>(mul(p->elements, size_of(own.type)));
        mine.resize(part);
        all.resize(part * static_cast<size_t>(p->spec->partition_dim < 0 ? 1 : engine_.group.size()));
        statement.say("block (which of the group's reserves it had)", MDLM_ERROR_COMM,
                      reservation_ != nullptr ? reservation_->number : 0);
        statement.say("index", MDLM_ERROR_COMM, index);
        statement.say("elements", MDLM_ERROR_COMM, p->elements);
    });
    engine_.group.run([&] {
        engine_.device->download(mine.data(), own.at, mine.size());
        if (p->spec->partition_dim < 0) all.swap(mine);
        else engine_.group.gather_host(mine.data(), all.data(), p->elements, own.type);
    });
    params_.join_parts(*p, own.type, all.data(), static_cast<DType>(dtype), host);
}

}  // namespace mdlm
