// SPDX-License-Identifier: Apache-2.0
// Values of parameters: boxes read and written in coordinates of the full tensor.
#include <algorithm>
#include <string>

#include "base/sizes.hpp"
#include "block/host_view.hpp"
#include "block/params.hpp"

namespace mdlm {

// A checked box.
struct Params::Region {
    const ParamPart *part = nullptr;  // null: the whole
    int64_t start[2] = {0, 0}, count[2] = {0, 1};
    int64_t full_row(int64_t row) const {  // of the parameter
        return part != nullptr ? part->full_row(start[0] + row) : start[0] + row;
    }
};

Params::Region Params::region(const ParamEntry &p, const Box &box) const {
    Region b;
    const char *name = p.name.c_str();
    int64_t full[2] = {p.spec->full[0], p.spec->full[1]};
    if (box.part != nullptr) {
        std::string expected;
        for (const ParamPart &part : p.spec->parts) {
            if (part.name == box.part) b.part = &part, full[0] = part.rows;
            expected += (expected.empty() ? "" : ", ") + part.name;
        }
        expected += expected.empty() ? "NULL" : " or NULL";
        if (b.part == nullptr)
            fail(MDLM_ERROR_NOT_FOUND, "%s: part \"%.40s\": expected %s", name, box.part, expected.c_str());
    }
    for (int i = 0; i < p.spec->ndim; ++i) {
        b.start[i] = box.start != nullptr ? box.start[i] : 0;
        const bool begins = b.start[i] >= 0 && b.start[i] <= full[i];
        b.count[i] = box.count != nullptr ? box.count[i] : begins ? full[i] - b.start[i] : 0;
        if (!begins || b.count[i] < 0 || b.count[i] > full[i] - b.start[i])
            fail(MDLM_ERROR_ARGUMENT, "%s: start[%d] = %lld, count[%d] = %lld: expected to lie within %lld", name, i,
                 (long long)b.start[i], i, (long long)b.count[i], (long long)full[i]);
    }
    const int64_t expected = mul(mul(b.count[0], b.count[1]), size_of(box.type));
    if (static_cast<uint64_t>(box.bytes) != static_cast<uint64_t>(expected))
        fail(MDLM_ERROR_ARGUMENT, "%s: %zu bytes of %s: expected %lld", name, box.bytes, name_of(box.type),
             (long long)expected);
    return b;
}

namespace {

// What a rank has of a box of rows x columns from a first column: calls body(row of the box, first local element,
// columns in the box [begin, end)). full_row says which row of the full tensor a row of the box is.
template <class FullRow, class Body>
void each_row(const Shard &mine, int64_t rows, int64_t first, int64_t columns, FullRow &&full_row, Body &&body) {
    const int64_t begin = std::max(first, mine.first_column()),
                  end = std::min(first + columns, mine.first_column() + mine.columns());
    for (int64_t r = 0; r < rows && begin < end; ++r) {
        const int64_t at = mine.local_row(full_row(r));
        if (at >= 0) body(r, at * mine.columns() + begin - mine.first_column(), begin - first, end - first);
    }
}

}  // namespace

Params::Elements Params::elements(int64_t index, bool grad) const {
    const ParamEntry &p = at(index);
    if (grad && p.grad_bytes == 0) fail(MDLM_ERROR_STATE, "%s: it is frozen and has no gradient", p.name.c_str());
    p.must_have(grad ? p.grad : p.data);
    return grad ? Elements{p.grad, grad_dtype_} : Elements{p.data, dtype_};
}

Params::Elements Params::callers(int64_t index, const void *shard, DType type, size_t bytes) const {
    const ParamEntry &p = at(index);
    const int64_t expected = mul(p.elements, size_of(type));
    if (shard == nullptr) fail(MDLM_ERROR_ARGUMENT, "shard is NULL");
    if (static_cast<uint64_t>(bytes) != static_cast<uint64_t>(expected))
        fail(MDLM_ERROR_ARGUMENT, "%s: shard of %zu bytes of %s: expected %lld, this rank's %lld elements",
             p.name.c_str(), bytes, name_of(type), (long long)expected, (long long)p.elements);
    return {static_cast<char *>(const_cast<void *>(shard)), type};
}

template <class Body>
void Params::each_row_of(const ParamEntry &p, const Region &b, Body &&body) const {
    each_row(
        shard(p, rank_), b.count[0], b.start[1], b.count[1], [&](int64_t r) { return b.full_row(r); },
        std::forward<Body>(body));
}

Params::Span Params::span_of(const ParamEntry &p, const Region &b) const {
    Span s;
    each_row_of(p, b, [&](int64_t, int64_t first, int64_t begin, int64_t end) {
        s.first = s.elements == 0 ? first : std::min(s.first, first);
        s.end = std::max(s.end, first + end - begin);
        s.elements += end - begin;
    });
    return s;
}

void Params::write(Device &device, int64_t index, const Elements &to, const Box &box, const void *host) const {
    const ParamEntry &p = at(index);
    const Region b = region(p, box);
    const Span span = span_of(p, b);
    const int64_t size = size_of(to.type);
    HostView view(device, to.at + span.first * size, (span.end - span.first) * size,
                  span.elements == span.end - span.first ? HostView::Holds::nothing : HostView::Holds::values);
    each_row_of(p, b, [&](int64_t r, int64_t first, int64_t begin, int64_t end) {
        for (int64_t c = begin; c < end; ++c)
            store(to.type, view.get(), first - span.first + c - begin, load(box.type, host, r * b.count[1] + c));
    });
    view.write_back();
}

void Params::read(Device &device, int64_t index, const Elements &from, const Box &box, void *host) const {
    const ParamEntry &p = at(index);
    const Region b = region(p, box);
    const Span span = span_of(p, b);
    const int64_t size = size_of(from.type);
    HostView view(device, from.at + span.first * size, (span.end - span.first) * size, HostView::Holds::values);
    each_row_of(p, b, [&](int64_t r, int64_t first, int64_t begin, int64_t end) {
        for (int64_t c = begin; c < end; ++c)
            store(box.type, host, r * b.count[1] + c, load(from.type, view.get(), first - span.first + c - begin));
    });
}

const ParamEntry &Params::whole(int64_t index, DType type, size_t bytes) const {
    const ParamEntry &p = at(index);
    region(p, {nullptr, nullptr, nullptr, type, bytes});
    return p;
}

void Params::join_parts(const ParamEntry &p, DType stored, const void *parts, DType type, void *whole) const {
    for (int64_t r = 0; r < (p.spec->partition_dim < 0 ? 1 : t_); ++r) {
        const Shard s = shard(p, r);
        for (int64_t row = 0; row < s.rows(); ++row)
            for (int64_t c = 0; c < s.columns(); ++c)
                store(type, whole, s.full_row(row) * p.spec->full[1] + s.first_column() + c,
                      load(stored, parts, r * p.elements + row * s.columns() + c));
    }
}

}  // namespace mdlm
