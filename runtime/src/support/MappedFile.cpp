//===- MappedFile.cpp - a file mapped into memory ---------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "MappedFile.h"
#include "RegularFile.h"

#include <cerrno>
#include <cstring>

#include <sys/mman.h>

namespace moert {

Result<MappedFile> MappedFile::open(const std::string &path) {
  Result<RegularFile> opened = openRegularFile(path);
  if (!opened)
    return opened.status();
  MappedFile file;
  file.size = static_cast<size_t>(opened->bytes());
  if (file.size == 0)
    return file;
  // The mapping keeps the file open.
  void *memory = mmap(nullptr, file.size, PROT_READ, MAP_PRIVATE,
                      opened->descriptor.get(), 0);
  if (memory == MAP_FAILED)
    return unavailable(path + ": cannot be mapped: " + strerror(errno));
  file.mapping.reset(memory, [bytes = file.size](const void *p) {
    munmap(const_cast<void *>(p), bytes);
  });
  return file;
}

} // namespace moert
