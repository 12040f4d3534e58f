// SPDX-License-Identifier: Apache-2.0
// Mutants at the device: a kernel is called with something else than the plan's op said, or not at all.
#include <functional>

#include "mutants.hpp"
#include "support/wrapped_device.hpp"

namespace property {
namespace {

using mdlm_test::WrappedDevice;

class Spoiled : public WrappedDevice {
public:
    Spoiled(std::unique_ptr<mdlm::Device> inner, Mutant &mutant) : WrappedDevice(std::move(inner)), m_(mutant) {}

protected:
    Mutant &m_;
};

template <class D>
class OfDevice final : public Mutant {
public:
    using Mutant::Mutant;
    std::unique_ptr<mdlm::Device> device(std::unique_ptr<mdlm::Device> d) override {
        return std::make_unique<D>(std::move(d), *this);
    }
};

// What a replayed forward kernel is told, changed. Each hook says whether there was something to change.
struct Hooks {
    std::function<bool(mdlm::Mask &)> mask;
    std::function<bool(mdlm::Mask &)> positions;
    std::function<bool(mdlm::Dropout &)> dropout;
    std::function<bool(mdlm::NormForward &)> norm;
};

class Replayed final : public Spoiled {
public:
    Replayed(std::unique_ptr<mdlm::Device> inner, Mutant &mutant, const Hooks &hooks)
        : Spoiled(std::move(inner), mutant), hooks_(hooks) {}

    void launch(mdlm::Kernel kernel, const void *arguments) override {
        mdlm::with_arguments(kernel, arguments, [&]<class A>(A b) {
            using namespace mdlm;
            constexpr Kernel k = kernel_of<A>;
            if constexpr (k == Kernel::attention_forward || k == Kernel::attn_scores || k == Kernel::attn_softmax ||
                          k == Kernel::attn_context) {
                apply(hooks_.mask, b.shape.mask);
                apply(hooks_.dropout, b.shape.dropout);
            } else if constexpr (k == Kernel::qk_norm_rope) {
                apply(hooks_.positions, b.mask);
            } else if constexpr (k == Kernel::bias_dropout_add) {
                apply(hooks_.dropout, b.dropout);
            } else if constexpr (k == Kernel::norm_forward) {
                apply(hooks_.norm, b);
            }
            inner().run(b);
        });
    }

private:
    template <class T>
    void apply(const std::function<bool(T &)> &hook, T &what) {
        if (m_.in_backward && hook && hook(what)) ++m_.reached;
    }
    const Hooks &hooks_;
};

class InReplay final : public Mutant {
public:
    InReplay(std::string name, Hooks hooks) : Mutant(std::move(name)), hooks_(std::move(hooks)) {}
    std::unique_ptr<mdlm::Device> device(std::unique_ptr<mdlm::Device> d) override {
        return std::make_unique<Replayed>(std::move(d), *this, hooks_);
    }

private:
    Hooks hooks_;
};

// In bf16, the activation of a replayed linear's sums before they were rounded: what fusing it into the matmul would
// give.
class UnroundedEpilogue final : public Spoiled {
public:
    using Spoiled::Spoiled;
    void launch(mdlm::Kernel kernel, const void *arguments) override {
        if (const auto *linear = mdlm::arguments_as<mdlm::LinearForward>(kernel, arguments)) keep_sums(*linear);
        const auto *activation = mdlm::arguments_as<mdlm::ActivationForward>(kernel, arguments);
        if (activation != nullptr && m_.in_backward && g_ != nullptr && activation->g == g_) unrounded(*activation);
        else inner().launch(kernel, arguments);
    }

private:
    void keep_sums(const mdlm::LinearForward &a) {
        g_ = nullptr;
        if (m_.in_backward && a.dtype == mdlm::DType::bf16) {
            std::vector<float> x = widened(a.x, a.m * a.k), w = widened(a.w, a.n * a.k),
                               bias = widened(a.bias, a.bias != nullptr ? a.n : 0);
            sums_.resize(static_cast<size_t>(a.m * a.n));
            exact_->run(mdlm::LinearForward{mdlm::DType::f32, a.m, a.n, a.k, x.data(), w.data(),
                                            a.bias != nullptr ? bias.data() : nullptr, sums_.data(), nullptr});
            g_ = a.y;
        }
    }
    void unrounded(const mdlm::ActivationForward &a) {
        std::vector<float> m(static_cast<size_t>(a.rows * a.width));
        exact_->run(mdlm::ActivationForward{mdlm::DType::f32, a.kind, a.rows, a.width, sums_.data(), m.data()});
        for (size_t i = 0; i < m.size(); ++i) mdlm::store(mdlm::DType::bf16, a.m, static_cast<int64_t>(i), m[i]);
        ++m_.reached;
    }
    static std::vector<float> widened(const void *from, int64_t count) {
        std::vector<float> to(static_cast<size_t>(count));
        for (int64_t i = 0; i < count; ++i)
            to[static_cast<size_t>(i)] = static_cast<float>(mdlm::load(mdlm::DType::bf16, from, i));
        return to;
    }
    std::unique_ptr<mdlm::Device> exact_ = mdlm::make_reference_device();
    const void *g_ = nullptr;
    std::vector<float> sums_;
};

// One kind of kernel is called otherwise: f(its arguments), a copy to change.
template <class A, class F>
bool instead(mdlm::Kernel kernel, const void *arguments, F &&f) {
    const A *a = mdlm::arguments_as<A>(kernel, arguments);
    if (a != nullptr) f(A(*a));
    return a != nullptr;
}

class WeightGradientTwice final : public Spoiled {
public:
    using Spoiled::Spoiled;
    void launch(mdlm::Kernel kernel, const void *arguments) override {
        inner().launch(kernel, arguments);
        instead<mdlm::LinearWgrad>(kernel, arguments, [&](auto again) {
            again.accumulate = true;
            inner().run(again);
            ++m_.reached;
        });
    }
};

class BiasGradientLeftOut final : public Spoiled {
public:
    using Spoiled::Spoiled;
    void launch(mdlm::Kernel kernel, const void *arguments) override {
        if (kernel == mdlm::Kernel::bias_grad) ++m_.reached;
        else inner().launch(kernel, arguments);
    }
};

// As if every micro-batch were the first of its step.
class NormGradientsNotAdded final : public Spoiled {
public:
    using Spoiled::Spoiled;
    void launch(mdlm::Kernel kernel, const void *arguments) override {
        if (!instead<mdlm::NormBackward>(kernel, arguments, [&](auto b) {
                m_.reached += b.accumulate && b.dweight != nullptr;
                b.accumulate = false;
                inner().run(b);
            }))
            inner().launch(kernel, arguments);
    }
};

class ResidualGradientLeftOut final : public Spoiled {
public:
    using Spoiled::Spoiled;
    void launch(mdlm::Kernel kernel, const void *arguments) override {
        if (!instead<mdlm::NormBackward>(kernel, arguments, [&](auto b) {
                m_.reached += b.add != nullptr;
                b.add = nullptr;
                inner().run(b);
            }))
            inner().launch(kernel, arguments);
    }
};

class HostNotReadBack final : public Spoiled {
public:
    using Spoiled::Spoiled;
    void transfer(mdlm::Stream on, void *to, const void *from, size_t bytes) override {
        if (m_.in_backward) ++m_.reached;
        else inner().transfer(on, to, from, bytes);
    }
};

bool without_documents(mdlm::Mask &mask) {
    const bool packed = mask.doc_begin != nullptr;
    mask.doc_begin = mask.doc_end = nullptr;
    return packed;
}

Hooks of_mask(std::function<bool(mdlm::Mask &)> f) { return {std::move(f), nullptr, nullptr, nullptr}; }
Hooks of_positions(std::function<bool(mdlm::Mask &)> f) { return {nullptr, std::move(f), nullptr, nullptr}; }
Hooks of_dropout(std::function<void(mdlm::Dropout &)> f) {
    return {nullptr, nullptr, [f = std::move(f)](mdlm::Dropout &d) { return d.on ? (f(d), true) : false; }, nullptr};
}
// The device is done with one call's before the next comes.
Hooks of_draw(std::function<void(mdlm::DrawState &)> f) {
    return of_dropout([f = std::move(f), changed = std::make_shared<mdlm::DrawState>()](mdlm::Dropout &d) {
        *changed = *d.draw;
        f(*changed);
        d.draw = changed.get();
    });
}
Hooks of_norm(std::function<bool(mdlm::NormForward &)> f) { return {nullptr, nullptr, nullptr, std::move(f)}; }

}  // namespace

std::vector<std::unique_ptr<Mutant>> device_mutants() {
    std::vector<std::unique_ptr<Mutant>> all;
    const auto in_replay = [&](const char *name, Hooks hooks) {
        all.push_back(std::make_unique<InReplay>(name, std::move(hooks)));
    };
    in_replay("replay under another window", of_mask([](mdlm::Mask &m) {
                  const bool other = m.left != 0 || m.right != 0;
                  m.left = m.right = 0;
                  return other;
              }));
    in_replay("replay under another kind of mask", of_mask([](mdlm::Mask &m) {
                  m.type = m.type == MDLM_MASK_NO_MASK ? MDLM_MASK_CAUSAL : MDLM_MASK_NO_MASK;
                  return true;
              }));
    in_replay("replayed attention without the packed documents", of_mask(without_documents));
    in_replay("replayed positions do not restart at documents", of_positions(without_documents));
    in_replay("dropout redrawn in replay", of_draw([](mdlm::DrawState &s) { s.seed += 1; }));
    in_replay("dropout off in replay", of_dropout([](mdlm::Dropout &d) { d.on = false; }));
    in_replay("replay takes the step from now", of_draw([](mdlm::DrawState &s) { s.step += 1; }));
    in_replay("replay takes the micro-batch's index from now", of_draw([](mdlm::DrawState &s) { s.micro_batch ^= 1; }));
    in_replay("replay counts layers from another one", of_dropout([](mdlm::Dropout &d) { d.where += 1u << 20; }));
    in_replay("a replayed norm with another epsilon", of_norm([](mdlm::NormForward &a) {
                  a.epsilon *= 2;
                  return true;
              }));
    all.push_back(std::make_unique<OfDevice<UnroundedEpilogue>>("a replayed activation skips its input's rounding"));
    all.push_back(std::make_unique<OfDevice<WeightGradientTwice>>("a weight's gradient added twice"));
    all.push_back(std::make_unique<OfDevice<BiasGradientLeftOut>>("a bias gradient left out"));
    all.push_back(std::make_unique<OfDevice<NormGradientsNotAdded>>("gradients of norms assigned instead of added"));
    all.push_back(std::make_unique<OfDevice<ResidualGradientLeftOut>>("the residual's gradient left out"));
    all.push_back(std::make_unique<OfDevice<HostNotReadBack>>("host storage not read back"));
    return all;
}

}  // namespace property
