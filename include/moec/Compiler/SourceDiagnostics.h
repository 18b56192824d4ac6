//===- SourceDiagnostics.h - diagnostics with source lines ------*- C++ -*-===//
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

/// Prints diagnostics as `file:line:col: error: message`. If the file is one of
/// `texts`, its line follows with a caret. Notes are indented.
class SourceDiagnostics : public mlir::ScopedDiagnosticHandler {
public:
  SourceDiagnostics(mlir::MLIRContext &context, llvm::raw_ostream &os);

  /// The texts read so far; initially empty.
  llvm::SourceMgr &getTexts() { return texts; }

private:
  /// `about` is the location whose line is already printed.
  void print(const mlir::Diagnostic &diagnostic, mlir::Location about);

  llvm::raw_ostream &os;
  llvm::SourceMgr texts;
};

} // namespace moec

#endif // MOEC_COMPILER_SOURCEDIAGNOSTICS_H
