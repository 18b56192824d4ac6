//===- SourceDiagnostics.h - messages that show their line ------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_COMPILER_SOURCEDIAGNOSTICS_H
#define MOEC_COMPILER_SOURCEDIAGNOSTICS_H

#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/MLIRContext.h"
#include "llvm/Support/SourceMgr.h"
#include "llvm/Support/raw_ostream.h"

namespace moec {

/// Prints diagnostics as `file:line:col: error: message`, with the line and a
/// caret where the file is one of `texts`, notes indented.
class SourceDiagnostics : public mlir::ScopedDiagnosticHandler {
public:
  SourceDiagnostics(mlir::MLIRContext &context, llvm::raw_ostream &os);

  /// The texts that were read; empty at first.
  llvm::SourceMgr &getTexts() { return texts; }

private:
  /// The line of `about` has been shown.
  void print(const mlir::Diagnostic &diagnostic, mlir::Location about);

  llvm::raw_ostream &os;
  llvm::SourceMgr texts;
};

} // namespace moec

#endif // MOEC_COMPILER_SOURCEDIAGNOSTICS_H
