//===- Style.h - style sheet and script -------------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_TOOLS_REPORT_STYLE_H
#define MOEC_LIB_TOOLS_REPORT_STYLE_H

#include "llvm/ADT/StringRef.h"

namespace moec::report {

/// The style sheet, and the script that highlights related parts, opens levels
/// and shows one token range at a time.
extern const llvm::StringLiteral kStyle, kScript;

} // namespace moec::report

#endif // MOEC_LIB_TOOLS_REPORT_STYLE_H
