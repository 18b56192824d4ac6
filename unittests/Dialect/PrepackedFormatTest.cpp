//===- PrepackedFormatTest.cpp - prepacked weights --------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/Dialect/Moe/PackedValues.h"
#include "moec/Dialect/Moe/Prepacking.h"
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

class PrepackedFormatTest : public ::testing::Test {
protected:
  PrepackedFormatTest() {
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
    halves = {
        getPrepacked(makeQuant(i4, f16, 128), Packing::Prepacked),
        getPrepacked(makeQuant(i4, f16, 128, true), Packing::PrepackedF16)};
    bytes = {makeQuant(i8, bf16, 64), makeQuant(e4m3, f32, 128),
             getPrepacked(makeQuant(e4m3, f32, 0), Packing::PrepackedF16)};
    e4m3s = {getPrepacked(mxfp4, Packing::PrepackedE4M3),
             getPrepacked(makeQuant(i4, f32, 0), Packing::PrepackedE4M3),
             getPrepacked(makeQuant(e4m3, e8m0, 32), Packing::PrepackedE4M3),
             getPrepacked(makeQuant(i4, bf16, 32), Packing::PrepackedE4M3)};
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
      floats.push_back(getPrepacked(quant, Packing::PrepackedF16));
    llvm::append_range(quants, floats);
    Type nf4 = NF4Type::get(&context);
    books = {makeQuant(nf4, f32, 64), makeQuant(nf4, f16, 32),
             makeQuant(nf4, f32, 0)};
    llvm::append_range(quants, books);
    minima = {makeMinima(i4, f32, 32), makeMinima(i8, f16, 64),
              makeMinima(i8, bf16, 16)};
    llvm::append_range(quants, minima);
    for (QuantAttr quant : minima)
      quants.push_back(getPrepacked(quant, Packing::PrepackedF16));
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
  /// Scales of f16: of quantized values that become bf16, and f16. 8-bit
  /// values: int8, e4m3 that become bf16, and f16.
  std::vector<QuantAttr> halves, bytes, quants;
  /// e2m1 and int4 that become e4m3, e4m3 that is it, and int4 whose sums of a
  /// product are apart; code books; weights with minima; mxfp4, nvfp4 and mxfp8
  /// that become f16.
  std::vector<QuantAttr> e4m3s, books, minima, floats;
};

constexpr int64_t kRows = 256, kSizeK = 256;

/// The value of bf16 bits.
float toFloat(int64_t bits) {
  return llvm::bit_cast<float>(uint32_t(bits << 16));
}

} // namespace

/// The registers of a word take each of its bits once.
TEST(PackedFormatsTest, DecodingsTakeEachBitOnce) {
  for (const ValueFormat &format : getValueFormats()) {
    if (format.decoded == DecodedType::E4M3)
      continue;
    uint32_t seen = 0;
    for (int64_t pair = 0; pair < format.getWordRegisters(); ++pair)
      for (int64_t code : {0, 1})
        for (int64_t bit : format.getPairBits(pair, code)) {
          EXPECT_FALSE(seen >> bit & 1);
          seen |= 1U << bit;
        }
    EXPECT_EQ(seen, ~0U);
  }
}

TEST(PackedFormatsTest, RowsAreUnique) {
  std::set<std::pair<StoredValue, DecodedType>> values;
  for (const ValueFormat &format : getValueFormats()) {
    EXPECT_TRUE(values.insert({format.stored, format.decoded}).second);
    EXPECT_EQ(&getValueFormat(format.stored, format.decoded), &format);
  }
  std::set<std::pair<StoredScale, DecodedType>> scales;
  for (const ScaleFormat &format : getScaleFormats()) {
    EXPECT_TRUE(scales.insert({format.stored, format.decoded}).second);
    EXPECT_EQ(&getScaleFormat(format.stored, format.decoded), &format);
  }
}

/// Each bit of the memory that a matrix has in pairs is one of one element.
TEST_F(PrepackedFormatTest, CodesFillTheirMemory) {
  for (QuantAttr quant : {mxfp4, int4, bytes[0], bytes[1], bytes[2], e4m3s[0],
                          e4m3s[1], e4m3s[2], books[0], floats[0]})
    for (WeightLayoutAttr layout : layouts) {
      PrepackedFormat format(quant);
      int64_t storageBits = format.values.bits;
      // As many bits as there are, each seen once.
      std::vector<bool> seen(kRows * kSizeK * storageBits);
      for (int64_t row = 0; row < kRows; ++row)
        for (int64_t element = 0; element < kSizeK; ++element) {
          PrepackedFormat::Address address =
              format.getAddress(row, element, kRows, layout);
          int64_t first =
              address.firstRow * kSizeK * storageBits + address.word * 32;
          for (int64_t bit : address.bits) {
            ASSERT_LT(size_t(first + bit), seen.size());
            ASSERT_FALSE(seen[first + bit]);
            seen[first + bit] = true;
          }
        }
      EXPECT_EQ(llvm::count(seen, false), 0);
    }
}

/// Each byte is of one scale, zero point or rest of a group within a packed
/// tile.
TEST_F(PrepackedFormatTest, ScalesFillTheirMemory) {
  for (QuantAttr quant : quants)
    for (WeightLayoutAttr layout : layouts) {
      PrepackedFormat format(quant);
      int64_t rowBytes = format.getRowBytes(kSizeK);
      std::set<int64_t> seen;
      for (int64_t row = 0; row < kRows; ++row)
        for (int64_t i = 0; i < kSizeK; i += format.group) {
          PrepackedFormat::ScaleAddress address =
              format.getScaleAddress(row, i, kRows, layout);
          int64_t first = address.firstRow * rowBytes;
          for (int64_t byte = 0; byte < format.scale.bytes; ++byte)
            seen.insert(first + address.byte + byte);
          for (int64_t byte = 0; byte < format.getZeroPointBytes(); ++byte)
            seen.insert(first + address.zeroPoint + byte);
          for (int64_t byte = 0; byte < format.getRestBytes(); ++byte)
            seen.insert(first + address.rest + byte);
        }
      EXPECT_EQ(int64_t(seen.size()), kRows * rowBytes);
      EXPECT_EQ(*seen.begin(), 0);
      EXPECT_EQ(*seen.rbegin(), kRows * rowBytes - 1);
    }
}

/// A thread's four words of a packed tile are the fragments that PTX gives it:
/// row 16 w + g and 8 on, columns 2 c and 8 on, of 16 of K each.
TEST_F(PrepackedFormatTest, WordsAreFragments) {
  for (int64_t thread : {0, 5, 37, 95, 127})
    for (int64_t product = 0; product < 4; ++product)
      for (int64_t pair = 0; pair < 4; ++pair) {
        int64_t warp = thread / 32, g = thread % 32 / 4, c = thread % 4;
        auto getAddress = [&](QuantAttr quant) {
          return PrepackedFormat(quant).getAddress(
              /*row=*/64 + 16 * warp + g + pair % 2 * 8,
              /*element=*/64 + 16 * product + 2 * c + pair / 2 * 8, kRows, {});
        };
        PrepackedFormat::Address address = getAddress(int4);
        EXPECT_EQ(address.firstRow, 64 + warp / 2 * 32);
        EXPECT_EQ(address.word, 256 + thread % 64 * 4 + product);
        EXPECT_EQ(address.bits[0], 4 * pair + 3);
        EXPECT_EQ(address.bits[3], 4 * pair);
        // 8-bit values have two words for a product, and two chunks.
        address = getAddress(bytes[0]);
        EXPECT_EQ(address.word, 512 + product / 2 * 256 + thread % 64 * 4 +
                                    product % 2 * 2 + pair / 2);
        EXPECT_EQ(address.bits[0], pair % 2 * 8 + 7);
        // Where bf16 has sign, exponent and mantissa, after a rotation by 4 and
        // a shift by 6 the other way.
        if (pair == 3)
          continue;
        constexpr int64_t distances[] = {0, 4, -6};
        address = getAddress(mxfp4);
        EXPECT_EQ(address.bits[0], 15 + distances[pair]);
        EXPECT_EQ(address.bits[1], 8 + distances[pair]);
        EXPECT_EQ(address.bits[3], 6 + distances[pair]);
      }
}

/// The same of e4m3: a register has four of K, and a word two registers
/// of a row.
TEST_F(PrepackedFormatTest, WordsAreFragmentsOfBytes) {
  for (int64_t thread : {0, 5, 37, 95, 127})
    for (int64_t product : {0, 1})
      for (int64_t i = 0; i < 4; ++i)
        for (int64_t code = 0; code < 4; ++code) {
          int64_t warp = thread / 32, g = thread % 32 / 4, c = thread % 4;
          auto getAddress = [&](QuantAttr quant) {
            return PrepackedFormat(quant).getAddress(
                /*row=*/64 + 16 * warp + g + i % 2 * 8,
                /*element=*/64 + 32 * product + 16 * (i / 2) + 4 * c + code,
                kRows, {});
          };
          PrepackedFormat::Address address = getAddress(e4m3s[0]);
          EXPECT_EQ(address.firstRow, 64 + warp / 2 * 32);
          EXPECT_EQ(address.word, 256 + thread % 64 * 4 + 2 * product + i % 2);
          // A nibble that selects, and a sign that a shift by 4 takes there.
          EXPECT_EQ(address.bits[0], 8 * code + (i / 2 ? 3 : 7));
          EXPECT_EQ(address.bits[3], 16 * (i / 2) + 4 * code);
          // The lowest bits and the sign of a byte, after a rotation by 4.
          address = getAddress(e4m3s[1]);
          EXPECT_EQ(address.bits[3], 8 * code + 4 * (i / 2));
          EXPECT_EQ((address.bits[0] + 32 - 4 * (i / 2)) % 32, 8 * code + 7);
          // A byte of a register that a product takes, of two chunks.
          address = getAddress(e4m3s[2]);
          EXPECT_EQ(address.word,
                    512 + product * 256 + thread % 64 * 4 + i % 2 * 2 + i / 2);
          EXPECT_EQ(address.bits[0], 8 * code + 7);
          EXPECT_EQ(address.bits[7], 8 * code);
        }
}

/// Each number of e2m1 with each step is an e4m3: as many more in its bits as
/// the step is kept as, but for 0.
TEST_F(PrepackedFormatTest, StepsAreExact) {
  PrepackedFormat format(e4m3s[0]);
  constexpr double numbers[] = {0, .5, 1, 1.5, 2, 3, 4, 6};
  constexpr int64_t least[] = {0, 0x08, 0x10, 0x14, 0x18, 0x1C, 0x20, 0x24};
  for (int64_t exponent = kLeastStep; exponent <= kMostStep; ++exponent) {
    int64_t kept = encodeScale(format.scale, exponent << format.scale.digits);
    EXPECT_EQ(kept, 8 * (exponent - kLeastStep));
    EXPECT_EQ(decodeScale(format.scale, kept),
              std::ldexp(1.0, int(exponent - 127)));
    for (int64_t code = 0; code < 8; ++code) {
      APFloat number(APFloat::Float8E4M3FN(),
                     APInt(8, code ? least[code] + kept : 0));
      EXPECT_EQ(number.convertToDouble(),
                numbers[code] * decodeScale(format.scale, kept));
    }
  }
}

/// Quantized values with less than the lowest step become the nearest, of two
/// the even.
TEST_F(PrepackedFormatTest, SmallGroupsAreRounded) {
  constexpr double numbers[] = {0, .5, 1, 1.5, 2, 3, 4, 6};
  for (int64_t by = -1; by < 8; ++by)
    for (int64_t code = 0; code < 16; ++code) {
      APFloat number(
          std::ldexp(numbers[code % 8], -int(std::max<int64_t>(by, 0))));
      bool losesInfo;
      number.convert(APFloat::Float4E2M1FN(), APFloat::rmNearestTiesToEven,
                     &losesInfo);
      auto expected = int64_t(number.bitcastToAPInt().getZExtValue());
      EXPECT_EQ(weaken(code, by), expected | (code & 8))
          << code << " by " << by;
    }
}

/// An int4 is a sign and a magnitude that a negative one has one less of.
TEST_F(PrepackedFormatTest, NibblesAreBytes) {
  PrepackedFormat format(e4m3s[1]);
  for (int64_t code = 0; code < 16; ++code) {
    int64_t kept = toKept(format, code);
    EXPECT_EQ(fromKept(format.values, kept), code);
    int64_t byte = (kept & 8) << 4 | ((kept & 7) + (kept >> 3));
    APFloat number(APFloat::Float8E4M3FN(), APInt(8, byte));
    EXPECT_EQ(std::ldexp(number.convertToDouble(),
                         int(format.values.getExponent(/*tileRow=*/0))),
              double(code - 8));
  }
}

/// Quantized values of e4m3 have turned signs, and the scale of a product's
/// sums is a power of two, of which the largest of a row leaves room for
/// others.
TEST_F(PrepackedFormatTest, SumsOfProductsHaveScales) {
  PrepackedFormat format(e4m3s[2]);
  EXPECT_TRUE(format.areScalesOfSums());
  EXPECT_EQ(toKept(format, 0x3A), 0xBA);
  EXPECT_EQ(format.getGroups(), 2);
  EXPECT_EQ(format.getQuadBytes(), 4);
  EXPECT_EQ(format.values.getExponent(/*tileRow=*/8), 0);
  for (int64_t largest : {0, 127, 254}) {
    int64_t excess = std::max(largest - format.getLargestExponent(),
                              format.scale.leastExcess);
    int64_t kept = largest - excess;
    EXPECT_GE(kept, 126);
    EXPECT_LT(kept, 255);
    EXPECT_EQ(
        decodeScale(format.scale,
                    encodeScale(format.scale, kept << format.scale.digits)),
        std::ldexp(1.0, int(kept - 127)));
  }
  EXPECT_EQ(PrepackedFormat(e4m3s[3]).getQuadBytes(), 8);
}

/// A nibble of a word, alone in its half or after a shift by 8, is a bf16 less
/// than its number by the exponent of its row; so is a zero point.
TEST_F(PrepackedFormatTest, NibblesAreNumbers) {
  PrepackedFormat format(int4);
  for (int64_t tileRow : {0, 8})
    for (int64_t code = 0; code < 16; ++code) {
      auto expected =
          float(std::ldexp(code, -format.values.getExponent(tileRow)));
      EXPECT_EQ(toFloat(tileRow ? code << 4 : code), expected);
      EXPECT_EQ(toFloat(encodeZeroPoint(format.values, code, tileRow)),
                expected);
    }
  EXPECT_EQ(toFloat(encodeZeroPoint(format.values, 255, 8)),
            float(std::ldexp(255, -129)));
}

/// A code of 8 bits is a bf16 or f16 less than its number, wherever it lies:
/// bits of e4m3 where the first pair has them.
TEST_F(PrepackedFormatTest, BytesAreNumbers) {
  PrepackedFormat integers(bytes[0]);
  for (int64_t code = 0; code < 256; ++code)
    EXPECT_EQ(
        toFloat(code),
        float(std::ldexp(code, -integers.values.getExponent(/*tileRow=*/8))));
  for (QuantAttr quant : {bytes[1], bytes[2]}) {
    PrepackedFormat format(quant);
    bool hasF16 = format.values.decoded == DecodedType::F16;
    for (int64_t code = 0; code < 256; ++code) {
      if (code % 128 == 127)
        continue;
      int64_t bits = 0;
      for (auto [n, to] :
           llvm::enumerate(format.values.getPairBits(/*pair=*/0, /*code=*/0)))
        bits |= (code >> (7 - n) & 1) << to;
      APFloat number(APFloat::Float8E4M3FN(), APInt(8, code));
      APFloat moved(hasF16 ? APFloat::IEEEhalf() : APFloat::BFloat(),
                    APInt(16, bits));
      EXPECT_EQ(std::ldexp(moved.convertToDouble(),
                           int(format.values.getExponent(/*tileRow=*/0))),
                number.convertToDouble());
    }
  }
}

/// The same of an f16.
TEST_F(PrepackedFormatTest, NibblesAreHalves) {
  PrepackedFormat format(halves[1]);
  auto toHalf = [](int64_t bits) {
    return APFloat(APFloat::IEEEhalf(), APInt(16, bits)).convertToDouble();
  };
  for (int64_t tileRow : {0, 8}) {
    for (int64_t code = 0; code < 16; ++code)
      EXPECT_EQ(toHalf(tileRow ? code << 4 : code),
                std::ldexp(code, -int(format.values.getExponent(tileRow))));
    for (int64_t zeroPoint = 0; zeroPoint < 256; ++zeroPoint)
      EXPECT_EQ(
          decodeZeroPoint(format.values,
                          encodeZeroPoint(format.values, zeroPoint, tileRow),
                          tileRow),
          double(zeroPoint));
  }
  EXPECT_EQ(toHalf(encodeZeroPoint(format.values, 255, 8)),
            std::ldexp(255, -20));
}

/// Every e4m3 is kept exactly, whatever the largest of its row.
TEST_F(PrepackedFormatTest, ScalesAreKeptExactly) {
  for (QuantAttr quant : {nvfp4, floats[1]}) {
    PrepackedFormat format(quant);
    for (int64_t excess = 0; excess < 8; ++excess)
      for (int64_t code = 1; code < 0x7F; ++code) {
        APFloat scale(APFloat::Float8E4M3FN(), APInt(8, code));
        auto number = std::ldexp(double(scale.convertToFloat()),
                                 int(format.values.getExponent(0) - excess));
        int64_t bits = llvm::bit_cast<uint32_t>(float(number)) >> 16;
        if (excess < 7 && bits > format.scale.getLargestKept())
          continue;
        EXPECT_EQ(decodeScale(format.scale, encodeScale(format.scale, bits)),
                  toFloat(bits));
        EXPECT_LT(encodeScale(format.scale, bits), 256);
      }
  }
}

/// Every f16 is kept exactly, beside a largest one that is up to 2^15 times as
/// large.
TEST_F(PrepackedFormatTest, HalvesAreKeptExactly) {
  for (QuantAttr quant : halves) {
    PrepackedFormat format(quant);
    int64_t digits = format.scale.digits;
    for (int64_t code = 1; code < 0x7C00; ++code) {
      APFloat scale(APFloat::IEEEhalf(), APInt(16, code));
      double number = scale.convertToDouble();
      int64_t bits = llvm::bit_cast<uint32_t>(float(number)) >> (23 - digits);
      for (int64_t larger : {0, 15}) {
        int64_t excess =
            (bits >> digits) + larger - format.getLargestExponent();
        ASSERT_GE(excess, format.scale.leastExcess);
        int64_t shift = format.values.getExponent(/*tileRow=*/0) - excess;
        int64_t kept = bits + shift * (1 << digits);
        ASSERT_GE(kept, format.getLeastKept(0) << digits);
        ASSERT_LE(kept, format.scale.getLargestKept());
        EXPECT_EQ(decodeScale(format.scale, encodeScale(format.scale, kept)),
                  std::ldexp(number, int(shift)));
        EXPECT_LT(encodeScale(format.scale, kept), 0x7C00);
      }
    }
    EXPECT_EQ(encodeScale(format.scale, 0), 0);
    EXPECT_EQ(decodeScale(format.scale, 0), 0);
  }
}

TEST_F(PrepackedFormatTest, RefusesOtherFormats) {
  constexpr Packing packing = Packing::Prepacked, other = Packing::PrepackedF16;
  EXPECT_EQ(whyNotPrepacked(mxfp4, packing), "");
  EXPECT_EQ(whyNotPrepacked(nvfp4, packing), "");
  EXPECT_EQ(whyNotPrepacked(mxfp4, other), "");
  EXPECT_EQ(whyNotPrepacked(nvfp4, other), "");
  EXPECT_EQ(whyNotPrepacked(int4, Packing::Pairs),
            "'pairs' is not a prepacked layout; 'prepacked', 'prepacked_f16' "
            "and 'prepacked_e4m3' are");
  EXPECT_EQ(whyNotPrepacked(nvfp4, Packing::PrepackedE4M3),
            "e4m3 represents f4E2M1FN with f8E8M0FNU scales in groups of 32; "
            "i4 without zero points and minima, and f8E4M3FN, need scales in "
            "groups of 32 or of a multiple of 64");
  Type i4 = IntegerType::get(&context, 4), f32 = Float32Type::get(&context);
  Type f16 = Float16Type::get(&context), bf16 = BFloat16Type::get(&context);
  for (Packing either : {packing, other}) {
    EXPECT_EQ(whyNotPrepacked(makeQuant(i4, f32, 128, true), either), "");
    EXPECT_EQ(whyNotPrepacked(makeQuant(i4, mxfp4.getScale(), 32), either),
              "i4 needs scales of f32, bf16 or f16, not f8E8M0FNU");
    EXPECT_EQ(whyNotPrepacked(makeQuant(i4, f16, 0), either), "");
    EXPECT_EQ(whyNotPrepacked(makeQuant(i4, f16, 128), either), "");
    EXPECT_EQ(whyNotPrepacked(makeQuant(i4, bf16, 16), either),
              "i4 needs scales per row, in groups of 32 or in groups of a "
              "multiple of 64");
    EXPECT_EQ(whyNotPrepacked(
                  makeQuant(IntegerType::get(&context, 8), bf16, 48), either),
              "i8 needs scales per row, in groups of 16, 32 or in groups of a "
              "multiple of 64");
    EXPECT_EQ(whyNotPrepacked(makeQuant(i4, bf16, 96), either),
              "i4 needs scales per row, in groups of 32 or in groups of a "
              "multiple of 64");
  }
  EXPECT_EQ(whyNotPrepacked(makeQuant(mxfp4.getStorage(), mxfp4.getScale(), 64),
                            packing),
            "f4E2M1FN needs f8E8M0FNU scales in groups of 32 or f8E4M3FN "
            "scales in groups of 16");
}

/// Minima and code books can be prepacked for bf16 and f16.
TEST_F(PrepackedFormatTest, KnowsMinimaAndBooks) {
  for (QuantAttr quant : minima) {
    EXPECT_EQ(whyNotPrepacked(quant, Packing::Prepacked), "");
    EXPECT_EQ(whyNotPrepacked(quant, Packing::PrepackedF16), "");
    EXPECT_NE(whyNotPrepacked(quant, Packing::PrepackedE4M3), "");
  }
  for (QuantAttr quant : books) {
    EXPECT_EQ(whyNotPrepacked(quant, Packing::Prepacked), "");
    EXPECT_EQ(whyNotPrepacked(quant, Packing::PrepackedF16), "");
    EXPECT_NE(whyNotPrepacked(quant, Packing::PrepackedE4M3), "");
  }
  EXPECT_EQ(whyNotPrepacked(makeMinima(IntegerType::get(&context, 4),
                                       BFloat16Type::get(&context), 16),
                            Packing::Prepacked),
            "i4 needs scales per row, in groups of 32 or in groups of a "
            "multiple of 64");
}

/// A code less the zero point that stands for a minimum, times the scale, and
/// the rest are its number but for the rest's rounding, which is less than the
/// weight's own.
TEST_F(PrepackedFormatTest, MinimaAreZeroPointsAndRests) {
  for (QuantAttr quant : minima) {
    PrepackedFormat format(getPrepacked(quant, Packing::Prepacked));
    ASSERT_TRUE(format.hasMinima && format.hasZeroPoints);
    EXPECT_EQ(format.scale.stored, StoredScale::F32);
    for (float scale : {0.0F, 1.0F, 0.0137F, -0.25F})
      for (float minimum : {0.0F, 0.031F, 0.11F, 1.49F, -0.7F, 99.0F}) {
        auto [zero, rest] =
            splitMinimum(format.values, scale, minimum, /*isOfZeros=*/false);
        ASSERT_GE(zero, 0);
        ASSERT_LE(zero, format.values.getLargest());
        for (int64_t excess : {0, 7, 40}) {
          double kept = std::ldexp(
              decodeFloat(format.values.decoded,
                          encodeRest(format.values.decoded, rest, excess)),
              int(excess));
          for (int64_t code : {int64_t(0), zero, format.values.getLargest()}) {
            double number =
                double(code - format.values.zeroCode) * scale - minimum;
            double made = double(code - zero) * scale + kept;
            EXPECT_NEAR(made, number,
                        std::ldexp(std::max(std::fabs(number),
                                            std::fabs(double(scale)) / 2),
                                   -8))
                << scale << ", " << minimum << ", " << code;
          }
        }
      }
    auto [zero, rest] =
        splitMinimum(format.values, 3e38F, 0.5F, /*isOfZeros=*/true);
    EXPECT_EQ(zero, format.values.zeroCode);
    EXPECT_EQ(rest, -0.5F);
    // No f32 has 2^-130 as a normal number.
    EXPECT_EQ(decodeFloat(format.values.decoded,
                          encodeRest(format.values.decoded, 0x1.8p120F, 130)),
              std::ldexp(1.5, -10));
  }
}

/// By f16 a row's r leaves room for its rests, beside which a code's product
/// with its scale is less than 1.
TEST_F(PrepackedFormatTest, RestsAreHalves) {
  for (QuantAttr quant : minima) {
    PrepackedFormat format(getPrepacked(quant, Packing::PrepackedF16));
    ASSERT_TRUE(format.areRestsBounded());
    EXPECT_EQ(format.scale.stored, StoredScale::F16);
    for (float rest : {0x1.8p-100F, -0.3F, 1.0F, 0x1.fffp90F}) {
      int64_t exponent = std::ilogb(rest) + 127;
      int64_t largest = exponent - format.getRestHeadroom();
      int64_t excess = largest - format.getLargestExponent();
      ASSERT_GE(excess, format.scale.leastExcess);
      double kept =
          decodeFloat(format.values.decoded,
                      encodeRest(format.values.decoded, rest, excess));
      EXPECT_LT(std::fabs(kept), 0x1p15 + 1);
      EXPECT_NEAR(std::ldexp(kept, int(excess)), rest,
                  std::ldexp(std::fabs(rest), -11));
    }
    double most = std::ldexp(double(format.values.getLargest()),
                             int(format.getLargestExponent()) + 1 - 127);
    EXPECT_LT(most, 1);
  }
  EXPECT_FALSE(PrepackedFormat(getPrepacked(minima[0], Packing::Prepacked))
                   .areRestsBounded());
}

/// Every number of e2m1 and of e4m3 is an f16 of few bits, wherever a pair has
/// them, and a product with a scale is exact down to 2^-24.
TEST_F(PrepackedFormatTest, FloatsAreHalves) {
  constexpr double numbers[] = {0, .5, 1, 1.5, 2, 3, 4, 6};
  constexpr int64_t distances[4][2] = {{0, 0}, {3, 3}, {2, 6}, {1, 9}};
  auto toHalf = [](int64_t bits) {
    return APFloat(APFloat::IEEEhalf(), APInt(16, bits)).convertToDouble();
  };
  PrepackedFormat format(floats[0]);
  for (int64_t pair = 0; pair < 4; ++pair) {
    auto places = format.values.getPairBits(pair, /*code=*/0);
    for (int64_t code = 0; code < 16; ++code) {
      int64_t bits = 0;
      for (auto [n, from] : llvm::enumerate(places))
        bits |= (code >> (3 - n) & 1) << (from + distances[pair][n > 0]);
      EXPECT_EQ(std::ldexp(toHalf(bits), int(format.values.getExponent(0))),
                numbers[code % 8] * (code < 8 ? 1 : -1));
    }
  }
  for (int64_t down = 0; down < 40; ++down) {
    // An exponent of a row whose largest scale is the largest that is kept.
    int64_t exponent = format.getLargestExponent() - down;
    int64_t bits = (exponent + format.values.getExponent(0))
                   << format.scale.digits;
    if (bits < format.getLeastKept(0) << format.scale.digits)
      bits = 0;
    double scale = decodeScale(format.scale, encodeScale(format.scale, bits));
    EXPECT_EQ(scale, down < 30 ? std::ldexp(1.0, int(15 - down)) : 0);
  }
  EXPECT_EQ(std::ldexp(1.0, int(15 - format.values.getExponent(0))), 2);
}

/// Pair by pair, quantized values of a book select the bytes of a register;
/// they stand for bf16, and a scale leaves room for the largest.
TEST_F(PrepackedFormatTest, BooksAreLookedUp) {
  PrepackedFormat format(getPrepacked(books[0], Packing::Prepacked));
  for (int64_t pair = 0; pair < 4; ++pair)
    for (int64_t code : {0, 1}) {
      auto bits = format.values.getPairBits(pair, code);
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
  PrepackedFormat other(getPrepacked(
      makeQuant(book, Float32Type::get(&context), 32), Packing::Prepacked));
  EXPECT_EQ(other.findZero(), std::nullopt);
  EXPECT_EQ(other.getLargestExponent(), 250);
}

/// A block's runs are of gate and of up where these are halves.
TEST_F(PrepackedFormatTest, BlocksKeepTheirMemory) {
  EXPECT_EQ(PrepackedFormat::getHalfRow(1, 1, kRows, layouts[0]), 96);
  EXPECT_EQ(PrepackedFormat::getHalfRow(1, 1, kRows, layouts[1]), 128 + 32);
  EXPECT_EQ(PrepackedFormat::getHalfRow(1, 1, kRows, layouts[3]), 96);
}

TEST_F(PrepackedFormatTest, RefusesSizesThatAreNoWholePackedTiles) {
  EXPECT_EQ(whyNotPrepacked(128, 64), "");
  EXPECT_EQ(whyNotPrepacked(64, 16448), "");
  EXPECT_EQ(whyNotPrepacked(128, 96), "K = 96 is not a multiple of 64");
  EXPECT_EQ(whyNotPrepacked(96, 128), "N = 96 is not a multiple of 64");
}
