//===- CacheTest.cpp - tests of compiled layers on disk ---------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/Jit/Cache.h"

#include "JitTesting.h"
#include "llvm/Support/FileSystem.h"

#include <csignal>
#include <cstdlib>
#include <thread>

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace moec;
using namespace moec::test;
using moert::Package;

namespace {

class CacheTest : public FolderTest {
protected:
  CacheOptions makeOptions(llvm::StringRef name = "cache") {
    CacheOptions options;
    options.directory = getPath(name);
    return options;
  }

  std::string getEntry(const std::string &key) const {
    return getPath("cache/" + key + ".moepkg");
  }
  /// The permissions of a file, in octal digits.
  static std::string getMode(const std::string &path) {
    struct stat info = {};
    EXPECT_EQ(stat(path.c_str(), &info), 0) << path;
    char text[8];
    snprintf(text, sizeof(text), "%04o", unsigned(info.st_mode & 07777));
    return text;
  }
  static void setAge(const std::string &path, int seconds) {
    timespec then = {time(nullptr) - seconds, 0};
    timespec times[] = {then, then};
    ASSERT_EQ(utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
  }

  const std::string key = makeKey('a');
  const Package package = makePackage(key);
};

TEST_F(CacheTest, FindsWhatWasStored) {
  Cache cache(makeOptions("new/cache"), collect());
  ASSERT_TRUE(cache.isOpen());
  EXPECT_FALSE(cache.find(key));
  cache.store(package);
  std::optional<Package> found = cache.find(key);
  ASSERT_TRUE(found);
  EXPECT_EQ(pack(*found), pack(package));
  EXPECT_FALSE(cache.find(makeKey('b')));
  EXPECT_EQ(getMode(getPath("new")), "0700");
  EXPECT_EQ(getMode(getPath("new/cache")), "0700");
  EXPECT_EQ(getMode(getPath("new/cache/" + key + ".moepkg")), "0600");
  EXPECT_EQ(list("new/cache"), std::set<std::string>{key + ".moepkg"});
  EXPECT_EQ(warnings, std::vector<std::string>());
}

TEST_F(CacheTest, ReplacesWhatIsDamaged) {
  std::string good = pack(package);
  std::vector<std::string> damaged = {"",
                                      "x",
                                      good.substr(0, 40),
                                      good.substr(0, good.size() / 2),
                                      good.substr(0, good.size() - 1),
                                      good + "x"};
  for (size_t at : {size_t(5), good.size() / 3, good.size() - 5}) {
    damaged.push_back(good);
    damaged.back()[at] ^= 0x20;
  }
  for (const std::string &text : damaged) {
    warnings.clear();
    Cache cache(makeOptions(), collect());
    cache.store(package);
    writeFile(getEntry(key), text);
    EXPECT_FALSE(cache.find(key));
    EXPECT_FALSE(cache.find(key));
    ASSERT_EQ(warnings.size(), 1u) << text.size() << " bytes";
    EXPECT_NE(warnings[0].find(key + ".moepkg is damaged"), std::string::npos)
        << warnings[0];
    cache.store(package);
    EXPECT_TRUE(cache.find(key));
  }
}

TEST_F(CacheTest, BelievesNoFileName) {
  Cache cache(makeOptions(), collect());
  cache.store(package);
  std::string other = makeKey('b');
  ASSERT_EQ(rename(getEntry(key).c_str(), getEntry(other).c_str()), 0);
  EXPECT_FALSE(cache.find(other));
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_NE(warnings[0].find("holds another layer"), std::string::npos);
}

TEST_F(CacheTest, ReadsNothingThatOthersMayHaveWritten) {
  for (const char *what : {"writable", "link", "folder"}) {
    warnings.clear();
    Cache cache(makeOptions(), collect());
    cache.store(package);
    std::string entry = getEntry(key), kind = what;
    if (kind == "writable") {
      ASSERT_EQ(chmod(entry.c_str(), 0620), 0);
    } else {
      ASSERT_EQ(rename(entry.c_str(), getPath("elsewhere").c_str()), 0);
      ASSERT_EQ(kind == "link"
                    ? symlink(getPath("elsewhere").c_str(), entry.c_str())
                    : mkdir(entry.c_str(), 0700),
                0);
    }
    EXPECT_FALSE(cache.find(key)) << kind;
    EXPECT_EQ(warnings.size(), 1u) << kind;
    remove(entry.c_str());
  }
}

TEST_F(CacheTest, UsesNoFolderOfOthers) {
  ASSERT_EQ(mkdir(getPath("cache").c_str(), 0700), 0);
  ASSERT_EQ(chmod(getPath("cache").c_str(), 0770), 0);
  Cache shared(makeOptions(), collect());
  EXPECT_FALSE(shared.isOpen());
  shared.store(package);
  EXPECT_FALSE(shared.find(key));
  EXPECT_FALSE(shared.lock(key));
  EXPECT_EQ(list("cache"), std::set<std::string>());
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_NE(warnings[0].find("may be written by others (mode 0770); compiled "
                             "layers are not cached. Name your own folder"),
            std::string::npos)
      << warnings[0];

  // The root folder is root's; root gives one of its own away.
  CacheOptions options = makeOptions();
  options.directory = "/";
  if (geteuid() == 0) {
    options = makeOptions("given");
    ASSERT_EQ(mkdir(getPath("given").c_str(), 0700), 0);
    ASSERT_EQ(chown(getPath("given").c_str(), 12345, 12345), 0);
  }
  Cache foreign(options, collect());
  EXPECT_FALSE(foreign.isOpen());
  ASSERT_EQ(warnings.size(), 2u);
  EXPECT_NE(warnings[1].find(" belongs to user "), std::string::npos)
      << warnings[1];

  writeFile(getPath("file"), "");
  Cache file(makeOptions("file"), collect());
  EXPECT_FALSE(file.isOpen());
  Cache below(makeOptions("file/below"), collect());
  EXPECT_FALSE(below.isOpen());
  EXPECT_EQ(warnings.size(), 4u);
}

TEST_F(CacheTest, GoesOnWhereNothingCanBeWritten) {
  Cache cache(makeOptions(), collect());
  ASSERT_EQ(rmdir(getPath("cache").c_str()), 0);
  cache.store(package);
  cache.store(package);
  EXPECT_FALSE(cache.find(key));
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_NE(warnings[0].find("cannot be written: No such file or directory; "
                             "compiled layers are not cached"),
            std::string::npos)
      << warnings[0];
}

TEST_F(CacheTest, LeavesNothingBehindOnAFullDisk) {
  Cache cache(makeOptions(), collect());
  // A limit on the file size emulates a full disk.
  EXPECT_EQ(countFailedProcesses(1,
                                 [&](int) {
                                   signal(SIGXFSZ, SIG_IGN);
                                   rlimit limit = {1000, 1000};
                                   setrlimit(RLIMIT_FSIZE, &limit);
                                   cache.store(package);
                                   return warnings.size() == 1 &&
                                          list("cache").empty();
                                 }),
            0);
  cache.store(package);
  EXPECT_TRUE(cache.find(key));
}

TEST_F(CacheTest, EvictsWhatWasUsedLeastRecently) {
  CacheOptions options = makeOptions();
  options.maxBytes = pack(package).size() * 7 / 2;
  Cache cache(options, collect());
  auto store = [&](char digit, int age) {
    Package other = package;
    other.cacheKey = makeKey(digit);
    cache.store(other);
    setAge(getEntry(other.cacheKey), age);
  };
  store('1', 300);
  store('2', 200);
  store('3', 100);
  EXPECT_EQ(list("cache").size(), 3u);
  EXPECT_TRUE(cache.find(makeKey('1')));
  store('4', 0);
  EXPECT_EQ(list("cache"), (std::set<std::string>{makeKey('1') + ".moepkg",
                                                  makeKey('3') + ".moepkg",
                                                  makeKey('4') + ".moepkg"}));
  // A layer stored just now stays, even if the clock says that it is old.
  setAge(getEntry(makeKey('1')), -1000);
  setAge(getEntry(makeKey('3')), -1000);
  setAge(getEntry(makeKey('4')), -1000);
  store('5', 0);
  EXPECT_TRUE(cache.find(makeKey('5')));
  EXPECT_EQ(list("cache").size(), 3u);

  options.maxBytes = 10;
  Cache small(options, collect());
  small.store(makePackage(makeKey('6')));
  EXPECT_FALSE(list("cache").count(makeKey('6') + ".moepkg"));
  EXPECT_EQ(warnings, std::vector<std::string>());
}

TEST_F(CacheTest, RemovesWhatWasLeftBehind) {
  Cache cache(makeOptions(), collect());
  writeFile(getPath("cache/.0123456789ABCDEF.tmp"), "old");
  writeFile(getPath("cache/.FEDCBA9876543210.tmp"), "in use");
  writeFile(getPath("cache/notes.txt"), "not ours");
  setAge(getPath("cache/.0123456789ABCDEF.tmp"), 7200);
  // A leftover of another key's entry.
  std::string temporary = makeKey('f') + ".moepkg.tmp.0123456789abcdef";
  writeFile(getPath("cache/" + temporary), "old");
  setAge(getPath("cache/" + temporary), 7200);
  setAge(getPath("cache/notes.txt"), 7200);
  cache.store(package);
  EXPECT_EQ(list("cache"),
            (std::set<std::string>{".FEDCBA9876543210.tmp", "notes.txt",
                                   key + ".moepkg"}));
}

TEST_F(CacheTest, LocksExcludeEachOther) {
  CacheOptions options = makeOptions();
  options.lockPatienceSeconds = 0.05;
  Cache cache(options, collect());
  std::unique_ptr<Cache::Lock> lock = cache.lock(key);
  ASSERT_TRUE(lock);
  EXPECT_FALSE(cache.lock(key)) << "not even the same process has it twice";
  EXPECT_TRUE(cache.lock(makeKey('b')));
  EXPECT_EQ(countFailedProcesses(1,
                                 [&](int) {
                                   // The folder, opened again.
                                   return !Cache(options, collect()).lock(key);
                                 }),
            0);
  lock.reset();
  EXPECT_TRUE(cache.lock(key));
}

TEST_F(CacheTest, NoLockOutlivesItsProcess) {
  Cache cache(makeOptions(), collect());
  int pipes[2];
  ASSERT_EQ(pipe(pipes), 0);
  pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    std::unique_ptr<Cache::Lock> lock = cache.lock(key);
    char answer = lock ? 'y' : 'n';
    (void)!write(pipes[1], &answer, 1);
    pause();
    _exit(0);
  }
  char answer = 0;
  ASSERT_EQ(read(pipes[0], &answer, 1), 1);
  EXPECT_EQ(answer, 'y');
  CacheOptions hasty = makeOptions();
  hasty.lockPatienceSeconds = 0;
  EXPECT_FALSE(Cache(hasty, collect()).lock(key));
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  EXPECT_TRUE(Cache(hasty, collect()).lock(key));
  close(pipes[0]);
  close(pipes[1]);
}

/// 64 processes store, find and evict; some are killed at it.
TEST_F(CacheTest, ManyProcesses) {
  constexpr int numProcesses = 64, numKeys = 8, numRounds = 40;
  std::vector<Package> packages;
  std::vector<std::string> packed;
  for (int i = 0; i < numKeys; ++i) {
    packages.push_back(makePackage(makeKey(char('0' + i)), 64 + i));
    packed.push_back(pack(packages.back()));
  }
  CacheOptions options = makeOptions();
  options.maxBytes = packed[0].size() * 4;
  auto work = [&](int process) {
    Cache cache(options, collect());
    for (int round = 0; round < numRounds; ++round) {
      int which = (process * 7 + round * 3) % numKeys;
      std::optional<Package> found = cache.find(packages[which].cacheKey);
      if (found && pack(*found) != packed[which])
        return false;
      if (!found)
        cache.store(packages[which]);
    }
    return warnings.empty();
  };
  int failed = countFailedProcesses(numProcesses, [&](int process) {
    if (process % 8 == 0)
      // A forked process, killed at any point.
      return countFailedProcesses(1, [&](int) {
               std::thread([process] {
                 usleep(useconds_t(1000 + process * 500));
                 kill(getpid(), SIGKILL);
               }).detach();
               while (work(process)) {
               }
               return true; // It has failed before it was killed.
             }) == 1;
    return work(process);
  });
  EXPECT_EQ(failed, 0);

  Cache cache(options, collect());
  for (int i = 0; i < numKeys; ++i) {
    cache.store(packages[i]);
    ASSERT_TRUE(cache.find(packages[i].cacheKey));
  }
  uint64_t total = 0;
  for (const std::string &name : list("cache")) {
    if (llvm::StringRef(name).contains(".tmp."))
      continue; // Of a process that was killed.
    uint64_t size = 0;
    ASSERT_FALSE(llvm::sys::fs::file_size(getPath("cache/" + name), size));
    total += size;
  }
  EXPECT_LE(total, options.maxBytes);
  EXPECT_EQ(warnings, std::vector<std::string>());
}

TEST(CacheDirectoryTest, FollowsTheEnvironment) {
  auto with = [](const char *own, const char *xdg, const char *home) {
    setenv("MOEC_CACHE_DIR", own, 1);
    setenv("XDG_CACHE_HOME", xdg, 1);
    setenv("HOME", home, 1);
    return getDefaultCacheDirectory();
  };
  std::string home = getenv("HOME") ? getenv("HOME") : "/";
  EXPECT_EQ(with("/own", "/xdg", "/home/me"), "/own");
  EXPECT_EQ(with("", "/xdg", "/home/me"), "/xdg/moec");
  EXPECT_EQ(with("", "relative", "/home/me"), "/home/me/.cache/moec");
  EXPECT_EQ(with("", "", "/home/me"), "/home/me/.cache/moec");
  unsetenv("MOEC_CACHE_DIR");
  unsetenv("XDG_CACHE_HOME");
  setenv("HOME", home.c_str(), 1);
}

} // namespace
