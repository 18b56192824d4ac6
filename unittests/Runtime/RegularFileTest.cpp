//===- RegularFileTest.cpp - tests of opening files -------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "../../runtime/src/support/RegularFile.h"
#include "../../runtime/src/support/MappedFile.h"
#include "../../runtime/src/support/Text.h"
#include "moert/Checkpoint.h"
#include "moert/Package.h"
#include "moert/Safetensors.h"
#include "gtest/gtest.h"

#include <filesystem>
#include <fstream>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

using namespace moert;
namespace fs = std::filesystem;

namespace {

class RegularFileTest : public ::testing::Test {
protected:
  RegularFileTest() {
    std::string text = (fs::temp_directory_path() / "moert-XXXXXX").string();
    folder = mkdtemp(text.data());
  }
  ~RegularFileTest() override { fs::remove_all(folder); }
  std::string at(const std::string &name) const { return folder + "/" + name; }

  std::string folder;
};

} // namespace

/// A pipe waits for a writer, and a device may be endless. Archives can contain
/// pipes, and a git checkout links to devices.
TEST_F(RegularFileTest, WhatIsNoRegularFileIsRefusedAtOnce) {
  std::string pipe = at("model.safetensors");
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  fs::create_symlink("/dev/zero", at("zero"));
  std::string isPipe = pipe + ": is a pipe, not a regular file";
  std::string isDevice = at("zero") + ": is a device, not a regular file";
  EXPECT_EQ(openRegularFile(pipe).status().message(), isPipe);
  EXPECT_EQ(SafetensorsFile::open(pipe).status().message(), isPipe);
  EXPECT_EQ(Checkpoint::open(folder).status().message(), isPipe);
  EXPECT_EQ(Package::open(pipe).status().message(), isPipe);
  EXPECT_EQ(SafetensorsFile::open(at("zero")).status().message(), isDevice);
  EXPECT_EQ(Package::open(at("zero")).status().message(), isDevice);
  EXPECT_EQ(openRegularFile(folder).status().message(),
            folder + ": is a directory, not a regular file");
  fs::rename(pipe, at("model.safetensors.index.json"));
  EXPECT_EQ(Checkpoint::open(folder).status().message(),
            at("model.safetensors.index.json") +
                ": is a pipe, not a regular file");
  Status missing = openRegularFile(at("none")).status();
  EXPECT_EQ(missing.code(), StatusCode::NotFound);
  EXPECT_EQ(missing.message(),
            at("none") + ": cannot be read: No such file or directory");
}

TEST_F(RegularFileTest, LinksAreFollowedByPathsAlone) {
  std::ofstream(at("real")) << "text";
  fs::create_symlink("real", at("link"));
  EXPECT_TRUE(openRegularFile(at("link")));
  Descriptor opened(open(folder.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  EXPECT_TRUE(openRegularFileIn(opened.get(), "real", "shown"));
  EXPECT_NE(openRegularFileIn(opened.get(), "link", "shown")
                .status()
                .message()
                .find("shown: cannot be read"),
            std::string::npos);
}

TEST_F(RegularFileTest, BytesAreCounted) {
  auto read = [&](uint64_t most) {
    Result<RegularFile> file = openRegularFile(at("file"));
    return readAtMost(file->descriptor.get(), most);
  };
  std::string text(200'000, 't');
  std::ofstream(at("file")) << text;
  EXPECT_EQ(*read(text.size()), text);
  EXPECT_EQ(*read(1 << 30), text);
  EXPECT_EQ(read(text.size() - 1).status().message(),
            "has more than the 199999 bytes that are read");
  EXPECT_FALSE(read(0));
  // An endless file, as standard input may be.
  Descriptor endless(open("/dev/zero", O_RDONLY | O_CLOEXEC));
  EXPECT_EQ(readAtMost(endless.get(), 1000).status().message(),
            "has more than the 1000 bytes that are read");
  std::ofstream(at("file"), std::ios::trunc) << "";
  EXPECT_EQ(*read(0), "");
}

/// A file of a gigabyte is rejected as a package without reading all of it.
TEST_F(RegularFileTest, ALargeFileThatIsNoPackageIsNotRead) {
  std::ofstream(at("x.moepkg")) << "no package";
  fs::resize_file(at("x.moepkg"), (size_t(1) << 30) - 1);
  auto begin = std::chrono::steady_clock::now();
  EXPECT_NE(Package::open(at("x.moepkg"))
                .status()
                .message()
                .find("bytes 4 to 7 are not its identifier"),
            std::string::npos);
  EXPECT_LT(std::chrono::steady_clock::now() - begin,
            std::chrono::milliseconds(100));
}

//===----------------------------------------------------------------------===//
// Names from files
//===----------------------------------------------------------------------===//

TEST(PrintableTest, HasNoControlCharacters) {
  EXPECT_EQ(printable("experts.0.w1"), "experts.0.w1");
  EXPECT_EQ(printable("\x1b[2J\r\n\tx\x7f"), "?[2J?? x?");
  EXPECT_EQ(printable("gr\xc3\xbc\xc3\x9f \xe4\xb8\xad \xf0\x9f\x98\x80"),
            "gr\xc3\xbc\xc3\x9f \xe4\xb8\xad \xf0\x9f\x98\x80");
  // U+009B begins a terminal command, as does the single byte.
  EXPECT_EQ(printable("\xc2\x9b"
                      "2J"),
            "??2J");
  EXPECT_EQ(printable("\x9b"
                      "2J"),
            "?2J");
  // Overlong, a surrogate, beyond Unicode, truncated.
  EXPECT_EQ(
      printable("\xc0\x80 \xe0\x80\x80 \xed\xa0\x80 \xf4\x90\x80\x80 \xe4\xb8"),
      "?? ??? ??? ???? ??");
}

TEST(PrintableTest, IsCut) {
  std::string name(5'000'000, 'n');
  EXPECT_EQ(printable(name), std::string(80, 'n') + "...");
  EXPECT_EQ(printable(name.substr(0, 80)), std::string(80, 'n'));
  // Never cut inside a character.
  EXPECT_EQ(printable("abc\xe4\xb8\xad"
                      "d",
                      5),
            "abc...");
}
