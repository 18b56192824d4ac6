//===- IdTypes.h - how many experts ids can name ----------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Number of experts that the ids of a type can name. Ids of 8 bits have no
// sign; longer ones have. Used by the layer spec and by verifiers.
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_SUPPORT_IDTYPES_H
#define MOEC_SUPPORT_IDTYPES_H

#include <cstdint>

namespace moec {

/// The most routed experts for ids of `bits` bits. With `hasNone`, the id -1
/// (255 without a sign) says that a slot has no expert.
constexpr int64_t getMostRouted(unsigned bits, bool hasNone) {
  constexpr unsigned byte = 8;
  return bits == byte ? (int64_t(1) << bits) - hasNone
                      : int64_t(1) << (bits - 1);
}

} // namespace moec

#endif // MOEC_SUPPORT_IDTYPES_H
