//===- GgufNames.h - tensor names and blocks of GGUF files ------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_IMPORT_GGUFNAMES_H
#define MOEC_LIB_IMPORT_GGUFNAMES_H

#include "moec/Import/TensorSignature.h"

namespace moec {

/// The layout of a layer tensor in a GGUF file; empty if no ggml block has the
/// quantization of the weight.
std::vector<CheckpointForm> getGgufForms(const LayerSpec &spec,
                                         const TensorInfo &tensor);

/// The quantization of weights in blocks of this kind; none if layers do not
/// multiply such blocks.
std::optional<OperandQuantization> getBlockQuantization(llvm::StringRef kind);

} // namespace moec

#endif // MOEC_LIB_IMPORT_GGUFNAMES_H
