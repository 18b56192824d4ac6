//===- MoeAttrs.cpp - verifiers of the moe attributes -----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/Dialect/Moe/Moe.h"

using namespace mlir;
using namespace moec::moe;

#define VERIFY(CLASS, ...)                                                     \
  LogicalResult CLASS::verify(function_ref<InFlightDiagnostic()>, __VA_ARGS__) \
  { return success(); }
VERIFY(RoutingAttr, int64_t, Select, int64_t, int64_t, GroupScore, Softmax, bool, FloatAttr, FloatAttr, NonFinite)
VERIFY(QuantAttr, Type, Type, Granularity, ArrayRef<int64_t>, bool, bool)
VERIFY(ActivationFormatAttr, Format, int64_t)
VERIFY(MeshAttr, int64_t, int64_t)
VERIFY(PlacementAttr, int64_t, ArrayRef<int64_t>)
