//===- PackedRows.h - header of an all-to-all's kernels ---------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The header that an all-to-all passes to the kernels that pack its rows:
// tile.pack_rows and tile.sum_packed_rows read 64-bit words in device memory.
//
//===----------------------------------------------------------------------===//

#ifndef MOERT_PACKEDROWS_H
#define MOERT_PACKEDROWS_H

#include <cstdint>

namespace moert {

struct PackedRows {
  // Indices of words.
  /// The rank's index on the axis.
  static constexpr int64_t kIndex = 0;
  /// Capacity of each block to another rank, in rows; 0 if blocks have exact
  /// sizes.
  static constexpr int64_t kCapacity = 1;
  /// Written by the kernel if a block overflows its capacity: the largest
  /// number of rows that go to one rank.
  static constexpr int64_t kMost = 2;
  static constexpr int64_t kNumWords = 3;
};

} // namespace moert

#endif // MOERT_PACKEDROWS_H
