// SPDX-License-Identifier: Apache-2.0
// Batches that were not reserved for or do not fit together: SHAPE, and the step after is as good as before.
#include <doctest/doctest.h>

#include <functional>

#include "support/checks.hpp"
#include "support/rig.hpp"

using namespace mdlm_test;

namespace {

// Refused by forward with and without a tape alike.
void refuse_to_run(Rig &rig, const std::function<void(mdlm_batch &)> &change, mdlm_status expected, const char *word) {
    const mdlm_batch good = rig.batch;
    change(rig.batch);
    CHECK_FAILS(rig.forward(), expected, word);
    CHECK_FAILS(rig.evaluate(), expected, word);
    rig.batch = good;
}

// By prepare and mdlm_block_io too, for which only the sizes of a batch matter, not its documents.
void refuse(Rig &rig, const std::function<void(mdlm_batch &)> &change, mdlm_status expected, const char *word) {
    const mdlm_batch good = rig.batch;
    mdlm_io io = MDLM_IO_INIT;
    change(rig.batch);
    CHECK_FAILS(mdlm_block_prepare(rig.block, &rig.batch), expected, word);
    CHECK_FAILS(mdlm_block_io(rig.block, &rig.batch, &io), expected, word);
    CHECK(io.bytes == 0);
    rig.batch = good;
    refuse_to_run(rig, change, expected, word);
}

}  // namespace

TEST_CASE("batches past what is reserved") {
    Rig rig;
    rig.shape.max_tokens = 12;
    rig.batch.micro_batch_size = 1;
    REQUIRE_OK(rig.open());
    REQUIRE_OK(rig.step());
    const uint64_t good = rig.digest();
    refuse(
        rig, [](auto &b) { b.seq_length = 9; }, MDLM_ERROR_SHAPE, "seq_length");
    refuse(
        rig, [](auto &b) { b.seq_length = 0; }, MDLM_ERROR_SHAPE, "seq_length");
    refuse(
        rig, [](auto &b) { b.seq_length = -8; }, MDLM_ERROR_SHAPE, "seq_length");
    refuse(
        rig, [](auto &b) { b.seq_length = INT64_MAX; }, MDLM_ERROR_SHAPE, "seq_length");
    refuse(
        rig, [](auto &b) { b.micro_batch_size = 3, b.seq_length = 1; }, MDLM_ERROR_SHAPE, "micro_batch_size");
    refuse(
        rig, [](auto &b) { b.micro_batch_size = 0; }, MDLM_ERROR_SHAPE, "micro_batch_size");
    refuse(
        rig, [](auto &b) { b.micro_batch_size = INT64_MAX; }, MDLM_ERROR_SHAPE, "micro_batch_size");
    refuse(
        rig, [](auto &b) { b.micro_batch_size = 2; }, MDLM_ERROR_SHAPE, "max_tokens");
    refuse(
        rig, [](auto &b) { b.attention_mask_type = 9; }, MDLM_ERROR_ARGUMENT, "attention_mask_type");
    refuse(
        rig, [](auto &b) { b.micro_batch_index = 65536; }, MDLM_ERROR_ARGUMENT, "micro_batch_index");
    refuse(
        rig, [](auto &b) { b.struct_size = 4; }, MDLM_ERROR_ARGUMENT, "struct_size");
    refuse(
        rig, [](auto &b) { b.attention_mask_type = MDLM_MASK_BLOCK_CAUSAL; }, MDLM_ERROR_CONFIG, "mask_block_size");
    CHECK_OK(rig.step());
    CHECK(rig.digest() == good);
}

TEST_CASE("packed documents that cannot be") {
    Rig rig;
    rig.shape.max_documents = 3;
    rig.shape.micro_batch_size = 2;
    rig.batch.micro_batch_size = 1;
    static constexpr int32_t documents[] = {0, 3, 5, 8};
    rig.batch.cu_seqlens = documents;
    rig.batch.num_documents = 3;
    REQUIRE_OK(rig.open());
    REQUIRE_OK(rig.step());
    const uint64_t good = rig.digest();
    static constexpr int32_t late[] = {1, 3, 5, 8}, falling[] = {0, 5, 3, 8}, equal[] = {0, 3, 3, 8},
                             early[] = {0, 3, 5, 7}, past[] = {0, 3, 5, 9}, negative[] = {0, -3, 5, 8},
                             many[] = {0, 1, 2, 3, 8};
    for (const int32_t *bad : {late, falling, equal, early, past, negative})
        refuse_to_run(
            rig, [&](auto &b) { b.cu_seqlens = bad; }, MDLM_ERROR_SHAPE, "cu_seqlens");
    refuse_to_run(
        rig, [](auto &b) { b.cu_seqlens = many, b.num_documents = 4; }, MDLM_ERROR_SHAPE, "num_documents");
    refuse_to_run(
        rig, [](auto &b) { b.num_documents = 0; }, MDLM_ERROR_SHAPE, "num_documents");
    refuse_to_run(
        rig, [](auto &b) { b.num_documents = -1; }, MDLM_ERROR_SHAPE, "num_documents");
    refuse_to_run(
        rig, [](auto &b) { b.num_documents = INT64_MAX; }, MDLM_ERROR_SHAPE, "num_documents");
    refuse(
        rig, [](auto &b) { b.cu_seqlens = nullptr; }, MDLM_ERROR_ARGUMENT, "num_documents");
    refuse_to_run(
        rig, [](auto &b) { b.micro_batch_size = 2; }, MDLM_ERROR_SHAPE, "micro_batch_size");
    CHECK_OK(rig.step());
    CHECK(rig.digest() == good);

    // The same through the tape.
    CHECK_FAILS(mdlm_tape_set_documents(rig.tape, falling, 3), MDLM_ERROR_SHAPE, "cu_seqlens");
    CHECK_FAILS(mdlm_tape_set_documents(rig.tape, many, 4), MDLM_ERROR_SHAPE, "num_documents");
    CHECK_FAILS(mdlm_tape_set_documents(rig.tape, documents, -1), MDLM_ERROR_SHAPE, "num_documents");
    rig.batch.cu_seqlens = nullptr;
    rig.batch.num_documents = 0;
    CHECK_OK(mdlm_tape_set_documents(rig.tape, documents, 3));
    CHECK_OK(rig.step());
    CHECK(rig.digest() == good);
    CHECK_OK(mdlm_tape_set_documents(rig.tape, early, 3));  // another length: known only when a batch comes
    CHECK_FAILS(rig.forward(), MDLM_ERROR_SHAPE, "cu_seqlens");
    CHECK_OK(mdlm_tape_set_documents(rig.tape, nullptr, 0));
    CHECK_OK(rig.step());
    CHECK(rig.digest() != good);  // one document
}

TEST_CASE("packed documents without a reservation for them") {
    Rig rig;
    static constexpr int32_t documents[] = {0, 8};
    rig.batch.micro_batch_size = 1;
    REQUIRE_OK(rig.open());
    refuse_to_run(
        rig, [](auto &b) { b.cu_seqlens = documents, b.num_documents = 1; }, MDLM_ERROR_SHAPE, "num_documents");
    CHECK_FAILS(mdlm_tape_set_documents(rig.tape, documents, 1), MDLM_ERROR_SHAPE, "num_documents");
    CHECK_OK(rig.step());
}

TEST_CASE("the memory of cu_seqlens is the caller's again after forward") {
    Rig rig;
    rig.shape.max_documents = 2;
    rig.batch.micro_batch_size = 1;
    std::vector<int32_t> documents = {0, 5, 8};
    rig.batch.num_documents = 2;
    rig.batch.cu_seqlens = documents.data();
    REQUIRE_OK(rig.open());
    REQUIRE_OK(rig.step());
    const uint64_t good = rig.digest();
    REQUIRE_OK(mdlm_params_zero_grads(rig.block));
    REQUIRE_OK(rig.forward());
    documents = {0, 1, 8};
    documents.clear();
    documents.shrink_to_fit();
    CHECK_OK(rig.backward());
    CHECK(rig.digest() == good);
}
