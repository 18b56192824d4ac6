//===- Generator.h - pseudo-random tensors, by counter ----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// An element of a generated tensor is a function of seed, tensor name and its
// index alone, so that any part of any tensor can be made by itself. The
// function exists three times, with the same bits: here, as a kernel
// (GeneratorKernel.h) and in NumPy (python/moec/generator.py).
//
// value(i) = round(float(sum of four 16-bit numbers, about their mean, + shift)
//                  * factor)
//
// The sum is near to normal and an exact float; one multiplication in f32 and
// one rounding to the tensor's type follow. A byte (I8) is the low one of the
// nearest integer, so that of sums that spread widely all codes are alike; E8M0
// is the power of two at or below the magnitude.
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_GENERATOR_GENERATOR_H
#define MOEC_GENERATOR_GENERATOR_H

#include "moec/Support/CpuClones.h"
#include "moert/DType.h"
#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/ADT/StringRef.h"

#include <optional>
#include <vector>

namespace moec {

/// The values of one tensor, as many as there are 64-bit indices.
class RandomStream {
public:
  RandomStream(uint64_t seed, llvm::StringRef name);

  uint64_t getKey() const { return key; }

  /// 64 random bits.
  uint64_t getBits(uint64_t index) const { return mix(key, index); }

  /// Near to normal, of mean 0; times getFactor(1) of deviation 1.
  int32_t getSum(uint64_t index) const { return sum(getBits(index)); }

  MOEC_INLINE static uint64_t mix(uint64_t key, uint64_t index) {
    // The finalizer of SplitMix64.
    uint64_t z = key + (index + 1) * 0x9E3779B97F4A7C15ull;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    return z ^ (z >> 31);
  }

  /// The sum of the four 16-bit parts less twice the largest.
  MOEC_INLINE static int32_t sum(uint64_t bits) {
    auto parts =
        (bits & 0x0000FFFF0000FFFFull) + (bits >> 16 & 0x0000FFFF0000FFFFull);
    return static_cast<int32_t>(parts & 0xFFFFFFFF) +
           static_cast<int32_t>(parts >> 32) - 2 * 0xFFFF;
  }

private:
  uint64_t key;
};

/// What sums are multiplied by to have this standard deviation.
float getFactor(double deviation);

/// What is added to sums for their mean to be that many deviations above 0, at
/// most 100. From 3.5 on no value is negative.
int32_t getShift(double deviations);

/// Values that the generator makes of one stream.
struct RandomTensor {
  RandomStream stream;
  /// F32, BF16, F16, F8E4M3, F8E8M0 or I8.
  moert::DType dtype = moert::DType::F32;
  /// What sums are multiplied with, from `getFactor`; the largest value has to
  /// be in the range of `dtype`, that of a byte below 2^22.
  float factor = 1.0f;
  /// The mean of the sums: 0, or from `getShift`.
  int32_t shift = 0;

  /// Writes elements first .. first+count-1 as they are in memory.
  void write(int64_t first, int64_t count, void *to) const;
  /// The same as numbers.
  void read(int64_t first, int64_t count, double *to) const;
};

/// Orders of 0 .. width-1, one behind the other.
std::vector<int32_t> makeOrders(const RandomStream &stream, int64_t count,
                                int64_t width);

/// What a layer has under a name, if anything.
struct TensorForm {
  moert::DType dtype;
  llvm::ArrayRef<int64_t> shape;
};
using FindTensor =
    llvm::function_ref<std::optional<TensorForm>(llvm::StringRef)>;

/// The values of a tensor that belongs to a quantized weight: its elements,
/// scales, zero points, global scale or the given scale of its input; nullopt
/// for any other. Elements use all of their codes, zero points lie about the
/// middle of these, and the weights have the variance of the number of
/// contracted elements, to the next multiple of 128, inverted. Of numbers of
/// deviation 1 few are beyond the range of given scales. `stream` is the
/// tensor's own.
std::optional<RandomTensor>
makeQuantized(RandomStream stream, llvm::StringRef name, FindTensor find);

} // namespace moec

#endif // MOEC_GENERATOR_GENERATOR_H
