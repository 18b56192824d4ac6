//===- BindingsTest.cpp - tests of bindings as values -----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/src/executor/PreparedFile.h"
#include "unittests/Runtime/LoadedTestLayer.h"

#include <gtest/gtest.h>

using namespace moert;
using namespace moert::test;

namespace {
using BindingsTest = LoadedTestLayer;
} // namespace

TEST_F(BindingsTest, VersionsTellMovesFromOtherChanges) {
  std::vector<float> other(x.size());
  BindingsVersion before = bindings->version();
  ASSERT_TRUE(bindings->bind("x", view(x, {kRows, kWidth})));
  EXPECT_FALSE(bindings->bind("x", view(x, {kRows, kWidth + 1})));
  EXPECT_TRUE(bindings->version() == before);
  ASSERT_TRUE(bindings->bind("x", view(other, {kRows, kWidth})));
  EXPECT_EQ(bindings->version().moves, before.moves + 1);
  EXPECT_EQ(bindings->version().layout, before.layout);
  ASSERT_TRUE(bindings->bind("x", view(other, {kRows - 1, kWidth})));
  EXPECT_EQ(bindings->version().layout, before.layout + 1);
  // Values of weights may have changed, though their address has not.
  ASSERT_TRUE(bindings->bind("scale", view(scale, {kWidth})));
  EXPECT_EQ(bindings->version().layout, before.layout + 2);
}

TEST_F(BindingsTest, CopiesChangeIndependently) {
  std::vector<float> other(x.size());
  Bindings copy = *bindings;
  ASSERT_TRUE(copy.bind("x", view(other, {kRows, kWidth})));
  EXPECT_EQ(copy.addressOf(X), other.data());
  EXPECT_EQ(bindings->addressOf(X), x.data());
}

TEST_F(BindingsTest, SharedWeightsComeWithoutABatch) {
  ASSERT_TRUE(bindings->beginPrepare());
  bindings->endPrepare({});
  Bindings shared = bindings->shareWeights();
  EXPECT_EQ(shared.addressOf(Scale), scale.data());
  ASSERT_NE(shared.addressOf(Twice), nullptr);
  EXPECT_EQ(shared.addressOf(Twice), bindings->addressOf(Twice));
  EXPECT_EQ(shared.findOwnMemory(), bindings->findOwnMemory());
  EXPECT_EQ(shared.checkReady(1).message(),
            "input 'x' is not bound; bind it first");
  EXPECT_TRUE(bindings->checkReady(kRows));
  EXPECT_EQ(bindings->checkReady(kRows + 1).message(),
            "tensor 'x' is bound with 6 rows, 7 are needed; bind a larger one");
}

/// Executor::bindAll() returns to the bindings of before after a failure.
TEST_F(BindingsTest, CopiesKeepTheMemoryOfFiles) {
  PreparedTensor read = {Scale, {kWidth}, sizeof(float) * kWidth};
  read.buffer = std::move(*device->allocate(read.bytes, 256));
  std::weak_ptr<Buffer> memory = read.buffer;
  void *data = read.buffer->data();
  ASSERT_TRUE(bindings->useFile({std::move(read)}));
  EXPECT_TRUE(bindings->ownsWeight("scale"));
  Bindings before = *bindings;
  ASSERT_TRUE(bindings->bind("scale", view(scale, {kWidth})));
  EXPECT_FALSE(bindings->ownsWeight("scale"));
  ASSERT_FALSE(memory.expired());
  *bindings = std::move(before);
  EXPECT_EQ(bindings->addressOf(Scale), data);
  ASSERT_TRUE(bindings->bind("scale", view(scale, {kWidth})));
  EXPECT_TRUE(memory.expired());
}
