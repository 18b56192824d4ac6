//===- RegularFile.cpp - opens regular files --------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "RegularFile.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <unistd.h>

namespace moert {

static const char *kindOfFile(mode_t mode) {
  return S_ISDIR(mode)    ? "a directory"
         : S_ISFIFO(mode) ? "a pipe"
         : S_ISSOCK(mode) ? "a socket"
                          : "a device";
}

/// O_NONBLOCK has no effect on regular files, so it stays set.
static constexpr int kReadFlags = O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;

static Result<RegularFile> checkRegular(int opened, const std::string &path) {
  if (path.empty())
    return notFound("the path of a file is empty");
  RegularFile file = {Descriptor(opened), {}};
  if (!file.descriptor) {
    int error = errno;
    std::string message = path + ": cannot be read: " + strerror(error);
    return error == ENOENT ? notFound(message) : unavailable(message);
  }
  if (fstat(opened, &file.info) != 0)
    return unavailable(path + ": cannot be read: " + strerror(errno));
  if (!S_ISREG(file.info.st_mode))
    return invalidArgument(path + ": is " + kindOfFile(file.info.st_mode) +
                           ", not a regular file");
  return file;
}

Result<RegularFile> openRegularFile(const std::string &path) {
  return checkRegular(open(path.c_str(), kReadFlags), path);
}

Result<RegularFile> openRegularFileIn(int folder, const std::string &name,
                                      const std::string &path) {
  return checkRegular(openat(folder, name.c_str(), kReadFlags | O_NOFOLLOW),
                      path);
}

Result<std::string> readAtMost(int descriptor, uint64_t most) {
  constexpr uint64_t step = 1 << 16;
  std::string bytes;
  while (true) {
    size_t done = bytes.size();
    // Read one byte more than allowed, to detect an excess.
    bytes.resize(done +
                 std::min(std::max<uint64_t>(step, done), most + 1 - done));
    ssize_t got = read(descriptor, bytes.data() + done, bytes.size() - done);
    if (got < 0 && errno != EINTR)
      return unavailable(std::string("cannot be read: ") + strerror(errno));
    bytes.resize(done + static_cast<size_t>(std::max<ssize_t>(got, 0)));
    if (got == 0)
      return bytes;
    if (bytes.size() > most)
      return invalidArgument("has more than the " + std::to_string(most) +
                             " bytes that are read");
  }
}

} // namespace moert
