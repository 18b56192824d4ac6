//===- Cache.cpp - compiled layers on disk ----------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/Jit/Cache.h"

#include "llvm/ADT/ScopeExit.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/Process.h"

#include <cerrno>
#include <chrono>
#include <cstring>
#include <ctime>
#include <random>
#include <thread>

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

using namespace llvm;
using namespace moec;
using moert::Package;
using moert::Result;

static constexpr StringLiteral kEntrySuffix = ".moepkg";
static constexpr StringLiteral kTemporarySuffix = ".tmp";
static constexpr size_t kKeyDigits = 64;
/// No layer is compiled for so long: what is older was left behind.
static constexpr time_t kTemporarySeconds = 3600;

//===----------------------------------------------------------------------===//
// Files
//===----------------------------------------------------------------------===//

static bool writeAll(int file, ArrayRef<uint8_t> bytes) {
  while (!bytes.empty()) {
    ssize_t written = ::write(file, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR)
      continue;
    if (written < 0)
      return false;
    bytes = bytes.drop_front(size_t(written));
  }
  return true;
}

/// Reads all of a file that has `size` bytes; what has become shorter is cut.
static bool readAll(int file, size_t size, std::vector<uint8_t> &bytes) {
  bytes.resize(size);
  size_t done = 0;
  while (done < size) {
    ssize_t got = ::read(file, bytes.data() + done, size - done);
    if (got < 0 && errno == EINTR)
      continue;
    if (got < 0)
      return false;
    if (got == 0)
      break;
    done += size_t(got);
  }
  bytes.resize(done);
  return true;
}

/// Why what `info` describes may not be trusted; empty if it may.
static std::string whyUnsafe(const struct stat &info) {
  if (info.st_uid != geteuid())
    return "belongs to user " + std::to_string(info.st_uid) +
           ", this process runs as user " + std::to_string(geteuid());
  if (info.st_mode & (S_IWGRP | S_IWOTH))
    return formatv("may be written by others (mode {0})",
                   format("%04o", unsigned(info.st_mode & 07777)))
        .str();
  return {};
}

//===----------------------------------------------------------------------===//
// The folder
//===----------------------------------------------------------------------===//

std::string moec::getDefaultCacheDirectory() {
  if (auto named = sys::Process::GetEnv("MOEC_CACHE_DIR");
      named && !named->empty())
    return *named;
  SmallString<128> path;
  // The standard wants relative paths to be ignored.
  if (auto named = sys::Process::GetEnv("XDG_CACHE_HOME");
      named && sys::path::is_absolute(*named))
    path = *named;
  else if (sys::path::home_directory(path))
    sys::path::append(path, ".cache");
  else
    return {};
  sys::path::append(path, "moec");
  return path.str().str();
}

Cache::Cache(CacheOptions given,
             std::function<void(const std::string &)> warnBy)
    : options(std::move(given)), warn(std::move(warnBy)) {
  if (options.directory.empty())
    options.directory = getDefaultCacheDirectory();
  const std::string &path = options.directory;
  if (path.empty()) {
    warnOnce(Trouble::Folder, "there is no home to keep compiled layers in; "
                              "name a folder in MOEC_CACHE_DIR");
    return;
  }
  std::string why;
  if (std::error_code error = sys::fs::create_directories(
          path, /*IgnoreExisting=*/true, sys::fs::owner_all))
    why = "cannot be made: " + error.message();
  if (why.empty()) {
    folder = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct stat info;
    if (folder < 0 || fstat(folder, &info) != 0)
      why = std::string("cannot be opened: ") + strerror(errno);
    else
      why = whyUnsafe(info);
  }
  if (why.empty())
    return;
  warnOnce(Trouble::Folder,
           path + " " + why +
               "; compiled layers are not kept. Name a folder of your own, "
               "with mode 0700, in MOEC_CACHE_DIR");
  if (folder >= 0)
    close(folder);
  folder = -1;
}

Cache::~Cache() {
  if (folder >= 0)
    close(folder);
}

void Cache::warnOnce(Trouble about, const std::string &text) {
  {
    std::lock_guard<std::mutex> guard(mutex);
    unsigned bit = 1u << unsigned(about);
    if (told & bit)
      return;
    told |= bit;
  }
  warn("cache: " + text);
}

//===----------------------------------------------------------------------===//
// Entries
//===----------------------------------------------------------------------===//

std::optional<Package> Cache::refuse(const std::string &name,
                                     const std::string &why) {
  warnOnce(Trouble::Entry, options.directory + "/" + name + " " + why +
                               "; the layer is compiled again");
  return std::nullopt;
}

std::optional<Package> Cache::find(StringRef key) {
  if (!isOpen())
    return std::nullopt;
  std::string name = (key + kEntrySuffix).str();
  int file = openat(folder, name.c_str(),
                    O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (file < 0 && errno == ENOENT)
    return std::nullopt;
  if (file < 0)
    return refuse(name, std::string("cannot be opened: ") + strerror(errno));
  scope_exit closer([&] { close(file); });
  struct stat info;
  if (fstat(file, &info) != 0 || !S_ISREG(info.st_mode))
    return refuse(name, "is not a regular file");
  if (std::string why = whyUnsafe(info); !why.empty())
    return refuse(name, why);
  if (uint64_t(info.st_size) > options.maxBytes)
    return refuse(name, "is larger than the cache may be");
  std::vector<uint8_t> bytes;
  if (!readAll(file, size_t(info.st_size), bytes))
    return refuse(name, std::string("cannot be read: ") + strerror(errno));
  Result<Package> package = Package::fromMemory(bytes.data(), bytes.size());
  if (!package)
    return refuse(name, "is damaged (" + package.status().message() + ")");
  if (package->cacheKey != key)
    return refuse(name, "holds another layer");
  // The order of use is not kept in a folder that may only be read.
  (void)futimens(file, /*times=*/nullptr);
  return std::move(*package);
}

/// Locks are ranges of one file, whose bytes stand for keys: nothing has to be
/// cleaned up, and none is held by a process that has ended.
std::unique_ptr<Cache::Lock> Cache::lock(StringRef key) {
  if (!isOpen())
    return nullptr;
  int file = openat(folder, "lock", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW,
                    S_IRUSR | S_IWUSR);
  if (file < 0)
    return nullptr;
  auto held = std::make_unique<Lock>(file);
  struct flock range = {};
  range.l_type = F_WRLCK;
  range.l_whence = SEEK_SET;
  range.l_len = 1;
  uint64_t place = 0;
  key.take_front(12).getAsInteger(16, place);
  range.l_start = off_t(place);
  auto deadline =
      std::chrono::steady_clock::now() +
      std::chrono::milliseconds(int64_t(options.lockPatienceSeconds * 1e3));
  while (fcntl(file, F_OFD_SETLK, &range) != 0) {
    if (errno == EINTR)
      continue;
    if ((errno != EAGAIN && errno != EACCES) ||
        std::chrono::steady_clock::now() >= deadline)
      return nullptr;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return held;
}

Cache::Lock::~Lock() { close(descriptor); }

void Cache::store(const Package &package) {
  if (!isOpen())
    return;
  Result<std::vector<uint8_t>> bytes = moert::packPackage(package);
  if (!bytes || bytes->size() > options.maxBytes)
    return;
  std::string name = package.cacheKey + kEntrySuffix.str();
  if (write(name, *bytes))
    evict(name);
}

bool Cache::write(const std::string &name, const std::vector<uint8_t> &bytes) {
  // Process numbers are not unique where containers share a folder.
  std::random_device random;
  std::string temporary = "." +
                          utohexstr((uint64_t(random()) << 32) | random()) +
                          kTemporarySuffix.str();
  int file = openat(folder, temporary.c_str(),
                    O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW,
                    S_IRUSR | S_IWUSR);
  bool isWritten = file >= 0 && writeAll(file, bytes) && fsync(file) == 0;
  int error = errno;
  if (file >= 0 && close(file) != 0 && isWritten) {
    isWritten = false;
    error = errno;
  }
  if (isWritten &&
      renameat(folder, temporary.c_str(), folder, name.c_str()) != 0) {
    isWritten = false;
    error = errno;
  }
  if (isWritten)
    return true;
  if (file >= 0)
    unlinkat(folder, temporary.c_str(), 0);
  // On some network file systems the second of two renames fails: the entry of
  // the first is as good.
  if (faccessat(folder, name.c_str(), F_OK, 0) == 0)
    return false;
  warnOnce(Trouble::Write, options.directory +
                               " cannot be written to: " + strerror(error) +
                               "; compiled layers are not kept");
  return false;
}

namespace {
struct Entry {
  timespec used;
  uint64_t size;
  std::string name;
};
} // namespace

/// Brings the folder to its size, and removes what processes that were killed
/// have left behind.
void Cache::evict(const std::string &kept) {
  int again = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR *listing = again < 0 ? nullptr : fdopendir(again);
  if (!listing) {
    if (again >= 0)
      close(again);
    return;
  }
  std::vector<Entry> entries;
  uint64_t total = 0;
  while (const dirent *found = readdir(listing)) {
    StringRef name = found->d_name;
    struct stat info;
    if (fstatat(folder, found->d_name, &info, AT_SYMLINK_NOFOLLOW) != 0 ||
        !S_ISREG(info.st_mode))
      continue;
    if (name.ends_with(kTemporarySuffix)) {
      if (time(nullptr) - info.st_mtim.tv_sec > kTemporarySeconds)
        unlinkat(folder, found->d_name, 0);
      continue;
    }
    if (name.size() != kKeyDigits + kEntrySuffix.size() ||
        !name.ends_with(kEntrySuffix))
      continue;
    entries.push_back({info.st_mtim, uint64_t(info.st_size), name.str()});
    total += uint64_t(info.st_size);
  }
  closedir(listing);
  llvm::sort(entries, [](const Entry &a, const Entry &b) {
    return std::tie(a.used.tv_sec, a.used.tv_nsec, a.name) <
           std::tie(b.used.tv_sec, b.used.tv_nsec, b.name);
  });
  for (const Entry &entry : entries) {
    if (total <= options.maxBytes)
      return;
    if (entry.name == kept)
      continue;
    unlinkat(folder, entry.name.c_str(), 0);
    total -= entry.size;
  }
}
