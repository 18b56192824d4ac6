//===- Fragments.h - weights in the order of tensor cores -------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// `packing = fragments` of `#moe.quant`: a matrix of 4-bit weights as Hopper's
// tensor cores take it from registers (docs/decoded-products.md). It has the
// bytes of `pairs`, in another order, and so do its scales: rows go in blocks
// of 64, each of them two *runs* of 32 rows that follow one another in memory;
// with gate and up halves one run is of either. A block's bytes stay where its
// runs were.
//
// A run of codes is `[depth / 64][256]` words of 4 bytes, one of scales
// `[depth / 64][16]`: the halves of *units* of 64 rows by 64 of the depth. A
// unit has 16 bytes per thread of a warpgroup.
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_DIALECT_MOE_FRAGMENTS_H
#define MOEC_DIALECT_MOE_FRAGMENTS_H

#include "moec/Dialect/Moe/Moe.h"

namespace moec::moe {

struct Fragments {
  /// Rows and depth of a unit; rows of a run.
  static constexpr int64_t kRows = 64, kDepth = 64, kRunRows = 32;
  /// Contracted elements that share a scale, and scales of a row of a unit.
  static constexpr int64_t kGroup = 32, kGroups = kDepth / kGroup;
  /// Words of a run's half of a unit: codes, and scales.
  static constexpr int64_t kCodeWords = 256, kScaleWords = 16;
  /// Exponents of stored scales are higher by this and a row's own number less:
  /// a code's bits, put into a bf16, stand for 2^-126 of it.
  static constexpr int64_t kExponent = 126;
  /// The largest e8m0 byte of a row that needs no such number: 2^1.
  static constexpr int64_t kLargestScale = 128;

  /// Why a matrix of so many elements has no such order; empty if it has.
  static std::string whyNot(int64_t rows, int64_t depth,
                            WeightLayoutAttr layout);

  /// What `packing = fragments` makes of weights in pairs.
  static QuantAttr getQuant(QuantAttr pairs);

  /// The first memory row of a run (0 or 1) of a block, in a matrix of `rows`.
  static int64_t getRunRow(int64_t block, int64_t run, int64_t rows,
                           WeightLayoutAttr layout);

  /// Where an element of a matrix is: the row in memory of its run's first
  /// byte, the word there, and its four bits, from sign to mantissa.
  struct Place {
    int64_t firstRow, word;
    int64_t bits[4];
  };
  static Place getPlace(int64_t row, int64_t element, int64_t rows,
                        WeightLayoutAttr layout);
  /// Where the scale of a group of a row is: the first row of its run, the byte
  /// there.
  struct ScalePlace {
    int64_t firstRow, byte;
  };
  static ScalePlace getScalePlace(int64_t row, int64_t group, int64_t rows,
                                  WeightLayoutAttr layout);
};

} // namespace moec::moe

#endif // MOEC_DIALECT_MOE_FRAGMENTS_H
