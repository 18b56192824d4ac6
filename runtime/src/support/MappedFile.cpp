//===- MappedFile.cpp - a file in memory ------------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "MappedFile.h"

#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace moert {

Result<MappedFile> MappedFile::open(const std::string &path) {
  int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) {
    bool isMissing = errno == ENOENT;
    std::string message = path + ": cannot be opened: " + strerror(errno);
    return isMissing ? notFound(message) : unavailable(message);
  }
  struct stat info;
  if (fstat(descriptor, &info) != 0 || !S_ISREG(info.st_mode)) {
    close(descriptor);
    return invalidArgument(path + ": not a regular file");
  }
  MappedFile file;
  file.size = static_cast<size_t>(info.st_size);
  if (file.size == 0) {
    close(descriptor);
    return file;
  }
  void *memory =
      mmap(nullptr, file.size, PROT_READ, MAP_PRIVATE, descriptor, 0);
  std::string error = memory == MAP_FAILED ? strerror(errno) : "";
  // The mapping holds the file open.
  close(descriptor);
  if (memory == MAP_FAILED)
    return unavailable(path + ": cannot be mapped: " + error);
  file.mapping.reset(memory, [bytes = file.size](const void *p) {
    munmap(const_cast<void *>(p), bytes);
  });
  return file;
}

} // namespace moert
