//===- FileExchange.cpp - ranks find each other by a file -------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The file has a fixed size: 8 bytes that say what it is, the number of ranks
// (8 bytes, little endian), the SHA-256 of the token, the id, and the SHA-256
// of all before.
//
//===----------------------------------------------------------------------===//

#include "../support/Check.h"
#include "../support/Sha256.h"
#include "Bootstrap.h"
#include "Collectives.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <thread>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace moert {

namespace {

struct Contents {
  char magic[8] = {'m', 'o', 'e', 'r', 't', 'i', 'd', '1'};
  uint8_t numRanks[8] = {};
  Sha256Digest token = {};
  NcclUniqueId id = {};
  Sha256Digest digest = {};

  Sha256Digest computeDigest() const {
    return sha256(this, offsetof(Contents, digest));
  }
};

static_assert(sizeof(Contents) == 8 + 8 + 32 + 128 + 32);

/// A descriptor that is closed.
class Descriptor {
public:
  explicit Descriptor(int number) : number(number) {}
  ~Descriptor() {
    if (number >= 0)
      close(number);
  }
  Descriptor(const Descriptor &) = delete;
  Descriptor &operator=(const Descriptor &) = delete;

  const int number;
};

} // namespace

static Sha256Digest digestOf(const std::string &text) {
  return sha256(text.data(), text.size());
}

static std::string fileName(const std::string &token) {
  static const char digits[] = "0123456789abcdef";
  std::string name = "moert-";
  Sha256Digest digest = digestOf(token);
  for (size_t i = 0; i < 8; ++i) {
    name += digits[digest[i] >> 4];
    name += digits[digest[i] & 15];
  }
  return name + ".id";
}

/// A file or folder that is this user's and that nobody else may write; a
/// folder nobody else may even use.
static Status checkOwner(int descriptor, const std::string &path,
                         mode_t forbidden, const char *remedy) {
  struct stat info = {};
  if (fstat(descriptor, &info) != 0)
    return unavailable(path + ": " + strerror(errno));
  if (info.st_uid != geteuid())
    return invalidArgument(path + ": belongs to user " +
                           std::to_string(info.st_uid) + ", not to user " +
                           std::to_string(geteuid()) + "; " + remedy);
  if ((info.st_mode & forbidden) != 0)
    return invalidArgument(path + ": is open to other users; " + remedy);
  return Status::ok();
}

static Result<int> openFolder(const FileExchange &exchange) {
  const std::string &folder = exchange.folder;
  if (exchange.token.empty())
    return invalidArgument(
        "nothing tells this start of the job from earlier ones; set "
        "MOERT_JOB_TOKEN alike on all ranks, to another text at each start");
  int opened =
      open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (opened < 0)
    return unavailable("MOERT_BOOTSTRAP_FOLDER " + folder +
                       ": cannot be opened: " + strerror(errno) +
                       "; make it with mkdir -m 700, and name it itself, not "
                       "a link");
  Status status =
      checkOwner(opened, "MOERT_BOOTSTRAP_FOLDER " + folder, S_IRWXG | S_IRWXO,
                 "use one of your own, made with mkdir -m 700");
  if (!status) {
    close(opened);
    return status;
  }
  return opened;
}

static bool writeAll(int descriptor, const Contents &contents) {
  const char *next = reinterpret_cast<const char *>(&contents);
  size_t left = sizeof(contents);
  while (left > 0) {
    ssize_t written = write(descriptor, next, left);
    if (written < 0 && errno == EINTR)
      continue;
    if (written < 0)
      return false;
    next += written;
    left -= static_cast<size_t>(written);
  }
  return true;
}

/// Writes beside the name and links it there: whoever sees the file sees all of
/// it, and one that exists is not replaced.
static Status publish(int folder, const std::string &path,
                      const std::string &name, const Contents &contents) {
  std::string temporary = name + ".tmp." + std::to_string(getpid());
  auto failure = [&](const std::string &why) {
    return unavailable(path + ": cannot be written: " + why +
                       "; look at the folder and the space in it");
  };
  int opened = openat(folder, temporary.c_str(),
                      O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
                      S_IRUSR | S_IWUSR);
  if (opened < 0)
    return failure(strerror(errno));
  Status status;
  {
    Descriptor file(opened);
    if (!writeAll(file.number, contents))
      status = failure(strerror(errno));
  }
  if (status && linkat(folder, temporary.c_str(), folder, name.c_str(), 0) != 0)
    status = errno == EEXIST
                 ? invalidArgument(
                       path + ": is there from an earlier start with this "
                              "token; set MOERT_JOB_TOKEN to another text at "
                              "each start, or remove the file")
                 : failure(strerror(errno));
  unlinkat(folder, temporary.c_str(), 0);
  return status;
}

/// The file's contents, or nothing where it is not there.
static Result<bool> readContents(int folder, const std::string &path,
                                 const std::string &name, Contents &contents) {
  int opened = openat(folder, name.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
  if (opened < 0 && errno == ENOENT)
    return false;
  if (opened < 0)
    return unavailable(path + ": cannot be read: " + strerror(errno) +
                       "; remove it");
  Descriptor file(opened);
  MOERT_CHECK(checkOwner(file.number, path, S_IWGRP | S_IWOTH,
                         "remove it, and look who wrote it"));
  ssize_t size = read(file.number, &contents, sizeof(contents));
  if (size != ssize_t(sizeof(contents)) ||
      memcmp(contents.magic, Contents().magic, sizeof(contents.magic)) != 0 ||
      contents.digest != contents.computeDigest())
    return invalidArgument(path + ": is damaged, or not a file of rank 0's; "
                                  "remove it and start again");
  return true;
}

Result<NcclUniqueId> exchangeByFile(const FileExchange &exchange,
                                    const RankEnvironment &environment,
                                    double limitSeconds,
                                    const MakeUniqueId &makeId) {
  MOERT_CHECK(checkLimit(limitSeconds));
  Result<int> opened = openFolder(exchange);
  if (!opened)
    return opened.status();
  Descriptor folder(*opened);
  std::string name = fileName(exchange.token);
  std::string path = exchange.folder + "/" + name;
  Contents expected;
  for (size_t i = 0; i < sizeof(expected.numRanks); ++i)
    expected.numRanks[i] = uint8_t(environment.numRanks >> (8 * i));
  expected.token = digestOf(exchange.token);
  if (environment.rank == 0) {
    Result<NcclUniqueId> id = makeId();
    if (!id)
      return id;
    expected.id = *id;
    expected.digest = expected.computeDigest();
    MOERT_CHECK(publish(folder.number, path, name, expected));
    return id;
  }

  auto end = std::chrono::steady_clock::now() +
             std::chrono::duration<double>(std::min(limitSeconds, 1e9));
  while (true) {
    Contents contents;
    Result<bool> isThere = readContents(folder.number, path, name, contents);
    if (!isThere)
      return isThere.status();
    if (*isThere) {
      if (contents.token != expected.token ||
          memcmp(contents.numRanks, expected.numRanks,
                 sizeof(expected.numRanks)) != 0)
        return invalidArgument(path + ": is of a job with another token or "
                                      "number of ranks; remove it, and set "
                                      "MOERT_JOB_TOKEN alike on all ranks");
      return contents.id;
    }
    if (std::chrono::steady_clock::now() >= end)
      return unavailable(
          path + ": rank 0 has not written it within " +
          secondsText(limitSeconds) +
          "; look for an earlier error of rank 0, and see that all ranks have "
          "the same MOERT_BOOTSTRAP_FOLDER and MOERT_JOB_TOKEN");
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

void removeExchanged(const FileExchange &exchange) {
  Result<int> opened = openFolder(exchange);
  if (!opened)
    return;
  Descriptor folder(*opened);
  unlinkat(folder.number, fileName(exchange.token).c_str(), 0);
}

} // namespace moert
