#include "comm/group.hpp"

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "base/config.hpp"

namespace mdlm {

namespace {
constexpr int64_t default_timeout_ms = 600000;
}

// What travels. Plain bytes of the same size for every call, so that ranks that make different calls still understand each other.
struct Group::Record {
    char call[32];
    char error[160];
    int64_t status;
    int64_t count;
    int64_t values[Statement::most];
};

Group::Group(std::shared_ptr<Comm> comm, int64_t timeout_ms)
    : comm_(std::move(comm)), timeout_ms_(timeout_ms == 0 ? default_timeout_ms : timeout_ms), rank_(comm_->rank()), size_(comm_->size()),
      records_(size_ > 1 ? new Record[static_cast<size_t>(size_) + 1]() : nullptr) {
    static_assert(sizeof(Record) % 4 == 0);
    if (!comm_->take()) fail(MDLM_ERROR_STATE, "desc.comm: rank %lld of %lld is in use by another context: expected one context at a time", (long long)rank_,
                             (long long)size_);
}

Group::~Group() { comm_->give(); }

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
    gather_bytes(&own, records_.get(), sizeof(Record));
    if (failed != nullptr) return;  // the caller throws what it has to say itself

    const Record *all = records_.get();
    for (int64_t r = 0; r < size_; ++r)
        if (std::strcmp(all[r].call, own.call) != 0 && all[r].status == 0 && r != rank_)
            fail(MDLM_ERROR_COMM, "rank %lld calls %.31s and rank %lld calls %.31s: expected the same call on all ranks", (long long)std::min(r, rank_),
                 all[std::min(r, rank_)].call, (long long)std::max(r, rank_), all[std::max(r, rank_)].call);
    for (int64_t r = 0; r < size_; ++r)
        if (all[r].status != 0)
            fail(MDLM_ERROR_COMM, "rank %lld failed in %.31s with %s: %.159s", (long long)r, all[r].call,
                 mdlm_status_name(static_cast<mdlm_status>(all[r].status)), all[r].error);
    for (size_t i = 0; i < mine.count; ++i)
        for (int64_t r = 1; r < size_; ++r)
            if (all[r].values[i] != all[0].values[i])
                fail(mine.items[i].status, "%s differs between ranks: %lld on rank 0, %lld on rank %lld", mine.items[i].name,
                     (long long)all[0].values[i], (long long)all[r].values[i], (long long)r);
}

void Group::compare(const std::vector<Text> &texts, mdlm_status status) {
    if (size_ == 1 || texts.empty()) return;
    std::vector<uint64_t> mine;
    for (const Text &t : texts) mine.push_back(digest_of(t.value));
    std::vector<uint64_t> all(mine.size() * static_cast<size_t>(size_));
    gather_bytes(mine.data(), all.data(), static_cast<int64_t>(mine.size() * sizeof(uint64_t)));
    for (size_t i = 0; i < mine.size(); ++i)
        for (int64_t r = 1; r < size_; ++r) {
            if (all[static_cast<size_t>(r) * mine.size() + i] == all[i]) continue;
            // All ranks have found the same place, so all come here.
            constexpr size_t shown = 96;
            std::vector<char> values(shown * static_cast<size_t>(size_));
            char own[shown] = "";
            std::snprintf(own, sizeof own, "%s", texts[i].value.c_str());
            gather_bytes(own, values.data(), shown);
            fail(status, "%s differs between ranks: %s on rank 0, %s on rank %lld", texts[i].name.c_str(), values.data(),
                 values.data() + static_cast<size_t>(r) * shown, (long long)r);
        }
}

}  // namespace mdlm
