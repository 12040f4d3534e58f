// SPDX-License-Identifier: Apache-2.0
// operator new and delete of the test program, which the library linked into it uses too: they count, and fail when
// told to.
#include <cstdlib>
#include <new>

#include "fault/inject.hpp"

namespace {

std::atomic<int64_t> live = 0;

// In front of every block: where malloc's begins, and whether it is counted.
struct Front {
    void *start;
    int64_t counted;
};

void *get(size_t bytes, size_t alignment, bool nothrow = true) noexcept {
    using namespace mdlm_test;
    const bool ours = inject::inside_dnnl == 0;
    if (ours && inject::strikes(Fault::heap, nothrow)) return nullptr;
    if (alignment < sizeof(Front)) alignment = sizeof(Front);
    if (bytes > SIZE_MAX / 2) return nullptr;
    void *start = std::aligned_alloc(alignment, (bytes + 2 * alignment - 1) / alignment * alignment);
    if (start == nullptr) return nullptr;
    char *block = static_cast<char *>(start) + alignment;
    *reinterpret_cast<Front *>(block - sizeof(Front)) = {start, ours};
    live += ours;
    return block;
}

void *get_or_throw(size_t bytes, size_t alignment) {
    void *block = get(bytes, alignment, false);
    if (block == nullptr) throw std::bad_alloc();
    return block;
}

void put(void *block) noexcept {
    if (block == nullptr) return;
    const Front front = *reinterpret_cast<Front *>(static_cast<char *>(block) - sizeof(Front));
    live -= front.counted;
    std::free(front.start);
}

}  // namespace

int64_t mdlm_test::inject::live_blocks() { return live; }

void *operator new(size_t n) { return get_or_throw(n, 16); }
void *operator new[](size_t n) { return get_or_throw(n, 16); }
void *operator new(size_t n, const std::nothrow_t &) noexcept { return get(n, 16); }
void *operator new[](size_t n, const std::nothrow_t &) noexcept { return get(n, 16); }
void *operator new(size_t n, std::align_val_t a) { return get_or_throw(n, static_cast<size_t>(a)); }
void *operator new[](size_t n, std::align_val_t a) { return get_or_throw(n, static_cast<size_t>(a)); }
void *operator new(size_t n, std::align_val_t a, const std::nothrow_t &) noexcept {
    return get(n, static_cast<size_t>(a));
}
void *operator new[](size_t n, std::align_val_t a, const std::nothrow_t &) noexcept {
    return get(n, static_cast<size_t>(a));
}
void operator delete(void *p) noexcept { put(p); }
void operator delete[](void *p) noexcept { put(p); }
void operator delete(void *p, size_t) noexcept { put(p); }
void operator delete[](void *p, size_t) noexcept { put(p); }
void operator delete(void *p, const std::nothrow_t &) noexcept { put(p); }
void operator delete[](void *p, const std::nothrow_t &) noexcept { put(p); }
void operator delete(void *p, std::align_val_t) noexcept { put(p); }
void operator delete[](void *p, std::align_val_t) noexcept { put(p); }
void operator delete(void *p, size_t, std::align_val_t) noexcept { put(p); }
void operator delete[](void *p, size_t, std::align_val_t) noexcept { put(p); }
void operator delete(void *p, std::align_val_t, const std::nothrow_t &) noexcept { put(p); }
void operator delete[](void *p, std::align_val_t, const std::nothrow_t &) noexcept { put(p); }
