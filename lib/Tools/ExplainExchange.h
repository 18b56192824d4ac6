//===- ExplainExchange.h - explains collectives -----------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_TOOLS_EXPLAINEXCHANGE_H
#define MOEC_LIB_TOOLS_EXPLAINEXCHANGE_H

#include "moec/Dialect/Plan/Plan.h"
#include "moec/Schedules/Device.h"
#include "moert/Plan.h"

namespace moec {

/// Prints, for each collective of a variant with its most tokens, the bytes
/// that a rank sends, the expected time if rates are known, the launches that
/// may run beside it, and what moves the rows through the memory of other
/// ranks. `data` is the variant's program. Returns the number of printed lines,
/// 0 for a variant without collectives.
size_t explainExchange(plan::VariantOp variant, const moert::Plan &data,
                       const DeviceRates *device, llvm::raw_ostream &os);

} // namespace moec

#endif // MOEC_LIB_TOOLS_EXPLAINEXCHANGE_H
