//===- OutputFile.cpp - writes text files whole -----------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/Compiler/OutputFile.h"

#include "llvm/Support/Error.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/raw_ostream.h"

using namespace mlir;

static llvm::Error write(llvm::raw_fd_ostream &os, StringRef text) {
  os << text;
  os.flush();
  std::error_code error = os.error();
  // A stream that is destroyed with an error ends the process.
  os.clear_error();
  return llvm::errorCodeToError(error);
}

/// A pipe or a device, which a rename would replace.
static bool isSpecial(StringRef path) {
  llvm::sys::fs::file_status status;
  return !llvm::sys::fs::status(path, status) &&
         llvm::sys::fs::exists(status) &&
         !llvm::sys::fs::is_regular_file(status) &&
         !llvm::sys::fs::is_directory(status);
}

static llvm::Error writeInPlace(StringRef path, StringRef text) {
  std::error_code error;
  llvm::raw_fd_ostream os(path, error, llvm::sys::fs::OF_None);
  return error ? llvm::errorCodeToError(error) : write(os, text);
}

static llvm::Error writeAndRename(StringRef path, StringRef text) {
  if (llvm::sys::fs::is_directory(path))
    return llvm::errorCodeToError(
        std::make_error_code(std::errc::is_a_directory));
  if (llvm::Error error = moec::makeFoldersOf(path))
    return error;
  auto temporary = llvm::sys::fs::TempFile::create(
      path + ".tmp-%%%%%%", llvm::sys::fs::all_read | llvm::sys::fs::all_write);
  if (!temporary)
    return temporary.takeError();
  llvm::raw_fd_ostream os(temporary->FD, /*shouldClose=*/false);
  llvm::Error error = write(os, text);
  if (!error)
    return temporary->keep(path);
  return llvm::joinErrors(std::move(error), temporary->discard());
}

LogicalResult moec::writeOutputFile(StringRef path, StringRef text) {
  llvm::Error error = path == "-"       ? write(llvm::outs(), text)
                      : isSpecial(path) ? writeInPlace(path, text)
                                        : writeAndRename(path, text);
  if (!error)
    return success();
  llvm::errs() << (path == "-" ? "<stdout>" : path)
               << ": error: cannot be written: " << toString(std::move(error))
               << "\n";
  return failure();
}
