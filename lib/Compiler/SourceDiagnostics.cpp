//===- SourceDiagnostics.cpp - diagnostics with source lines --------------===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/Compiler/SourceDiagnostics.h"

using namespace mlir;
using namespace moec;

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

/// Prints the line of `position` with a caret, if its file is one of the texts.
/// Long lines are shortened to a window, since generated IR has lines of any
/// length.
static void printLine(llvm::SourceMgr &texts, FileLineColLoc position,
                      llvm::raw_ostream &os) {
  constexpr size_t maxExcerpt = 120;
  for (unsigned id = 1; id <= texts.getNumBuffers(); ++id) {
    const llvm::MemoryBuffer &buffer = *texts.getMemoryBuffer(id);
    if (buffer.getBufferIdentifier() != position.getFilename())
      continue;
    llvm::SMLoc found = texts.FindLocForLineAndColumn(id, position.getLine(),
                                                      position.getColumn());
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
    os << "  " << line << "\n";
    os.indent(2 + at - begin) << "^\n";
    return;
  }
}

void SourceDiagnostics::print(const Diagnostic &diagnostic, Location about) {
  Location location = diagnostic.getLocation();
  auto position = location->findInstanceOf<FileLineColLoc>();
  if (position) {
    os << position.getFilename().getValue() << ":";
    // A module that is not from a file has line 0.
    if (position.getLine() > 0)
      os << position.getLine() << ":" << position.getColumn() << ":";
    os << " ";
  } else if (!isa<UnknownLoc>(location)) {
    os << location << ": ";
  }
  os << getKind(diagnostic.getSeverity()) << ": " << diagnostic << "\n";
  if (position && position.getLine() > 0 && location != about)
    printLine(texts, position, os);
}

SourceDiagnostics::SourceDiagnostics(MLIRContext &context,
                                     llvm::raw_ostream &stream)
    : ScopedDiagnosticHandler(&context), os(stream) {
  // Our messages name their subject; printing the op could take pages.
  context.printOpOnDiagnostic(false);
  setHandler([this](Diagnostic &diagnostic) {
    print(diagnostic, UnknownLoc::get(diagnostic.getLocation().getContext()));
    for (Diagnostic &note : diagnostic.getNotes()) {
      os << "  ";
      print(note, diagnostic.getLocation());
    }
  });
}
