//===- OutputFile.h - writes text files whole -------------------*- C++ -*-===//
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

/// Writes `text` by moert::AtomicFile, so that `path` never holds a part of it.
/// Folders that are missing are made. "-" is standard output; an open
/// descriptor
/// (/dev/stdout), a pipe and a device are written in place. A failure is told
/// on the error stream.
mlir::LogicalResult writeOutputFile(llvm::StringRef path, llvm::StringRef text);

/// Makes the folders that `path`, a file to be written, still lacks.
llvm::Error makeFoldersOf(llvm::StringRef path);

/// The files that a command reads, and whether it may write others: asked
/// before any work is done, so that hours of it are not lost to a path that
/// cannot be written, and no input is ever replaced by an output.
class OutputCheck {
public:
  /// What may be written to besides regular files.
  enum class Kind {
    Text,  ///< "-", open descriptors, pipes and devices
    Binary ///< "-" and open descriptors
  };

  /// Adds a file, or each file in a folder. Paths that do not exist, "-" and ""
  /// are none of this object's business.
  void addInput(llvm::StringRef path);

  /// Fails if a file called `path` could not be written, or is one of the
  /// inputs by any of its names. `option` is what the user calls it: "-o".
  llvm::Error check(llvm::StringRef option, llvm::StringRef path,
                    Kind kind) const;

  /// The same of a folder that files whose names begin with `prefix` are
  /// written to.
  llvm::Error checkFolder(llvm::StringRef option, llvm::StringRef path,
                          llvm::StringRef prefix) const;

private:
  struct Input {
    std::string path;
    llvm::sys::fs::UniqueID id;
  };

  /// The input that `path` is, or null.
  const Input *find(llvm::StringRef path) const;

  llvm::SmallVector<Input> inputs;
};

} // namespace moec

#endif // MOEC_COMPILER_OUTPUTFILE_H
