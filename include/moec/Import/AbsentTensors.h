//===- AbsentTensors.h - checkpoint tensors a layer leaves out --*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_IMPORT_ABSENTTENSORS_H
#define MOEC_IMPORT_ABSENTTENSORS_H

#include "moec/Import/TensorSignature.h"

namespace moec {

/// A tensor that checkpoints may contain and this layer does not use.
struct AbsentTensor {
  CheckpointPart part;
  /// The field of the description that would make the layer use it.
  llvm::StringLiteral field;
};

/// All tensors that one more field of the description would add to the layer,
/// under the names of GGUF files or of other checkpoints.
std::vector<AbsentTensor> getAbsentTensors(const LayerSpec &spec, bool inGguf);

} // namespace moec

#endif // MOEC_IMPORT_ABSENTTENSORS_H
