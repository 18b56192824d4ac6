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

} // namespace moec

#endif // MOEC_LIB_KERNELBUILDER_ADAPTERUPDATES_H
