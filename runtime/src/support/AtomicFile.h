//===- AtomicFile.h - writes files whole or not at all ----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOERT_SRC_SUPPORT_ATOMICFILE_H
#define MOERT_SRC_SUPPORT_ATOMICFILE_H

#include "Descriptor.h"
#include "moert/Status.h"

#include <cstddef>
#include <string>
#include <vector>

#include <sys/types.h>

namespace moert {

/// The one writer of files. A temporary file with a random name stands beside
/// the target, and commit() renames it into place: a failure leaves an old file
/// as it was, and nothing of the new one. The last one of two writers to
/// commit wins. Where the target is an open descriptor or a device, the bytes
/// go there at once (resolveOutput()).
class AtomicFile {
public:
  /// The treatment of a pipe or a device that the path names.
  enum class Devices { Refuse, WriteInPlace };

  static Result<AtomicFile> create(const std::string &path,
                                   Devices devices = Devices::Refuse);
  /// The file `name` of an open folder, which no link stands for; messages call
  /// it `path`.
  static Result<AtomicFile> createIn(int folder, const std::string &name,
                                     const std::string &path, mode_t mode);
  AtomicFile(AtomicFile &&other) noexcept;
  AtomicFile &operator=(AtomicFile &&) = delete;
  ~AtomicFile();

  Status write(const void *data, size_t bytes);
  /// With `isDurable` the bytes are on the disk before the name says so, which
  /// takes the time that the disk takes.
  Status commit(bool isDurable = false);
  /// commit() that leaves a file alone that is there; whether none was.
  Result<bool> commitNew();

private:
  explicit AtomicFile(std::string path) : path(std::move(path)) {}
  /// Makes the temporary file in `folder`.
  Status open(mode_t mode);
  Status fail(int error) const;
  /// Closes the temporary file; the error of that or of `error`.
  int finish(int error);
  void removeTemporary();

  /// The file's name in messages.
  std::string path;
  /// The target's name in `folder`; empty for a target written in place.
  std::string name;
  std::string temporary;
  Descriptor folder, file;
  /// noteTemporary()'s answer.
  int note = -1;
};

/// Whether a file is one of these temporary files. They end in ".tmp." and
/// hexadecimal digits; those of earlier versions in ".tmp.PROCESS.COUNT".
bool isTemporaryName(const std::string &name);

/// Removes a temporary file that has not been written to for an hour: the
/// process that wrote it was killed.
void removeIfOld(int folder, const char *name);

struct FilePart {
  const void *data = nullptr;
  size_t bytes = 0;
};

/// Writes the parts, one after the other.
Status
writeFileWhole(const std::string &path, const std::vector<FilePart> &parts,
               AtomicFile::Devices devices = AtomicFile::Devices::Refuse);

} // namespace moert

#endif // MOERT_SRC_SUPPORT_ATOMICFILE_H
