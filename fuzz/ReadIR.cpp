//===- ReadIR.cpp - text of MLIR --------------------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Readers.h"
#include "mlir/Parser/Parser.h"
#include "moec/Compiler/Compiler.h"
#include "moec/Compiler/PlanData.h"
#include "moec/Compiler/SourceFile.h"

using namespace moec;
using namespace moec::testing;

Reading IRReader::read(llvm::StringRef input) {
  // MLIR's lexer needs a terminating null character.
  std::string text = input.str();
  std::string messages;
  llvm::raw_string_ostream os(messages);
  if (failed(checkIRText(llvm::MemoryBufferRef(text, "t.mlir"), os)))
    return {false, messages.empty() ? "refused without a message" : ""};
  mlir::OwningOpRef<mlir::ModuleOp> module =
      mlir::parseSourceString<mlir::ModuleOp>(text, &contexts.take());
  if (!module)
    return {false, ""};
  for (const char *target : {"cpu", "sm_80", "sm_90a"}) {
    mlir::OwningOpRef<mlir::ModuleOp> copy = module->clone();
    CompileOptions options;
    options.target = target;
    if (succeeded(lowerToLevel(*copy, Level::Tile, options)))
      (void)translatePlan(*copy, target);
  }
  return {true, ""};
}
