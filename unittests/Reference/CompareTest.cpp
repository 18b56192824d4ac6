//===- CompareTest.cpp - errors of elements -------------------------------===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/Reference/Compare.h"
#include "gtest/gtest.h"

#include "llvm/ADT/STLExtras.h"

#include <cmath>

using namespace moec::reference;

namespace {

Matrix makeRow(const std::vector<double> &values) {
  Matrix row(1, static_cast<int64_t>(values.size()));
  llvm::copy(values, row.row(0));
  return row;
}

TEST(ReferenceCompare, RelativeErrorsAreOfTheLargerOfElementAndMean) {
  // The root of the mean square is 5.
  Matrix expected = makeRow({1, 7, -1, -7});
  RelativeErrors errors =
      findRelativeErrors(expected, makeRow({1.5, 7, -1, -7.7}));
  EXPECT_DOUBLE_EQ(errors.largest, 0.1);
  EXPECT_DOUBLE_EQ(errors.rms, std::sqrt((0.01 + 0.01) / 4));
}

TEST(ReferenceCompare, RelativeErrorsLeaveOutWhatIsNotFinite) {
  RelativeErrors errors = findRelativeErrors(makeRow({2, std::nan(""), 2}),
                                             makeRow({2, 5, INFINITY}));
  EXPECT_EQ(errors.largest, 0);
  EXPECT_EQ(errors.rms, 0);
  errors = findRelativeErrors(makeRow({0, 0}), makeRow({0, 1}));
  EXPECT_TRUE(std::isinf(errors.largest));
}

TEST(ReferenceCompare, RowsThatAreNotFiniteAreWrongUnlessInputsAre) {
  for (double value : {double(NAN), double(INFINITY), -double(INFINITY)}) {
    Matrix row = makeRow({2, value, 2});
    Comparison comparison = compare(row, row, 1e-5, 0, "output", {7});
    ASSERT_EQ(comparison.failures.size(), 1u);
    EXPECT_EQ(comparison.failures[0].find("output: 1 of 1 rows are not finite "
                                          "in the reference, row 7"),
              0u)
        << comparison.failures[0];
    EXPECT_TRUE(compare(row, row, 1e-5, 0, "output", {7}, kRowFactor,
                        /*areInputsFinite=*/false)
                    .failures.empty());
  }
}

TEST(ReferenceCompare, BoundsOfAdaptersAreThoseOfRoundedProducts) {
  moec::LayerSpec spec;
  spec.dtype = moec::DType::BF16;
  double without = getErrorBound(spec);
  spec.lora = moec::LoraSpec{/*adapters=*/2, /*rank=*/8};
  EXPECT_GT(getErrorBound(spec), without);
  EXPECT_DOUBLE_EQ(getErrorBound(spec) * getRowFactor(spec), 1e-2);
  spec.dtype = moec::DType::F16;
  EXPECT_DOUBLE_EQ(getErrorBound(spec), getErrorBound(moec::DType::F16));
  EXPECT_DOUBLE_EQ(getRowFactor(spec), kRowFactor);
}

} // namespace
