//===- StoredMatrices.h - matrices that are dequantized at load -*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A gemm has one scheme. Where the matrices of a checkpoint have several, the
// layer's weight is not quantized, and the loader dequantizes each matrix.
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_TOOLS_RUN_STOREDMATRICES_H
#define MOEC_LIB_TOOLS_RUN_STOREDMATRICES_H

#include "moec/Checkpoint/LocateLayer.h"

namespace moec {

/// Reads the matrix of `located`, whose part has one, and dequantizes it: rows
/// x K elements of `dtype`. `expert` is the id in names, `number` the index in
/// tensors of all experts. The product of element and scale is in f32, rounded
/// to `dtype`.
moert::Result<std::vector<uint8_t>>
readStoredMatrix(moert::Checkpoint &checkpoint, const LocatedPart &located,
                 int64_t expert, int64_t number, moert::DType dtype);

} // namespace moec

#endif // MOEC_LIB_TOOLS_RUN_STOREDMATRICES_H
