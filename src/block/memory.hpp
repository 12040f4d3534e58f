// SPDX-License-Identifier: Apache-2.0
// Memory from the caller's allocator or the device, counted, and freed by its owner's end.
#pragma once
#include <cstdint>
#include <utility>

#include "base/made_in.hpp"
#include "device/device.hpp"

namespace mdlm {

class Allocator;

class Memory {
public:
    Memory() = default;
    Memory(Memory &&o) noexcept
        : from_(std::exchange(o.from_, nullptr)), at_(std::exchange(o.at_, nullptr)),
          bytes_(std::exchange(o.bytes_, 0)) {}
    Memory &operator=(Memory &&o) noexcept {
        std::swap(from_, o.from_), std::swap(at_, o.at_), std::swap(bytes_, o.bytes_);
        return *this;
    }
    ~Memory();
    char *get() const { return static_cast<char *>(at_); }
    int64_t bytes() const { return bytes_; }

private:
    friend class Allocator;
    Allocator *from_ = nullptr;
    void *at_ = nullptr;
    int64_t bytes_ = 0;
};

class Allocator {
public:
    enum class Of { device, pinned };
    // table: the caller's functions, or nullptr for the device's.
    Allocator(Device &device, Of what, const mdlm_allocator *table);
    Allocator(const Allocator &) = delete;
    // 0 bytes: an empty Memory, and the allocator is not asked. what names the thing in the error's text. Aligned to
    // the granule.
    Memory allocate(int64_t bytes, const char *what);
    void *alloc(size_t bytes, size_t alignment);  // nullptr when there is none
    // Waits for what is enqueued. In a child that fork made, what is the caller's or a device's stays: they may count
    // on threads, locks or devices that are not there.
    void free(void *at, size_t bytes, size_t alignment);
    uint64_t calls() const { return calls_; }

private:
    const MadeIn made_;
    Device &device_;
    const Of of_;
    mdlm_allocator table_{};
    const bool callers_;
    uint64_t calls_ = 0;
};

}  // namespace mdlm
