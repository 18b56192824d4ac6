//===- FindNonFinite.cpp - finds NaN and infinity ---------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "FindNonFinite.h"

#include <algorithm>
#include <cstring>

using moert::DType;

namespace {

/// `least` is the least magnitude that is not finite.
template <typename Bits>
int64_t find(const uint8_t *elements, int64_t count, Bits least) {
  constexpr auto magnitude = Bits(Bits(~Bits(0)) >> 1);
  auto isWrong = [&](int64_t i) {
    Bits bits;
    std::memcpy(&bits, elements + i * int64_t(sizeof(Bits)), sizeof(Bits));
    return Bits(bits & magnitude) >= least;
  };
  // The inner loop has no early exit, so that it is vectorized and runs at
  // memory bandwidth.
  constexpr int64_t block = 1024;
  for (int64_t begin = 0; begin < count; begin += block) {
    int64_t end = std::min(begin + block, count);
    bool isAnyWrong = false;
    for (int64_t i = begin; i < end; ++i)
      isAnyWrong |= isWrong(i);
    for (int64_t i = begin; isAnyWrong && i < end; ++i)
      if (isWrong(i))
        return i;
  }
  return -1;
}

} // namespace

int64_t moec::findNonFinite(const uint8_t *elements, DType dtype,
                            int64_t count) {
  switch (dtype) {
  case DType::F32:
    return find<uint32_t>(elements, count, 0x7F800000);
  case DType::BF16:
    return find<uint16_t>(elements, count, 0x7F80);
  case DType::F16:
    return find<uint16_t>(elements, count, 0x7C00);
  case DType::F8E4M3:
    return find<uint8_t>(elements, count, 0x7F);
  case DType::F8E5M2:
    return find<uint8_t>(elements, count, 0x7C);
  default:
    return -1;
  }
}
