//===- QuantLayoutTest.cpp - tests of where scales lie ----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/Dialect/Moe/QuantLayout.h"

#include "mlir/AsmParser/AsmParser.h"
#include "gtest/gtest.h"

using namespace mlir;
using namespace moec::moe;

namespace {

class QuantLayoutTest : public ::testing::Test {
protected:
  QuantLayoutTest() { context.loadDialect<MoeDialect>(); }

  QuantAttr parse(const std::string &fields) {
    return cast<QuantAttr>(
        parseAttribute("#moe.quant<" + fields + ">", &context));
  }
  QuantAttr fp8(const std::string &granularity) {
    return parse("storage = f8E4M3FN, scale = f32, granularity = " +
                 granularity);
  }
  WeightLayoutAttr layout(GateUpOrder order) {
    return WeightLayoutAttr::get(&context, order);
  }

  MLIRContext context;
};

} // namespace

TEST_F(QuantLayoutTest, ScalesOfHalves) {
  struct Case {
    const char *granularity;
    int64_t plain, halves, columns;
  } cases[] = {{"tensor", 1, 2, 1},
               {"channel", 288, 288, 1},
               {"group, block = [1, 64]", 288, 288, 4},
               {"block, block = [128, 128]", 3, 4, 2}};
  for (auto [granularity, plain, halves, columns] : cases) {
    QuantAttr quant = fp8(granularity);
    EXPECT_EQ(getNumScaleRows(quant, 288), plain) << granularity;
    EXPECT_EQ(getNumScaleRows(quant, 288, layout(GateUpOrder::Interleaved)),
              plain)
        << granularity;
    for (GateUpOrder order : {GateUpOrder::GateUp, GateUpOrder::UpGate}) {
      EXPECT_EQ(getNumScaleRows(quant, 288, layout(order)), halves)
          << granularity;
      EXPECT_EQ(getScaleRow(quant, 287, 288, layout(order)), halves - 1);
      EXPECT_EQ(getScaleRow(quant, 144, 288, layout(order)), halves / 2);
    }
    EXPECT_EQ(getScaleRow(quant, 287, 288), plain - 1) << granularity;
    EXPECT_EQ(getNumScaleColumns(quant, 200), columns) << granularity;
    EXPECT_EQ(getScaleColumn(quant, 199), columns - 1) << granularity;
  }
}

TEST_F(QuantLayoutTest, BitsAndBytes) {
  QuantAttr bytes = fp8("tensor");
  EXPECT_EQ(getStorageBits(bytes), 8);
  EXPECT_EQ(getRowBytes(bytes, 33), 33);
  EXPECT_TRUE(isa<Float8E4M3FNType>(getMemoryType(bytes)));
  EXPECT_EQ(getRowLength(bytes, 33), 33);
  EXPECT_EQ(getRowLength(QuantAttr(), 33), 33);
  QuantAttr pairs = parse("storage = f4E2M1FN, scale = f8E4M3FN, granularity = "
                          "group, block = [1, 16], packing = pairs, "
                          "second_scale = f32");
  EXPECT_EQ(getStorageBits(pairs), 4);
  EXPECT_EQ(getRowBytes(pairs, 33), 17);
  EXPECT_TRUE(getMemoryType(pairs).isInteger(8));
  EXPECT_EQ(getRowLength(pairs, 64), 32);
  EXPECT_EQ(getRowWidth(pairs, 32), 64);
  // The first of two is in the low half.
  EXPECT_EQ(getElementOffset(pairs, 6).byte, 3);
  EXPECT_EQ(getElementOffset(pairs, 6).bit, 0);
  EXPECT_EQ(getElementOffset(pairs, 7).byte, 3);
  EXPECT_EQ(getElementOffset(pairs, 7).bit, 4);
  EXPECT_EQ(getImpliedZeroPoint(pairs), 0);
  QuantAttr nf4 = parse("storage = !moe.nf4, scale = f32, granularity = group, "
                        "block = [1, 64], packing = pairs");
  EXPECT_EQ(getStorageBits(nf4), 4);
  EXPECT_EQ(getRowLength(nf4, 64), 32);
  EXPECT_TRUE(getMemoryType(nf4).isInteger(8));
  EXPECT_EQ(getImpliedZeroPoint(nf4), 0);
  EXPECT_EQ(getImpliedZeroPoint(parse("storage = i4, scale = f32, granularity "
                                      "= channel, packing = pairs")),
            8);
  EXPECT_EQ(getImpliedZeroPoint(parse("storage = i4, scale = f32, granularity "
                                      "= channel, packing = pairs, "
                                      "zero_point = true")),
            0);
  EXPECT_EQ(getNumSecondScales(bytes, 96), 0);
  EXPECT_EQ(getNumSecondScales(pairs, 96), 1);
  EXPECT_EQ(getNumSecondScales(pairs, 96, layout(GateUpOrder::UpGate)), 2);
  EXPECT_EQ(getNumSecondScales(pairs, 96, layout(GateUpOrder::Interleaved)), 1);
  for (int64_t projection : {0, 1}) {
    EXPECT_EQ(getSecondScale(pairs, projection, layout(GateUpOrder::GateUp)),
              projection);
    EXPECT_EQ(getSecondScale(pairs, projection, layout(GateUpOrder::UpGate)),
              1 - projection);
    EXPECT_EQ(
        getSecondScale(pairs, projection, layout(GateUpOrder::Interleaved)), 0);
  }
  EXPECT_EQ(getSecondScale(pairs, 0, {}), 0);
  EXPECT_EQ(getLargestValue(bytes), 448);
  EXPECT_EQ(getLargestValue(parse("storage = i8, scale = f32, granularity = "
                                  "token, dynamic = true")),
            127);
}
