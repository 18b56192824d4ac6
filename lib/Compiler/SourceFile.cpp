//===- SourceFile.cpp - reads the files that describe a layer ---*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/Compiler/SourceFile.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/Twine.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/SourceMgr.h"

using namespace mlir;

/// The first bracket of `text` that is nested deeper than allowed, or null.
/// `<` counts too: types and attributes nest by it. The `>` of an arrow does
/// not close one.
static const char *findTooDeep(StringRef text) {
  int64_t depth = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    switch (text[i]) {
    case '/':
      if (text.substr(i).starts_with("//"))
        i = std::min(text.find('\n', i), text.size());
      break;
    case '"':
      for (++i; i < text.size() && text[i] != '"' && text[i] != '\n'; ++i)
        if (text[i] == '\\')
          ++i;
      break;
    case '(':
    case '[':
    case '{':
    case '<':
      if (++depth > moec::maxBracketNesting)
        return text.data() + i;
      break;
    case ')':
    case ']':
    case '}':
      depth = std::max<int64_t>(depth - 1, 0);
      break;
    case '>':
      if (i == 0 || text[i - 1] != '-')
        depth = std::max<int64_t>(depth - 1, 0);
      break;
    default:
      break;
    }
  }
  return nullptr;
}

LogicalResult moec::checkNesting(llvm::MemoryBufferRef text) {
  const char *deep = findTooDeep(text.getBuffer());
  if (!deep)
    return success();
  llvm::SourceMgr sources;
  sources.AddNewSourceBuffer(llvm::MemoryBuffer::getMemBuffer(text, false),
                             llvm::SMLoc());
  sources.PrintMessage(
      llvm::errs(), llvm::SMLoc::getFromPointer(deep),
      llvm::SourceMgr::DK_Error,
      "brackets nest deeper than " + Twine(maxBracketNesting) +
          " levels; IR of moec needs a dozen: split the text, or correct a "
          "bracket that is never closed");
  return failure();
}
