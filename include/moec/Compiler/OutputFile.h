//===- OutputFile.h - writes text files whole -------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_COMPILER_OUTPUTFILE_H
#define MOEC_COMPILER_OUTPUTFILE_H

#include "mlir/Support/LLVM.h"

namespace moec {

/// Writes `text` under a temporary name next to `path` and renames it, so that
/// `path` never holds a part of it. "-" is standard output; what exists and is
/// no regular file (a pipe, a terminal) is written in place. A failure is told
/// on the error stream.
mlir::LogicalResult writeOutputFile(llvm::StringRef path, llvm::StringRef text);

} // namespace moec

#endif // MOEC_COMPILER_OUTPUTFILE_H
