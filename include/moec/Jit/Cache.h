//===- Cache.h - compiled layers on disk ------------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A folder with one package (moert/Package.h) per compiled layer, which stores
// its own key. Any number of processes and threads may use it. Files are
// replaced atomically, and a damaged file counts as missing. A reader keeps the
// file that it opened, even if the file is replaced or evicted meanwhile.
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_JIT_CACHE_H
#define MOEC_JIT_CACHE_H

#include "moert/Package.h"
#include "llvm/ADT/StringRef.h"

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

namespace moec {

struct CacheOptions {
  /// Folder; empty means getDefaultCacheDirectory().
  std::string directory;
  /// Limit on the total size in bytes; least recently used entries are evicted
  /// first.
  uint64_t maxBytes = uint64_t(1) << 30;
  /// Timeout of lock(), since the other process may be stopped.
  double lockPatienceSeconds = 60;
};

/// $MOEC_CACHE_DIR, else $XDG_CACHE_HOME/moec, else ~/.cache/moec; empty if
/// there is no home directory.
std::string getDefaultCacheDirectory();

/// A cache folder. Thread-safe. If the folder is unusable, the cache warns once
/// and then finds and stores nothing; it never fails.
class Cache {
public:
  /// Exclusive right to create one entry, released by the destructor or when
  /// the process ends.
  class Lock {
  public:
    explicit Lock(int descriptor) : descriptor(descriptor) {}
    ~Lock();
    Lock(const Lock &) = delete;
    Lock &operator=(const Lock &) = delete;

  private:
    int descriptor;
  };

  /// Opens the folder and creates it with access for this user only. A folder
  /// that has another owner or is writable by others is not used. `warn` gets
  /// one line of text.
  Cache(CacheOptions options, std::function<void(const std::string &)> warn);
  ~Cache();
  Cache(const Cache &) = delete;
  Cache &operator=(const Cache &) = delete;

  bool isOpen() const { return folder >= 0; }

  /// The verified package stored under `key` (64 hexadecimal digits). Marks it
  /// as most recently used.
  std::optional<moert::Package> find(llvm::StringRef key);

  /// Waits until no other process is creating the entry of `key`. Null after
  /// the timeout or if the file system has no locks; the layer is then compiled
  /// twice, which is harmless.
  std::unique_ptr<Lock> lock(llvm::StringRef key);

  /// Stores a package under its key and replaces the previous one.
  void store(const moert::Package &package);

private:
  enum class Trouble { Folder, Entry, Write };

  void warnOnce(Trouble about, const std::string &text);
  /// `what` begins with the file name.
  std::optional<moert::Package> refuse(const std::string &what);
  bool write(const std::string &name, const std::vector<uint8_t> &bytes);
  void evict(const std::string &kept);

  CacheOptions options;
  std::function<void(const std::string &)> warn;
  /// File descriptor of the folder; -1 if it is not usable.
  int folder = -1;
  std::mutex mutex;
  /// Warnings already given, one bit per Trouble.
  unsigned told = 0;
};

} // namespace moec

#endif // MOEC_JIT_CACHE_H
