//===- GgufLayer.h - what a GGUF file's tensors say -------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_IMPORT_GGUFLAYER_H
#define MOEC_LIB_IMPORT_GGUFLAYER_H

#include "Families/Family.h"
#include "FieldReader.h"
#include "moec/Import/GgufModel.h"

namespace moec {

/// Completes a layer that was read from the configuration of a GGUF file by its
/// tensors: the selection bias, the router's dtype, and the quantization of
/// each gemm. Reports metadata that contradict the family.
void readGgufLayer(const GgufModel &model, const Family &family, int64_t layer,
                   ImportContext &context, LayerSpec &spec);

} // namespace moec

#endif // MOEC_LIB_IMPORT_GGUFLAYER_H
