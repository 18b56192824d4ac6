//===- GgufNames.h - names and blocks in GGUF files -------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_IMPORT_GGUFNAMES_H
#define MOEC_LIB_IMPORT_GGUFNAMES_H

#include "moec/Import/TensorSignature.h"

namespace moec {

/// How a GGUF file holds a tensor of the layer; none where it cannot: weights
/// that are quantized otherwise than any block of ggml.
std::vector<CheckpointForm> getGgufForms(const LayerSpec &spec,
                                         const TensorInfo &tensor);

} // namespace moec

#endif // MOEC_LIB_IMPORT_GGUFNAMES_H
