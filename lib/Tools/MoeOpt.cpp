//===- MoeOpt.cpp - the command moe-opt -------------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "mlir/Pass/PassRegistry.h"
#include "mlir/Tools/mlir-opt/MlirOptMain.h"
#include "moec/Compiler/OutputFile.h"
#include "moec/Compiler/Registry.h"
#include "moec/Compiler/SourceFile.h"
#include "moec/Support/Diagnostics.h"
#include "moec/Tools/Tools.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/PrettyStackTrace.h"

using namespace mlir;

int moec::moeOptMain(int argc, char **argv) {
  llvm::setBugReportMsg("moe-opt crashed; please report it with the command "
                        "line and the input file.\n");
  DialectRegistry registry;
  registerDialects(registry);
  registerPasses();
  auto [inputName, outputName] = registerAndParseCLIOptions(
      argc, argv,
      "moe-opt: run passes on IR of any level of moec.\n\n"
      "  moe-opt layer.mlir --moe-decompose\n"
      "  moe-opt layer.mlir "
      "--pass-pipeline='builtin.module(convert-moe-to-plan)'"
      "\n",
      registry);
  MlirOptMainConfig config = MlirOptMainConfig::createFromCLOptions();
  if (config.shouldShowDialects()) {
    for (StringRef name : registry.getDialectNames())
      llvm::outs() << name << "\n";
    return 0;
  }
  if (config.shouldListPasses()) {
    printRegisteredPasses();
    return 0;
  }

  OutputCheck written;
  written.addInput(inputName);
  if (llvm::Error error =
          written.check("-o", outputName, OutputCheck::Kind::Text)) {
    llvm::errs() << "moe-opt: error: " << toString(std::move(error)) << "\n";
    return 1;
  }
  Diagnostics diagnostics(llvm::errs());
  FailureOr<SourceText> text =
      readTextFile(inputName, kMaxIRBytes, diagnostics);
  if (failed(text))
    return 1;
  std::unique_ptr<llvm::MemoryBuffer> file =
      llvm::MemoryBuffer::getMemBufferCopy(text->getText(), text->getName());
  if (failed(checkIRText(*file, llvm::errs())))
    return 1;
  std::string output;
  llvm::raw_string_ostream os(output);
  if (failed(MlirOptMain(os, std::move(file), registry, config)))
    return 1;
  return succeeded(writeOutputFile(outputName, output)) ? 0 : 1;
}
