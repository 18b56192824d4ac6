//===- SourceFile.cpp - checks of IR text ---------------------------------===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/Compiler/SourceFile.h"

#include "mlir/Bytecode/BytecodeReader.h"
#include "moec/Support/Diagnostics.h"
#include "moert/TextEncoding.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/Twine.h"

using namespace mlir;
using namespace moec;

namespace {

/// Finds the position where IR text is more than MLIR's parser can take: where
/// it nests too deep, and arrays of `index`, which end the process. `<` counts
/// as a bracket, since types and attributes nest with it; the `>` of an arrow
/// closes none. An alias (`#a`, `!a`) counts with the depth of its definition,
/// and a sign in an affine expression counts as a bracket.
class NestingScanner {
public:
  explicit NestingScanner(StringRef text) : text(text) {}

  /// The first position that the parser cannot take, or null.
  const char *find() {
    for (; position < text.size(); ++position)
      if (!scan(text[position]))
        return text.data() + position;
    return nullptr;
  }
  /// True if find() has found an array, not a bracket.
  bool isArray() const { return isOfIndex; }

private:
  /// Processes the character at `position`, or the token that starts there, and
  /// leaves `position` at its last character. False if the parser cannot take
  /// it.
  bool scan(char c) {
    if (c == '-' && !text.substr(position).starts_with("->"))
      return ++signs + depth <= kMaxBracketNesting;
    if (!llvm::isSpace(c))
      signs = 0;
    if (llvm::isAlnum(c) || c == '_') {
      word = text.substr(position).take_while(
          [](char c) { return llvm::isAlnum(c) || c == '_'; });
      position += word.size() - 1;
      aliasHasValue = true;
      return true;
    }
    if (c == '<' && word == "array" && startsIndex(position + 1)) {
      isOfIndex = true;
      return false;
    }
    if (!llvm::isSpace(c) && !text.substr(position).starts_with("//"))
      word = "";
    switch (c) {
    case '\n':
      if (depth == 0 && aliasHasValue)
        endAlias();
      return true;
    case '/':
      if (text.substr(position).starts_with("//"))
        position = std::min(text.find('\n', position), text.size()) - 1;
      return true;
    case '"':
      skipString();
      aliasHasValue = true;
      return true;
    case '#':
    case '!':
      return scanAlias();
    case '(':
    case '[':
    case '{':
    case '<':
      return reach(++depth);
    case ')':
    case ']':
    case '}':
      depth = std::max<int64_t>(depth - 1, 0);
      return true;
    case '>':
      if (position == 0 || text[position - 1] != '-')
        depth = std::max<int64_t>(depth - 1, 0);
      return true;
    default:
      aliasHasValue |= !llvm::isSpace(c);
      return true;
    }
  }

  bool reach(int64_t reached) {
    aliasHasValue = true;
    aliasDepth = std::max(aliasDepth, reached);
    return reached <= kMaxBracketNesting;
  }

  /// True if the type `index` or an alias of a type follows.
  bool startsIndex(size_t from) const {
    StringRef rest = text.substr(from).ltrim();
    while (rest.starts_with("//"))
      rest = rest.drop_until([](char c) { return c == '\n'; }).ltrim();
    return rest.starts_with("index") || rest.starts_with("!");
  }

  void skipString() {
    for (++position; position < text.size() && text[position] != '"' &&
                     text[position] != '\n';
         ++position)
      if (text[position] == '\\')
        ++position;
  }

  /// Processes a use of an alias, or its definition `#a = ...`.
  bool scanAlias() {
    StringRef rest = text.substr(position + 1);
    StringRef word = rest.take_while([](char c) {
      return llvm::isAlnum(c) || StringRef("_$.-").contains(c);
    });
    StringRef name = text.substr(position, 1 + word.size());
    position += word.size();
    rest = rest.substr(word.size()).ltrim();
    if (depth > 0 || !rest.starts_with("=") || rest.starts_with("=="))
      return reach(depth + depths.lookup(name));
    endAlias();
    alias = name;
    position = size_t(rest.data() - text.data());
    return true;
  }

  void endAlias() {
    if (!alias.empty())
      depths[alias] = aliasDepth + 1;
    alias = "";
    aliasDepth = 0;
    aliasHasValue = false;
  }

  StringRef text;
  size_t position = 0;
  /// Open brackets, and consecutive signs.
  int64_t depth = 0, signs = 0;
  /// The alias whose definition is being read, if any, and the depth of the
  /// definition so far.
  StringRef alias;
  int64_t aliasDepth = 0;
  bool aliasHasValue = false;
  llvm::StringMap<int64_t> depths;
  /// The word ahead of `position`, if only spaces and comments are between.
  StringRef word;
  bool isOfIndex = false;
};

} // namespace

LogicalResult moec::checkNesting(llvm::MemoryBufferRef text,
                                 llvm::raw_ostream &os) {
  NestingScanner scanner(text.getBuffer());
  const char *at = scanner.find();
  if (!at)
    return success();
  SourceText source(text.getBufferIdentifier().str(), text.getBuffer().str());
  auto offset = uint32_t(at - text.getBufferStart());
  std::string message =
      scanner.isArray()
          ? "an array of 'index' or of an alias is not read; name an integer "
            "or float type, as in array<i64: 1>"
          : "brackets nest deeper than " + std::to_string(kMaxBracketNesting) +
                " levels, while IR of moec needs about a dozen; split the "
                "text, or close an open bracket";
  Diagnostics(os).error(source, {offset, offset + 1}, message);
  return failure();
}

LogicalResult moec::checkIRText(llvm::MemoryBufferRef text,
                                llvm::raw_ostream &os) {
  StringRef name = text.getBufferIdentifier();
  if (text.getBufferSize() > kMaxIRBytes) {
    Diagnostics(os).error(name, "has " + Twine(text.getBufferSize()) +
                                    " bytes; IR of at most " +
                                    Twine(kMaxIRBytes) + " bytes is read");
    return failure();
  }
  StringRef all = text.getBuffer();
  if (const char *encoding = moert::explainEncoding(all.data(), all.size())) {
    Diagnostics(os).error(name, Twine("not IR: ") + encoding);
    return failure();
  }
  if (isBytecode(text)) {
    Diagnostics(os).error(name, "is MLIR bytecode; give IR as text");
    return failure();
  }
  return checkNesting(text, os);
}
