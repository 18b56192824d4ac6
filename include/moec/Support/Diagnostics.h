//===- Diagnostics.h - errors that show the source line ---------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A text file that was read, ranges in it, and a place where messages about it
// go. A message looks like a compiler's:
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

/// A position as a person counts it: both start at 1, columns count characters
/// (not bytes) of UTF-8.
struct LineColumn {
  unsigned line = 1;
  unsigned column = 1;
};

/// A text with the name that messages give it. Ranges of this text stay valid
/// as long as it lives.
class SourceText {
public:
  SourceText(std::string name, std::string text)
      : name(std::move(name)), text(std::move(text)) {}

  llvm::StringRef getName() const { return name; }
  llvm::StringRef getText() const { return text; }
  llvm::StringRef getText(SourceRange range) const;

  /// The line that holds `offset`, without its end.
  SourceRange getLine(uint32_t offset) const;
  LineColumn getLineColumn(uint32_t offset) const;

private:
  std::string name;
  std::string text;
};

/// Prints errors and counts them. After `kMaxErrors` it stops printing, so that
/// a hostile file cannot flood a terminal.
class Diagnostics {
public:
  static constexpr unsigned kMaxErrors = 20;

  explicit Diagnostics(llvm::raw_ostream &os) : os(os) {}

  /// An error about a place in `text`, shown with its line and a caret.
  void error(const SourceText &text, SourceRange range,
             const llvm::Twine &message);

  /// An error about a file as a whole.
  void error(llvm::StringRef fileName, const llvm::Twine &message);

  unsigned getNumErrors() const { return numErrors; }

private:
  /// Counts an error; false when it is not to be printed.
  bool count();

  llvm::raw_ostream &os;
  unsigned numErrors = 0;
};

/// `text` in single quotes, cut to a length that fits a message and with
/// control characters replaced: for text that comes from a file.
std::string quote(llvm::StringRef text);

/// Reads a text file of at most `maxBytes` bytes. A missing, unreadable or too
/// large file is an error that names the file.
llvm::FailureOr<SourceText> readTextFile(llvm::StringRef path,
                                         uint64_t maxBytes, Diagnostics &diags);

} // namespace moec

#endif // MOEC_SUPPORT_DIAGNOSTICS_H
