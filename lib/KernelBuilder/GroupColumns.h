//===- GroupColumns.h - columns in the order of an expert -------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_KERNELBUILDER_GROUPCOLUMNS_H
#define MOEC_LIB_KERNELBUILDER_GROUPCOLUMNS_H

#include "KernelEmitter.h"

namespace moec {

/// The group of a valid position, both of type index. `offsets` has the start
/// of each group, and the end of the last one.
Index findGroup(KernelEmitter &emitter, mlir::Value offsets,
                mlir::Value position);

/// Converts an i32 of `columns` to a column index below `width`.
Index toColumn(KernelEmitter &emitter, mlir::Value number, int64_t width);

} // namespace moec

#endif // MOEC_LIB_KERNELBUILDER_GROUPCOLUMNS_H
