//===- OutputFile.h - writes text files atomically --------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_COMPILER_OUTPUTFILE_H
#define MOEC_COMPILER_OUTPUTFILE_H

#include "mlir/Support/LLVM.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/Support/Error.h"
#include "llvm/Support/FileSystem/UniqueID.h"

#include <string>

namespace moec {

/// Writes `text` atomically (moert::AtomicFile), so that `path` never holds
/// partial output. Creates missing folders. "-" is standard output; open
/// descriptors (/dev/stdout), pipes and devices are written in place. Reports
/// failures on the error stream.
mlir::LogicalResult writeOutputFile(llvm::StringRef path, llvm::StringRef text);

/// Creates the missing parent folders of `path`, a file to be written.
llvm::Error makeFoldersOf(llvm::StringRef path);

/// Checks output paths against inputs before any work starts. A path that
/// cannot be written fails early, and no output replaces an input.
class OutputCheck {
public:
  /// Allowed outputs besides regular files.
  enum class Kind {
    Text,  ///< "-", open descriptors, pipes and devices
    Binary ///< "-" and open descriptors
  };

  /// Adds a file, or all files in a folder. Paths that do not exist, "-" and ""
  /// are ignored.
  void addInput(llvm::StringRef path);

  /// Fails if `path` cannot be written, or if it is an input under any of its
  /// names. `option` is the user's name for it: "-o".
  llvm::Error check(llvm::StringRef option, llvm::StringRef path,
                    Kind kind) const;

  /// As `check`, for a folder that receives files whose names begin with
  /// `prefix`.
  llvm::Error checkFolder(llvm::StringRef option, llvm::StringRef path,
                          llvm::StringRef prefix) const;

private:
  struct Input {
    std::string path;
    llvm::sys::fs::UniqueID id;
  };

  /// The input with the same file as `path`, or null.
  const Input *find(llvm::StringRef path) const;

  llvm::SmallVector<Input> inputs;
};

} // namespace moec

#endif // MOEC_COMPILER_OUTPUTFILE_H
