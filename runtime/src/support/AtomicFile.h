//===- AtomicFile.h - writes files whole or not at all ----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOERT_SRC_SUPPORT_ATOMICFILE_H
#define MOERT_SRC_SUPPORT_ATOMICFILE_H

#include "moert/Status.h"

#include <cstddef>
#include <string>
#include <vector>

namespace moert {

/// A temporary file beside `path`, which commit() renames into place: a failure
/// leaves an old file as it was, and nothing of the new one.
class AtomicFile {
public:
  /// Refuses to replace what is not a regular file.
  static Result<AtomicFile> create(const std::string &path);
  AtomicFile(AtomicFile &&other) noexcept;
  AtomicFile &operator=(AtomicFile &&) = delete;
  ~AtomicFile();

  Status write(const void *data, size_t bytes);
  /// With `isDurable` the bytes are on the disk before the name says so, which
  /// takes the time that the disk takes.
  Status commit(bool isDurable = false);

private:
  AtomicFile(std::string path, std::string temporary, int descriptor);
  Status fail(int error) const;

  std::string path, temporary;
  /// -1 once it is closed.
  int descriptor;
};

struct FilePart {
  const void *data = nullptr;
  size_t bytes = 0;
};

/// Writes the parts, one after the other.
Status writeFileWhole(const std::string &path,
                      const std::vector<FilePart> &parts);

} // namespace moert

#endif // MOERT_SRC_SUPPORT_ATOMICFILE_H
