//===- DTypeTest.cpp - tests of element types and of status -----*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moert/DType.h"
#include "moert/Status.h"

#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <string>

using namespace moert;

TEST(DTypeTest, NamesRoundTripAndAreDistinct) {
  std::set<std::string> names, fileNames;
  for (int i = 0; i <= static_cast<int>(kLastDType); ++i) {
    auto dtype = static_cast<DType>(i);
    EXPECT_EQ(parseDType(dtypeName(dtype)), dtype);
    EXPECT_EQ(parseSafetensorsDType(safetensorsName(dtype)), dtype);
    names.insert(dtypeName(dtype));
    fileNames.insert(safetensorsName(dtype));
  }
  EXPECT_EQ(names.size(), static_cast<size_t>(kLastDType) + 1);
  EXPECT_EQ(fileNames.size(), static_cast<size_t>(kLastDType) + 1);
  EXPECT_EQ(parseDType("float"), std::nullopt);
  EXPECT_EQ(parseSafetensorsDType("f32"), std::nullopt);
}

TEST(DTypeTest, Widths) {
  EXPECT_EQ(dtypeBits(DType::F32), 32);
  EXPECT_EQ(dtypeBits(DType::BF16), 16);
  EXPECT_EQ(dtypeBits(DType::F8E8M0), 8);
  EXPECT_EQ(dtypeBits(DType::F4E2M1), 4);
  EXPECT_EQ(dtypeAlignment(DType::I64), 8);
  EXPECT_EQ(dtypeAlignment(DType::F4E2M1), 1);
}

TEST(StatusTest, CarriesCodeAndContext) {
  EXPECT_TRUE(Status::ok().isOk());
  EXPECT_EQ(Status::ok().toString(), "ok");
  EXPECT_TRUE(Status::ok().withContext("call").isOk());
  Status status = notFound("no such tensor").withContext("bind");
  EXPECT_FALSE(status);
  EXPECT_EQ(status.code(), StatusCode::NotFound);
  EXPECT_EQ(status.message(), "bind: no such tensor");
  EXPECT_EQ(status.toString(), "not_found: bind: no such tensor");
  EXPECT_EQ(invalidArgument("x").toString(), "invalid_argument: x");
  EXPECT_EQ(outOfRange("x").toString(), "out_of_range: x");
  EXPECT_EQ(resourceExhausted("x").toString(), "resource_exhausted: x");
  EXPECT_EQ(unavailable("x").toString(), "unavailable: x");
  EXPECT_EQ(internalError("x").toString(), "internal: x");
}

TEST(StatusTest, ResultHoldsMoveOnlyValues) {
  Result<std::unique_ptr<int>> result = std::make_unique<int>(7);
  ASSERT_TRUE(result);
  EXPECT_TRUE(result.status());
  std::unique_ptr<int> taken = *std::move(result);
  EXPECT_EQ(*taken, 7);
  Result<std::unique_ptr<int>> failed = internalError("broken");
  EXPECT_FALSE(failed);
  EXPECT_EQ(failed.status().message(), "broken");
}
