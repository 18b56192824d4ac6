//===- RegularFile.h - opens regular files ----------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOERT_SRC_SUPPORT_REGULARFILE_H
#define MOERT_SRC_SUPPORT_REGULARFILE_H

#include "Descriptor.h"
#include "moert/Status.h"

#include <cstdint>
#include <string>

#include <sys/stat.h>

namespace moert {

/// A regular file opened for reading, and its fstat().
struct RegularFile {
  Descriptor descriptor;
  struct stat info;

  uint64_t bytes() const { return static_cast<uint64_t>(info.st_size); }
};

/// The one opener of files. Accepts regular files only, since a pipe or a
/// device may be endless; never waits for a pipe's writer, unlike open().
Result<RegularFile> openRegularFile(const std::string &path);
/// Opens the file `name` of an open folder, without following links; `path` is
/// its name in messages.
Result<RegularFile> openRegularFileIn(int folder, const std::string &name,
                                      const std::string &path);

/// Reads to the end, counting bytes: a file may grow while it is read, and
/// standard input may be endless. More than `most` bytes are an error. Messages
/// do not begin with a path.
Result<std::string> readAtMost(int descriptor, uint64_t most);

} // namespace moert

#endif // MOERT_SRC_SUPPORT_REGULARFILE_H
