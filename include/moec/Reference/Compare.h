//===- Compare.h - whether an output agrees ---------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The measure is the relative Frobenius error, over the whole output and over
// each row. A row of the reference that is exactly zero must be exactly zero,
// and NaN and infinities must stand at the same places. A row of the reference
// that is not finite fails, unless the inputs are made so.
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_REFERENCE_COMPARE_H
#define MOEC_REFERENCE_COMPARE_H

#include "moec/Reference/Tensors.h"

namespace moec::reference {

/// Bound on the error over the whole output, for tensors of that type, and for
/// a layer: of products that quantize their input the sums in f32 move a
/// rounding to e4m3, of four significant bits, now and then.
double getErrorBound(DType dtype);
double getErrorBound(const LayerSpec &spec);
/// A row may be that many times worse than the whole; of a layer that
/// quantizes, as much worse as one element that has the next code.
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

/// Compares rows of two matrices; `bound` is that of the whole, `absolute`,
/// where positive, one on each element. `name` and `tokens` (what the rows are)
/// are for messages. With `areInputsFinite` no row may have NaN or infinities.
Comparison compare(const Matrix &expected, const Matrix &actual, double bound,
                   double absolute, const std::string &name,
                   const std::vector<int64_t> &tokens,
                   double rowFactor = kRowFactor, bool areInputsFinite = true);

/// How far elements are from what is expected, in parts of its size, or of the
/// root of the mean square of all elements where it is smaller than that: the
/// farthest, and the root of the mean square. What is not finite is left out.
struct RelativeErrors {
  double largest = 0, rms = 0;
};
RelativeErrors findRelativeErrors(const Matrix &expected, const Matrix &actual);

} // namespace moec::reference

#endif // MOEC_REFERENCE_COMPARE_H
