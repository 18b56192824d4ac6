//===- ToolOptions.cpp - options that the commands share --------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ToolOptions.h"

#include "moec/Analysis/Schedules.h"
#include "moec/Compiler/Registry.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/PrettyStackTrace.h"

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

bool ToolOptions::complain(const llvm::Twine &message) const {
  llvm::errs() << tool << ": error: " << message << "\n";
  return false;
}

bool ToolOptions::parse(int argc, char **argv, llvm::StringRef overview) {
  static std::string report =
      (tool + " crashed; please report it with the command line and the input "
              "files.\n")
          .str();
  llvm::setBugReportMsg(report.c_str());
  llvm::cl::SetVersionPrinter(
      [](llvm::raw_ostream &os) { os << "moec " MOEC_VERSION "\n"; });
  llvm::cl::HideUnrelatedOptions(category);
  // Parsing errors are ours to report: by default the process would end here.
  if (!llvm::cl::ParseCommandLineOptions(argc, argv, overview, &llvm::errs()))
    return false;
  if (input.empty())
    return complain("no input; give a model's config.json, a spec (.json) or "
                    "IR (.mlir), see --help");
  if (!Target::find(target))
    return complain("--target: '" + target + "' is unknown; accepted are " +
                    llvm::join(Target::getNames(), ", "));
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
  options.target = target;
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

/// The line of `place` and a caret, if one of the texts is its file. A long
/// line is cut to a window: generated IR has lines of any length.
static void printLine(llvm::SourceMgr &texts, FileLineColLoc place) {
  constexpr size_t maxExcerpt = 120;
  for (unsigned id = 1; id <= texts.getNumBuffers(); ++id) {
    const llvm::MemoryBuffer &buffer = *texts.getMemoryBuffer(id);
    if (buffer.getBufferIdentifier() != place.getFilename())
      continue;
    llvm::SMLoc found =
        texts.FindLocForLineAndColumn(id, place.getLine(), place.getColumn());
    if (!found.isValid())
      return;
    llvm::StringRef text = buffer.getBuffer();
    size_t at = size_t(found.getPointer() - text.data());
    size_t begin = text.take_front(at).rfind('\n') + 1;
    size_t end = std::min(text.find('\n', at), text.size());
    if (at - begin > maxExcerpt / 2 && end - begin > maxExcerpt)
      begin = at - maxExcerpt / 2;
    std::string line = text.slice(begin, end).take_front(maxExcerpt).str();
    for (char &c : line)
      if (static_cast<unsigned char>(c) < ' ' || c == 0x7f)
        c = c == '\t' ? ' ' : '?';
    llvm::errs() << "  " << line << "\n";
    llvm::errs().indent(2 + at - begin) << "^\n";
    return;
  }
}

void ConsoleDiagnostics::print(const Diagnostic &diagnostic, Location about) {
  Location location = diagnostic.getLocation();
  auto place = location->findInstanceOf<FileLineColLoc>();
  if (place) {
    llvm::errs() << place.getFilename().getValue() << ":";
    // A module that is not written out has line 0.
    if (place.getLine() > 0)
      llvm::errs() << place.getLine() << ":" << place.getColumn() << ":";
    llvm::errs() << " ";
  } else if (!isa<UnknownLoc>(location)) {
    llvm::errs() << location << ": ";
  }
  llvm::errs() << getKind(diagnostic.getSeverity()) << ": " << diagnostic
               << "\n";
  if (place && place.getLine() > 0 && location != about)
    printLine(texts, place);
}

ConsoleDiagnostics::ConsoleDiagnostics(MLIRContext &context)
    : ScopedDiagnosticHandler(&context) {
  // Messages of ours say what they are about; the op alone can be long pages.
  context.printOpOnDiagnostic(false);
  setHandler([this](Diagnostic &diagnostic) {
    print(diagnostic, UnknownLoc::get(diagnostic.getLocation().getContext()));
    for (Diagnostic &note : diagnostic.getNotes()) {
      llvm::errs() << "  ";
      print(note, diagnostic.getLocation());
    }
  });
}
