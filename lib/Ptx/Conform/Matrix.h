//===- Matrix.h - matrix products: values, fragments, exact results *- C++
//-*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_PTX_CONFORM_MATRIX_H
#define MOEC_LIB_PTX_CONFORM_MATRIX_H

#include "moec/Ptx/Conform/Form.h"
#include "moec/Ptx/Conform/Random.h"

namespace moec::conform {

/// What the operands of a product look like.
enum class Values : uint8_t {
  /// Small enough for every sum to be exact.
  Integers,
  /// Bell-shaped, of variance 1.
  Normal,
  /// Normal, times powers of two that differ from element to element.
  Wide,
  /// Subnormal numbers, or such whose products are.
  Tiny,
  /// Integers with a few NaNs and infinities among them.
  Special,
};

const char *valuesName(Values values);

/// One instruction: D (m x n) = A (m x k) * B (k x n) + C.
struct Product {
  Format a = Format::BF16, b = Format::BF16, d = Format::F32;
  unsigned m = 16, n = 8, k = 16;
  /// As wgmma can: A or B times -1; C left out.
  bool negatesA = false, negatesB = false, ignoresC = false;

  /// Numbers of A or B in a 32-bit register.
  unsigned perRegister() const;
  unsigned registersA() const { return 16 * k / 32 / perRegister(); }
  unsigned registersB() const { return k * n / 32 / perRegister(); }
  /// Registers of C, and of D, per lane.
  unsigned registersD() const;
};

/// A matrix position, and which number of it a register's part holds. Rows
/// count from the warp's first one.
struct Place {
  unsigned row = 0, column = 0;
};

Place placeInA(const Product &product, unsigned lane, unsigned reg,
               unsigned part);
Place placeInB(const Product &product, unsigned lane, unsigned reg,
               unsigned part);
/// Number `index` (of one lane) of C or D.
Place placeInD(unsigned lane, unsigned index);

/// The operands of one tile, as they are encoded.
struct Tile {
  std::vector<uint32_t> a, b, c;
};

Tile drawTile(const Product &product, Values values, Random &random);

/// Compares a tile of D, in rows, with the exact product.
/// `verdict.error` grows to max |D - exact| / (sum |a * b| + |c|).
void judgeTile(const Product &product, const Tile &tile,
               const std::vector<uint32_t> &d, Verdict &verdict);

/// What is accepted of `product` on these values; 0 where it has to be exact.
double productBound(const Product &product, Values values);

} // namespace moec::conform

#endif // MOEC_LIB_PTX_CONFORM_MATRIX_H
