//===- BuildId.h - which build of the compiler this is ----------*- C++ -*-===//
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

/// Digests, made by the linker, of the program or library that holds the
/// compiler, and of those that hold MLIR and LLVM where they are others. They
/// change with every change of the code. Fails where a file was linked without
/// `--build-id`.
llvm::Expected<std::string> getCompilerBuildId();

} // namespace moec

#endif // MOEC_JIT_BUILDID_H
