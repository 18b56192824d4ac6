//===- Packings.h - checkpoint layouts of quantized matrices ----*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// In a checkpoint a quantized matrix is a module with several tensors:
// elements, scales, zero points. Names and element orders are one table with a
// row per packing.
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

/// The projection of an expert tensor by its suffix, which is removed from
/// `name`.
Projection takePlane(llvm::StringRef &name);

/// The tensors of a module that give one projection of its matrix; the
/// projection's own tensor is first. `name` is the suffix of the module's name;
/// the caller sets the rows. Empty if the packing does not have the projection.
llvm::SmallVector<CheckpointPart, 4>
getModuleTensors(const QuantizationSpec &quantization, Projection projection);

/// Suffix of the parameter that holds the projection for all experts. None if
/// the packing has no such parameter.
std::optional<llvm::StringRef>
getFusedSuffix(const QuantizationSpec &quantization, Projection projection);

} // namespace moec

#endif // MOEC_LIB_IMPORT_PACKINGS_H
