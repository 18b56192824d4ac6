//===- SplitColumns.h - what split-columns asks of a schedule ---*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_SCHEDULES_REWRITES_SPLITCOLUMNS_H
#define MOEC_SCHEDULES_REWRITES_SPLITCOLUMNS_H

#include "moec/Schedules/Schedules.h"

namespace moec {

/// A gemm schedule on a GPU whose launches may each compute some columns of the
/// result (`first_column`).
class SplitsColumns {
public:
  virtual ~SplitsColumns() = default;
  /// Required multiple of a launch's columns.
  virtual int64_t getColumnMultiple(tile::ConfigAttr config) const = 0;
};

} // namespace moec

#endif // MOEC_SCHEDULES_REWRITES_SPLITCOLUMNS_H
