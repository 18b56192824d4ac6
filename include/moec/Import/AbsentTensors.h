//===- AbsentTensors.h - tensors that a layer lacks -------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_IMPORT_ABSENTTENSORS_H
#define MOEC_IMPORT_ABSENTTENSORS_H

#include "moec/Import/TensorSignature.h"

namespace moec {

/// A tensor that files may have and the layer does not take.
struct AbsentTensor {
  CheckpointPart part;
  /// The field of the description that makes the layer take it.
  llvm::StringLiteral field;
};

/// Every tensor that the layer would take if one more field of its description
/// were set, as GGUF files or other checkpoints name it.
std::vector<AbsentTensor> getAbsentTensors(const LayerSpec &spec, bool inGguf);

} // namespace moec

#endif // MOEC_IMPORT_ABSENTTENSORS_H
