//===- GpuProduct.h - products of any formats on a GPU ----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// One product of level tile, whose operands have any format and granularity,
// on a simulated GPU, against sums in double.
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_UNITTESTS_TARGET_GPUPRODUCT_H
#define MOEC_UNITTESTS_TARGET_GPUPRODUCT_H

#include "QuantFormat.h"

#include <vector>

namespace moec::test {

/// Elements of a type, as stored and as numbers.
struct Elements {
  std::vector<uint8_t> bytes;
  std::vector<double> values;
};

/// Normal numbers of a float type, some of them small.
Elements makeElements(const std::string &type, int64_t count, unsigned seed);

struct Product {
  Format input, weight;
  /// The type of unquantized operands.
  std::string element = "bf16";
  int64_t sizeK = 288, columns = 72;
  /// Gate and up; "" for one projection.
  std::string order;
  bool isGrouped = false;
  std::string config;
};

/// The targets of the next product of a test: sm_80, sm_90a or none, in an
/// order without a period; with MOEC_ALL_CASES set, every night, both.
std::vector<std::string> takeTargets();

/// The text of its kernel.
std::string getText(const Product &product);

/// `tolerance`: relative to the sum of the magnitudes of all terms.
void runProduct(const Product &product, const std::string &target,
                double tolerance = 2e-6);
/// Runs on the next target.
void runInTurns(const Product &product);

} // namespace moec::test

#endif // MOEC_UNITTESTS_TARGET_GPUPRODUCT_H
