// SPDX-License-Identifier: Apache-2.0
// Calls on tapes, and which letter stands for which call.
#include "fuzz/calls_machine.hpp"

namespace fuzz {

void Machine::create_tape() {
    Tape &t = tapes[in.pick(tapes.size())];
    mdlm_tape_destroy(std::exchange(t.handle, nullptr));
    const Block &b = block();
    if (call("mdlm_tape_create", [&] { return mdlm_tape_create(b.handle, &t.handle); }) != MDLM_OK) return;
    t.of = b.handle, t.foretold = b.foretold, t.full = t.whole = false, t.bytes = 0;
}

void Machine::use_tape() {
    Tape &t = tapes[in.pick(tapes.size())];
    switch (in.pick(3)) {
    case 0:
        if (call("mdlm_tape_reset", [&] { return mdlm_tape_reset(t.handle); }) == MDLM_OK) t.full = false;
        break;
    case 1: {
        const bool none = documents.empty() || in.pick(9) == 8;
        const int64_t count = none ? in.number() : batch_.num_documents;
        call("mdlm_tape_set_documents",
             [&] { return mdlm_tape_set_documents(t.handle, none ? nullptr : documents.data(), count); });
        break;
    }
    default:
        call("mdlm_tape_get_stats",
             [&] { return mdlm_tape_get_stats(t.handle, Struct(mdlm_tape_stats MDLM_TAPE_STATS_INIT, in).get()); });
    }
}

void Machine::check_stats(const Tape &t, bool after_backward) {
    mdlm_tape_stats s = MDLM_TAPE_STATS_INIT;
    answered(mdlm_tape_get_stats(t.handle, &s), "mdlm_tape_get_stats", {MDLM_OK});
    const mdlm_memory &m = t.foretold.memory;
    const mdlm_plan_layer &sums = t.foretold.sums;
    if (s.high_water_bytes > m.peak_bytes)
        found("%llu bytes of an arena of %llu were used", (unsigned long long)s.high_water_bytes,
              (unsigned long long)m.peak_bytes);
    if (s.saved_bytes > m.saved_bytes)
        found("%llu bytes are saved, foretold were %llu", (unsigned long long)s.saved_bytes,
              (unsigned long long)m.saved_bytes);
    if (!t.whole || !t.foretold.has_sums) return;
    if (s.forward_flops != sums.forward_flops)
        found("forward took %llu FLOPs, foretold were %llu", (unsigned long long)s.forward_flops,
              (unsigned long long)sums.forward_flops);
    if (!after_backward) return;
    if (s.backward_flops != sums.backward_flops)
        found("backward took %llu FLOPs, foretold were %llu", (unsigned long long)s.backward_flops,
              (unsigned long long)sums.backward_flops);
    if (s.replayed_ops != sums.replayed_ops || s.replayed_flops != sums.replayed_flops)
        found("%llu ops of %llu FLOPs were replayed, foretold were %llu of %llu", (unsigned long long)s.replayed_ops,
              (unsigned long long)s.replayed_flops, (unsigned long long)sums.replayed_ops,
              (unsigned long long)sums.replayed_flops);
}

void Machine::forward() {
    Block &b = block();
    const size_t which = in.pick(tapes.size() + 1);
    Tape *t = which == 0 ? nullptr : &tapes[which - 1];
    if (t != nullptr && t->handle == nullptr) t = nullptr;
    Struct batch(batch_, in);
    mdlm_io io = MDLM_IO_INIT;
    const mdlm_status valid = call("mdlm_block_io", [&] { return mdlm_block_io(b.handle, batch.get(), &io); });
    if (valid == MDLM_OK && (batch_.seq_length > 300 || io.bytes > size_t{1} << 17)) return;  // what is quick
    const size_t bytes = valid == MDLM_OK ? io.bytes : 64, kind = in.pick(8);
    inputs.push_back(std::make_unique<Buffer>(2 * bytes + 64));
    const Buffer y(bytes, kind == 6 ? in.pick(64) : 0);
    char *x = kind == 1 ? nullptr : inputs.back()->get() + (kind == 7 ? in.pick(64) : 0);
    char *to = kind == 2 ? nullptr : kind == 3 ? x : kind == 4 ? inputs.back()->get() + bytes / 2 : y.get();
    const mdlm_status status = call("mdlm_block_forward", [&] {
        return mdlm_block_forward(b.handle, batch.get(), x, t != nullptr ? t->handle : nullptr, to);
    });
    if (valid != MDLM_OK && status == MDLM_OK) found("forward takes a batch that mdlm_block_io refuses");
    if (status == MDLM_OK && t != nullptr) {
        if (t->full) found("a tape that was full took another forward");
        t->full = true, t->bytes = bytes;
        t->whole = batch.plain() && batch_.seq_length == b.foretold.shape.seq_length &&
                   batch_.micro_batch_size == b.foretold.shape.micro_batch_size;
        t->foretold = b.foretold;
        check_stats(*t, false);
    }
}

void Machine::backward() {
    struct Told {
        mdlm_context *context;
        mdlm_tape *tape;
        int64_t fails_at, calls = 0;
        bool destroys, busy = true, destroyed = false;
    };
    Block &b = block();
    Tape &t = tapes[in.pick(tapes.size())];
    mdlm_backward_options o = MDLM_BACKWARD_OPTIONS_INIT;
    o.overwrite_grads = in.number32() & 3;
    const size_t mode = in.pick(5), kind = in.pick(8);
    Told told{b.context.handle, t.handle, mode == 2 ? static_cast<int64_t>(in.pick(4)) : -1, 0, mode == 3};
    if (mode > 0)
        o.payload = &told, o.grad_ready = [](void *payload, int64_t) -> mdlm_status {
            Told &at = *static_cast<Told *>(payload);
            if (at.context != nullptr && mdlm_context_synchronize(at.context) != MDLM_ERROR_BUSY) at.busy = false;
            if (at.destroys && !at.destroyed) mdlm_tape_destroy(at.tape), at.destroyed = true;
            return at.calls++ == at.fails_at ? MDLM_ERROR_CALLBACK : MDLM_OK;
        };
    const size_t bytes = t.bytes == 0 ? 64 : t.bytes;
    const Buffer dy(2 * bytes, kind == 5 ? in.pick(64) : 0), dx(bytes);
    const bool wanted = t.foretold.shape.input_requires_grad != 0;
    char *from = kind == 1 ? nullptr : dy.get(), *to = kind == 2 || !wanted ? nullptr
                                                       : kind == 3          ? from
                                                       : kind == 4          ? dy.get() + bytes / 2
                                                                            : dx.get();
    const mdlm_status status = call(
        "mdlm_block_backward", [&] { return mdlm_block_backward(b.handle, t.handle, Struct(o, in).get(), from, to); });
    if (!told.busy) found("a call from grad_ready was let in");
    if (told.destroyed) t.handle = nullptr;
    else if (status == MDLM_OK) check_stats(t, true);
    t.full = t.full && (status == MDLM_ERROR_ARGUMENT || status == MDLM_ERROR_STATE);  // others may have failed inside
}

void Machine::run() {
    for (int calls = 0; !in.done() && calls < 300; ++calls) {
        const uint8_t byte = in.next();
        if (byte == '\n' || byte == ' ') continue;
        switch ((byte & 0x3f) + 0x40) {
        case 'c': preset(); break;
        case 'k': setting(); break;
        case 'F': flags(); break;
        case 'K': poke(); break;
        case 's': shape(); break;
        case 'y': batch(); break;
        case 'G': create_comm(); break;
        case 'g': use_comm(); break;
        case 'x': cancel = static_cast<int64_t>(in.pick(128)); break;
        case 'C': create_context(); break;
        case 'i': use_context(); break;
        case 'P': create_plan(); break;
        case 'p': edit_plan(); break;
        case 'q': ask_plan(); break;
        case 'R': frontier(); break;
        case 'B': create_block(); break;
        case 'r': reserve(); break;
        case 'b': ask_block(); break;
        case 'm': parameter(); break;
        case 'n': bind(); break;
        case 'N': bind_one(); break;
        case 'w': box(); break;
        case 'T': create_tape(); break;
        case 't': use_tape(); break;
        case 'f': forward(); break;
        case 'v': backward(); break;
        case 'D': destroy(); break;
        default: break;
        }
    }
}

}  // namespace fuzz
