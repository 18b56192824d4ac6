//===- AtomicFile.h - writes whole files or nothing -------------*- C++ -*-===//
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

/// The one writer of files. Bytes go to a temporary file with a random name
/// beside the target, which commit() renames: a failure leaves an existing file
/// unchanged and nothing of the new one. The last of two writers to commit
/// wins. If the target is an open descriptor or a device, bytes are written to
/// it directly (resolveOutput()).
class AtomicFile {
public:
  /// The treatment of a pipe or a device at the path.
  enum class Devices { Refuse, WriteInPlace };

  static Result<AtomicFile> create(const std::string &path,
                                   Devices devices = Devices::Refuse);
  /// Creates the file `name` in an open folder, without following links; `path`
  /// is its name in messages.
  static Result<AtomicFile> createIn(int folder, const std::string &name,
                                     const std::string &path, mode_t mode);
  AtomicFile(AtomicFile &&other) noexcept;
  AtomicFile &operator=(AtomicFile &&) = delete;
  ~AtomicFile();

  Status write(const void *data, size_t bytes);
  /// With `isDurable` the bytes reach the disk before the rename, which takes
  /// as long as the disk does.
  Status commit(bool isDurable = false);
  /// Like commit(), but leaves an existing file alone; returns whether there
  /// was none.
  Result<bool> commitNew();

private:
  explicit AtomicFile(std::string path) : path(std::move(path)) {}
  /// Makes the temporary file in `folder`.
  Status open(mode_t mode);
  Status fail(int error) const;
  /// Closes the temporary file; returns `error` or the error of closing.
  int finish(int error);
  void removeTemporary();

  /// The file's name in messages.
  std::string path;
  /// The target's name in `folder`; empty for a target written in place.
  std::string name;
  std::string temporary;
  Descriptor folder, file;
  /// The result of noteTemporary().
  int note = -1;
};

/// Whether a name is one of these temporary files': it ends in ".tmp." and
/// hexadecimal digits, or in ".tmp.PROCESS.COUNT" of earlier versions.
bool isTemporaryName(const std::string &name);

/// Removes a temporary file that was not written to for an hour, since its
/// writer must have been killed.
void removeIfOld(int folder, const char *name);

struct FilePart {
  const void *data = nullptr;
  size_t bytes = 0;
};

/// Writes the parts consecutively.
Status
writeFileWhole(const std::string &path, const std::vector<FilePart> &parts,
               AtomicFile::Devices devices = AtomicFile::Devices::Refuse);

} // namespace moert

#endif // MOERT_SRC_SUPPORT_ATOMICFILE_H
