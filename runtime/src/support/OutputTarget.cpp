//===- OutputTarget.cpp - resolves the target of an output ------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "OutputTarget.h"

#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>

#include <sys/stat.h>
#include <unistd.h>

namespace moert {

/// The kernel's own limit.
static constexpr int kMostLinks = 40;

/// Ends in a slash.
static std::string folderOfLink(const std::string &path) {
  size_t slash = path.rfind('/');
  return slash == std::string::npos ? "./" : path.substr(0, slash + 1);
}

/// The folder's path without links; empty if there is none.
static std::string realFolder(const std::string &path) {
  char text[PATH_MAX];
  return realpath(path.c_str(), text) ? text : "";
}

/// The descriptor number that a link of /proc stands for, or -1.
static int descriptorOfLink(const std::string &path) {
  std::string folder = realFolder(folderOfLink(path));
  if (folder.empty() || (folder != realFolder("/proc/self/fd") &&
                         folder != realFolder("/proc/thread-self/fd")))
    return -1;
  // All links of these folders are named by numbers.
  return static_cast<int>(
      strtol(path.c_str() + path.rfind('/') + 1, nullptr, 10));
}

/// Standard output or error, if redirected to this regular file.
static int descriptorOfFile(const std::string &path) {
  struct stat file, open;
  if (stat(path.c_str(), &file) != 0 || !S_ISREG(file.st_mode))
    return -1;
  for (int number : {STDOUT_FILENO, STDERR_FILENO})
    if (fstat(number, &open) == 0 && open.st_dev == file.st_dev &&
        open.st_ino == file.st_ino)
      return number;
  return -1;
}

Result<OutputTarget> resolveOutput(const std::string &path) {
  if (path.empty())
    return invalidArgument("the path of a file is empty");
  if (path == "-")
    return OutputTarget{STDOUT_FILENO, path};
  std::string current = path;
  for (int links = 0; links < kMostLinks; ++links) {
    struct stat info;
    if (lstat(current.c_str(), &info) != 0 || !S_ISLNK(info.st_mode))
      return OutputTarget{descriptorOfFile(current), current};
    if (int number = descriptorOfLink(current); number >= 0)
      return OutputTarget{number, current};
    char text[PATH_MAX];
    ssize_t size = readlink(current.c_str(), text, sizeof(text));
    if (size < 0)
      return unavailable(path + ": cannot be written: " + strerror(errno));
    std::string next(text, static_cast<size_t>(size));
    current = next[0] == '/' ? next : folderOfLink(current).append(next);
  }
  return unavailable(path + ": cannot be written: " + strerror(ELOOP));
}

} // namespace moert
