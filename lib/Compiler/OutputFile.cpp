//===- OutputFile.cpp - writes text files atomically ----------------------===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/Compiler/OutputFile.h"

#include "../../runtime/src/support/AtomicFile.h"
#include "llvm/Support/Error.h"
#include "llvm/Support/raw_ostream.h"

using namespace mlir;

static moert::Status writeWhole(StringRef path, StringRef text) {
  // `path` may be standard output: flush what was printed before.
  llvm::outs().flush();
  return moert::writeFileWhole(path.str(), {{text.data(), text.size()}},
                               moert::AtomicFile::Devices::WriteInPlace);
}

LogicalResult moec::writeOutputFile(StringRef path, StringRef text) {
  std::string why;
  if (llvm::Error error = makeFoldersOf(path))
    why = "cannot be written: " + toString(std::move(error));
  else if (moert::Status status = writeWhole(path, text); !status)
    why = status.message();
  if (why.empty())
    return success();
  StringRef shown = why;
  shown.consume_front((path + ": ").str());
  llvm::errs() << (path == "-" ? "<stdout>" : path) << ": error: " << shown
               << "\n";
  return failure();
}
