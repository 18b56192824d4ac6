//===- Sm80PackedRows.h - schedules of an all-to-all ------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_ANALYSIS_SCHEDULES_SM80_SM80PACKEDROWS_H
#define MOEC_LIB_ANALYSIS_SCHEDULES_SM80_SM80PACKEDROWS_H

#include "../ScheduleTables.h"

namespace moec {

llvm::ArrayRef<const Schedule *> getPackedRowsSchedules();

} // namespace moec

#endif // MOEC_LIB_ANALYSIS_SCHEDULES_SM80_SM80PACKEDROWS_H
