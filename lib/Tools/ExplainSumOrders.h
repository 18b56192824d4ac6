//===- ExplainSumOrders.h - what the bits of a row depend on ----*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_TOOLS_EXPLAINSUMORDERS_H
#define MOEC_LIB_TOOLS_EXPLAINSUMORDERS_H

#include "mlir/Support/LLVM.h"
#include "moert/Plan.h"

namespace moec {

/// Prints the certificate of batch invariance, with its digest, or that there
/// is none. Returns the number of lines.
size_t explainSumOrders(const moert::Plan &plan, llvm::raw_ostream &os);

} // namespace moec

#endif // MOEC_LIB_TOOLS_EXPLAINSUMORDERS_H
