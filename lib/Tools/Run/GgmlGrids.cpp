//===- GgmlGrids.cpp - dequantizes blocks of ggml's grids -----------------===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Blocks of 256 elements whose codes are numbers of points: a point has the
// magnitudes, or for iq1 the values, of 8 or 4 elements.
//
// Sources: the block structures of ggml-common.h, gguf/quants.py. Names of
// fields are theirs: d is the scale of a block, qs and qh are the lower and
// higher bits of codes.
//
//===----------------------------------------------------------------------===//

#include "ConvertElements.h"
#include "GgmlBlocks.h"

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/bit.h"
#include "llvm/Support/Endian.h"

using namespace moec;
using llvm::support::endian::read16le;
using llvm::support::endian::read32le;

namespace {

#include "GgmlGrids.inc"

constexpr int kGridElements = 256;
/// Elements with signs of their own in one byte.
constexpr int kPointRun = 8;

float readGridScale(const void *bytes) {
  float value = 0;
  convertElement(static_cast<const uint8_t *>(bytes), moert::DType::F16,
                 reinterpret_cast<uint8_t *>(&value), moert::DType::F32);
  return value;
}

/// Writes the elements of a point: the digits of `number` to base
/// `values.size()`, rounded up to a power of two, are indices into `values`.
template <size_t numValues>
void writePoint(unsigned number, const float (&values)[numValues], float scale,
                unsigned signs, float shift, float *elements) {
  constexpr int bits = numValues > 4 ? 3 : 2;
  constexpr int count = numValues > 4 ? 4 : 8;
  for (int i = 0; i < count; ++i) {
    float value =
        scale * (values[number >> (bits * i) & ((1U << bits) - 1)] + shift);
    elements[i] = signs >> i & 1 ? -value : value;
  }
}

constexpr float kTwoSizes[] = {8, 25, 43};
constexpr float kThreeSizes[] = {4, 12, 20, 28, 36, 44, 52, 62};
constexpr float kOddSizes[] = {1, 3, 5, 7, 9, 11, 13, 15};
constexpr float kSigned[] = {-1, 0, 1};

/// Seven signs, and an eighth with which their number is even.
unsigned completeSigns(unsigned seven) {
  return seven | unsigned(llvm::popcount(seven) % 2) << 7;
}

/// Nibble `i`, the low one of a byte first.
unsigned getNibbleOf(const uint8_t *bytes, int i) {
  return bytes[i / 2] >> (i % 2 * 4) & 15;
}

/// Scales of iq2 and iq3_xxs are multiples of a half.
float getHalfSteps(float d, unsigned scale, float factor) {
  return d * (0.5F + float(scale)) * factor;
}

void decodeTwoXxs(const uint8_t *block, float *elements) {
  float d = readGridScale(block);
  for (int run = 0; run < kGridElements / kPointRun; ++run) {
    const uint8_t *group = block + 2 + run / 4 * 8;
    uint32_t word = read32le(group + 4);
    writePoint(kTwoXxs[group[run % 4]], kTwoSizes,
               getHalfSteps(d, word >> 28, 0.25F),
               completeSigns(word >> (run % 4 * 7) & 127), 0,
               elements + run * kPointRun);
  }
}

void decodeTwoXs(const uint8_t *block, float *elements) {
  float d = readGridScale(block);
  for (int run = 0; run < kGridElements / kPointRun; ++run) {
    unsigned code = read16le(block + 2 + run * 2);
    writePoint(kTwoXs[code & 511], kTwoSizes,
               getHalfSteps(d, getNibbleOf(block + 66, run / 2), 0.25F),
               completeSigns(code >> 9), 0, elements + run * kPointRun);
  }
}

void decodeTwoS(const uint8_t *block, float *elements) {
  float d = readGridScale(block);
  const uint8_t *qs = block + 2, *signs = block + 34, *qh = block + 66;
  for (int run = 0; run < kGridElements / kPointRun; ++run) {
    unsigned code = qs[run] | (qh[run / 4] >> (run % 4 * 2) & 3) << 8;
    writePoint(kTwoS[code], kTwoSizes,
               getHalfSteps(d, getNibbleOf(block + 74, run / 2), 0.25F),
               signs[run], 0, elements + run * kPointRun);
  }
}

void decodeThreeXxs(const uint8_t *block, float *elements) {
  float d = readGridScale(block);
  const uint8_t *qs = block + 2;
  for (int half = 0; half < kGridElements / 4; ++half) {
    int run = half / 2;
    uint32_t word = read32le(block + 66 + run / 4 * 4);
    unsigned signs = completeSigns(word >> (run % 4 * 7) & 127);
    writePoint(kThreeXxs[qs[half]], kThreeSizes,
               getHalfSteps(d, word >> 28, 0.5F), signs >> (half % 2 * 4), 0,
               elements + half * 4);
  }
}

void decodeThreeS(const uint8_t *block, float *elements) {
  float d = readGridScale(block);
  const uint8_t *qs = block + 2, *qh = block + 66, *signs = block + 74;
  for (int half = 0; half < kGridElements / 4; ++half) {
    unsigned code = qs[half] | (qh[half / 8] >> (half % 8) & 1) << 8;
    unsigned scale = getNibbleOf(block + 106, half / 8);
    writePoint(kThreeS[code], kOddSizes, d * float(1 + 2 * scale),
               getNibbleOf(signs, half), 0, elements + half * 4);
  }
}

/// All values of a run of iq1 are moved by an eighth.
float getPointShift(bool isDown) { return isDown ? -0.125F : 0.125F; }

void decodeOneS(const uint8_t *block, float *elements) {
  float d = readGridScale(block);
  const uint8_t *qs = block + 2;
  for (int run = 0; run < kGridElements / kPointRun; ++run) {
    unsigned qh = read16le(block + 34 + run / 4 * 2);
    unsigned code = qs[run] | (qh >> (run % 4 * 3) & 7) << 8;
    writePoint(kOne[code], kSigned, d * float(2 * (qh >> 12 & 7) + 1), 0,
               getPointShift(qh >> 15), elements + run * kPointRun);
  }
}

/// The scale of a block has four bits in each word of the scales.
void decodeOneM(const uint8_t *block, float *elements) {
  const uint8_t *qs = block, *qh = block + 32, *scales = block + 48;
  uint16_t half = 0;
  for (int i = 0; i < 4; ++i)
    half = uint16_t(half | read16le(scales + 2 * i) >> 12 << (4 * i));
  float d = readGridScale(&half);
  for (int run = 0; run < kGridElements / kPointRun; ++run) {
    unsigned high = getNibbleOf(qh, run);
    unsigned scale = read16le(scales + run / 8 * 2) >> (run % 8 / 2 * 3) & 7;
    writePoint(kOne[qs[run] | (high & 7) << 8], kSigned,
               d * float(2 * scale + 1), 0, getPointShift(high >> 3),
               elements + run * kPointRun);
  }
}

constexpr GgmlBlock kGridBlocks[] = {
    {"iq1_s", kGridElements, 50, decodeOneS},
    {"iq1_m", kGridElements, 56, decodeOneM},
    {"iq2_xxs", kGridElements, 66, decodeTwoXxs},
    {"iq2_xs", kGridElements, 74, decodeTwoXs},
    {"iq2_s", kGridElements, 82, decodeTwoS},
    {"iq3_xxs", kGridElements, 98, decodeThreeXxs},
    {"iq3_s", kGridElements, 110, decodeThreeS},
};

} // namespace

llvm::ArrayRef<GgmlBlock> moec::getGgmlGridBlocks() { return kGridBlocks; }
