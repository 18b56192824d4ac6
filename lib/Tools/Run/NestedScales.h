//===- NestedScales.h - quantized scales of bitsandbytes --------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The tensors that bitsandbytes stores beside a quantized matrix.
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_TOOLS_RUN_NESTEDSCALES_H
#define MOEC_LIB_TOOLS_RUN_NESTEDSCALES_H

#include "moec/Import/TensorSignature.h"
#include "moert/Checkpoint.h"

namespace moec {

/// Dequantizes the scales in a tensor `M.absmax`: value * factor + offset in
/// f32, with the code book `M.nested_quant_map`, the block factors
/// `M.nested_absmax`, and the JSON `M.quant_state.bitsandbytes__nf4`. Fails,
/// naming the tensor, if one of them is missing or has unexpected contents.
moert::Result<std::vector<float>>
readNestedScales(moert::Checkpoint &checkpoint, const std::string &absmax);

/// Checks that the JSON describes nf4 in blocks of `part.groupColumns` of a
/// matrix `rows` x `columns`; returns what is wrong, or an empty string.
std::string checkNF4State(const CheckpointPart &part,
                          const moert::SafetensorsEntry &entry, int64_t rows,
                          int64_t columns);

/// Checks that a tensor is the code book of nf4; returns what is wrong, or an
/// empty string.
std::string checkNF4Numbers(const moert::SafetensorsEntry &entry);

} // namespace moec

#endif // MOEC_LIB_TOOLS_RUN_NESTEDSCALES_H
