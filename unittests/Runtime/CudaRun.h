//===- CudaRun.h - a plan on the emulated GPU ----------------- -*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_UNITTESTS_RUNTIME_CUDARUN_H
#define MOEC_UNITTESTS_RUNTIME_CUDARUN_H

#include "CudaTesting.h"
#include "TestPlan.h"
#include "moert/CudaDevice.h"
#include "moert/Executor.h"

#include <gtest/gtest.h>

#define CHECK_OK(expression)                                                   \
  if (Status checked = (expression); !checked)                                 \
  return checked

namespace moert::test {

/// Device memory for a run of the test plan.
struct Tensors {
  explicit Tensors(Device &device) : device(device) {}

  Status allocate(int64_t tokens) {
    std::vector<float> x(tokens * kWidth, 1.5f), scale(kWidth, 0.5f);
    int32_t offset = 1;
    this->tokens = tokens;
    CHECK_OK(add("x", DType::F32, {tokens, kWidth}, x.data()));
    CHECK_OK(add("scale", DType::F32, {kWidth}, scale.data()));
    CHECK_OK(add("offset", DType::I32, {1}, &offset));
    return add("y", DType::F32, {tokens, kWidth}, nullptr);
  }

  Status bind(Executor &executor) {
    for (auto &[name, view] : views)
      CHECK_OK(executor.bind(name, view));
    return Status::ok();
  }

  Result<std::vector<float>> readY() {
    std::vector<float> y(tokens * kWidth);
    CHECK_OK(device.copyOut(y.data(), views.back().second.data,
                            y.size() * sizeof(float)));
    return y;
  }

  Status add(std::string name, DType dtype, std::vector<int64_t> shape,
             const void *data) {
    size_t bytes = 4;
    for (int64_t size : shape)
      bytes *= static_cast<size_t>(size);
    Result<std::unique_ptr<Buffer>> buffer = device.allocate(bytes, 256);
    CHECK_OK(buffer.status());
    if (data)
      CHECK_OK(device.copyIn((*buffer)->data(), data, bytes));
    views.emplace_back(std::move(name),
                       TensorView{(*buffer)->data(), dtype, shape, {}});
    buffers.push_back(std::move(*buffer));
    return Status::ok();
  }

  Device &device;
  int64_t tokens = 0;
  std::vector<std::unique_ptr<Buffer>> buffers;
  std::vector<std::pair<std::string, TensorView>> views;
};

/// The expected elements of y for these tensors.
inline float expectedAt(int64_t tokens) {
  std::vector<float> x(tokens * kWidth, 1.5f), scale(kWidth, 0.5f);
  return expectedY(x, scale, 1, 0, 0, tokens);
}

/// A plan on the fake device, with 20 rows bound.
struct Loaded {
  explicit Loaded(const Plan &plan, ExecutorOptions options = {})
      : device(createCudaDevice(0, kFakeDriver)), tensors(**device),
        executor(Executor::create(plan, **device, makePtxImage(), options)) {
    EXPECT_TRUE(executor) << executor.status().message();
    EXPECT_TRUE(tensors.allocate(20));
    EXPECT_TRUE(tensors.bind(**executor));
  }

  Result<std::unique_ptr<Device>> device;
  Tensors tensors;
  Result<std::unique_ptr<Executor>> executor;
};

} // namespace moert::test

#endif // MOEC_UNITTESTS_RUNTIME_CUDARUN_H
