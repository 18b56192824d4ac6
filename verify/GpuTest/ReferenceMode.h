//===- ReferenceMode.h - gpu-test --reference, --generate -------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_VERIFY_GPUTEST_REFERENCEMODE_H
#define MOEC_VERIFY_GPUTEST_REFERENCEMODE_H

#include "Options.h"

namespace moec::gputest {

/// Evaluates the reference of one layer from a file to a file, for a test
/// against the reference in Python. Returns false, with a message, on failure.
bool runReference(const Options &options);

/// Writes generated values to a file, for a test against the generator in
/// Python.
bool runGenerator(const Options &options);

} // namespace moec::gputest

#endif // MOEC_VERIFY_GPUTEST_REFERENCEMODE_H
