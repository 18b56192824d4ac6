//===- BuildId.h - identifies the compiler build ----------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_JIT_BUILDID_H
#define MOEC_JIT_BUILDID_H

#include "llvm/Support/Error.h"

#include <string>

namespace moec {

/// The linker's digests of the program or library that contains the compiler,
/// and of the MLIR and LLVM libraries if they are separate. Any change of the
/// code changes them. Fails if a file was linked without `--build-id`.
llvm::Expected<std::string> getCompilerBuildId();

} // namespace moec

#endif // MOEC_JIT_BUILDID_H
