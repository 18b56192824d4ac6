//===- Diagnostics.cpp - errors that show the source line -------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/Support/Diagnostics.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/ConvertUTF.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Unicode.h"

#include <algorithm>

using namespace llvm;

namespace moec {

namespace {
/// Widest excerpt of a line that a message shows. Checkpoints come with
/// configurations on a single line of any length.
constexpr size_t kMaxExcerpt = 100;

bool isContinuation(char c) { return (static_cast<uint8_t>(c) & 0xc0) == 0x80; }

unsigned countCharacters(StringRef text) {
  return llvm::count_if(text, [](char c) { return !isContinuation(c); });
}

/// Text as it may be shown on a terminal: UTF-8 without control characters and
/// characters that change the direction of others.
std::string printable(StringRef text) {
  std::string result;
  while (!text.empty()) {
    const auto *bytes = reinterpret_cast<const UTF8 *>(text.data());
    unsigned size = getUTF8SequenceSize(bytes, bytes + text.size());
    const UTF8 *end = bytes;
    UTF32 character = 0;
    bool isCharacter =
        size != 0 && convertUTF8Sequence(&end, bytes + size, &character,
                                         strictConversion) == conversionOK;
    if (isCharacter && sys::unicode::isPrintable(int(character)))
      result += text.take_front(size);
    else
      result += character == '\t' ? ' ' : '?';
    text = text.drop_front(std::max(size, 1U));
  }
  return result;
}
} // namespace

StringRef SourceText::getText(SourceRange range) const {
  return StringRef(text).slice(range.begin, range.end);
}

SourceRange SourceText::getLine(uint32_t offset) const {
  StringRef all = text;
  size_t at = std::min<size_t>(offset, all.size());
  size_t before = all.take_front(at).rfind('\n');
  size_t begin = before == StringRef::npos ? 0 : before + 1;
  size_t end = std::min(all.find('\n', at), all.size());
  if (end > begin && all[end - 1] == '\r')
    --end;
  return {static_cast<uint32_t>(begin), static_cast<uint32_t>(end)};
}

LineColumn SourceText::getLineColumn(uint32_t offset) const {
  SourceRange line = getLine(offset);
  LineColumn position;
  position.line += StringRef(text).take_front(line.begin).count('\n');
  position.column += countCharacters(
      getText({line.begin, std::max(line.begin, std::min(offset, line.end))}));
  return position;
}

bool Diagnostics::count() {
  ++numErrors;
  if (numErrors == kMaxErrors + 1)
    os << "error: too many errors, the others are not shown\n";
  return numErrors <= kMaxErrors;
}

void Diagnostics::error(StringRef fileName, const Twine &message) {
  if (count())
    os << fileName << ": error: " << message << '\n';
}

void Diagnostics::error(const SourceText &text, SourceRange range,
                        const Twine &message) {
  if (!count())
    return;
  LineColumn position = text.getLineColumn(range.begin);
  os << text.getName() << ':' << position.line << ':' << position.column
     << ": error: " << message << '\n';

  // A window of the line around the range, never starting inside a character.
  SourceRange line = text.getLine(range.begin);
  uint32_t caret = std::min(range.begin, line.end);
  uint32_t begin = line.begin, end = line.end;
  if (caret - begin > kMaxExcerpt / 2 && end - begin > kMaxExcerpt)
    begin = caret - kMaxExcerpt / 2;
  while (begin > line.begin && isContinuation(text.getText()[begin]))
    --begin;
  end = std::min<uint32_t>(end, begin + kMaxExcerpt);
  while (end < line.end && isContinuation(text.getText()[end]))
    --end;

  auto countShown = [&](SourceRange range) {
    return countCharacters(printable(text.getText(range)));
  };
  unsigned indent = countShown({begin, caret});
  unsigned width = countShown({caret, std::clamp(range.end, caret, end)});
  os << "  " << printable(text.getText({begin, end})) << '\n';
  os.indent(2 + indent) << '^' << std::string(width > 1 ? width - 1 : 0, '~')
                        << '\n';
}

std::string quote(StringRef text) {
  constexpr size_t maxLength = 60;
  if (text.size() <= maxLength)
    return "'" + printable(text) + "'";
  size_t end = maxLength;
  while (end > 0 && isContinuation(text[end]))
    --end;
  return "'" + printable(text.take_front(end)) + "...'";
}

FailureOr<SourceText> readTextFile(StringRef path, uint64_t maxBytes,
                                   Diagnostics &diags) {
  if (path != "-" && sys::fs::is_directory(path)) {
    diags.error(path, "is a directory, a file is needed");
    return failure();
  }
  uint64_t size = 0;
  if (path != "-" && !sys::fs::file_size(path, size) && size > maxBytes) {
    diags.error(path, "has " + Twine(size) + " bytes; at most " +
                          Twine(maxBytes) + " are read");
    return failure();
  }
  ErrorOr<std::unique_ptr<MemoryBuffer>> buffer =
      MemoryBuffer::getFileOrSTDIN(path, /*IsText=*/false,
                                   /*RequiresNullTerminator=*/false);
  if (!buffer) {
    diags.error(path, "cannot be read: " + buffer.getError().message());
    return failure();
  }
  // Again for what has no size of its own, such as a pipe.
  StringRef text = (*buffer)->getBuffer();
  if (text.size() > maxBytes) {
    diags.error(path, "has more than the " + Twine(maxBytes) +
                          " bytes that are read");
    return failure();
  }
  return SourceText(path == "-" ? "<stdin>" : path.str(), text.str());
}

} // namespace moec
