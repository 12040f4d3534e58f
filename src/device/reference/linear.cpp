// SPDX-License-Identifier: Apache-2.0
// The linear layer: y = x w^T + bias, x [m, k], w [n, k], y [m, n]. With the gradient dy of y:
//   dx = dy w,  dw = dy^T x,  dbias = sum of dy over rows
#include "device/reference/common.hpp"
#include "device/reference/families.hpp"

namespace mdlm::reference {

void linear_forward(const LinearForward &a) {
    with_type(a.dtype, [&]<class T>() {
        for (int64_t i = 0; i < a.m; ++i) {
            for (int64_t j = 0; j < a.n; ++j) {
                const double dot =
                    sum(a.k, [&](int64_t l) { return get<T>(a.x, i * a.k + l) * get<T>(a.w, j * a.k + l); });
                put<T>(a.y, i * a.n + j, a.bias != nullptr ? dot + get<T>(a.bias, j) : dot);
            }
        }
    });
}

void linear_dgrad(const LinearDgrad &a) {
    with_type(a.dtype, [&]<class T>() {
        for (int64_t i = 0; i < a.m; ++i) {
            for (int64_t l = 0; l < a.k; ++l) {
                put<T>(a.dx, i * a.k + l,
                       sum(a.n, [&](int64_t j) { return get<T>(a.dy, i * a.n + j) * get<T>(a.w, j * a.k + l); }));
            }
        }
    });
}

void linear_wgrad(const LinearWgrad &a) {
    with_type(a.dtype, [&]<class T>() {
        for (int64_t j = 0; j < a.n; ++j) {
            for (int64_t l = 0; l < a.k; ++l) {
                const double dot =
                    sum(a.m, [&](int64_t i) { return get<T>(a.dy, i * a.n + j) * get<T>(a.x, i * a.k + l); });
                put_gradient<Wide<T>>(a.dw, j * a.k + l, dot, a.accumulate);
            }
        }
    });
}

void bias_grad(const BiasGrad &a) {
    with_type(a.dtype, [&]<class T>() {
        for (int64_t c = 0; c < a.width; ++c) {
            put_gradient<Wide<T>>(a.db, c, sum(a.rows, [&](int64_t r) { return get<T>(a.dy, r * a.width + c); }),
                                  a.accumulate);
        }
    });
}

int64_t linear_forward_workspace(const KernelSize &, int32_t) { return 0; }
int64_t linear_dgrad_workspace(const KernelSize &, int32_t) { return 0; }
int64_t linear_wgrad_workspace(const KernelSize &, int32_t) { return 0; }
int64_t bias_grad_workspace(const KernelSize &, int32_t) { return 0; }

}  // namespace mdlm::reference
