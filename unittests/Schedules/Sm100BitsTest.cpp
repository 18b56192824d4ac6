//===- Sm100BitsTest.cpp - what tensor cores find where ---------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// The bits that sm100.gemm gives, read again by the fields of the PTX ISA
// as cute::UMMA has them (include/cute/arch/mma_sm100_desc.hpp), and a model of
// the copy of scales.

#include "Schedules/Sm100Gemm/Shape.h"
#include "gtest/gtest.h"

#include <array>

using namespace moec;
using namespace moec::sm100;

namespace {

uint64_t getField(uint64_t bits, unsigned first, unsigned size) {
  return bits >> first & ((uint64_t(1) << size) - 1);
}

TEST(Sm100Bits, Descriptors) {
  // Start address, leading and stride in units of 16 bytes, version, base
  // offset, mode, layout.
  for (auto [bits, stride, layout] : {std::tuple(kMatrixDescriptor, 1024u, 2u),
                                      {kScaleDescriptor, 128u, 0u}}) {
    EXPECT_EQ(getField(bits, 0, 14), 0u);
    EXPECT_EQ(getField(bits, 16, 14), 0u);
    EXPECT_EQ(getField(bits, 32, 14) * kDescriptorUnit, stride);
    EXPECT_EQ(getField(bits, 46, 2), 1u);
    EXPECT_EQ(getField(bits, 49, 3), 0u);
    EXPECT_EQ(getField(bits, 52, 1), 0u);
    EXPECT_EQ(getField(bits, 61, 3), layout);
  }
}

TEST(Sm100Bits, Instruction) {
  EXPECT_EQ(getField(kInstruction | kInstructionE2M1, 7, 3), 5u) << "e2m1";
  for (uint32_t i = 0; i < 4; ++i)
    for (uint32_t rows : {16u, 112u, 128u}) {
      uint32_t bits = kInstruction | getScaleIds(i) |
                      rows / kInstructionRowUnit << kInstructionRowBit;
      EXPECT_EQ(getField(bits, 0, 3), 0u) << "sparsity";
      EXPECT_EQ(getField(bits, 4, 2), i) << "scales of B";
      EXPECT_EQ(getField(bits, 7, 3), 0u) << "e4m3";
      EXPECT_EQ(getField(bits, 10, 3), 0u) << "e4m3";
      EXPECT_EQ(getField(bits, 13, 4), 0u) << "negated, transposed";
      EXPECT_EQ(getField(bits, 17, 6) << 3, rows);
      EXPECT_EQ(getField(bits, 23, 1), 1u) << "e8m0";
      EXPECT_EQ(getField(bits, 24, 5) << 4, 128u);
      EXPECT_EQ(getField(bits, 29, 2), i) << "scales of A";
      EXPECT_EQ(getField(bits, 31, 1), 0u) << "32 of K";
    }
}

/// tcgen05.cp.32x128b.warpx4: rows of 16 bytes, each of which goes to four
/// columns of a lane in all four quarters; a product takes the scale of row r
/// of a quarter from lane r % 32 of it, column r / 32.
TEST(Sm100Bits, ScalesMeetTheirRows) {
  std::array<uint32_t, 128> shared;
  shared.fill(~0u);
  for (int64_t row = 0; row < 128; ++row) {
    int64_t at = getScaleWordOffset(row);
    ASSERT_EQ(at % 4, 0);
    ASSERT_LT(at, GemmShape::kScaleBlockBytes);
    EXPECT_EQ(shared[at / 4], ~0u) << "two rows have one place";
    shared[at / 4] = uint32_t(row);
  }
  uint64_t stride = getField(kScaleDescriptor, 32, 14) * kDescriptorUnit;
  std::array<std::array<uint32_t, 4>, 128> tensor;
  for (uint64_t lane = 0; lane < 128; ++lane)
    for (uint64_t column = 0; column < 4; ++column) {
      uint64_t row = lane % 32;
      tensor[lane][column] =
          shared[(row / 8 * stride + row % 8 * 16) / 4 + column];
    }
  for (unsigned quarter = 0; quarter < 4; ++quarter)
    for (uint32_t row = 0; row < 128; ++row)
      EXPECT_EQ(tensor[quarter * 32 + row % 32][row / 32], row);
}

} // namespace
