//===- GgmlBlocks.cpp - dequantizes blocks of ggml ------------------------===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Sources: the block structures of ggml-common.h, gguf/quants.py. Names of
// fields are theirs: d and m are the scale and the minimum, q the quantized
// values, qs and qh their lower and higher bits.
//
//===----------------------------------------------------------------------===//

#include "GgmlBlocks.h"

#include "ConvertElements.h"

#include <cmath>
#include <cstring>

using namespace moec;

namespace {

float readHalf(const uint8_t *bytes) {
  float value = 0;
  convertElement(bytes, moert::DType::F16, reinterpret_cast<uint8_t *>(&value),
                 moert::DType::F32);
  return value;
}

/// The 4 bits of element `i` of `count`: the first half of the elements is in
/// the low halves of bytes.
int getNibble(const uint8_t *qs, int i, int count) {
  return i < count / 2 ? qs[i] & 15 : qs[i - count / 2] >> 4;
}

constexpr int kSmall = 32;
constexpr int kLarge = 256;

/// q4_0, q4_1, q5_0 and q5_1: scale, minimum, fifth bits, nibbles.
template <bool hasMinimum, bool hasFive>
void decodeSmall(const uint8_t *block, float *elements) {
  float d = readHalf(block), m = hasMinimum ? readHalf(block + 2) : 0;
  const uint8_t *qh = block + (hasMinimum ? 4 : 2);
  const uint8_t *qs = qh + (hasFive ? 4 : 0);
  constexpr int middle = hasMinimum ? 0 : hasFive ? 16 : 8;
  for (int i = 0; i < kSmall; ++i) {
    int q = getNibble(qs, i, kSmall);
    if (hasFive)
      q |= (qh[i / 8] >> (i % 8) & 1) << 4;
    elements[i] = d * float(q - middle) + m;
  }
}

void decodeBytes(const uint8_t *block, float *elements) {
  float d = readHalf(block);
  for (int i = 0; i < kSmall; ++i)
    elements[i] = d * float(int8_t(block[2 + i]));
}

constexpr int8_t kNonLinear[] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                 1,    13,   25,  38,  53,  69,  89,  113};

void decodeNonLinear(const uint8_t *block, float *elements) {
  float d = readHalf(block);
  for (int i = 0; i < kSmall; ++i)
    elements[i] = d * float(kNonLinear[getNibble(block + 2, i, kSmall)]);
}

void decodeNonLinearLarge(const uint8_t *block, float *elements) {
  float d = readHalf(block);
  int high = block[2] | block[3] << 8;
  const uint8_t *low = block + 4, *qs = block + 8;
  for (int group = 0; group < kLarge / kSmall; ++group) {
    int scale = (low[group / 2] >> (4 * (group % 2)) & 15) |
                (high >> (2 * group) & 3) << 4;
    for (int i = 0; i < kSmall; ++i)
      elements[group * kSmall + i] =
          d * float(scale - 32) *
          float(kNonLinear[getNibble(qs + group * 16, i, kSmall)]);
  }
}

void decodeMx(const uint8_t *block, float *elements) {
  constexpr float sizes[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  constexpr int bias = 127;
  for (int i = 0; i < kSmall; ++i) {
    int q = getNibble(block + 1, i, kSmall);
    elements[i] =
        std::ldexp(q & 8 ? -sizes[q & 7] : sizes[q & 7], int(block[0]) - bias);
  }
}

/// nvfp4: four scales of e4m3, whose sign is not used, then the values in runs
/// of 16.
void decodeNv(const uint8_t *block, float *elements) {
  constexpr float sizes[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  constexpr int numScales = 4, run = 16;
  for (int group = 0; group < numScales; ++group) {
    // The code of NaN stands for 0.
    uint8_t code = block[group] & 0x7F;
    float d = 0;
    if (code != 0x7F)
      convertElement(&code, moert::DType::F8E4M3,
                     reinterpret_cast<uint8_t *>(&d), moert::DType::F32);
    for (int i = 0; i < run; ++i) {
      int q = getNibble(block + numScales + group * run / 2, i, run);
      elements[group * run + i] = d * (q & 8 ? -sizes[q & 7] : sizes[q & 7]);
    }
  }
}

/// q1_0: a scale, and a bit per element for its sign.
void decodeSigns(const uint8_t *block, float *elements) {
  constexpr int count = 128;
  float d = readHalf(block);
  for (int i = 0; i < count; ++i)
    elements[i] = block[2 + i / 8] >> (i % 8) & 1 ? d : -d;
}

/// Element `i` of the 2-bit fields of q2_K, q3_K and tq2_0: each 32 bytes have
/// four runs of 32 elements.
int getPair(const uint8_t *qs, int i) {
  return qs[i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3;
}

void decodeTwo(const uint8_t *block, float *elements) {
  const uint8_t *scales = block, *qs = block + 16;
  float d = readHalf(block + 80), m = readHalf(block + 82);
  for (int i = 0; i < kLarge; ++i) {
    uint8_t scale = scales[i / 16];
    elements[i] =
        d * float(scale & 15) * float(getPair(qs, i)) - m * float(scale >> 4);
  }
}

void decodeThree(const uint8_t *block, float *elements) {
  const uint8_t *mask = block, *qs = block + 32, *scales = block + 96;
  float d = readHalf(block + 108);
  for (int i = 0; i < kLarge; ++i) {
    int group = i / 16;
    int low = group < 8 ? scales[group] & 15 : scales[group - 8] >> 4;
    int scale = low | (scales[8 + group % 4] >> (group / 4 * 2) & 3) << 4;
    int q = getPair(qs, i) - (mask[i % 32] >> (i / 32) & 1 ? 0 : 4);
    elements[i] = d * float(scale - 32) * float(q);
  }
}

/// q4_K and q5_K: eight 6-bit scales and minima, then the values.
template <bool hasFive>
void decodeFour(const uint8_t *block, float *elements) {
  float d = readHalf(block), m = readHalf(block + 2);
  const uint8_t *s = block + 4, *qh = block + 16;
  const uint8_t *qs = qh + (hasFive ? 32 : 0);
  for (int i = 0; i < kLarge; ++i) {
    int group = i / kSmall;
    int scale = group < 4 ? s[group] & 63
                          : (s[group + 4] & 15) | (s[group - 4] >> 6) << 4;
    int minimum = group < 4 ? s[group + 4] & 63
                            : s[group + 4] >> 4 | (s[group] >> 6) << 4;
    int q = getNibble(qs + i / 64 * 32, i % 64, 64);
    if (hasFive)
      q |= (qh[i % 32] >> group & 1) << 4;
    elements[i] = d * float(scale) * float(q) - m * float(minimum);
  }
}

void decodeSix(const uint8_t *block, float *elements) {
  const uint8_t *ql = block, *qh = block + 128, *scales = block + 192;
  float d = readHalf(block + 208);
  for (int i = 0; i < kLarge; ++i) {
    int half = i / 128, run = i % 128 / 32;
    uint8_t low = ql[half * 64 + run % 2 * 32 + i % 32];
    int q = (run < 2 ? low & 15 : low >> 4) |
            (qh[half * 32 + i % 32] >> (2 * run) & 3) << 4;
    elements[i] = d * float(int8_t(scales[i / 16])) * float(q - 32);
  }
}

void decodeTernaryPairs(const uint8_t *block, float *elements) {
  float d = readHalf(block + 64);
  for (int i = 0; i < kLarge; ++i)
    elements[i] = d * float(getPair(block, i) - 1);
}

/// Five digits of base 3 in a byte, as a fraction: 3^n times it, modulo 1, has
/// digit n first.
void decodeTernary(const uint8_t *block, float *elements) {
  constexpr uint8_t powers[] = {1, 3, 9, 27, 81};
  float d = readHalf(block + 52);
  auto decode = [&](int firstByte, int numBytes, int digits) {
    for (int n = 0; n < digits; ++n)
      for (int i = 0; i < numBytes; ++i) {
        auto q = uint8_t(block[firstByte + i] * powers[n]);
        *elements++ = d * float((q * 3 >> 8) - 1);
      }
  };
  decode(0, 32, 5);
  decode(32, 16, 5);
  decode(48, 4, 4);
}

constexpr GgmlBlock kBlocks[] = {
    {"q4_0", kSmall, 18, decodeSmall<false, false>},
    {"q4_1", kSmall, 20, decodeSmall<true, false>},
    {"q5_0", kSmall, 22, decodeSmall<false, true>},
    {"q5_1", kSmall, 24, decodeSmall<true, true>},
    {"q8_0", kSmall, 34, decodeBytes},
    {"q2_K", kLarge, 84, decodeTwo},
    {"q3_K", kLarge, 110, decodeThree},
    {"q4_K", kLarge, 144, decodeFour<false>},
    {"q5_K", kLarge, 176, decodeFour<true>},
    {"q6_K", kLarge, 210, decodeSix},
    {"iq4_nl", kSmall, 18, decodeNonLinear},
    {"iq4_xs", kLarge, 136, decodeNonLinearLarge},
    {"tq1_0", kLarge, 54, decodeTernary},
    {"tq2_0", kLarge, 66, decodeTernaryPairs},
    {"mxfp4", kSmall, 17, decodeMx},
    {"nvfp4", 64, 36, decodeNv},
    {"q1_0", 128, 18, decodeSigns},
};

} // namespace

const GgmlBlock *moec::findGgmlBlock(llvm::StringRef name) {
  for (llvm::ArrayRef<GgmlBlock> blocks :
       {llvm::ArrayRef<GgmlBlock>(kBlocks), getGgmlGridBlocks()})
    for (const GgmlBlock &block : blocks)
      if (block.name == name)
        return &block;
  return nullptr;
}
