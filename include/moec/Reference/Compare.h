//===- Compare.h - comparison of outputs with the reference -----*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Compares outputs by the relative Frobenius error, of the whole output and of
// each row. A row that is exactly zero in the reference must be exactly zero,
// and NaN and infinities must be at equal positions. A row of the reference
// that is not finite fails, unless the caller states that inputs are not
// finite.
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_REFERENCE_COMPARE_H
#define MOEC_REFERENCE_COMPARE_H

#include "moec/Reference/Tensors.h"

namespace moec::reference {

/// Bound on the error of the whole output, for tensors of a type and for a
/// layer. If gemms quantize their inputs, the f32 sums occasionally change a
/// rounding to e4m3, which has four significant bits.
double getErrorBound(DType dtype);
double getErrorBound(const LayerSpec &spec);
/// Factor by which a row may exceed the bound of the whole. In a layer that
/// quantizes, a row may instead have one element rounded to the next quantized
/// value; one with adapters has a smaller factor.
constexpr double kRowFactor = 3;
double getRowFactor(const LayerSpec &spec);

struct Comparison {
  double error = 0;
  double worstRowError = 0;
  /// Position of the worst row.
  int64_t worstRow = -1;
  /// Largest difference of two elements.
  double largest = 0;
  std::vector<std::string> failures;
};

/// Compares rows of two matrices. `bound` applies to the whole, `absolute`, if
/// positive, to each element. `name` and `tokens` (of the rows) are for
/// messages. With `areInputsFinite`, no row may have NaN or infinities.
Comparison compare(const Matrix &expected, const Matrix &actual, double bound,
                   double absolute, const std::string &name,
                   const std::vector<int64_t> &tokens,
                   double rowFactor = kRowFactor, bool areInputsFinite = true);

/// Largest and root mean square error of elements, relative to the expected
/// magnitude, or to the root mean square of all elements if that is larger.
/// Elements that are not finite are excluded.
struct RelativeErrors {
  double largest = 0, rms = 0;
};
RelativeErrors findRelativeErrors(const Matrix &expected, const Matrix &actual);

} // namespace moec::reference

#endif // MOEC_REFERENCE_COMPARE_H
