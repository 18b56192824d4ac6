//===- Matrix.h - matrix products and exact results -------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_VERIFY_PTXCONFORM_MATRIX_H
#define MOEC_VERIFY_PTXCONFORM_MATRIX_H

#include "moec/PtxConform/Form.h"
#include "moec/PtxConform/Random.h"

namespace moec::conform {

/// Distribution of the operands of a product.
enum class Values : uint8_t {
  /// Small enough for every sum to be exact.
  Integers,
  /// Bell-shaped, with variance 1.
  Normal,
  /// Normal, times powers of two that differ from element to element.
  Wide,
  /// Subnormal numbers, or numbers whose products are subnormal.
  Tiny,
  /// Integers with a few NaNs and infinities among them.
  Special,
};

const char *valuesName(Values values);

/// One instruction: D (m x n) = A (m x k) * B (k x n) + C.
struct Product {
  Format a = Format::BF16, b = Format::BF16, d = Format::F32;
  unsigned m = 16, n = 8, k = 16;
  /// Options of wgmma: negated A or B; C left out.
  bool negatesA = false, negatesB = false, ignoresC = false;

  /// Elements of A or B in a 32-bit register.
  unsigned perRegister() const;
  unsigned registersA() const { return 16 * k / 32 / perRegister(); }
  unsigned registersB() const { return k * n / 32 / perRegister(); }
  /// Registers of C, and of D, per lane.
  unsigned registersD() const;
};

/// The matrix position of an element of a register. Rows count from the warp's
/// first one.
struct Place {
  unsigned row = 0, column = 0;
};

Place placeInA(const Product &product, unsigned lane, unsigned reg,
               unsigned part);
Place placeInB(const Product &product, unsigned lane, unsigned reg,
               unsigned part);
/// Position of a lane's element `index` of C or D.
Place placeInD(unsigned lane, unsigned index);

/// The encoded operands of one tile.
struct Tile {
  std::vector<uint32_t> a, b, c;
};

Tile drawTile(const Product &product, Values values, Random &random);

/// Compares a tile of D, by rows, with the exact product. `verdict.error` grows
/// to max |D - exact| / (sum |a * b| + |c|).
void judgeTile(const Product &product, const Tile &tile,
               const std::vector<uint32_t> &d, Verdict &verdict);

/// The largest accepted error of `product` on these values; 0 if it must be
/// exact.
double productBound(const Product &product, Values values);

} // namespace moec::conform

#endif // MOEC_VERIFY_PTXCONFORM_MATRIX_H
