//===- CutColumns.h - what cut-columns asks of a schedule -------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_ANALYSIS_REWRITES_CUTCOLUMNS_H
#define MOEC_ANALYSIS_REWRITES_CUTCOLUMNS_H

#include "moec/Analysis/Schedules.h"

namespace moec {

/// A schedule of products on a GPU whose launches may compute some columns of
/// the result each (`first_column`).
class CutsColumns {
public:
  virtual ~CutsColumns() = default;
  /// Of what the columns of such a launch have to be a multiple.
  virtual int64_t getColumnMultiple(tile::ConfigAttr config) const = 0;
};

} // namespace moec

#endif // MOEC_ANALYSIS_REWRITES_CUTCOLUMNS_H
