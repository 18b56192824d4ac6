//===- YardstickTest.cpp - tests of the yardstick process -------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Tools/Bench/Run/Yardstick.h"

#include "llvm/Support/FileSystem.h"
#include "llvm/Support/raw_ostream.h"
#include <gtest/gtest.h>

using namespace moec::bench;

namespace {

/// Replaces the yardstick by a small program.
class YardstickTest : public ::testing::Test {
protected:
  moert::Result<std::unique_ptr<Yardstick>> start(const char *text) {
    llvm::SmallString<128> name;
    int file;
    EXPECT_FALSE(
        llvm::sys::fs::createTemporaryFile("yardstick", "py", file, name));
    llvm::raw_fd_ostream(file, /*shouldClose=*/true) << text;
    path = std::string(name);
    return Yardstick::start("python3", path, 3);
  }
  void TearDown() override { llvm::sys::fs::remove(path); }

  std::string path;
};

} // namespace

TEST_F(YardstickTest, AnswersRequests) {
  auto yardstick = start(R"(
import json, sys
print(json.dumps({"ordinal": int(sys.argv[1])}), flush=True)
for line in sys.stdin:
    request = json.loads(line)
    if request["do"] == "double":
        print(json.dumps({"us": 2 * request["value"]}), flush=True)
    else:
        print(json.dumps({"error": "what is " + request["do"]}), flush=True)
)");
  ASSERT_TRUE(yardstick) << yardstick.status().message();
  EXPECT_EQ((*yardstick)->getGreeting().getInteger("ordinal"), 3);
  for (double value : {1.5, 4.0}) {
    auto us =
        (*yardstick)
            ->askNumber(llvm::json::Object{{"do", "double"}, {"value", value}},
                        "us");
    ASSERT_TRUE(us) << us.status().message();
    EXPECT_EQ(*us, 2 * value);
  }
  auto other = (*yardstick)->ask(llvm::json::Object{{"do", "halve"}});
  EXPECT_EQ(other.status().message(), "the yardstick: what is halve");
  auto missing =
      (*yardstick)
          ->askNumber(llvm::json::Object{{"do", "double"}, {"value", 1}},
                      "seconds");
  EXPECT_EQ(missing.status().message(),
            "the yardstick's answer has no 'seconds'");
}

TEST_F(YardstickTest, EndsBeforeItSaysAnything) {
  auto yardstick = start("import there_is_no_such_module\n");
  ASSERT_FALSE(yardstick);
  EXPECT_EQ(yardstick.status().message(), "the yardstick has ended");
}

TEST_F(YardstickTest, EndsInBetween) {
  auto yardstick = start("print('{}', flush=True)\n");
  ASSERT_TRUE(yardstick);
  auto answer = (*yardstick)->ask(llvm::json::Object{{"do", "anything"}});
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.status().message(), "the yardstick has ended");
}

TEST_F(YardstickTest, SaysWhatIsNoJson) {
  auto yardstick = start("print('hello', flush=True)\n");
  ASSERT_FALSE(yardstick);
  EXPECT_NE(yardstick.status().message().find("the yardstick's answer"),
            std::string::npos);
}

TEST_F(YardstickTest, IsNotThere) {
  auto yardstick = Yardstick::start("there-is-no-such-python", "x.py", 0);
  ASSERT_FALSE(yardstick);
  EXPECT_EQ(yardstick.status().message(),
            "there is no 'there-is-no-such-python'");
}
