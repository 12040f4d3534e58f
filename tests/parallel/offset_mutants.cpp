// SPDX-License-Identifier: Apache-2.0
// Mutants of what a rank takes for its part: of the sequence, of the heads, of an input, of a bias.
#include <algorithm>

#include "base/sizes.hpp"
#include "mutants.hpp"
#include "support/wrapped_device.hpp"

namespace parallel {
namespace {

using mdlm_test::WrappedDevice;

using Reached = std::atomic<int64_t>;

class Spoiled : public WrappedDevice {
public:
    Spoiled(std::unique_ptr<mdlm::Device> inner, int size, Reached &reached)
        : WrappedDevice(std::move(inner)), size_(size), reached_(reached) {}

protected:
    int size_;
    Reached &reached_;
};

// Dropout counts a rank's part of the sequence as if it were the first.
class PartOfSequence final : public Spoiled {
public:
    using Spoiled::Spoiled;
    void launch(mdlm::Kernel kernel, const void *arguments) override {
        using namespace mdlm;
        if (const auto *a = arguments_as<BiasDropoutAdd>(kernel, arguments)) inner().run(moved(*a));
        else if (const auto *b = arguments_as<DropoutBackward>(kernel, arguments)) inner().run(moved(*b));
        else inner().launch(kernel, arguments);
    }

private:
    template <class A>
    A moved(A a) {
        reached_ += a.dropout.on && a.tokens.first > 0;
        a.tokens.first = 0;
        return a;
    }
};

// Dropout of the probabilities counts a rank's heads from 0.
class FirstHead final : public Spoiled {
public:
    using Spoiled::Spoiled;
    void launch(mdlm::Kernel kernel, const void *arguments) override {
        mdlm::with_arguments(kernel, arguments, [&](const auto &a) {
            if constexpr (requires { a.shape.dropout; }) inner().run(moved(a));
            else inner().run(a);
        });
    }

private:
    template <class A>
    A moved(A a) {
        reached_ += a.shape.dropout.on && a.shape.first_head > 0;
        a.shape.first_head = 0;
        return a;
    }
};

// Every rank adds the bias before the sum.
class BiasOnEveryRank final : public Spoiled {
public:
    using Spoiled::Spoiled;
    void launch(mdlm::Kernel kernel, const void *arguments) override {
        const auto *add = mdlm::arguments_as<mdlm::BiasDropoutAdd>(kernel, arguments);
        if (add == nullptr || add->bias == nullptr) return inner().launch(kernel, arguments);
        const mdlm::BiasDropoutAdd &a = *add;
        ++reached_;
        const int64_t rows = a.tokens.rows(), bytes = mdlm::size_of(a.dtype);
        std::vector<char> x(static_cast<size_t>(rows * a.width * bytes));
        for (int64_t i = 0; i < rows * a.width; ++i)
            mdlm::store(a.dtype, x.data(), i,
                        mdlm::load(a.dtype, a.x, i) + (size_ - 1) * mdlm::load(a.dtype, a.bias, i % a.width));
        mdlm::BiasDropoutAdd b = a;
        b.x = x.data();
        inner().run(b);
    }
};

template <class D>
class OfDevice final : public property::Intruder {
public:
    OfDevice(int size, Reached &reached) : size_(size), reached_(reached) {}
    std::unique_ptr<mdlm::Device> device(std::unique_ptr<mdlm::Device> d) override {
        return std::make_unique<D>(std::move(d), size_, reached_);
    }

private:
    int size_;
    Reached &reached_;
};
template <class D>
Mutant of_device(std::string name) {
    return {std::move(name), 2,
            [](int, int size, Reached &reached) { return std::make_unique<OfDevice<D>>(size, reached); }};
}

// The first rank keeps the next one's share of a unit's input. (An earlier one's could lie before the arena in a batch
// that is smaller than the reserved shape, by which the place is moved.)
class AnothersShare final : public property::Intruder {
public:
    AnothersShare(int rank, int size, Reached &reached) : rank_(rank), size_(size), reached_(reached) {}
    void plan(mdlm::BlockPlan &p) override {
        if (rank_ != 0) return;
        for (mdlm::PlanEntry &e : p.forward) {
            if (e.kind != mdlm::PlanEntry::Kind::shard_input || e.x.kind == mdlm::Place::Kind::caller) continue;
            const mdlm::Buffer &x =
                e.schedule->layer
                    ->buffers[static_cast<size_t>(e.schedule->values[static_cast<size_t>(e.schedule->x)].buffer)];
            const int64_t element = mdlm::size_of(x.dtype);
            e.x.offset += mdlm::ceil_div(x.bytes(p.input.bound) / element, size_) * element;
            ++reached_;
        }
    }

private:
    int rank_, size_;
    Reached &reached_;
};

}  // namespace

std::vector<Mutant> offset_mutants() {
    std::vector<Mutant> all;
    all.push_back(of_device<PartOfSequence>("dropout without the offset of a rank's part of the sequence"));
    all.push_back(of_device<FirstHead>("dropout of the probabilities without the offset of a rank's heads"));
    all.push_back(of_device<BiasOnEveryRank>("a bias added on every rank"));
    all.push_back(
        {"the first rank keeps the next one's share of an input", 2,
         [](int rank, int size, Reached &reached) { return std::make_unique<AnothersShare>(rank, size, reached); }});
    return all;
}

}  // namespace parallel
