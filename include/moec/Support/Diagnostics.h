//===- Diagnostics.h - errors that show the source line ---------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Source texts, ranges in them, and errors that point to them. A message looks
// like a compiler's:
//
//   model.json:7:12: error: 'top_k' is 9, but there are 8 experts
//      "top_k": 9,
//               ^
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_SUPPORT_DIAGNOSTICS_H
#define MOEC_SUPPORT_DIAGNOSTICS_H

#include "llvm/ADT/StringRef.h"
#include "llvm/ADT/Twine.h"
#include "llvm/Support/LogicalResult.h"
#include "llvm/Support/raw_ostream.h"

#include <cstdint>
#include <optional>
#include <string>

namespace moec {

/// A half-open range of byte offsets in a `SourceText`.
struct SourceRange {
  uint32_t begin = 0;
  uint32_t end = 0;
};

/// A position for people: line and column start at 1, and columns count UTF-8
/// characters (not bytes).
struct LineColumn {
  unsigned line = 1;
  unsigned column = 1;
};

/// A text and its name in messages. Ranges of this text are valid as long as it
/// lives.
class SourceText {
public:
  SourceText(std::string name, std::string text)
      : name(std::move(name)), text(std::move(text)) {}

  llvm::StringRef getName() const { return name; }
  llvm::StringRef getText() const { return text; }
  llvm::StringRef getText(SourceRange range) const;

  /// The line that contains `offset`, without its end.
  SourceRange getLine(uint32_t offset) const;
  LineColumn getLineColumn(uint32_t offset) const;

private:
  std::string name;
  std::string text;
};

/// Prints and counts errors. After `kMaxErrors` it prints no more, so that a
/// hostile file cannot flood a terminal.
class Diagnostics {
public:
  static constexpr unsigned kMaxErrors = 20;

  explicit Diagnostics(llvm::raw_ostream &os) : os(os) {}

  /// Reports an error at a range of `text`, with its line and a caret.
  void error(const SourceText &text, SourceRange range,
             const llvm::Twine &message);

  /// Reports an error about a whole file.
  void error(llvm::StringRef fileName, const llvm::Twine &message);

  unsigned getNumErrors() const { return numErrors; }

private:
  /// Counts an error. Returns false if it must not be printed.
  bool count();

  llvm::raw_ostream &os;
  unsigned numErrors = 0;
};

/// `text` in single quotes, shortened to fit a message, with control characters
/// replaced. For text from a file.
std::string quote(llvm::StringRef text);

/// Reads a text file of at most `maxBytes` bytes. A missing, unreadable or too
/// large file is an error that names the file.
llvm::FailureOr<SourceText> readTextFile(llvm::StringRef path,
                                         uint64_t maxBytes, Diagnostics &diags);

} // namespace moec

#endif // MOEC_SUPPORT_DIAGNOSTICS_H
