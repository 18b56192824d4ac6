//===- Generator.h - pseudo-random tensors, by counter ----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Counter-based pseudo-random tensors: an element is a function only of the
// seed, the tensor's name and its index, so that any part of a tensor can be
// made independently. The function has three implementations with equal bits:
// here, as a kernel (GeneratorKernel.h), and in NumPy
// (python/moec/generator.py).
//
// value(i) = round(float(sum of four 16-bit numbers, about their mean, + shift)
//                  * factor)
//
// The sum is nearly normal and an exact float; one multiplication in f32 and
// one rounding to the tensor's type follow. A byte (I8) is the low byte of the
// nearest integer, so that widely spread sums make all bytes equally likely;
// E8M0 is the power of two at or below the magnitude.
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

/// The random values of one tensor, by 64-bit index.
class RandomStream {
public:
  RandomStream(uint64_t seed, llvm::StringRef name);

  uint64_t getKey() const { return key; }

  /// 64 random bits.
  uint64_t getBits(uint64_t index) const { return mix(key, index); }

  /// Nearly normal with mean 0; times getFactor(1) with standard deviation 1.
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

/// The factor that gives sums this standard deviation.
float getFactor(double deviation);

/// The addend that moves the mean of sums to this many standard deviations, at
/// most 100. From 3.5 on no value is negative.
int32_t getShift(double deviations);

/// A tensor generated from one stream.
struct RandomTensor {
  RandomStream stream;
  /// F32, BF16, F16, F8E4M3, F8E8M0 or I8.
  moert::DType dtype = moert::DType::F32;
  /// Factor of sums, from `getFactor`; the largest value must be in the range
  /// of `dtype`, or below 2^22 for bytes.
  float factor = 1.0f;
  /// The mean of the sums: 0, or from `getShift`.
  int32_t shift = 0;

  /// Writes elements first .. first+count-1 in their memory format.
  void write(int64_t first, int64_t count, void *to) const;
  /// Reads elements first .. first+count-1 as doubles.
  void read(int64_t first, int64_t count, double *to) const;
};

/// `count` permutations of 0 .. width-1, concatenated.
std::vector<int32_t> makeOrders(const RandomStream &stream, int64_t count,
                                int64_t width);

/// Type and shape of a layer's tensor.
struct TensorForm {
  moert::DType dtype;
  llvm::ArrayRef<int64_t> shape;
};
using FindTensor =
    llvm::function_ref<std::optional<TensorForm>(llvm::StringRef)>;

/// A tensor that belongs to a quantized weight: its elements, scales, zero
/// points, global scale or the static scale of its input; nullopt for any
/// other. Elements use all quantized values, zero points are near their middle,
/// and the variance of the weights is 1 / K, with K rounded up to a multiple of
/// 128. Few inputs with standard deviation 1 exceed the range of static scales.
/// `stream` is the tensor's own.
std::optional<RandomTensor>
makeQuantized(RandomStream stream, llvm::StringRef name, FindTensor find);

} // namespace moec

#endif // MOEC_GENERATOR_GENERATOR_H
