// SPDX-License-Identifier: Apache-2.0
#include "comm/group.hpp"

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "base/config.hpp"
#include "comm/timeout.hpp"

namespace mdlm {

// What travels. Plain bytes of the same size for every call, so that ranks that make different calls still understand
// each other.
struct Group::Record {
    char call[32];
    char error[160];
    int64_t status;
    int64_t count;
    int64_t values[Statement::most];
};

Group::Group(std::shared_ptr<Comm> comm, std::shared_ptr<Comm> host_comm, std::unique_ptr<Staging> staging,
             int64_t timeout_ms, Cancellation *cancellation)
    : comm_(std::move(comm)), host_comm_(std::move(host_comm)), staging_(std::move(staging)),
      timeout_ms_(timeout_ms == 0 ? default_timeout_ms : timeout_ms), cancellation_(cancellation), rank_(comm_->rank()),
      size_(comm_->size()), records_(size_ > 1 ? new Record[static_cast<size_t>(size_) + 1]() : nullptr) {
    static_assert(sizeof(Record) % 4 == 0 && sizeof(Record) <= Staging::least_piece);
    const auto in_use = [&](const char *name) {
        fail(MDLM_ERROR_STATE, "%s: rank %lld of %lld is in use by another context: expected one context at a time",
             name, (long long)rank_, (long long)size_);
    };
    if (!comm_->acquire()) in_use("desc.comm");
    if (host_comm_ != nullptr && !host_comm_->acquire()) {
        comm_->release();
        in_use("desc.host_comm");
    }
    if (host_comm_ == nullptr) return;
    comm_->set_partner(host_comm_.get());
    host_comm_->set_partner(comm_.get());
}

Group::~Group() {
    if (host_comm_ != nullptr) {
        comm_->set_partner(nullptr);
        host_comm_->set_partner(nullptr);
        host_comm_->release();
    }
    comm_->release();
}

void Group::gather_host(const void *mine, void *to, int64_t count, DType dtype, const Timeout &timeout) {
    if (size_ == 1) {
        std::memcpy(to, mine, static_cast<size_t>(count * size_of(dtype)));
        return;
    }
    if (staging_ != nullptr) return gather_staged(mine, to, count * size_of(dtype), dtype, timeout);
    (host_comm_ != nullptr ? host_comm_ : comm_)->all_gather(mine, to, count, dtype, timeout);
}

void Group::gather_staged(const void *mine, void *to, int64_t bytes, DType dtype, const Timeout &timeout) {
    const int64_t whole = staging_->piece_bytes();
    for (int64_t at = 0; at < bytes; at += whole) {
        const int64_t piece = std::min(bytes - at, whole);
        staging_->copy_in(static_cast<const char *>(mine) + at, piece);
        comm_->all_gather(staging_->send(), staging_->recv(), piece / size_of(dtype), dtype, timeout);
        for (int64_t r = 0; r < size_; ++r)
            staging_->copy_out(static_cast<char *>(to) + r * bytes + at, r * piece, piece);
    }
}

void Group::agree(const Statement &mine, const Error *failed) {
    Record &own = records_[static_cast<size_t>(size_)];
    own = {};
    std::snprintf(own.call, sizeof own.call, "%s", mine.call);
    own.count = static_cast<int64_t>(mine.count);
    std::copy(mine.values.begin(), mine.values.end(), own.values);
    if (failed != nullptr) {
        own.status = failed->status();
        std::snprintf(own.error, sizeof own.error, "%.159s", failed->what());
    }
    if (failed != nullptr && failed->status() == MDLM_ERROR_CANCELLED) return refuse_cancelled(own);
    gather_bytes(&own, records_.get(), sizeof(Record));
    if (failed != nullptr) return;  // the caller throws what it has to say itself

    const Record *all = records_.get();
    for (int64_t r = 0; r < size_; ++r)
        if (std::strcmp(all[r].call, own.call) != 0 && all[r].status == 0 && r != rank_)
            fail(MDLM_ERROR_COMM,
                 "rank %lld calls %.31s and rank %lld calls %.31s: expected the same call on all ranks",
                 (long long)std::min(r, rank_), all[std::min(r, rank_)].call, (long long)std::max(r, rank_),
                 all[std::max(r, rank_)].call);
    for (int64_t r = 0; r < size_; ++r)
        if (all[r].status != 0)
            fail(MDLM_ERROR_COMM, "rank %lld failed in %.31s with %s: %.159s", (long long)r, all[r].call,
                 mdlm_status_name(static_cast<mdlm_status>(all[r].status)), all[r].error);
    for (size_t i = 0; i < mine.count; ++i)
        for (int64_t r = 1; r < size_; ++r)
            if (all[r].values[i] != all[0].values[i])
                fail(mine.items[i].status, "%s differs between ranks: %lld on rank 0, %lld on rank %lld",
                     mine.items[i].name, (long long)all[0].values[i], (long long)all[r].values[i], (long long)r);
}

// A rank that was cancelled is not asked any more, and does not stay for long: where the others do not come soon, the
// group ends, and this rank has said all it has to say.
void Group::refuse_cancelled(const Record &own) noexcept {
    constexpr int64_t most_ms = 1000;
    try {
        gather_host(&own, records_.get(), sizeof(Record) / 4, DType::f32, std::min(timeout_ms_, most_ms));
    } catch (const Error &) {
    }
}

// The first rank that has another digest than rank 0; 0 when there is none. The same on all ranks.
int64_t Group::differs(uint64_t digest) {
    const auto all = reinterpret_cast<const char *>(records_.get());
    gather_bytes(&digest, records_.get(), sizeof digest);
    for (int64_t r = 1; r < size_; ++r)
        if (std::memcmp(all, all + r * static_cast<int64_t>(sizeof digest), sizeof digest) != 0) return r;
    return 0;
}

void Group::compare(const std::vector<Text> &texts, mdlm_status status) {
    if (size_ == 1 || texts.empty()) return;
    const auto digest = [&](size_t count) {
        uint64_t all = digest_start;
        for (size_t i = 0; i < count; ++i) all = (all ^ digest_of(texts[i].value)) * 0x100000001b3u;
        return all;
    };
    if (differs(digest(texts.size())) == 0) return;
    // The first same are equal, of the first other some are not. All ranks see the same and halve alike.
    size_t same = 0, other = texts.size();
    while (other - same > 1) {
        const size_t middle = same + (other - same) / 2;
        (differs(digest(middle)) == 0 ? same : other) = middle;
    }
    const Text &text = texts[same];
    const int64_t rank = differs(digest_of(text.value));
    constexpr size_t shown = 96;
    static_assert(shown <= sizeof(Record));
    char own[shown] = "";
    std::snprintf(own, sizeof own, "%s", text.value.c_str());
    const auto values = reinterpret_cast<const char *>(records_.get());
    gather_bytes(own, records_.get(), shown);
    fail(status, "%s differs between ranks: %s on rank 0, %s on rank %lld", text.name.c_str(), values,
         values + static_cast<size_t>(rank) * shown, (long long)rank);
}

}  // namespace mdlm
