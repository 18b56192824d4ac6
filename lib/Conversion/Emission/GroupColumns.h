//===- GroupColumns.h - columns in the order of an expert -------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_CONVERSION_EMISSION_GROUPCOLUMNS_H
#define MOEC_LIB_CONVERSION_EMISSION_GROUPCOLUMNS_H

#include "KernelEmitter.h"

namespace moec {

/// The group of a position that there is, both of type index. `offsets` has
/// where each group begins, and where the last one ends.
mlir::Value findGroup(KernelEmitter &emitter, mlir::Value offsets,
                      mlir::Value position);

/// A number of `columns`, an i32, as that of one of `width` columns.
mlir::Value toColumn(KernelEmitter &emitter, mlir::Value number, int64_t width);

} // namespace moec

#endif // MOEC_LIB_CONVERSION_EMISSION_GROUPCOLUMNS_H
