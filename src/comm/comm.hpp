// The tensor-parallel group, as ops see it. This version has the group of one; others are further implementations of the same table.
#pragma once
#include <cstdint>
#include <memory>

#include "base/dtype.hpp"

namespace mdlm {

// count = elements of the local part: all_reduce works on count, all_gather writes size() * count, reduce_scatter reads size() * count.
// send may be recv for all_reduce. Sums are taken in rank order, so every rank has the same bits.
class Comm {
public:
    virtual ~Comm() = default;
    virtual int64_t rank() const = 0;
    virtual int64_t size() const = 0;
    virtual void all_reduce(const void *send, void *recv, int64_t count, DType dtype) = 0;
    virtual void all_gather(const void *send, void *recv, int64_t count, DType dtype) = 0;
    virtual void reduce_scatter(const void *send, void *recv, int64_t count, DType dtype) = 0;
};

std::unique_ptr<Comm> make_self_comm();

}  // namespace mdlm
