//===- Diagnostics.cpp - errors that show the source line -------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/Support/Diagnostics.h"

#include "../../runtime/src/support/RegularFile.h"
#include "../../runtime/src/support/Text.h"
#include "moec/Support/ReadBytes.h"
#include "llvm/ADT/STLExtras.h"

#include <algorithm>

#include <unistd.h>

using namespace llvm;

namespace moec {

namespace {
/// Largest width of a source line in messages. Configurations in checkpoints
/// may be a single line of any length.
constexpr size_t kMaxExcerpt = 100;

bool isContinuation(char c) { return (static_cast<uint8_t>(c) & 0xc0) == 0x80; }

unsigned countCharacters(StringRef text) {
  return llvm::count_if(text, [](char c) { return !isContinuation(c); });
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
    os << "error: too many errors; further ones are not shown\n";
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

  // Window of the line around the range; starts at a character boundary.
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

  auto show = [&](SourceRange range) {
    return moert::printable(text.getText(range), kMaxExcerpt);
  };
  unsigned indent = countCharacters(show({begin, caret}));
  uint32_t rangeEnd = std::clamp(range.end, caret, end);
  unsigned width = countCharacters(show({caret, rangeEnd}));
  os << "  " << show({begin, end}) << '\n';
  os.indent(2 + indent) << '^' << std::string(width > 1 ? width - 1 : 0, '~')
                        << '\n';
}

std::string quote(StringRef text) {
  return "'" + moert::printable(text, /*most=*/60) + "'";
}

Expected<std::string> readBytes(StringRef path, uint64_t maxBytes) {
  auto fail = [&](StringRef why) {
    why.consume_front((path + ": ").str());
    return createStringError(why);
  };
  int descriptor = STDIN_FILENO;
  moert::Result<moert::RegularFile> file = moert::RegularFile();
  if (path != "-") {
    file = moert::openRegularFile(path.str());
    if (!file)
      return fail(file.status().message());
    if (file->bytes() > maxBytes)
      return fail("has " + std::to_string(file->bytes()) + " bytes; at most " +
                  std::to_string(maxBytes) + " are read");
    descriptor = file->descriptor.get();
  }
  moert::Result<std::string> bytes = moert::readAtMost(descriptor, maxBytes);
  if (!bytes)
    return fail(bytes.status().message());
  return std::move(*bytes);
}

FailureOr<SourceText> readTextFile(StringRef path, uint64_t maxBytes,
                                   Diagnostics &diags) {
  Expected<std::string> text = readBytes(path, maxBytes);
  if (text)
    return SourceText(path == "-" ? "<stdin>" : path.str(), std::move(*text));
  diags.error(path, toString(text.takeError()));
  return failure();
}

} // namespace moec
