//===- AtomicFile.cpp - writes files whole or not at all --------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "AtomicFile.h"
#include "Check.h"

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace moert {

AtomicFile::AtomicFile(std::string path, std::string temporary, int descriptor)
    : path(std::move(path)), temporary(std::move(temporary)),
      descriptor(descriptor) {}

AtomicFile::AtomicFile(AtomicFile &&other) noexcept
    : path(std::move(other.path)), temporary(std::move(other.temporary)),
      descriptor(std::exchange(other.descriptor, -1)) {}

AtomicFile::~AtomicFile() {
  if (descriptor < 0)
    return;
  close(descriptor);
  unlink(temporary.c_str());
}

Status AtomicFile::fail(int error) const {
  return unavailable(path + ": cannot be written: " + strerror(error));
}

Result<AtomicFile> AtomicFile::create(const std::string &path) {
  struct stat info;
  // Renaming over a device or a directory would replace or miss it.
  if (stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode))
    return invalidArgument(path + ": exists and is not a regular file; choose "
                                  "another path");

  static std::atomic<unsigned> counter{0};
  std::string temporary = path + ".tmp." + std::to_string(getpid()) + "." +
                          std::to_string(counter++);
  int descriptor =
      open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (descriptor < 0)
    return unavailable(path + ": cannot be written: " + strerror(errno));
  return AtomicFile(path, std::move(temporary), descriptor);
}

Status AtomicFile::write(const void *data, size_t bytes) {
  auto *next = static_cast<const char *>(data);
  while (bytes > 0) {
    ssize_t written = ::write(descriptor, next, bytes);
    if (written < 0 && errno == EINTR)
      continue;
    if (written < 0)
      return fail(errno);
    next += written;
    bytes -= static_cast<size_t>(written);
  }
  return Status::ok();
}

/// The name, too, is on the disk. A file system that cannot say so of a folder
/// has done what it can.
static void syncFolderOf(const std::string &path) {
  size_t slash = path.rfind('/');
  std::string folder = slash == std::string::npos ? "."
                       : slash == 0               ? "/"
                                                  : path.substr(0, slash);
  int descriptor = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0)
    return;
  (void)fsync(descriptor);
  close(descriptor);
}

Status AtomicFile::commit(bool isDurable) {
  int error = isDurable && fsync(descriptor) != 0 ? errno : 0;
  if (close(std::exchange(descriptor, -1)) != 0 && error == 0)
    error = errno;
  if (error == 0 && rename(temporary.c_str(), path.c_str()) != 0)
    error = errno;
  if (error != 0) {
    unlink(temporary.c_str());
    return fail(error);
  }
  if (isDurable)
    syncFolderOf(path);
  return Status::ok();
}

Status writeFileWhole(const std::string &path,
                      const std::vector<FilePart> &parts) {
  Result<AtomicFile> file = AtomicFile::create(path);
  if (!file)
    return file.status();
  for (const FilePart &part : parts)
    MOERT_CHECK(file->write(part.data, part.bytes));
  return file->commit();
}

} // namespace moert
