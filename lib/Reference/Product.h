//===- Product.h - products in float64 --------------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_REFERENCE_PRODUCT_H
#define MOEC_LIB_REFERENCE_PRODUCT_H

#include "moec/Reference/Tensors.h"

namespace moec::reference {

/// out = x @ w^T, where w is rows firstRow .. of a stack of matrices.
struct Product {
  const Matrix *x;
  const Source *weight;
  int64_t firstRow;
  /// Has as many rows as x, and a column per row of w.
  Matrix *out;
  /// The scales of the stack, which elements share one, and whether each matrix
  /// has two halves with scales of their own (gate and up). Null where w has
  /// none; so are zero points, minima and global scales.
  const Source *scales = nullptr;
  const Source *zeroPoints = nullptr;
  const Source *minima = nullptr;
  const Source *globalScales = nullptr;
  const OperandQuantization *quantization = nullptr;
  bool hasHalves = false;
};

/// Computes all of them with `threads` threads.
void computeProducts(const std::vector<Product> &products, int threads);

/// One of them, of a matrix without scales.
Matrix computeProduct(const Matrix &x, const Source &weight, int64_t columns,
                      int threads);

} // namespace moec::reference

#endif // MOEC_LIB_REFERENCE_PRODUCT_H
