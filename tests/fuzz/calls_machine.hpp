// SPDX-License-Identifier: Apache-2.0
// What a sequence of calls is made of: its bytes, the objects that it has made so far, and what is known of them.
#pragma once
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <new>
#include <utility>
#include <vector>

#include "fuzz/target.hpp"

namespace fuzz {

// Arguments out of the bytes of an input; past their end all are '0'. Small numbers are digits, so that an input can be
// written by hand.
class Bytes {
public:
    explicit Bytes(std::string_view all) : left_(all) {}
    bool done() const { return left_.empty(); }
    uint8_t next();
    size_t pick(size_t count) { return static_cast<uint8_t>(next() - '0') % count; }
    bool chance() { return pick(2) != 0; }
    int64_t number();  // -48 .. 79, or a number at an edge of something
    int32_t number32() { return static_cast<int32_t>(number()); }

private:
    std::string_view left_;
};

// The caller's memory: counted, poisoned, and at an end where a mistake asks for more than a test needs.
struct Counter {
    int64_t live = 0;
    int64_t own = 0;  // of them, the caller's by mdlm_context_alloc
    std::map<void *, std::pair<size_t, size_t>> blocks;
    std::string wrong;
    bool refuses = false;
    mdlm_allocator table();
};

// A struct of the caller's as the library may meet it: of another size, with something behind what is known.
template <class T>
class Struct {
public:
    Struct(const T &value, Bytes &in) {
        size_t size = sizeof(T);
        const uint8_t kind = in.next();  // '0': as it should be
        if (kind == 'a') size = static_cast<size_t>(in.number());
        if (kind == 'b') size += 8 * in.pick(16);
        room_.resize(size <= sizeof(T) + 4096 ? std::max(size, sizeof size) : sizeof(T));
        std::memcpy(room_.data(), &value, std::min(room_.size(), sizeof(T)));
        std::memcpy(room_.data(), &size, sizeof size);
        if (kind == 'b' && room_.size() > sizeof(T)) room_.back() = static_cast<unsigned char>(in.pick(2));
        null_ = kind == 'c';
        plain_ = kind != 'a' && kind != 'b' && kind != 'c';
    }
    bool plain() const { return plain_; }
    T *get() { return null_ ? nullptr : reinterpret_cast<T *>(room_.data()); }

private:
    std::vector<unsigned char> room_;
    bool null_ = false, plain_ = true;
};

// Memory of exactly these bytes, at an address that is offset past one aligned to 256.
class Buffer {
public:
    explicit Buffer(size_t bytes, size_t offset = 0)
        : at_(static_cast<char *>(::operator new(offset + bytes, std::align_val_t(256))), free), offset_(offset),
          bytes_(bytes) {
        std::memset(at_.get(), 0, offset + bytes);
    }
    char *get() const { return at_.get() + offset_; }
    size_t size() const { return bytes_; }

private:
    static void free(char *at) { ::operator delete(at, std::align_val_t(256)); }
    std::unique_ptr<char, void (*)(char *)> at_;
    size_t offset_, bytes_;
};

// Names and texts, good and bad.
inline constexpr const char *device_tables[] = {
    "cpu",
    "H100",
    "A100-40GB",
    "none of these",
    "{}",
    R"({"format": "mdlm-device-table", "version": 1, "memory_bytes_per_s": 1, "pointwise_flops_per_s": 1,
                                      "linear_f32_flops_per_s": 1, "attention_f32_flops_per_s": 1})"};

struct Context {
    mdlm_context *handle = nullptr;  // NULL in a block whose context was destroyed
    std::shared_ptr<Counter> device, host;
};

struct PlanSlot {
    mdlm_plan *handle = nullptr;
    mdlm_config config = MDLM_CONFIG_INIT;
    mdlm_shape shape = MDLM_SHAPE_INIT;
    mdlm_target target = MDLM_TARGET_INIT;
};

// What a reservation foretells.
struct Foretold {
    mdlm_shape shape = MDLM_SHAPE_INIT;
    mdlm_memory memory = MDLM_MEMORY_INIT;
    mdlm_plan_layer sums = MDLM_PLAN_LAYER_INIT;  // over all layers, where the plan is known
    bool has_sums = false;
};

struct Block {
    mdlm_block *handle = nullptr;
    Context context;
    bool reserved = false, bound = false;
    Foretold foretold;
    std::vector<std::unique_ptr<Buffer>> kept;  // what it was given to use as long as it lives
};

struct Tape {
    mdlm_tape *handle = nullptr;
    mdlm_block *of = nullptr;
    Foretold foretold;
    bool full = false;   // surely holds a forward
    bool whole = false;  // its last forward was of the reserved bounds
    size_t bytes = 0;    // of the x of that
};

class Machine {
public:
    explicit Machine(std::string_view input) : in(input) {}
    ~Machine();
    void run();
    void end();  // destroys what is left, in an order that the input says; nothing may stay

private:
    // Runs one call and holds the answer against what is known.
    template <class Call>
    mdlm_status call(const char *name, Call &&f) {
        const int64_t before = live();
        said_cancel = false;
        const mdlm_status status = answered(f(), name);
        if ((status == MDLM_ERROR_CANCELLED) != said_cancel)
            found("%s: %s, and its function cancelled said %s", name, mdlm_status_name(status),
                  said_cancel ? "yes" : "no");
        if (status != MDLM_OK && live() != before)
            found("%s was refused and keeps %lld bytes more", name, (long long)(live() - before));
        return status;
    }
    int64_t live() const;

    void preset(), setting(), flags(), poke(), shape(), batch();
    void create_comm(), use_comm(), create_context(), use_context();
    void create_plan(), edit_plan(), ask_plan(), frontier();
    void create_block(), reserve(), ask_block();
    void parameter(), bind(), bind_one(), box();
    void create_tape(), use_tape(), forward(), backward();
    void destroy();
    void destroy_block(Block &b);
    void destroy_context(Context &c);

    void check_memory(const Block &of);
    void forget_tapes_of(const mdlm_block *block);
    std::string json_of(const mdlm_plan *plan);
    void check_stats(const Tape &t, bool after_backward);
    Block &block() { return blocks[in.pick(blocks.size())]; }

    Bytes in;
    mdlm_config configs[3] = {MDLM_CONFIG_INIT, MDLM_CONFIG_INIT, MDLM_CONFIG_INIT};
    mdlm_shape shape_ = MDLM_SHAPE_INIT;
    mdlm_batch batch_ = MDLM_BATCH_INIT;
    std::vector<int32_t> documents;
    std::vector<mdlm_comm *> comms = std::vector<mdlm_comm *>(3);
    std::vector<Context> contexts = std::vector<Context>(2);
    std::vector<PlanSlot> plans = std::vector<PlanSlot>(3);
    std::vector<Block> blocks = std::vector<Block>(3);
    std::vector<Tape> tapes = std::vector<Tape>(4);
    std::vector<std::shared_ptr<Counter>> counters;
    std::vector<std::unique_ptr<Buffer>> inputs;    // of forwards: borrowed, perhaps
    std::vector<std::unique_ptr<Buffer>> orphaned;  // bound to blocks that may live on in their tapes
    bool shared_once = false;                       // some block shared its scratch, which stays with the context

public:
    int64_t fuse = -1;    // collectives until one fails; -1: none does
    int64_t cancel = -1;  // asks of cancelled until one is answered with yes; -1: none is
    bool said_cancel = false;
    static int32_t cancelled(void *machine) {
        Machine &m = *static_cast<Machine *>(machine);
        if (m.cancel < 0 || m.cancel-- > 0) return 0;
        m.said_cancel = true;
        return 1;
    }
};

}  // namespace fuzz
