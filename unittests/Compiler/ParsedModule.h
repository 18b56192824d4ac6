//===- ParsedModule.h - IR from text, and what it made MLIR say -*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_UNITTESTS_COMPILER_PARSEDMODULE_H
#define MOEC_UNITTESTS_COMPILER_PARSEDMODULE_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/Parser/Parser.h"
#include "moec/Dialect/Tile/Tile.h"

#include "gtest/gtest.h"

namespace moec {

/// A module with a context of its own; diagnostics are collected, not printed.
class ParsedModule {
public:
  explicit ParsedModule(llvm::StringRef text)
      : handler(&context, [this](mlir::Diagnostic &diagnostic) {
          messages += diagnostic.str() + "\n";
          return mlir::success();
        }) {
    context.loadDialect<mlir::func::FuncDialect, mlir::memref::MemRefDialect,
                        mlir::arith::ArithDialect, moe::MoeDialect,
                        plan::PlanDialect, tile::TileDialect>();
    module = mlir::parseSourceString<mlir::ModuleOp>(text, &context);
    EXPECT_TRUE(module) << messages;
  }

  mlir::MLIRContext context;
  std::string messages;
  mlir::ScopedDiagnosticHandler handler;
  mlir::OwningOpRef<mlir::ModuleOp> module;
};

} // namespace moec

#endif // MOEC_UNITTESTS_COMPILER_PARSEDMODULE_H
