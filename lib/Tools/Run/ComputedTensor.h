//===- ComputedTensor.h - values made of several tensors --------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_TOOLS_RUN_COMPUTEDTENSOR_H
#define MOEC_LIB_TOOLS_RUN_COMPUTEDTENSOR_H

#include "moec/Import/TensorSignature.h"
#include "moert/Checkpoint.h"

namespace moec {

/// A tensor whose values follow from several of the checkpoint.
struct ComputedTensor {
  std::vector<float> values;
  moert::SafetensorsEntry entry;
};
/// Computes the values of nested scales, or the minima of middle values, in the
/// tensor `name`; returns false for another use.
moert::Result<bool> computeValues(moert::Checkpoint &checkpoint, PartUse use,
                                  const std::string &name,
                                  ComputedTensor &computed);

} // namespace moec

#endif // MOEC_LIB_TOOLS_RUN_COMPUTEDTENSOR_H
