//===- Cache.h - compiled layers on disk ------------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A folder with one file per layer, a package (moert/Package.h) that names the
// key that it was stored by. Any number of processes and threads use a folder
// at once. A file appears whole or not at all, and what is damaged is as good
// as missing. No reader is disturbed when its file is replaced or evicted: it
// has opened it, and reads what was there.
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
  /// Empty: getDefaultCacheDirectory().
  std::string directory;
  /// Bytes of all entries together; those that were used least recently go
  /// first.
  uint64_t maxBytes = uint64_t(1) << 30;
  /// How long lock() waits for another process, which may be stopped.
  double lockPatienceSeconds = 60;
};

/// $MOEC_CACHE_DIR, else $XDG_CACHE_HOME/moec, else ~/.cache/moec; empty where
/// there is no home.
std::string getDefaultCacheDirectory();

/// The folder. Trouble with it makes the cache find and keep nothing; it is
/// told once, and never a failure. Calls may come from any thread.
class Cache {
public:
  /// The right to make one entry, given back at destruction, or by the system
  /// when the process ends.
  class Lock {
  public:
    explicit Lock(int descriptor) : descriptor(descriptor) {}
    ~Lock();
    Lock(const Lock &) = delete;
    Lock &operator=(const Lock &) = delete;

  private:
    int descriptor;
  };

  /// Opens the folder, which is made for this user alone if it is missing. One
  /// that belongs to somebody else, or that others may write to, is not used.
  /// `warn` gets a line of text.
  Cache(CacheOptions options, std::function<void(const std::string &)> warn);
  ~Cache();
  Cache(const Cache &) = delete;
  Cache &operator=(const Cache &) = delete;

  bool isOpen() const { return folder >= 0; }

  /// The package that was stored by `key`, 64 hexadecimal digits, verified.
  /// That makes it the one that was used last.
  std::optional<moert::Package> find(llvm::StringRef key);

  /// Waits until nobody else makes the entry of `key`. Null where that takes
  /// too long or the file system knows no locks; then it is made twice, which
  /// costs time and nothing else.
  std::unique_ptr<Lock> lock(llvm::StringRef key);

  /// Puts a package with that key into the place of what is there.
  void store(const moert::Package &package);

private:
  enum class Trouble { Folder, Entry, Write };

  void warnOnce(Trouble about, const std::string &text);
  /// `what` begins with the name of the file.
  std::optional<moert::Package> refuse(const std::string &what);
  bool write(const std::string &name, const std::vector<uint8_t> &bytes);
  void evict(const std::string &kept);

  CacheOptions options;
  std::function<void(const std::string &)> warn;
  /// Its descriptor; -1 where there is none to use.
  int folder = -1;
  std::mutex mutex;
  /// What was told, a bit per Trouble.
  unsigned told = 0;
};

} // namespace moec

#endif // MOEC_JIT_CACHE_H
