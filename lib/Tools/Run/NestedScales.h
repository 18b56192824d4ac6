//===- NestedScales.h - scales that are quantized themselves ----*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What bitsandbytes says of a matrix in the tensors beside it.
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_TOOLS_RUN_NESTEDSCALES_H
#define MOEC_LIB_TOOLS_RUN_NESTEDSCALES_H

#include "moec/Import/TensorSignature.h"
#include "moert/Checkpoint.h"

namespace moec {

/// The scales that a tensor `M.absmax` of codes stands for, with the numbers of
/// codes `M.nested_quant_map`, the factors of their blocks `M.nested_absmax`,
/// and the JSON `M.quant_state.bitsandbytes__nf4`: number * factor + offset, in
/// f32. Fails, by name, where one of them is missing or another than these have
/// to be.
moert::Result<std::vector<float>>
readNestedScales(moert::Checkpoint &checkpoint, const std::string &absmax);

/// Whether the JSON is that of nf4 in blocks of `part.groupColumns` of a matrix
/// `rows` x `columns`; what is wrong, or nothing.
std::string checkNF4State(const CheckpointPart &part,
                          const moert::SafetensorsEntry &entry, int64_t rows,
                          int64_t columns);

/// Whether a tensor has the numbers of nf4; what is wrong, or nothing.
std::string checkNF4Numbers(const moert::SafetensorsEntry &entry);

} // namespace moec

#endif // MOEC_LIB_TOOLS_RUN_NESTEDSCALES_H
