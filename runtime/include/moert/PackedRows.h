//===- PackedRows.h - rows of an all-to-all ---------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What an all-to-all and the kernels that pack its rows agree on:
// tile.pack_rows and tile.sum_packed_rows read a header of words of 64 bits in
// memory of the device.
//
//===----------------------------------------------------------------------===//

#ifndef MOERT_PACKEDROWS_H
#define MOERT_PACKEDROWS_H

#include <cstdint>

namespace moert {

struct PackedRows {
  // Indices of words.
  /// The rank's place on the axis.
  static constexpr int64_t kPlace = 0;
  /// Rows of each block that goes to another rank; 0 where blocks are as long
  /// as what goes there.
  static constexpr int64_t kRoom = 1;
  /// What the kernel writes where a block has not enough room: the most rows
  /// that go to one rank.
  static constexpr int64_t kMost = 2;
  static constexpr int64_t kNumWords = 3;
};

} // namespace moert

#endif // MOERT_PACKEDROWS_H
