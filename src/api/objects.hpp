// SPDX-License-Identifier: Apache-2.0
// What the opaque types of mdlm.h are.
#pragma once
#include "api/handle.hpp"
#include "base/counted.hpp"
#include "block/block.hpp"
#include "plan/plan.hpp"

// Shared with the context that uses it.
struct mdlm_comm {
    explicit mdlm_comm(std::shared_ptr<mdlm::Comm> comm) : comm(std::move(comm)) {}
    std::shared_ptr<mdlm::Comm> comm;
};

struct mdlm_context final : mdlm::Handle {
    mdlm_context(std::shared_ptr<mdlm::Gate> gate, std::unique_ptr<mdlm::Device> device, mdlm::Comms comms,
                 const mdlm_context_desc &desc)
        : Handle(std::move(gate), nullptr), engine(std::move(device), std::move(comms), desc.device_allocator,
                                                   desc.host_allocator, {desc.cancelled, desc.cancelled_payload}) {}
    mdlm::Engine engine;
    mdlm::Counted<mdlm_context> counted;
};

struct mdlm_block final : mdlm::Handle {
    mdlm_block(mdlm_context *context, const mdlm_config &config)
        : Handle(context->gate, context), block(context->engine, config), context(context) {
        join(*this);
    }
    mdlm::Block block;
    mdlm_context *context;
    mdlm::Counted<mdlm_block> counted;
};

struct mdlm_tape final : mdlm::Handle {
    explicit mdlm_tape(mdlm_block *block)
        : Handle(block->gate, block), tape(block->block.acquire_tape()), block(block) {
        join(*this);
    }
    ~mdlm_tape() override { block->block.release_tape(tape); }
    mdlm::Tape &tape;
    mdlm_block *block;
    mdlm::Counted<mdlm_tape> counted;
};

// Belongs to no context.
struct mdlm_plan {
    explicit mdlm_plan(mdlm::Plan p) : plan(std::move(p)) {}
    mdlm::Plan plan;
    mdlm::Counted<mdlm_plan> counted;
};
