// SPDX-License-Identifier: Apache-2.0
// Every op runs exactly as often as its schedule says, seen by a device that counts; and at most once more in replay
// for the named settings.
#include <doctest/doctest.h>

#include <map>

#include "lifetimes.hpp"
#include "support/repro.hpp"
#include "support/wrapped_device.hpp"

namespace {

using namespace property;
using namespace property::memory;

using Calls = std::map<std::string, int64_t>;

// By the names of the ops that call the kernels. A fused and an unfused attention differ in theirs.
class Counting final : public mdlm_test::WrappedDevice {
public:
    Counting(std::unique_ptr<mdlm::Device> inner, Calls &calls) : WrappedDevice(std::move(inner)), calls_(calls) {}
    void norm_forward(const mdlm::NormForward &a) override { count("norm"), inner().norm_forward(a); }
    void norm_backward(const mdlm::NormBackward &a) override { count("norm_backward"), inner().norm_backward(a); }
    void linear_forward(const mdlm::LinearForward &a) override { count("linear"), inner().linear_forward(a); }
    void linear_dgrad(const mdlm::LinearDgrad &a) override { count("linear_dgrad"), inner().linear_dgrad(a); }
    void linear_wgrad(const mdlm::LinearWgrad &a) override { count("linear_wgrad"), inner().linear_wgrad(a); }
    void bias_grad(const mdlm::BiasGrad &a) override { count("bias_grad"), inner().bias_grad(a); }
    void qk_norm_rope(const mdlm::QkNormRope &a) override { count("qk_norm_rope"), inner().qk_norm_rope(a); }
    void qk_norm_rope_backward(const mdlm::QkNormRopeBackward &a) override {
        count("qk_norm_rope_backward"), inner().qk_norm_rope_backward(a);
    }
    void attention_forward(const mdlm::AttentionForward &a) override {
        count("attention"), inner().attention_forward(a);
    }
    void attention_backward(const mdlm::AttentionBackward &a) override {
        count("attention_backward"), inner().attention_backward(a);
    }
    void attn_scores(const mdlm::AttnScores &a) override { count("attention_scores"), inner().attn_scores(a); }
    void attn_softmax(const mdlm::AttnSoftmax &a) override { count("attention_softmax"), inner().attn_softmax(a); }
    void attn_context(const mdlm::AttnContext &a) override { count("attention_context"), inner().attn_context(a); }
    void attn_context_backward(const mdlm::AttnContextBackward &a) override {
        count("attention_context_backward"), inner().attn_context_backward(a);
    }
    void attn_softmax_backward(const mdlm::AttnSoftmaxBackward &a) override {
        count("attention_softmax_backward"), inner().attn_softmax_backward(a);
    }
    void attn_scores_backward(const mdlm::AttnScoresBackward &a) override {
        count("attention_scores_backward"), inner().attn_scores_backward(a);
    }
    void bias_dropout_add(const mdlm::BiasDropoutAdd &a) override {
        count("bias_dropout_add"), inner().bias_dropout_add(a);
    }
    void dropout_backward(const mdlm::DropoutBackward &a) override {
        count("dropout_backward"), inner().dropout_backward(a);
    }
    void activation_forward(const mdlm::ActivationForward &a) override {
        count("activation"), inner().activation_forward(a);
    }
    void activation_backward(const mdlm::ActivationBackward &a) override {
        count("activation_backward"), inner().activation_backward(a);
    }

private:
    void count(const char *op) { ++calls_[op]; }
    Calls &calls_;
};

}  // namespace

TEST_CASE("kernels are called as often as the schedules say, and in the named settings replayed at most once") {
    for (uint64_t seed = 1000; seed < (mdlm_test::sanitized ? 1050 : 1200); ++seed) {
        Draw d = draw(seed);
        const bool named = seed % 2 == 0;
        if (named) d.edits = {};
        mdlm_test::repro(describe(d));
        INFO(describe(d));
        Calls seen, planned;
        World world(d, std::make_unique<Counting>(make_device(MDLM_DEVICE_REFERENCE, 1), seen));
        world.run();
        // By event and op, then by layer.
        std::map<std::pair<size_t, const mdlm::Op *>, std::map<int64_t, int64_t>> replays;
        for (const Line &line : derive(world).lines) {
            if (line.step == nullptr) continue;
            const mdlm::Op &op = line.entry->schedule->op(*line.step);
            ++planned[op.name()];
            if (line.step->replay || line.entry->replay) ++replays[{line.event, &op}][line.entry->item];
        }
        CHECK(seen == planned);
        if (!named) continue;
        for (const auto &[op, by_layer] : replays)
            for (const auto &[layer, count] : by_layer) CHECK(count == 1);
    }
}
