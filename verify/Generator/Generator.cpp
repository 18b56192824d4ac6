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

// Each kind rounds a float to a float of its format, then stores it, in plain
// arithmetic that vectorizes.

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
    // Below 2^-14 values are multiples of 2^-24, like floats between 0.5 and 1.
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
    // Below 2^-6 values are multiples of 2^-9, like floats next to 2^14.
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

struct AsE8M0 {
  using Storage = uint8_t;
  MOEC_INLINE static float round(float value) {
    uint32_t exponent = toBits(value) >> 23 & 0xFF;
    // The least one is a subnormal float.
    return toFloat(exponent == 0 ? 0x00400000u : exponent << 23);
  }
  MOEC_INLINE static uint8_t encode(float rounded) {
    return static_cast<uint8_t>(toBits(rounded) >> 23);
  }
};

struct AsI8 {
  using Storage = uint8_t;
  MOEC_INLINE static float round(float value) {
    // Next to 1.5 * 2^23 floats are integers, counted by the low bits.
    return static_cast<float>(static_cast<int8_t>(toBits(value + 0x1.8p23f)));
  }
  MOEC_INLINE static uint8_t encode(float rounded) {
    return static_cast<uint8_t>(static_cast<int32_t>(rounded));
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
MOEC_CPU_CLONES(writeE8M0, write<AsE8M0>, PARAMETERS,
                (tensor, first, count, to))
MOEC_CPU_CLONES(writeI8, write<AsI8>, PARAMETERS, (tensor, first, count, to))
#undef PARAMETERS
#define PARAMETERS                                                             \
  (const RandomTensor &tensor, int64_t first, int64_t count, double *to)
MOEC_CPU_CLONES(readF32, read<AsF32>, PARAMETERS, (tensor, first, count, to))
MOEC_CPU_CLONES(readBF16, read<AsBF16>, PARAMETERS, (tensor, first, count, to))
MOEC_CPU_CLONES(readF16, read<AsF16>, PARAMETERS, (tensor, first, count, to))
MOEC_CPU_CLONES(readE4M3, read<AsE4M3>, PARAMETERS, (tensor, first, count, to))
MOEC_CPU_CLONES(readE8M0, read<AsE8M0>, PARAMETERS, (tensor, first, count, to))
MOEC_CPU_CLONES(readI8, read<AsI8>, PARAMETERS, (tensor, first, count, to))
#undef PARAMETERS

} // namespace

namespace {

/// Distribution of the quantized values of a weight.
struct Elements {
  /// Standard deviation of the generated numbers, and of the quantized values:
  /// bytes wrap around, which makes all equally likely.
  double generated, meant;
  /// The middle of the quantized values, which zero points are near.
  double middle;
  /// The largest quantized value of inputs for such weights.
  double largest;
};

constexpr Elements kE4M3 = {64, 64, 0, 448};
constexpr Elements kBytes = {2400, 74, 128, 127};
/// Two values of e2m1 (standard deviation 2.9) or int4 (4.6) in each byte.
constexpr Elements kPairs = {2400, 4, 8, 127};

/// Mean of scales with a global scale, in the range where e4m3 is precise.
constexpr double kLocalScale = 64;

/// A mean of four standard deviations makes no value negative.
RandomTensor makePositive(RandomStream stream, DType dtype, double mean) {
  return {stream, dtype, getFactor(mean / 4), getShift(4)};
}

bool isGenerated(DType dtype) {
  switch (dtype) {
  case DType::F32:
  case DType::BF16:
  case DType::F16:
  case DType::F8E4M3:
  case DType::F8E8M0:
  case DType::I8:
    return true;
  default:
    return false;
  }
}

/// Whether bytes of `weight` hold two elements each. The rows of w2 equal the
/// columns of w13, and the rows of w13 equal the columns of w2, or twice that
/// with a gate. If a factor of two may mean either, w2 is like w13.
bool arePairs(llvm::StringRef weight, FindTensor find) {
  llvm::StringRef module = weight.rsplit('.').first;
  std::optional<TensorForm> w13 = find(module.str() + ".w13");
  std::optional<TensorForm> w2 = find(module.str() + ".w2");
  if (!w13 || !w2 || w13->shape.size() < 2 || w2->shape.size() < 2)
    return false;
  bool isFirstPaired = w13->dtype == DType::I8 &&
                       w13->shape.back() < w2->shape.drop_back().back();
  int64_t rows = w13->shape.drop_back().back(), columns = w2->shape.back();
  if (weight.ends_with("w13") || rows == 2 * columns)
    return isFirstPaired;
  return rows == 4 * columns;
}

} // namespace

std::optional<RandomTensor> moec::makeQuantized(RandomStream stream,
                                                llvm::StringRef name,
                                                FindTensor find) {
  llvm::StringRef suffix;
  for (llvm::StringRef candidate :
       {"_scale", "_global_scale", "_input_scale", "_zero_point", "_minimum"})
    if (name.ends_with(candidate))
      suffix = candidate;
  std::string weightName = name.drop_back(suffix.size()).str();
  std::optional<TensorForm> tensor = find(name), weight = find(weightName);
  if (!tensor || !isGenerated(tensor->dtype) || !weight ||
      !find(weightName + "_scale"))
    return std::nullopt;
  bool isPaired = weight->dtype == DType::I8 && arePairs(weightName, find);
  const Elements &elements = weight->dtype == DType::F8E4M3 ? kE4M3
                             : isPaired                     ? kPairs
                                                            : kBytes;
  if (suffix.empty())
    return RandomTensor{stream, tensor->dtype, getFactor(elements.generated)};
  if (suffix == "_zero_point")
    return makePositive(stream, tensor->dtype, elements.middle);
  if (suffix == "_input_scale")
    return makePositive(stream, tensor->dtype, 4 / elements.largest);
  bool hasGlobal = find(weightName + "_global_scale").has_value();
  if (hasGlobal && suffix == "_scale")
    return makePositive(stream, tensor->dtype, kLocalScale);
  int64_t contracted =
      (weight->shape.empty() ? 1 : weight->shape.back()) * (isPaired ? 2 : 1);
  int64_t blocks = (contracted + 127) / 128;
  double mean =
      1 / (elements.meant * std::sqrt(128.0 * static_cast<double>(blocks)));
  // Values of half a byte are unsigned; bytes are centered on 0.
  if (suffix == "_minimum")
    return makePositive(stream, tensor->dtype,
                        mean *
                            (isPaired ? elements.middle : elements.middle / 8));
  return makePositive(stream, tensor->dtype,
                      hasGlobal ? mean / kLocalScale : mean);
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
  case DType::F8E8M0:
    return writeE8M0(*this, first, count, to);
  case DType::I8:
    return writeI8(*this, first, count, to);
  default:
    llvm_unreachable("no other type is generated");
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
  case DType::F8E8M0:
    return readE8M0(*this, first, count, to);
  case DType::I8:
    return readI8(*this, first, count, to);
  default:
    llvm_unreachable("no other type is generated");
  }
}

std::vector<int32_t> moec::makeOrders(const RandomStream &stream, int64_t count,
                                      int64_t width) {
  std::vector<int32_t> orders(static_cast<size_t>(count * width));
  for (int64_t first = 0; first < count * width; first += width)
    for (int64_t i = 0; i < width; ++i) {
      // Inside-out Fisher-Yates shuffle.
      auto place = static_cast<int64_t>(
          stream.getBits(static_cast<uint64_t>(first + i)) %
          static_cast<uint64_t>(i + 1));
      orders[first + i] = orders[first + place];
      orders[first + place] = static_cast<int32_t>(i);
    }
  return orders;
}
