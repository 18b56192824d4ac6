//===- LoadedTestLayer.h - the test plan, loaded and bound ------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_UNITTESTS_RUNTIME_LOADEDTESTLAYER_H
#define MOEC_UNITTESTS_RUNTIME_LOADEDTESTLAYER_H

#include "moert/HostDevice.h"
#include "runtime/src/executor/Bindings.h"
#include "unittests/Runtime/TestPlan.h"

#include <gtest/gtest.h>

namespace moert::test {

/// The plan of makePlan() on the host device, with bound tensors for `kRows`
/// tokens.
class LoadedTestLayer : public ::testing::Test {
protected:
  static constexpr int64_t kRows = 6;

  void SetUp() override {
    device = std::move(*createHostDevice(1));
    layer = *LoadedLayer::load(makePlan(), *device, makeImage(), {});
    bindings = std::make_unique<Bindings>(layer);
    for (size_t i = 0; i < x.size(); ++i)
      x[i] = static_cast<float>(i % 7) - 2;
    ASSERT_TRUE(bindings->bind("scale", view(scale, {kWidth})));
    ASSERT_TRUE(bindings->bind("x", view(x, {kRows, kWidth})));
    ASSERT_TRUE(bindings->bind("y", view(y, {kRows, kWidth})));
    ASSERT_TRUE(bindings->bind("offset", {&offset, DType::I32, {1}, {}}));
  }

  static TensorView view(std::vector<float> &data, std::vector<int64_t> shape) {
    return {data.data(), DType::F32, std::move(shape), {}};
  }

  std::unique_ptr<Device> device;
  std::shared_ptr<const LoadedLayer> layer;
  std::unique_ptr<Bindings> bindings;
  std::vector<float> x = std::vector<float>(kRows * kWidth);
  std::vector<float> y = std::vector<float>(kRows * kWidth, -1.0f);
  std::vector<float> scale = {0.5f, -1.0f, 2.0f, 0.25f};
  int32_t offset = 3;
};

} // namespace moert::test

#endif // MOEC_UNITTESTS_RUNTIME_LOADEDTESTLAYER_H
