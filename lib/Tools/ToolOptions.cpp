//===- ToolOptions.cpp - options that the commands share --------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ToolOptions.h"

#include "moec/Compiler/Registry.h"

using namespace mlir;
using namespace moec;

ForeignOptionsRemoved::ForeignOptionsRemoved() {
  llvm::SmallVector<llvm::cl::Option *> foreign;
  for (const auto &entry : llvm::cl::getRegisteredOptions())
    if (!llvm::StringRef(entry.first).starts_with("help") &&
        entry.first != "version")
      foreign.push_back(entry.second);
  for (llvm::cl::Option *option : foreign)
    option->removeArgument();
}

bool ToolOptions::parse(int argc, char **argv, llvm::StringRef overview) {
  llvm::cl::HideUnrelatedOptions(category);
  // Parsing errors are ours to report: by default the process would end here.
  if (!llvm::cl::ParseCommandLineOptions(argc, argv, overview, &llvm::errs()))
    return false;
  auto complain = [&](const llvm::Twine &message) {
    llvm::errs() << argv[0] << ": error: " << message << "\n";
    return false;
  };
  if (target != "cpu")
    return complain("--target: '" + target +
                    "' is not supported yet; the only target is 'cpu'");
  if (maxTokens.getNumOccurrences() && maxTokens <= 0)
    return complain("--max-tokens must be positive");
  if (numExperts.getNumOccurrences() && numExperts <= 0)
    return complain("--num-experts must be positive");
  if (entry.getNumOccurrences() && !symbolize<Entry>(entry))
    return complain("--entry: '" + entry +
                    "' is none of 'gate', 'logits', 'ids'");
  return true;
}

SpecOverrides ToolOptions::getOverrides() const {
  SpecOverrides overrides;
  if (maxTokens.getNumOccurrences())
    overrides.maxTokens = maxTokens;
  if (numExperts.getNumOccurrences())
    overrides.numExperts = numExperts;
  if (entry.getNumOccurrences())
    overrides.entry = symbolize<Entry>(entry);
  return overrides;
}

CompileOptions ToolOptions::getCompileOptions() const {
  CompileOptions options;
  options.cpu.cpu = cpu;
  options.printIRAfterAll = printIRAfterAll;
  options.dumpDir = dumpDir;
  options.reproducer = reproducer;
  return options;
}

DialectRegistry ToolOptions::makeRegistry() {
  DialectRegistry registry;
  registerDialects(registry);
  return registry;
}

static llvm::StringRef getKind(DiagnosticSeverity severity) {
  switch (severity) {
  case DiagnosticSeverity::Note:
    return "note";
  case DiagnosticSeverity::Warning:
    return "warning";
  case DiagnosticSeverity::Error:
    return "error";
  case DiagnosticSeverity::Remark:
    return "remark";
  }
  llvm_unreachable("every severity is listed");
}

static void print(const Diagnostic &diagnostic, llvm::StringRef indent) {
  llvm::errs() << indent;
  if (!isa<UnknownLoc>(diagnostic.getLocation()))
    llvm::errs() << diagnostic.getLocation() << ": ";
  llvm::errs() << getKind(diagnostic.getSeverity()) << ": " << diagnostic
               << "\n";
}

ConsoleDiagnostics::ConsoleDiagnostics(MLIRContext &context)
    : ScopedDiagnosticHandler(&context) {
  setHandler([](Diagnostic &diagnostic) {
    print(diagnostic, "");
    for (Diagnostic &note : diagnostic.getNotes())
      print(note, "  ");
  });
}
