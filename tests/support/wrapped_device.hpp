// SPDX-License-Identifier: Apache-2.0
// A device around another one: every call goes on to it. Tests override what they want to see or to spoil.
#pragma once
#include <memory>
#include <utility>

#include "device/device.hpp"

namespace mdlm_test {

class WrappedDevice : public mdlm::Device {
public:
    explicit WrappedDevice(std::unique_ptr<mdlm::Device> inner) : inner_(std::move(inner)) {}

    mdlm::Traits traits() const override { return inner_->traits(); }
    int64_t alignment(mdlm::DType dtype) const override { return inner_->alignment(dtype); }
    void describe(char *line, size_t cap) const override { inner_->describe(line, cap); }
    std::shared_ptr<void> begin_shape() override { return inner_->begin_shape(); }
    void prepare(mdlm::Kernel kernel, const mdlm::KernelSize &size) override { inner_->prepare(kernel, size); }
    void copy(void *to, const void *from, size_t bytes) override { inner_->copy(to, from, bytes); }
    void zero(void *memory, size_t bytes) override { inner_->zero(memory, bytes); }
    void *allocate(size_t bytes, size_t alignment) override { return inner_->allocate(bytes, alignment); }
    void free(void *memory, size_t bytes, size_t alignment) noexcept override {
        inner_->free(memory, bytes, alignment);
    }
    void *allocate_pinned(size_t bytes, size_t alignment) override { return inner_->allocate_pinned(bytes, alignment); }
    void free_pinned(void *memory, size_t bytes, size_t alignment) noexcept override {
        inner_->free_pinned(memory, bytes, alignment);
    }
    void transfer(mdlm::Stream on, void *to, const void *from, size_t bytes) override {
        inner_->transfer(on, to, from, bytes);
    }
    void upload(void *to, const void *host, size_t bytes) override { inner_->upload(to, host, bytes); }
    void download(void *host, const void *from, size_t bytes) override { inner_->download(host, from, bytes); }
    void copy_any(void *to, const void *from, size_t bytes) override { inner_->copy_any(to, from, bytes); }
    std::unique_ptr<mdlm::Events> make_events(int32_t count) override { return inner_->make_events(count); }
    void synchronize() override { inner_->synchronize(); }
    void check() override { inner_->check(); }
    mdlm::Pool *pool() override { return inner_->pool(); }
    void launch(mdlm::Kernel kernel, const void *arguments) override { inner_->launch(kernel, arguments); }

protected:
    mdlm::Device &inner() { return *inner_; }

private:
    std::unique_ptr<mdlm::Device> inner_;
};

}  // namespace mdlm_test
