//===- QuantizationKeys.h - keys that say nothing of values -----*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_IMPORT_QUANTIZATIONKEYS_H
#define MOEC_LIB_IMPORT_QUANTIZATIONKEYS_H

#include "moec/Support/Json.h"

namespace moec {

/// Whether a key that a tool writes does not change what a checkpoint means:
/// because it is about the run of the tool or the choice of a kernel, or
/// because of its value.
bool saysNothing(llvm::StringRef tool, llvm::StringRef key,
                 const json::Value &value);

} // namespace moec

#endif // MOEC_LIB_IMPORT_QUANTIZATIONKEYS_H
