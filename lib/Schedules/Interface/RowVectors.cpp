//===- RowVectors.cpp - vectors that threads take of rows -------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/Schedules/RowVectors.h"

using namespace mlir;
using namespace moec;

int64_t moec::getVectorLanes(MemRefType result) {
  int64_t lanes = 16 / (result.getElementTypeBitWidth() / 8);
  while (result.getDimSize(1) % lanes)
    lanes /= 2;
  return lanes;
}

std::string moec::whyNotLanes(int64_t lanes, MemRefType result) {
  int64_t most = getVectorLanes(result);
  if (lanes > 0 && most % lanes == 0)
    return {};
  return "vector_width = " + std::to_string(lanes) + "; give a divisor of " +
         std::to_string(most);
}
