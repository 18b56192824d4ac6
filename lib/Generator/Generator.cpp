//===- Generator.cpp - pseudo-random tensors, by counter --------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/Generator/Generator.h"

#include "moec/Support/CpuClones.h"
#include "llvm/Support/ErrorHandling.h"

#include <cmath>
#include <cstring>

using namespace moec;
using moert::DType;

RandomStream::RandomStream(uint64_t seed, llvm::StringRef name) {
  // FNV-1a of the name.
  uint64_t hash = 0xCBF29CE484222325ull;
  for (unsigned char c : name)
    hash = (hash ^ c) * 0x100000001B3ull;
  key = mix(hash, seed);
}

float moec::getFactor(double deviation) {
  // Four uniform numbers of 2^16 values have the variance 4 (2^32 - 1) / 12.
  return static_cast<float>(deviation / std::sqrt(4294967295.0 / 3.0));
}

int32_t moec::getShift(double deviations) {
  return static_cast<int32_t>(
      std::lround(deviations * std::sqrt(4294967295.0 / 3.0)));
}

namespace {

MOEC_INLINE uint32_t toBits(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, 4);
  return bits;
}

MOEC_INLINE float toFloat(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}

// Each kind rounds a float, still as a float, and stores what it rounded. Plain
// arithmetic, which vectorizes.

struct AsF32 {
  using Storage = uint32_t;
  MOEC_INLINE static float round(float value) { return value; }
  MOEC_INLINE static uint32_t encode(float rounded) { return toBits(rounded); }
};

struct AsBF16 {
  using Storage = uint16_t;
  MOEC_INLINE static float round(float value) {
    uint32_t bits = toBits(value);
    return toFloat((bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000u);
  }
  MOEC_INLINE static uint16_t encode(float rounded) {
    return static_cast<uint16_t>(toBits(rounded) >> 16);
  }
};

struct AsF16 {
  using Storage = uint16_t;
  MOEC_INLINE static float round(float value) {
    uint32_t bits = toBits(value);
    float normal = toFloat((bits + 0xFFF + (bits >> 13 & 1)) & 0xFFFFE000u);
    // Below 2^-14 the values are the multiples of 2^-24, as those of floats
    // between 0.5 and 1.
    float subnormal = std::copysign((std::fabs(value) + 0.5f) - 0.5f, value);
    return std::fabs(value) < 0x1p-14f ? subnormal : normal;
  }
  MOEC_INLINE static uint16_t encode(float rounded) {
    uint32_t bits = toBits(rounded);
    auto sign = static_cast<uint16_t>(bits >> 16 & 0x8000);
    float size = std::fabs(rounded);
    uint32_t code = size < 0x1p-14f
                        ? static_cast<uint32_t>(size * 0x1p24f)
                        : ((bits & 0x7FFFFFFF) - (112u << 23)) >> 13;
    return static_cast<uint16_t>(sign | code);
  }
};

struct AsE4M3 {
  using Storage = uint8_t;
  MOEC_INLINE static float round(float value) {
    uint32_t bits = toBits(value);
    float normal = toFloat((bits + 0x7FFFF + (bits >> 20 & 1)) & 0xFFF00000u);
    // Below 2^-6 the values are the multiples of 2^-9, as those of floats next
    // to 2^14.
    float subnormal =
        std::copysign((std::fabs(value) + 0x1p14f) - 0x1p14f, value);
    return std::fabs(value) < 0x1p-6f ? subnormal : normal;
  }
  MOEC_INLINE static uint8_t encode(float rounded) {
    uint32_t bits = toBits(rounded);
    float size = std::fabs(rounded);
    uint32_t code = size < 0x1p-6f ? static_cast<uint32_t>(size * 0x1p9f)
                                   : ((bits & 0x7FFFFFFF) - (120u << 23)) >> 20;
    return static_cast<uint8_t>((bits >> 24 & 0x80) | code);
  }
};

template <typename Kind>
MOEC_INLINE void write(const RandomTensor &tensor, int64_t first, int64_t count,
                       void *to) {
  auto *values = static_cast<typename Kind::Storage *>(to);
  uint64_t key = tensor.stream.getKey();
  float factor = tensor.factor;
  int32_t shift = tensor.shift;
  for (int64_t i = 0; i < count; ++i) {
    int32_t sum = RandomStream::sum(RandomStream::mix(key, first + i)) + shift;
    values[i] = Kind::encode(Kind::round(static_cast<float>(sum) * factor));
  }
}

template <typename Kind>
MOEC_INLINE void read(const RandomTensor &tensor, int64_t first, int64_t count,
                      double *to) {
  uint64_t key = tensor.stream.getKey();
  float factor = tensor.factor;
  int32_t shift = tensor.shift;
  for (int64_t i = 0; i < count; ++i) {
    int32_t sum = RandomStream::sum(RandomStream::mix(key, first + i)) + shift;
    to[i] = static_cast<double>(Kind::round(static_cast<float>(sum) * factor));
  }
}

#define PARAMETERS                                                             \
  (const RandomTensor &tensor, int64_t first, int64_t count, void *to)
MOEC_CPU_CLONES(writeF32, write<AsF32>, PARAMETERS, (tensor, first, count, to))
MOEC_CPU_CLONES(writeBF16, write<AsBF16>, PARAMETERS,
                (tensor, first, count, to))
MOEC_CPU_CLONES(writeF16, write<AsF16>, PARAMETERS, (tensor, first, count, to))
MOEC_CPU_CLONES(writeE4M3, write<AsE4M3>, PARAMETERS,
                (tensor, first, count, to))
#undef PARAMETERS
#define PARAMETERS                                                             \
  (const RandomTensor &tensor, int64_t first, int64_t count, double *to)
MOEC_CPU_CLONES(readF32, read<AsF32>, PARAMETERS, (tensor, first, count, to))
MOEC_CPU_CLONES(readBF16, read<AsBF16>, PARAMETERS, (tensor, first, count, to))
MOEC_CPU_CLONES(readF16, read<AsF16>, PARAMETERS, (tensor, first, count, to))
MOEC_CPU_CLONES(readE4M3, read<AsE4M3>, PARAMETERS, (tensor, first, count, to))
#undef PARAMETERS

} // namespace

/// Of e4m3 weights, whose largest number is 448.
static constexpr double kCodeDeviation = 64;

RandomTensor RandomTensor::codes(RandomStream stream) {
  return {stream, DType::F8E4M3, getFactor(kCodeDeviation)};
}

/// A mean of four deviations: none is negative.
static RandomTensor makePositive(RandomStream stream, double mean) {
  return {stream, DType::F32, getFactor(mean / 4), getShift(4)};
}

RandomTensor RandomTensor::scales(RandomStream stream, int64_t contracted) {
  int64_t blocks = (contracted + 127) / 128;
  return makePositive(
      stream,
      1 / (kCodeDeviation * std::sqrt(128.0 * static_cast<double>(blocks))));
}

RandomTensor RandomTensor::inputScales(RandomStream stream) {
  return makePositive(stream, 4.0 / 448);
}

void RandomTensor::write(int64_t first, int64_t count, void *to) const {
  switch (dtype) {
  case DType::F32:
    return writeF32(*this, first, count, to);
  case DType::BF16:
    return writeBF16(*this, first, count, to);
  case DType::F16:
    return writeF16(*this, first, count, to);
  case DType::F8E4M3:
    return writeE4M3(*this, first, count, to);
  default:
    llvm_unreachable("generated tensors are f32, bf16, f16 or e4m3");
  }
}

void RandomTensor::read(int64_t first, int64_t count, double *to) const {
  switch (dtype) {
  case DType::F32:
    return readF32(*this, first, count, to);
  case DType::BF16:
    return readBF16(*this, first, count, to);
  case DType::F16:
    return readF16(*this, first, count, to);
  case DType::F8E4M3:
    return readE4M3(*this, first, count, to);
  default:
    llvm_unreachable("generated tensors are f32, bf16, f16 or e4m3");
  }
}
