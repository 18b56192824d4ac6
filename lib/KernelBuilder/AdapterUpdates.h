//===- AdapterUpdates.h - what adapters add to a gemm's sums ----*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_KERNELBUILDER_ADAPTERUPDATES_H
#define MOEC_LIB_KERNELBUILDER_ADAPTERUPDATES_H

#include "KernelEmitter.h"

namespace moec {

/// The argument of a gemm's epilogue for matrix `number` of `b`, at a row and a
/// result column of the group (all of type index). The order of the sum depends
/// on the rank alone.
F32 loadAdapterUpdate(KernelEmitter &emitter, tile::GemmOp op, int64_t number,
                      mlir::Value group, Index row, Index column);

/// Stores a sum of a `tile.lora_shrink` as f32 or, in rows of 16-bit numbers,
/// as the sum of a high and a low one.
void storeShrunk(KernelEmitter &emitter, F32 sum, mlir::Value rows, Index row,
                 Index column);

} // namespace moec

#endif // MOEC_LIB_KERNELBUILDER_ADAPTERUPDATES_H
