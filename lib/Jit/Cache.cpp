//===- Cache.cpp - compiled layers on disk ----------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/Jit/Cache.h"

#include "../../runtime/src/support/AtomicFile.h"
#include "../../runtime/src/support/RegularFile.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/Process.h"

#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

using namespace llvm;
using namespace moec;
using moert::AtomicFile;
using moert::openRegularFileIn;
using moert::Package;
using moert::readAtMost;
using moert::RegularFile;
using moert::Result;

static constexpr StringLiteral kEntrySuffix = ".moepkg";
/// Suffix of temporary files of earlier versions.
static constexpr StringLiteral kOldTemporarySuffix = ".tmp";
static constexpr size_t kKeyDigits = 64;

//===----------------------------------------------------------------------===//
// Files
//===----------------------------------------------------------------------===//

/// Reason why a file or folder is not trusted; empty if it is.
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
  // The XDG specification requires that relative paths are ignored.
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
    warnOnce(Trouble::Folder,
             "there is no home folder for the cache of compiled layers; name a "
             "folder in MOEC_CACHE_DIR");
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
               "; compiled layers are not cached. Name your own folder, with "
               "mode 0700, in MOEC_CACHE_DIR");
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

std::optional<Package> Cache::refuse(const std::string &what) {
  warnOnce(Trouble::Entry,
           options.directory + "/" + what + "; the layer is compiled again");
  return std::nullopt;
}

std::optional<Package> Cache::find(StringRef key) {
  if (!isOpen())
    return std::nullopt;
  std::string name = (key + kEntrySuffix).str();
  Result<RegularFile> file = openRegularFileIn(folder, name, name);
  if (!file && file.status().code() == moert::StatusCode::NotFound)
    return std::nullopt;
  if (!file)
    return refuse(file.status().message());
  if (std::string why = whyUnsafe(file->info); !why.empty())
    return refuse(name + " " + why);
  if (file->bytes() > options.maxBytes)
    return refuse(name + " is larger than the limit of the cache");
  Result<std::string> bytes =
      readAtMost(file->descriptor.get(), options.maxBytes);
  if (!bytes)
    return refuse(name + " " + bytes.status().message());
  Result<Package> package = Package::fromMemory(bytes->data(), bytes->size());
  if (!package)
    return refuse(name + " is damaged (" + package.status().message() + ")");
  if (package->cacheKey != key)
    return refuse(name + " holds another layer");
  // In a read-only folder the order of use is not recorded.
  (void)futimens(file->descriptor.get(), /*times=*/nullptr);
  return std::move(*package);
}

/// A lock is a byte range of one file, derived from the key. Nothing needs
/// cleanup, and the system releases the locks of a process that ends.
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
  uint64_t offset = 0;
  key.take_front(12).getAsInteger(16, offset);
  range.l_start = off_t(offset);
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
  Result<AtomicFile> file = AtomicFile::createIn(
      folder, name, options.directory + "/" + name, S_IRUSR | S_IWUSR);
  moert::Status status =
      file ? file->write(bytes.data(), bytes.size()) : file.status();
  if (status)
    status = file->commit(/*isDurable=*/true);
  if (status)
    return true;
  // On some network file systems the second of two renames fails. The entry of
  // the first is equivalent.
  if (faccessat(folder, name.c_str(), F_OK, 0) == 0)
    return false;
  warnOnce(Trouble::Write,
           status.message() + "; compiled layers are not cached");
  return false;
}

namespace {
struct Entry {
  timespec used;
  uint64_t size;
  std::string name;
};
} // namespace

/// Evicts entries down to the size limit, and removes files left by killed
/// processes.
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
    if (name.ends_with(kOldTemporarySuffix) ||
        moert::isTemporaryName(found->d_name)) {
      moert::removeIfOld(folder, found->d_name);
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
