//===- Product.cpp - matrix products by fragments ---------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Product.h"

using namespace moec::ptx;

unsigned moec::ptx::parseMatrixType(const std::string &name, MatrixType &type) {
  static const std::unordered_map<std::string, MatrixType> types = {
      {"f16", MatrixType::Half},  {"bf16", MatrixType::Bfloat},
      {"e4m3", MatrixType::E4M3}, {"e5m2", MatrixType::E5M2},
      {"tf32", MatrixType::Tf32}, {"s8", MatrixType::Int8}};
  auto found = types.find(name);
  if (found == types.end())
    return 0;
  type = found->second;
  return typeBytes(name);
}

float moec::ptx::matrixElement(MatrixType type, uint32_t bits) {
  switch (type) {
  case MatrixType::Half:
    return halfToFloat(uint16_t(bits));
  case MatrixType::Bfloat:
    return bfloatToFloat(uint16_t(bits));
  case MatrixType::E4M3:
    return float(decodeFloat(kE4M3, bits));
  case MatrixType::E5M2:
    return float(decodeFloat(kE5M2, bits));
  case MatrixType::Tf32:
    // Hardware ignores the low 13 bits.
    return bitCast<float>(bits & ~uint32_t(0x1FFF));
  case MatrixType::Int8:
    return float(int8_t(bits));
  }
  return 0;
}

void moec::ptx::matrixElements(MatrixType type, unsigned bytes,
                               const uint32_t *bits,
                               float (*elements)[kWarpLanes]) {
  if (type == MatrixType::Bfloat) {
    for (unsigned lane = 0; lane < kWarpLanes; ++lane) {
      elements[0][lane] = bitCast<float>(bits[lane] << 16);
      elements[1][lane] = bitCast<float>(bits[lane] & 0xFFFF0000);
    }
    return;
  }
  uint32_t mask = bytes == 4 ? ~0u : (1u << (8 * bytes)) - 1;
  for (unsigned i = 0; i < 4 / bytes; ++i)
    for (unsigned lane = 0; lane < kWarpLanes; ++lane)
      elements[i][lane] =
          matrixElement(type, bits[lane] >> (8 * bytes * i) & mask);
}

namespace {

using Vector = float __attribute__((vector_size(64)));
using Four = float __attribute__((vector_size(16)));

template <typename V>
__attribute__((always_inline)) inline V loadVector(const float *from) {
  V value;
  std::memcpy(&value, from, sizeof(value));
  return value;
}

/// Products and sums are rounded separately, so that the bits do not depend on
/// the host's FMA.
template <unsigned N>
__attribute__((always_inline)) inline void
addProductsTo(float *const *registers, const float *rows,
              const float *const *columns, unsigned depth) {
  Vector sums[N][2];
  for (unsigned i = 0; i < N; ++i)
    for (unsigned half = 0; half < 2; ++half)
      sums[i][half] = loadVector<Vector>(registers[i] + 16 * half);
  for (unsigned k = 0; k < depth; ++k) {
    Vector low = loadVector<Vector>(rows + 32 * k);
    Vector high = loadVector<Vector>(rows + 32 * k + 16);
    for (unsigned i = 0; i < N; ++i) {
      Four four = loadVector<Four>(columns[i] + 4 * k);
      Vector column = __builtin_shufflevector(four, four, 0, 1, 2, 3, 0, 1, 2,
                                              3, 0, 1, 2, 3, 0, 1, 2, 3);
      sums[i][0] = sums[i][0] + low * column;
      sums[i][1] = sums[i][1] + high * column;
    }
  }
  for (unsigned i = 0; i < N; ++i)
    std::memcpy(registers[i], sums[i], sizeof(sums[i]));
}

using AddProducts = void (*)(float *const *, unsigned, const float *,
                             const float *const *, unsigned);

#define VARIANT(name, target)                                                  \
  target void name(float *const *registers, unsigned numRegisters,             \
                   const float *rows, const float *const *columns,             \
                   unsigned depth) {                                           \
    if (numRegisters == 4)                                                     \
      addProductsTo<4>(registers, rows, columns, depth);                       \
    else                                                                       \
      addProductsTo<2>(registers, rows, columns, depth);                       \
  }

VARIANT(addPortably, )
#if defined(__x86_64__)
VARIANT(addWithAvx2, __attribute__((target("avx2"))))
VARIANT(addWithAvx512, __attribute__((target("avx512f,avx512vl"))))
#endif

AddProducts choose() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl"))
    return addWithAvx512;
  if (__builtin_cpu_supports("avx2"))
    return addWithAvx2;
#endif
  return addPortably;
}

} // namespace

void moec::ptx::addProducts(float *const *registers, unsigned numRegisters,
                            const float *rows, const float *const *columns,
                            unsigned depth) {
  static const AddProducts chosen = choose();
  chosen(registers, numRegisters, rows, columns, depth);
}
