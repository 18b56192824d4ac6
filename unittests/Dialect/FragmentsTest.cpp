//===- FragmentsTest.cpp - tests of the order of tensor cores ---*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/Dialect/Moe/Fragments.h"
#include "moec/Dialect/Moe/QuantLayout.h"

#include "llvm/ADT/APFloat.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/bit.h"
#include "gtest/gtest.h"

#include <cmath>
#include <set>
#include <vector>

using namespace mlir;
using namespace moec::moe;
using llvm::APFloat;
using llvm::APInt;

namespace {

class FragmentsTest : public ::testing::Test {
protected:
  FragmentsTest() {
    context.loadDialect<MoeDialect>();
    layouts.push_back({});
    for (GateUpOrder order :
         {GateUpOrder::GateUp, GateUpOrder::UpGate, GateUpOrder::Interleaved})
      layouts.push_back(WeightLayoutAttr::get(&context, order));
    Type e2m1 = Float4E2M1FNType::get(&context);
    Type e8m0 = Float8E8M0FNUType::get(&context);
    Type e4m3 = Float8E4M3FNType::get(&context);
    Type i4 = IntegerType::get(&context, 4), f32 = Float32Type::get(&context);
    Type i8 = IntegerType::get(&context, 8);
    Type bf16 = BFloat16Type::get(&context), f16 = Float16Type::get(&context);
    mxfp4 = makeQuant(e2m1, e8m0, 32);
    nvfp4 = makeQuant(e2m1, e4m3, 16, /*hasZeroPoints=*/false, f32);
    int4 = makeQuant(i4, bf16, 32);
    halves = {Fragments::getQuant(makeQuant(i4, f16, 128), Packing::Fragments),
              Fragments::getQuant(makeQuant(i4, f16, 128, true),
                                  Packing::FragmentsF16)};
    bytes = {
        makeQuant(i8, bf16, 64), makeQuant(e4m3, f32, 128),
        Fragments::getQuant(makeQuant(e4m3, f32, 0), Packing::FragmentsF16)};
    e4m3s = {
        Fragments::getQuant(mxfp4, Packing::FragmentsE4M3),
        Fragments::getQuant(makeQuant(i4, f32, 0), Packing::FragmentsE4M3),
        Fragments::getQuant(makeQuant(e4m3, e8m0, 32), Packing::FragmentsE4M3),
        Fragments::getQuant(makeQuant(i4, bf16, 32), Packing::FragmentsE4M3)};
    quants = {mxfp4,
              e4m3s[0],
              e4m3s[1],
              e4m3s[2],
              e4m3s[3],
              nvfp4,
              int4,
              makeQuant(i4, bf16, 128),
              makeQuant(i4, bf16, 32, /*hasZeroPoints=*/true),
              makeQuant(i4, bf16, 64, /*hasZeroPoints=*/true),
              makeQuant(i4, f32, 0),
              makeQuant(i4, f32, 0, true),
              halves[0],
              halves[1],
              bytes[0],
              bytes[1],
              bytes[2],
              makeQuant(i8, f32, 32),
              makeQuant(i8, bf16, 32, true),
              makeQuant(e4m3, e8m0, 32),
              makeQuant(i4, f32, 32),
              makeQuant(i8, f32, 16),
              makeQuant(i8, bf16, 16, true),
              makeQuant(i4, f32, 64, true),
              makeQuant(i8, f32, 16, true)};
    for (QuantAttr quant : {mxfp4, nvfp4, makeQuant(e4m3, e8m0, 32)})
      floats.push_back(Fragments::getQuant(quant, Packing::FragmentsF16));
    llvm::append_range(quants, floats);
    Type nf4 = NF4Type::get(&context);
    books = {makeQuant(nf4, f32, 64), makeQuant(nf4, f16, 32),
             makeQuant(nf4, f32, 0)};
    llvm::append_range(quants, books);
    minima = {makeMinima(i4, f32, 32), makeMinima(i8, f16, 64),
              makeMinima(i8, bf16, 16)};
    llvm::append_range(quants, minima);
    for (QuantAttr quant : minima)
      quants.push_back(Fragments::getQuant(quant, Packing::FragmentsF16));
  }

  /// Scales of groups, or (0) of rows.
  QuantAttr makeQuant(Type storage, Type scale, int64_t group,
                      bool hasZeroPoints = false, Type second = {}) {
    Granularity granularity = group ? Granularity::Group : Granularity::Channel;
    SmallVector<int64_t> block;
    if (group)
      block = {1, group};
    Packing packing =
        getElementBits(storage) == 4 ? Packing::Pairs : Packing::None;
    return QuantAttr::get(&context, storage, scale, granularity, block,
                          hasZeroPoints, /*dynamic=*/false, packing, second,
                          /*power_of_two=*/false, /*minimum=*/false);
  }
  QuantAttr makeMinima(Type storage, Type scale, int64_t group) {
    QuantAttr plain = makeQuant(storage, scale, group);
    return QuantAttr::get(&context, storage, scale, plain.getGranularity(),
                          plain.getBlock(), /*zero_point=*/false,
                          /*dynamic=*/false, plain.getPacking(),
                          /*second_scale=*/{}, /*power_of_two=*/false,
                          /*minimum=*/true);
  }

  MLIRContext context;
  std::vector<WeightLayoutAttr> layouts;
  QuantAttr mxfp4, nvfp4, int4;
  /// Scales of f16: of codes that become bf16, and f16. Codes of 8 bits: int8,
  /// e4m3 that become bf16, and f16.
  std::vector<QuantAttr> halves, bytes, quants;
  /// e2m1 and int4 that become e4m3, e4m3 that is it, and int4 whose sums of a
  /// product are apart; code books; weights with minima; mxfp4, nvfp4 and mxfp8
  /// that become f16.
  std::vector<QuantAttr> e4m3s, books, minima, floats;
};

constexpr int64_t kRows = 256, kDepth = 256;

/// The number of the bits of a bf16.
float toFloat(int64_t bits) {
  return llvm::bit_cast<float>(uint32_t(bits << 16));
}

} // namespace

/// Each bit of the memory that a matrix has in pairs is one of one element.
TEST_F(FragmentsTest, CodesFillTheirMemory) {
  for (QuantAttr quant : {mxfp4, int4, bytes[0], bytes[1], bytes[2], e4m3s[0],
                          e4m3s[1], e4m3s[2], books[0], floats[0]})
    for (WeightLayoutAttr layout : layouts) {
      Fragments format(quant);
      int64_t codeBits = format.getCodeBits();
      // As many bits as there are, each seen once.
      std::vector<bool> seen(kRows * kDepth * codeBits);
      for (int64_t row = 0; row < kRows; ++row)
        for (int64_t element = 0; element < kDepth; ++element) {
          Fragments::Place place = format.getPlace(row, element, kRows, layout);
          int64_t first = place.firstRow * kDepth * codeBits + place.word * 32;
          for (int64_t bit : place.bits) {
            ASSERT_LT(size_t(first + bit), seen.size());
            ASSERT_FALSE(seen[first + bit]);
            seen[first + bit] = true;
          }
        }
      EXPECT_EQ(llvm::count(seen, false), 0);
    }
}

/// Each byte is of one scale, zero point or rest of a group within a unit.
TEST_F(FragmentsTest, ScalesFillTheirMemory) {
  for (QuantAttr quant : quants)
    for (WeightLayoutAttr layout : layouts) {
      Fragments format(quant);
      int64_t rowBytes = format.getRowBytes(kDepth);
      std::set<int64_t> seen;
      for (int64_t row = 0; row < kRows; ++row)
        for (int64_t i = 0; i < kDepth; i += format.group) {
          Fragments::ScalePlace place =
              format.getScalePlace(row, i, kRows, layout);
          int64_t first = place.firstRow * rowBytes;
          for (int64_t byte = 0; byte < format.getScaleBytes(); ++byte)
            seen.insert(first + place.byte + byte);
          for (int64_t byte = 0; byte < format.getZeroPointBytes(); ++byte)
            seen.insert(first + place.zeroPoint + byte);
          for (int64_t byte = 0; byte < format.getRestBytes(); ++byte)
            seen.insert(first + place.rest + byte);
        }
      EXPECT_EQ(int64_t(seen.size()), kRows * rowBytes);
      EXPECT_EQ(*seen.begin(), 0);
      EXPECT_EQ(*seen.rbegin(), kRows * rowBytes - 1);
    }
}

/// A thread's four words of a unit are the fragments that PTX gives it: row
/// 16 w + g and 8 on, columns 2 c and 8 on, of 16 of the depth each.
TEST_F(FragmentsTest, WordsAreFragments) {
  for (int64_t thread : {0, 5, 37, 95, 127})
    for (int64_t product = 0; product < 4; ++product)
      for (int64_t pair = 0; pair < 4; ++pair) {
        int64_t warp = thread / 32, g = thread % 32 / 4, c = thread % 4;
        auto getPlace = [&](QuantAttr quant) {
          return Fragments(quant).getPlace(
              /*row=*/64 + 16 * warp + g + pair % 2 * 8,
              /*element=*/64 + 16 * product + 2 * c + pair / 2 * 8, kRows, {});
        };
        Fragments::Place place = getPlace(int4);
        EXPECT_EQ(place.firstRow, 64 + warp / 2 * 32);
        EXPECT_EQ(place.word, 256 + thread % 64 * 4 + product);
        EXPECT_EQ(place.bits[0], 4 * pair + 3);
        EXPECT_EQ(place.bits[3], 4 * pair);
        // Codes of 8 bits have two words for a product, and two pieces.
        place = getPlace(bytes[0]);
        EXPECT_EQ(place.word, 512 + product / 2 * 256 + thread % 64 * 4 +
                                  product % 2 * 2 + pair / 2);
        EXPECT_EQ(place.bits[0], pair % 2 * 8 + 7);
        // Where bf16 has sign, exponent and mantissa, after a rotation by 4 and
        // a shift by 6 the other way.
        if (pair == 3)
          continue;
        constexpr int64_t distances[] = {0, 4, -6};
        place = getPlace(mxfp4);
        EXPECT_EQ(place.bits[0], 15 + distances[pair]);
        EXPECT_EQ(place.bits[1], 8 + distances[pair]);
        EXPECT_EQ(place.bits[3], 6 + distances[pair]);
      }
}

/// The same of e4m3: a register has four of the depth, and a word two registers
/// of a row.
TEST_F(FragmentsTest, WordsAreFragmentsOfBytes) {
  for (int64_t thread : {0, 5, 37, 95, 127})
    for (int64_t product : {0, 1})
      for (int64_t i = 0; i < 4; ++i)
        for (int64_t code = 0; code < 4; ++code) {
          int64_t warp = thread / 32, g = thread % 32 / 4, c = thread % 4;
          auto getPlace = [&](QuantAttr quant) {
            return Fragments(quant).getPlace(
                /*row=*/64 + 16 * warp + g + i % 2 * 8,
                /*element=*/64 + 32 * product + 16 * (i / 2) + 4 * c + code,
                kRows, {});
          };
          Fragments::Place place = getPlace(e4m3s[0]);
          EXPECT_EQ(place.firstRow, 64 + warp / 2 * 32);
          EXPECT_EQ(place.word, 256 + thread % 64 * 4 + 2 * product + i % 2);
          // A nibble that selects, and a sign that a shift by 4 takes there.
          EXPECT_EQ(place.bits[0], 8 * code + (i / 2 ? 3 : 7));
          EXPECT_EQ(place.bits[3], 16 * (i / 2) + 4 * code);
          // The lowest bits and the sign of a byte, after a rotation by 4.
          place = getPlace(e4m3s[1]);
          EXPECT_EQ(place.bits[3], 8 * code + 4 * (i / 2));
          EXPECT_EQ((place.bits[0] + 32 - 4 * (i / 2)) % 32, 8 * code + 7);
          // A byte of a register that a product takes, of two pieces.
          place = getPlace(e4m3s[2]);
          EXPECT_EQ(place.word,
                    512 + product * 256 + thread % 64 * 4 + i % 2 * 2 + i / 2);
          EXPECT_EQ(place.bits[0], 8 * code + 7);
          EXPECT_EQ(place.bits[7], 8 * code);
        }
}

/// Each number of e2m1 with each step is an e4m3: as many more in its bits as
/// the step is kept as, but for 0.
TEST_F(FragmentsTest, StepsAreExact) {
  Fragments format(e4m3s[0]);
  constexpr double numbers[] = {0, .5, 1, 1.5, 2, 3, 4, 6};
  constexpr int64_t least[] = {0, 0x08, 0x10, 0x14, 0x18, 0x1C, 0x20, 0x24};
  for (int64_t exponent = Fragments::kLeastStep;
       exponent <= Fragments::kMostStep; ++exponent) {
    int64_t kept = format.encodeScale(exponent << format.getDigits());
    EXPECT_EQ(kept, 8 * (exponent - Fragments::kLeastStep));
    EXPECT_EQ(format.decodeScale(kept), std::ldexp(1.0, int(exponent - 127)));
    for (int64_t code = 0; code < 8; ++code) {
      APFloat number(APFloat::Float8E4M3FN(),
                     APInt(8, code ? least[code] + kept : 0));
      EXPECT_EQ(number.convertToDouble(),
                numbers[code] * format.decodeScale(kept));
    }
  }
}

/// Codes with less than the lowest step become the nearest, of two the even.
TEST_F(FragmentsTest, SmallGroupsAreRounded) {
  constexpr double numbers[] = {0, .5, 1, 1.5, 2, 3, 4, 6};
  for (int64_t by = -1; by < 8; ++by)
    for (int64_t code = 0; code < 16; ++code) {
      APFloat number(
          std::ldexp(numbers[code % 8], -int(std::max<int64_t>(by, 0))));
      bool losesInfo;
      number.convert(APFloat::Float4E2M1FN(), APFloat::rmNearestTiesToEven,
                     &losesInfo);
      auto expected = int64_t(number.bitcastToAPInt().getZExtValue());
      EXPECT_EQ(Fragments::weaken(code, by), expected | (code & 8))
          << code << " by " << by;
    }
}

/// An int4 is a sign and a magnitude that a negative one has one less of.
TEST_F(FragmentsTest, NibblesAreBytes) {
  Fragments format(e4m3s[1]);
  for (int64_t code = 0; code < 16; ++code) {
    int64_t kept = format.toKept(code);
    EXPECT_EQ(format.fromKept(kept), code);
    int64_t byte = (kept & 8) << 4 | ((kept & 7) + (kept >> 3));
    APFloat number(APFloat::Float8E4M3FN(), APInt(8, byte));
    EXPECT_EQ(std::ldexp(number.convertToDouble(),
                         int(format.getExponent(/*unitRow=*/0))),
              double(code - 8));
  }
}

/// Codes of e4m3 have turned signs, and the scale of a product's sums is a
/// power of two, of which the largest of a row leaves room for others.
TEST_F(FragmentsTest, SumsOfProductsHaveScales) {
  Fragments format(e4m3s[2]);
  EXPECT_TRUE(format.areScalesOfSums());
  EXPECT_EQ(format.toKept(0x3A), 0xBA);
  EXPECT_EQ(format.getGroups(), 2);
  EXPECT_EQ(format.getQuadBytes(), 4);
  EXPECT_EQ(format.getExponent(/*unitRow=*/8), 0);
  for (int64_t largest : {0, 127, 254}) {
    int64_t excess = std::max(largest - format.getLargestExponent(),
                              format.getLeastExcess());
    int64_t kept = largest - excess;
    EXPECT_GE(kept, 126);
    EXPECT_LT(kept, 255);
    EXPECT_EQ(
        format.decodeScale(format.encodeScale(kept << format.getDigits())),
        std::ldexp(1.0, int(kept - 127)));
  }
  EXPECT_EQ(Fragments(e4m3s[3]).getQuadBytes(), 8);
}

/// A nibble of a word, alone in its half or after a shift by 8, is a bf16 less
/// than its number by the exponent of its row; so is a zero point.
TEST_F(FragmentsTest, NibblesAreNumbers) {
  Fragments format(int4);
  for (int64_t unitRow : {0, 8})
    for (int64_t code = 0; code < 16; ++code) {
      auto expected = float(std::ldexp(code, -format.getExponent(unitRow)));
      EXPECT_EQ(toFloat(unitRow ? code << 4 : code), expected);
      EXPECT_EQ(toFloat(format.encodeZeroPoint(code, unitRow)), expected);
    }
  EXPECT_EQ(toFloat(format.encodeZeroPoint(255, 8)),
            float(std::ldexp(255, -129)));
}

/// A code of 8 bits is a bf16 or f16 less than its number, wherever it lies:
/// bits of e4m3 where the first pair has them.
TEST_F(FragmentsTest, BytesAreNumbers) {
  Fragments integers(bytes[0]);
  for (int64_t code = 0; code < 256; ++code)
    EXPECT_EQ(toFloat(code),
              float(std::ldexp(code, -integers.getExponent(/*unitRow=*/8))));
  for (QuantAttr quant : {bytes[1], bytes[2]}) {
    Fragments format(quant);
    bool hasF16 = format.numbers == Fragments::Numbers::F16;
    for (int64_t code = 0; code < 256; ++code) {
      if (code % 128 == 127)
        continue;
      int64_t bits = 0;
      for (auto [n, to] :
           llvm::enumerate(format.getPairBits(/*pair=*/0, /*code=*/0)))
        bits |= (code >> (7 - n) & 1) << to;
      APFloat number(APFloat::Float8E4M3FN(), APInt(8, code));
      APFloat moved(hasF16 ? APFloat::IEEEhalf() : APFloat::BFloat(),
                    APInt(16, bits));
      EXPECT_EQ(std::ldexp(moved.convertToDouble(),
                           int(format.getExponent(/*unitRow=*/0))),
                number.convertToDouble());
    }
  }
}

/// The same of an f16.
TEST_F(FragmentsTest, NibblesAreHalves) {
  Fragments format(halves[1]);
  auto toHalf = [](int64_t bits) {
    return APFloat(APFloat::IEEEhalf(), APInt(16, bits)).convertToDouble();
  };
  for (int64_t unitRow : {0, 8}) {
    for (int64_t code = 0; code < 16; ++code)
      EXPECT_EQ(toHalf(unitRow ? code << 4 : code),
                std::ldexp(code, -int(format.getExponent(unitRow))));
    for (int64_t zeroPoint = 0; zeroPoint < 256; ++zeroPoint)
      EXPECT_EQ(format.decodeZeroPoint(
                    format.encodeZeroPoint(zeroPoint, unitRow), unitRow),
                double(zeroPoint));
  }
  EXPECT_EQ(toHalf(format.encodeZeroPoint(255, 8)), std::ldexp(255, -20));
}

/// Every e4m3 is kept exactly, whatever the largest of its row.
TEST_F(FragmentsTest, ScalesAreKeptExactly) {
  for (QuantAttr quant : {nvfp4, floats[1]}) {
    Fragments format(quant);
    for (int64_t excess = 0; excess < 8; ++excess)
      for (int64_t code = 1; code < 0x7F; ++code) {
        APFloat scale(APFloat::Float8E4M3FN(), APInt(8, code));
        auto number = std::ldexp(double(scale.convertToFloat()),
                                 int(format.getExponent(0) - excess));
        int64_t bits = llvm::bit_cast<uint32_t>(float(number)) >> 16;
        if (excess < 7 && bits > format.getLargestKept())
          continue;
        EXPECT_EQ(format.decodeScale(format.encodeScale(bits)), toFloat(bits));
        EXPECT_LT(format.encodeScale(bits), 256);
      }
  }
}

/// Every f16 is kept exactly, beside a largest one that is up to 2^15 times as
/// large.
TEST_F(FragmentsTest, HalvesAreKeptExactly) {
  for (QuantAttr quant : halves) {
    Fragments format(quant);
    int64_t digits = format.getDigits();
    for (int64_t code = 1; code < 0x7C00; ++code) {
      APFloat scale(APFloat::IEEEhalf(), APInt(16, code));
      double number = scale.convertToDouble();
      int64_t bits = llvm::bit_cast<uint32_t>(float(number)) >> (23 - digits);
      for (int64_t larger : {0, 15}) {
        int64_t excess =
            (bits >> digits) + larger - format.getLargestExponent();
        ASSERT_GE(excess, format.getLeastExcess());
        int64_t shift = format.getExponent(/*unitRow=*/0) - excess;
        int64_t kept = bits + shift * (1 << digits);
        ASSERT_GE(kept, format.getLeastKept(0) << digits);
        ASSERT_LE(kept, format.getLargestKept());
        EXPECT_EQ(format.decodeScale(format.encodeScale(kept)),
                  std::ldexp(number, int(shift)));
        EXPECT_LT(format.encodeScale(kept), 0x7C00);
      }
    }
    EXPECT_EQ(format.encodeScale(0), 0);
    EXPECT_EQ(format.decodeScale(0), 0);
  }
}

TEST_F(FragmentsTest, RefusesOtherFormats) {
  constexpr Packing packing = Packing::Fragments, other = Packing::FragmentsF16;
  EXPECT_EQ(Fragments::whyNot(mxfp4, packing), "");
  EXPECT_EQ(Fragments::whyNot(nvfp4, packing), "");
  EXPECT_EQ(Fragments::whyNot(mxfp4, other), "");
  EXPECT_EQ(Fragments::whyNot(nvfp4, other), "");
  EXPECT_EQ(Fragments::whyNot(int4, Packing::Pairs),
            "'pairs' is no order of fragments; 'fragments', 'fragments_f16' "
            "and 'fragments_e4m3' are");
  EXPECT_EQ(Fragments::whyNot(nvfp4, Packing::FragmentsE4M3),
            "e4m3 has digits for f4E2M1FN with scales f8E8M0FNU of groups of "
            "32, and sums are scaled of i4 without zero points and minima, or "
            "of f8E4M3FN, in groups of 32 or of multiples of 64");
  Type i4 = IntegerType::get(&context, 4), f32 = Float32Type::get(&context);
  Type f16 = Float16Type::get(&context), bf16 = BFloat16Type::get(&context);
  for (Packing either : {packing, other}) {
    EXPECT_EQ(Fragments::whyNot(makeQuant(i4, f32, 128, true), either), "");
    EXPECT_EQ(Fragments::whyNot(makeQuant(i4, mxfp4.getScale(), 32), either),
              "i4 becomes a number of 16 bits times the scale of its group, "
              "which is of f32, bf16 or f16, and scales of f8E8M0FNU are none "
              "of these");
    EXPECT_EQ(Fragments::whyNot(makeQuant(i4, f16, 0), either), "");
    EXPECT_EQ(Fragments::whyNot(makeQuant(i4, f16, 128), either), "");
    EXPECT_EQ(Fragments::whyNot(makeQuant(i4, bf16, 16), either),
              "i4 has scales of rows, of groups of 32 or of multiples of 64");
    EXPECT_EQ(Fragments::whyNot(
                  makeQuant(IntegerType::get(&context, 8), bf16, 48), either),
              "i8 has scales of rows, of groups of 16, 32 or of multiples of "
              "64");
    EXPECT_EQ(Fragments::whyNot(makeQuant(i4, bf16, 96), either),
              "i4 has scales of rows, of groups of 32 or of multiples of 64");
  }
  EXPECT_EQ(Fragments::whyNot(
                makeQuant(mxfp4.getStorage(), mxfp4.getScale(), 64), packing),
            "f4E2M1FN has scales f8E8M0FNU of groups of 32 or f8E4M3FN of "
            "groups of 16");
}

/// Of minima and books bf16 and f16 have an order.
TEST_F(FragmentsTest, KnowsMinimaAndBooks) {
  for (QuantAttr quant : minima) {
    EXPECT_EQ(Fragments::whyNot(quant, Packing::Fragments), "");
    EXPECT_EQ(Fragments::whyNot(quant, Packing::FragmentsF16), "");
    EXPECT_NE(Fragments::whyNot(quant, Packing::FragmentsE4M3), "");
  }
  for (QuantAttr quant : books) {
    EXPECT_EQ(Fragments::whyNot(quant, Packing::Fragments), "");
    EXPECT_EQ(Fragments::whyNot(quant, Packing::FragmentsF16), "");
    EXPECT_NE(Fragments::whyNot(quant, Packing::FragmentsE4M3), "");
  }
  EXPECT_EQ(Fragments::whyNot(makeMinima(IntegerType::get(&context, 4),
                                         BFloat16Type::get(&context), 16),
                              Packing::Fragments),
            "i4 has scales of rows, of groups of 32 or of multiples of 64");
}

/// A code less the zero point that stands for a minimum, times the scale, and
/// the rest are its number but for the rest's rounding, which is less than the
/// weight's own.
TEST_F(FragmentsTest, MinimaAreZeroPointsAndRests) {
  for (QuantAttr quant : minima) {
    Fragments format(Fragments::getQuant(quant, Packing::Fragments));
    ASSERT_TRUE(format.hasMinima && format.hasZeroPoints);
    EXPECT_EQ(format.scales, Fragments::Scales::F32);
    for (float scale : {0.0F, 1.0F, 0.0137F, -0.25F})
      for (float minimum : {0.0F, 0.031F, 0.11F, 1.49F, -0.7F, 99.0F}) {
        auto [zero, rest] =
            format.splitMinimum(scale, minimum, /*isOfZeros=*/false);
        ASSERT_GE(zero, 0);
        ASSERT_LE(zero, format.getLargestCode());
        for (int64_t excess : {0, 7, 40}) {
          double kept = std::ldexp(
              format.decodeRest(format.encodeRest(rest, excess)), int(excess));
          for (int64_t code : {int64_t(0), zero, format.getLargestCode()}) {
            double number =
                double(code - format.getZeroCode()) * scale - minimum;
            double made = double(code - zero) * scale + kept;
            EXPECT_NEAR(made, number,
                        std::ldexp(std::max(std::fabs(number),
                                            std::fabs(double(scale)) / 2),
                                   -8))
                << scale << ", " << minimum << ", " << code;
          }
        }
      }
    auto [zero, rest] = format.splitMinimum(3e38F, 0.5F, /*isOfZeros=*/true);
    EXPECT_EQ(zero, format.getZeroCode());
    EXPECT_EQ(rest, -0.5F);
    // No f32 has 2^-130 as a normal number.
    EXPECT_EQ(format.decodeRest(format.encodeRest(0x1.8p120F, 130)),
              std::ldexp(1.5, -10));
  }
}

/// By f16 a row's r leaves room for its rests, beside which a code's product
/// with its scale is less than 1.
TEST_F(FragmentsTest, RestsAreHalves) {
  for (QuantAttr quant : minima) {
    Fragments format(Fragments::getQuant(quant, Packing::FragmentsF16));
    ASSERT_TRUE(format.areRestsBounded());
    EXPECT_EQ(format.scales, Fragments::Scales::F16);
    for (float rest : {0x1.8p-100F, -0.3F, 1.0F, 0x1.fffp90F}) {
      int64_t exponent = std::ilogb(rest) + 127;
      int64_t largest = exponent - format.getRestRoom();
      int64_t excess = largest - format.getLargestExponent();
      ASSERT_GE(excess, format.getLeastExcess());
      double kept = format.decodeRest(format.encodeRest(rest, excess));
      EXPECT_LT(std::fabs(kept), 0x1p15 + 1);
      EXPECT_NEAR(std::ldexp(kept, int(excess)), rest,
                  std::ldexp(std::fabs(rest), -11));
    }
    double most = std::ldexp(double(format.getLargestCode()),
                             int(format.getLargestExponent()) + 1 - 127);
    EXPECT_LT(most, 1);
  }
  EXPECT_FALSE(Fragments(Fragments::getQuant(minima[0], Packing::Fragments))
                   .areRestsBounded());
}

/// Every number of e2m1 and of e4m3 is an f16 of few bits, wherever a pair has
/// them, and a product with a scale is exact down to 2^-24.
TEST_F(FragmentsTest, FloatsAreHalves) {
  constexpr double numbers[] = {0, .5, 1, 1.5, 2, 3, 4, 6};
  constexpr int64_t distances[4][2] = {{0, 0}, {3, 3}, {2, 6}, {1, 9}};
  auto toHalf = [](int64_t bits) {
    return APFloat(APFloat::IEEEhalf(), APInt(16, bits)).convertToDouble();
  };
  Fragments format(floats[0]);
  for (int64_t pair = 0; pair < 4; ++pair) {
    auto places = format.getPairBits(pair, /*code=*/0);
    for (int64_t code = 0; code < 16; ++code) {
      int64_t bits = 0;
      for (auto [n, from] : llvm::enumerate(places))
        bits |= (code >> (3 - n) & 1) << (from + distances[pair][n > 0]);
      EXPECT_EQ(std::ldexp(toHalf(bits), int(format.getExponent(0))),
                numbers[code % 8] * (code < 8 ? 1 : -1));
    }
  }
  for (int64_t down = 0; down < 40; ++down) {
    // An exponent of a row whose largest scale is the largest that is kept.
    int64_t exponent = format.getLargestExponent() - down;
    int64_t bits = (exponent + format.getExponent(0)) << format.getDigits();
    if (bits < format.getLeastKept(0) << format.getDigits())
      bits = 0;
    double scale = format.decodeScale(format.encodeScale(bits));
    EXPECT_EQ(scale, down < 30 ? std::ldexp(1.0, int(15 - down)) : 0);
  }
  EXPECT_EQ(std::ldexp(1.0, int(15 - format.getExponent(0))), 2);
}

/// Pair by pair, codes of a book select the bytes of a register; they stand for
/// bf16, and a scale leaves room for the largest.
TEST_F(FragmentsTest, BooksAreLookedUp) {
  Fragments format(Fragments::getQuant(books[0], Packing::Fragments));
  for (int64_t pair = 0; pair < 4; ++pair)
    for (int64_t code : {0, 1}) {
      auto bits = format.getPairBits(pair, code);
      EXPECT_EQ(bits.size(), 4u);
      EXPECT_EQ(bits.back(), 8 * pair + 4 * code);
      EXPECT_EQ(bits.front(), 8 * pair + 4 * code + 3);
    }
  for (auto [number, exact] : llvm::zip(*format.book, kNF4)) {
    EXPECT_EQ(llvm::bit_cast<uint32_t>(number) & 0xFFFF, 0u);
    EXPECT_NEAR(number, exact, std::ldexp(std::fabs(exact), -8));
  }
  EXPECT_EQ(format.findZero(), 7);
  EXPECT_EQ(format.getLargestExponent(), 253);
  Type book = CodeBookType::get(
      &context, DenseF32ArrayAttr::get(&context, {1, 2, 3, 4, 5, 6, 7, 8, 1, 2,
                                                  3, 4, 5, 6, 7, -8}));
  Fragments other(Fragments::getQuant(
      makeQuant(book, Float32Type::get(&context), 32), Packing::Fragments));
  EXPECT_EQ(other.findZero(), std::nullopt);
  EXPECT_EQ(other.getLargestExponent(), 250);
}

/// A block's runs are of gate and of up where these are halves.
TEST_F(FragmentsTest, BlocksKeepTheirMemory) {
  EXPECT_EQ(Fragments::getRunRow(1, 1, kRows, layouts[0]), 96);
  EXPECT_EQ(Fragments::getRunRow(1, 1, kRows, layouts[1]), 128 + 32);
  EXPECT_EQ(Fragments::getRunRow(1, 1, kRows, layouts[3]), 96);
}

TEST_F(FragmentsTest, RefusesWhatIsNoWholeUnits) {
  EXPECT_EQ(Fragments::whyNot(128, 64), "");
  EXPECT_EQ(Fragments::whyNot(64, 16448), "");
  EXPECT_EQ(Fragments::whyNot(128, 96), "K = 96 is no multiple of 64");
  EXPECT_EQ(Fragments::whyNot(96, 128), "N = 96 is no multiple of 64");
}
