//===- Packings.h - how checkpoints hold quantized matrices -----*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A quantized matrix is a module with several tensors in a checkpoint:
// elements, scales, zero points. What they are called, and how their elements
// lie, is a row of one table for each packing, and no code.
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_IMPORT_PACKINGS_H
#define MOEC_LIB_IMPORT_PACKINGS_H

#include "moec/Import/TensorSignature.h"

#include "llvm/ADT/SmallVector.h"

namespace moec {

/// A tensor of the layer that belongs to a quantized matrix.
enum class Projection {
  Weight,
  Scale,
  ZeroPoint,
  Minimum,
  GlobalScale,
  InputScale
};

/// The projection that a tensor of experts is, whose suffix is taken off
/// `name`.
Projection takePlane(llvm::StringRef &name);

/// The tensors of a module that together give one projection of its matrix, the
/// projection's own first. `name` of each is what follows the module's name;
/// rows are for the caller to set. Empty where the packing does not have the
/// projection.
llvm::SmallVector<CheckpointPart, 4>
getModuleTensors(const QuantizationSpec &quantization, Projection projection);

/// What follows the name of a parameter that is the projection of all experts.
/// Nothing where the packing has no such parameters.
std::optional<llvm::StringRef>
getFusedSuffix(const QuantizationSpec &quantization, Projection projection);

} // namespace moec

#endif // MOEC_LIB_IMPORT_PACKINGS_H
