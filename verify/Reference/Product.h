//===- Product.h - products in float64 --------------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_VERIFY_REFERENCE_PRODUCT_H
#define MOEC_VERIFY_REFERENCE_PRODUCT_H

#include "moec/Reference/Tensors.h"

namespace moec::reference {

/// out = x @ w^T, with w the rows from `firstRow` on of stacked matrices.
struct Product {
  const Matrix *x;
  const Source *weight;
  int64_t firstRow;
  /// One row per row of x, one column per row of w.
  Matrix *out;
  /// Scales, zero points, minima and global scales of the stack, null if
  /// absent; which elements share a scale; and whether each matrix has two
  /// halves (gate and up) with separate scales.
  const Source *scales = nullptr;
  const Source *zeroPoints = nullptr;
  const Source *minima = nullptr;
  const Source *globalScales = nullptr;
  const OperandQuantization *quantization = nullptr;
  bool hasHalves = false;
};

/// Computes all products with `threads` threads.
void computeProducts(const std::vector<Product> &products, int threads);

/// Computes one product, with a matrix without scales.
Matrix computeProduct(const Matrix &x, const Source &weight, int64_t columns,
                      int threads);

} // namespace moec::reference

#endif // MOEC_VERIFY_REFERENCE_PRODUCT_H
