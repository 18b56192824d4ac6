//===- Sm80Exchange.h - the schedule sm80.exchange --------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_ANALYSIS_SCHEDULES_SM80_SM80EXCHANGE_H
#define MOEC_LIB_ANALYSIS_SCHEDULES_SM80_SM80EXCHANGE_H

#include "../ScheduleTables.h"

namespace moec {

const Schedule &getExchangeSchedule();

} // namespace moec

#endif // MOEC_LIB_ANALYSIS_SCHEDULES_SM80_SM80EXCHANGE_H
