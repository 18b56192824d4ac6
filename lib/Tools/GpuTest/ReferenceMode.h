//===- ReferenceMode.h - gpu-test --reference, --generate -------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_TOOLS_GPUTEST_REFERENCEMODE_H
#define MOEC_LIB_TOOLS_GPUTEST_REFERENCEMODE_H

#include "Options.h"

namespace moec::gputest {

/// Evaluates the reference of one layer from a file to a file, for a test that
/// holds it against the one in Python. False, with a message, if it cannot.
bool runReference(const Options &options);

/// Writes generated values to a file, for the same with the generator.
bool runGenerator(const Options &options);

} // namespace moec::gputest

#endif // MOEC_LIB_TOOLS_GPUTEST_REFERENCEMODE_H
