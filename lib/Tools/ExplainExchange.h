//===- ExplainExchange.h - what goes between ranks, for people --*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_TOOLS_EXPLAINEXCHANGE_H
#define MOEC_LIB_TOOLS_EXPLAINEXCHANGE_H

#include "moec/Analysis/Device.h"
#include "moec/Dialect/Plan/Plan.h"
#include "moert/Plan.h"

namespace moec {

/// Prints of each collective of a variant with its most tokens what a rank
/// sends, what that is expected to take where rates are known, which launches
/// may run beside it, and who moves the rows through the memory of other ranks.
/// `data` is the variant's program. Returns the lines that it has printed, none
/// of a variant without collectives.
size_t explainExchange(plan::VariantOp variant, const moert::Plan &data,
                       const DeviceRates *device, llvm::raw_ostream &os);

} // namespace moec

#endif // MOEC_LIB_TOOLS_EXPLAINEXCHANGE_H
