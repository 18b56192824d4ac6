//===- AtomicFile.cpp - writes files whole or not at all --------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "AtomicFile.h"

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace moert {

static bool writeAll(int descriptor, const void *data, size_t bytes) {
  auto *next = static_cast<const char *>(data);
  while (bytes > 0) {
    ssize_t written = write(descriptor, next, bytes);
    if (written < 0 && errno == EINTR)
      continue;
    if (written < 0)
      return false;
    next += written;
    bytes -= static_cast<size_t>(written);
  }
  return true;
}

Status writeFileWhole(const std::string &path,
                      const std::vector<FilePart> &parts) {
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
  bool written = true;
  for (const FilePart &part : parts)
    written = written && writeAll(descriptor, part.data, part.bytes);
  int error = errno;
  if (close(descriptor) != 0 && written) {
    written = false;
    error = errno;
  }
  if (written && rename(temporary.c_str(), path.c_str()) != 0) {
    written = false;
    error = errno;
  }
  if (!written) {
    unlink(temporary.c_str());
    return unavailable(path + ": cannot be written: " + strerror(error));
  }
  return Status::ok();
}

} // namespace moert
