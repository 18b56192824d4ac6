//===- RegularFile.h - the one opener of files ------------------*- C++ -*-===//
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

/// A regular file that is open to be read, and what fstat() says of it.
struct RegularFile {
  Descriptor descriptor;
  struct stat info;

  uint64_t bytes() const { return static_cast<uint64_t>(info.st_size); }
};

/// The one opener of files. It does not wait for a writer as open() of a pipe
/// does, and takes regular files alone: a pipe or a device could be endless.
Result<RegularFile> openRegularFile(const std::string &path);
/// The file `name` of an open folder, which is no link. Messages call it
/// `path`.
Result<RegularFile> openRegularFileIn(int folder, const std::string &name,
                                      const std::string &path);

/// All bytes up to the end, which are counted: a file may grow while it is
/// read, and standard input may be endless. More than `most` are refused.
/// Messages begin with no path.
Result<std::string> readAtMost(int descriptor, uint64_t most);

} // namespace moert

#endif // MOERT_SRC_SUPPORT_REGULARFILE_H
