//===- AtomicFileTest.cpp - tests of the writer of files --------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "../../runtime/src/support/AtomicFile.h"
#include "../../runtime/src/support/Temporaries.h"
#include "moert/Safetensors.h"
#include "gtest/gtest.h"

#include <cerrno>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <set>

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace moert;
namespace fs = std::filesystem;

//===----------------------------------------------------------------------===//
// System calls with injected errors, interposed by the linker.
//===----------------------------------------------------------------------===//

/// Returns 0 to call the real function, or the error to inject.
static std::function<int(int)> beforeFsync;
static int numTakenNames = 0;

// NOLINTBEGIN(bugprone-reserved-identifier): the linker's names.
extern "C" int __real_fsync(int file);
extern "C" int __wrap_fsync(int file) {
  if (int error = beforeFsync ? beforeFsync(file) : 0) {
    errno = error;
    return -1;
  }
  return __real_fsync(file);
}

extern "C" int __real_openat(int folder, const char *name, int flags, ...);
extern "C" int __wrap_openat(int folder, const char *name, int flags,
                             mode_t mode) {
  if ((flags & O_EXCL) && numTakenNames > 0) {
    --numTakenNames;
    errno = EEXIST;
    return -1;
  }
  return __real_openat(folder, name, flags, mode);
}
// NOLINTEND(bugprone-reserved-identifier)

namespace {

class AtomicFileTest : public ::testing::Test {
protected:
  AtomicFileTest() {
    std::string text = (fs::temp_directory_path() / "moert-XXXXXX").string();
    folder = mkdtemp(text.data());
  }
  ~AtomicFileTest() override {
    beforeFsync = nullptr;
    numTakenNames = 0;
    fs::remove_all(folder);
  }

  std::string at(const std::string &name) const { return folder + "/" + name; }
  void put(const std::string &name, const std::string &text,
           int ageSeconds = 0) const {
    std::ofstream(at(name)) << text;
    fs::last_write_time(at(name), fs::file_time_type::clock::now() -
                                      std::chrono::seconds(ageSeconds));
  }
  std::string get(const std::string &name) const {
    std::ifstream file(at(name));
    return std::string(std::istreambuf_iterator<char>(file), {});
  }
  std::set<std::string> list() const {
    std::set<std::string> names;
    for (const fs::directory_entry &entry : fs::directory_iterator(folder))
      names.insert(entry.path().filename().string());
    return names;
  }

  std::string folder;
};

using Names = std::set<std::string>;

} // namespace

static Status writeText(const std::string &path, const std::string &text) {
  return writeFileWhole(path, {{text.data(), text.size()}});
}

//===----------------------------------------------------------------------===//
// Targets
//===----------------------------------------------------------------------===//

TEST_F(AtomicFileTest, ALinkStaysAndItsTargetIsReplaced) {
  fs::create_directory(at("far"));
  put("far/target", "old");
  fs::create_symlink("far/target", at("near"));
  fs::create_symlink(at("near"), at("link"));
  ASSERT_TRUE(writeText(at("link"), "new"));
  EXPECT_TRUE(fs::is_symlink(at("link")));
  EXPECT_TRUE(fs::is_symlink(at("near")));
  EXPECT_EQ(get("far/target"), "new");

  fs::create_symlink("far/made", at("dangling"));
  ASSERT_TRUE(writeText(at("dangling"), "made"));
  EXPECT_TRUE(fs::is_symlink(at("dangling")));
  EXPECT_EQ(get("far/made"), "made");
  EXPECT_EQ(list(), (Names{"far", "near", "link", "dangling"}));

  // A link of the working directory, whose target stands beside it.
  fs::path before = fs::current_path();
  fs::current_path(at("far"));
  fs::create_symlink("target", "beside");
  moert::Status written = writeText("beside", "newer");
  fs::current_path(before);
  ASSERT_TRUE(written);
  EXPECT_EQ(get("far/target"), "newer");

  fs::create_symlink(at("loop"), at("loop"));
  EXPECT_NE(writeText(at("loop"), "x").message().find("Too many levels"),
            std::string::npos);
}

TEST_F(AtomicFileTest, AnOpenDescriptorIsWrittenInPlace) {
  put("log", "before ");
  Descriptor log(open(at("log").c_str(), O_WRONLY | O_APPEND | O_CLOEXEC));
  std::string number = std::to_string(log.get());
  fs::create_symlink("/proc/self/fd/" + number, at("link"));
  for (const std::string &path :
       {"/dev/fd/" + number, "/proc/self/fd/" + number, at("link")})
    ASSERT_TRUE(writeText(path, "y"));
  EXPECT_EQ(get("log"), "before yyy");
  EXPECT_EQ(fs::read_symlink(at("link")), "/proc/self/fd/" + number);
  EXPECT_EQ(list(), (Names{"log", "link"}));

  Descriptor readOnly(open(at("log").c_str(), O_RDONLY | O_CLOEXEC));
  EXPECT_NE(writeText("/dev/fd/" + std::to_string(readOnly.get()), "x")
                .message()
                .find("cannot be written: Bad file descriptor"),
            std::string::npos);
}

/// Like `> log`: the process' standard output and its written file are the
/// same.
TEST_F(AtomicFileTest, StandardOutputIsWrittenInPlace) {
  put("log", "");
  fs::create_symlink("/proc/self/fd/1", at("stdout"));
  fflush(stdout);
  Descriptor before(dup(STDOUT_FILENO));
  {
    Descriptor log(open(at("log").c_str(), O_WRONLY | O_CLOEXEC));
    dup2(log.get(), STDOUT_FILENO);
  }
  std::vector<Status> written;
  for (const std::string &path : {std::string("-"), at("stdout"), at("log")})
    written.push_back(writeText(path, "y"));
  dup2(before.get(), STDOUT_FILENO);
  for (const Status &status : written)
    EXPECT_TRUE(status) << status.message();
  EXPECT_EQ(get("log"), "yyy");
  EXPECT_EQ(list(), (Names{"log", "stdout"}));
}

TEST_F(AtomicFileTest, DevicesAreWrittenWhereThatIsAsked) {
  auto write = [](const std::string &path, AtomicFile::Devices devices) {
    return writeFileWhole(path, {{"x", 1}}, devices);
  };
  EXPECT_TRUE(write("/dev/null", AtomicFile::Devices::WriteInPlace));
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
  EXPECT_FALSE(write("/dev/full", AtomicFile::Devices::WriteInPlace));
  EXPECT_FALSE(write("/dev/null", AtomicFile::Devices::Refuse));
  EXPECT_FALSE(write(folder, AtomicFile::Devices::WriteInPlace));
}

//===----------------------------------------------------------------------===//
// Temporary files
//===----------------------------------------------------------------------===//

// field-bug: odysseus#5596, kuasar#239, stellar-core#652
TEST_F(AtomicFileTest, LeftoversOfKilledProcessesBlockNothing) {
  constexpr int hours = 3600;
  // Leftovers of process 1 in a container, which restarts as process 1.
  std::string process = std::to_string(getpid());
  for (int count = 0; count < 100; ++count)
    put("w.safetensors.tmp." + process + "." + std::to_string(count), "part",
        2 * hours);
  put("w.safetensors.tmp.0123456789abcdef0123456789abcdef", "part", 2 * hours);
  Names kept = {"w.safetensors.tmp.fedcba9876543210fedcba9876543210",
                "w.safetensors.tmp.notes", "w.safetensors.tmp.",
                "v.safetensors.tmp.1.0"};
  for (const std::string &name : kept)
    put(name, "part", name.find(".fed") != name.npos ? 0 : 2 * hours);
  ASSERT_TRUE(writeText(at("w.safetensors"), "new"));
  EXPECT_EQ(get("w.safetensors"), "new");
  kept.insert("w.safetensors");
  EXPECT_EQ(list(), kept);
}

TEST_F(AtomicFileTest, OfTwoWritersTheLastOneWins) {
  Result<AtomicFile> one = AtomicFile::create(at("file"));
  Result<AtomicFile> two = AtomicFile::create(at("file"));
  ASSERT_TRUE(one && two);
  EXPECT_EQ(list().size(), 2u);
  EXPECT_TRUE(one->write("one", 3));
  EXPECT_TRUE(two->write("two", 3));
  EXPECT_TRUE(two->commit());
  EXPECT_EQ(get("file"), "two");
  EXPECT_TRUE(one->commit());
  EXPECT_EQ(get("file"), "one");
  EXPECT_EQ(list(), Names{"file"});
}

TEST_F(AtomicFileTest, ANameThatIsTakenIsDrawnAgain) {
  numTakenNames = 3;
  EXPECT_TRUE(writeText(at("file"), "new"));
  EXPECT_EQ(numTakenNames, 0);
  // Give up if every name seems to exist.
  numTakenNames = 1000;
  EXPECT_NE(writeText(at("file"), "newer").message().find("File exists"),
            std::string::npos);
  EXPECT_EQ(get("file"), "new");
}

TEST_F(AtomicFileTest, NamesMayBeAsLongAsTheSystemTakes) {
  std::string name(255, 'n');
  EXPECT_TRUE(writeText(at(name), "new"));
  EXPECT_EQ(list(), Names{name});
}

TEST_F(AtomicFileTest, ANewFileReplacesNone) {
  int opened = open(folder.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC);
  Descriptor closer(opened);
  auto commit = [&] {
    auto file = AtomicFile::createIn(opened, "file", at("file"), 0600);
    EXPECT_TRUE(file && file->write("new", 3));
    return *file->commitNew();
  };
  EXPECT_TRUE(commit());
  EXPECT_EQ(fs::status(at("file")).permissions(),
            fs::perms::owner_read | fs::perms::owner_write);
  put("file", "other");
  EXPECT_FALSE(commit());
  EXPECT_EQ(get("file"), "other");
  EXPECT_EQ(list(), Names{"file"});
}

//===----------------------------------------------------------------------===//
// Signals
//===----------------------------------------------------------------------===//

/// Runs `body` in a forked process and returns its exit status.
static int runForked(const std::function<void()> &body) {
  pid_t child = fork();
  if (child == 0) {
    body();
    _exit(0);
  }
  int status = -1;
  waitpid(child, &status, 0);
  return status;
}

TEST_F(AtomicFileTest, ASignalRemovesTheTemporaryFile) {
  int status = runForked([&] {
    signal(SIGTERM, [](int number) {
      removeTemporaries();
      signal(number, SIG_DFL);
      raise(number);
    });
    auto one = AtomicFile::create(at("one"));
    auto two = AtomicFile::create(at("two"));
    if (one && two && two->write("part", 4) && list().size() == 2)
      raise(SIGTERM);
  });
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
  EXPECT_EQ(list(), Names());
}

TEST_F(AtomicFileTest, AChildLeavesItsParentsFileAlone) {
  auto file = AtomicFile::create(at("file"));
  ASSERT_TRUE(file && file->write("new", 3));
  EXPECT_EQ(runForked([] { removeTemporaries(); }), 0);
  ASSERT_TRUE(file->commit());
  EXPECT_EQ(get("file"), "new");
  // A committed file is no longer temporary.
  removeTemporaries();
  EXPECT_EQ(list(), Names{"file"});
}

TEST_F(AtomicFileTest, MoreFilesThanAreNotedAreWritten) {
  std::vector<AtomicFile> files;
  for (int i = 0; i < 100; ++i) {
    auto file = AtomicFile::create(at(std::to_string(i)));
    ASSERT_TRUE(file);
    files.push_back(std::move(*file));
  }
  for (AtomicFile &file : files)
    EXPECT_TRUE(file.commit());
  EXPECT_EQ(list().size(), 100u);
}

//===----------------------------------------------------------------------===//
// The disk
//===----------------------------------------------------------------------===//

/// The bytes must be durable before the rename, then the rename.
TEST_F(AtomicFileTest, ADurableFileIsSyncedBeforeItIsRenamed) {
  std::vector<std::string> synced;
  beforeFsync = [&](int file) {
    struct stat info;
    EXPECT_EQ(fstat(file, &info), 0);
    synced.push_back(S_ISDIR(info.st_mode)
                         ? "folder with " + get("file")
                         : std::to_string(info.st_size) + " bytes, " +
                               (fs::exists(at("file")) ? "renamed" : "apart"));
    return 0;
  };
  Result<AtomicFile> file = AtomicFile::create(at("file"));
  ASSERT_TRUE(file && file->write("new", 3));
  ASSERT_TRUE(file->commit(/*isDurable=*/true));
  EXPECT_EQ(synced,
            (std::vector<std::string>{"3 bytes, apart", "folder with new"}));
}

TEST_F(AtomicFileTest, ADiskThatDoesNotTakeTheBytesIsTold) {
  put("file", "old");
  beforeFsync = [](int) { return EIO; };
  Result<AtomicFile> file = AtomicFile::create(at("file"));
  ASSERT_TRUE(file && file->write("new", 3));
  Status status = file->commit(/*isDurable=*/true);
  EXPECT_EQ(status.message(),
            at("file") + ": cannot be written: Input/output error");
  EXPECT_EQ(get("file"), "old");
  EXPECT_EQ(list(), Names{"file"});
}
