//===- ReaderRulesTest.cpp - changed values that are never read -*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "MutateTesting.h"

using namespace moec::ptx;
using namespace moec::ptx::mutate;
using namespace moec::ptx::mutate::test;

namespace {

const char kNobody[] = "never read; ";
const char kNone[] = "-; ";

/// The rules for mutants that have survived, without other rules.
std::string rules(const std::string &body, const std::string &kind) {
  return rulesFor(body, kind, /*threads=*/64, /*haveSurvived=*/true);
}

std::string twice(const char *rule) { return std::string(rule) + rule; }

//===----------------------------------------------------------------------===//
// Values
//===----------------------------------------------------------------------===//

TEST(ReaderRules, ShufflesForNobody) {
  std::string shuffle = "shfl.sync.idx.b32 %r8, %r0, 31, 31, -1;\n";
  EXPECT_EQ(rules(shuffle, "lane"), twice(kNobody));
  EXPECT_EQ(rules(shuffle + "add.s32 %r9, %r8, 1;\n", "lane"), twice(kNobody));
  EXPECT_EQ(rules(shuffle + "st.shared.b32 [one], %r8;\n", "lane"),
            twice(kNone));
  EXPECT_EQ(rules(shuffle + "add.s32 %r9, %r8, 1;\nst.shared.b32 [one], %r9;\n",
                  "lane"),
            twice(kNone));
  EXPECT_EQ(rules("shfl.sync.idx.b32 %r8|%p1, %r0, 31, 31, -1;\n"
                  "@%p1 st.shared.b32 [one], %r0;\n",
                  "lane"),
            twice(kNone));
}

TEST(ReaderRules, ValuesThatAreWrittenAnew) {
  std::string select = "selp.b32 %r1, %r2, %r3, %p1;\n",
              use = "st.shared.b32 [one], %r1;\n";
  EXPECT_EQ(rules(select + "mov.b32 %r1, 0;\n" + use, "select"), kNobody);
  EXPECT_EQ(rules(select + "@%p2 mov.b32 %r1, 0;\n" + use, "select"), kNone);
  EXPECT_EQ(rules(select + "add.s32 %r1, %r1, 1;\n" + use, "select"), kNone);
  // The value must be overwritten on every path.
  EXPECT_EQ(
      rules(select + "@%p2 bra l;\nmov.b32 %r1, 0;\nl:\n" + use, "select"),
      kNone);
  EXPECT_EQ(
      rules(select + "@%p2 bra l;\nmov.b32 %r1, 0;\n" + use + "l:\n", "select"),
      kNobody);
  // A value that is read in the next round of a loop, unless there is none.
  auto loop = [&](const std::string &rounds) {
    return "mov.b32 %r4, 0;\nmov.b32 %r1, 0;\nl:\n" + use + select +
           "add.s32 %r4, %r4, 1;\nsetp.ne.b32 %p2, %r4, " + rounds +
           ";\n@%p2 bra l;\n";
  };
  EXPECT_EQ(rules(loop("2"), "select"), kNone);
  EXPECT_EQ(rules(loop("1"), "select"), kNobody);
}

TEST(ReaderRules, WhoReads) {
  std::string select = "selp.b32 %r1, %r2, %r3, %p1;\n";
  for (const char *use :
       {"ld.shared.b32 %r5, [%rd1];\nst.shared.b32 [one], %r5;\n",
        "setp.eq.b32 %p3, %r1, 0;\n@%p3 bra l;\nl:\n",
        "setp.eq.b32 %p3, %r1, 0;\n@%p3 ret;\n",
        "shfl.sync.idx.b32 %r5, %r1, 0, 31, -1;\n",
        "atom.shared.add.u32 %r5, [one], %r1;\n",
        "mbarrier.try_wait.parity.shared.b64 %p3, [sm], %r1;\n",
        "st.global.v2.b32 [%rd0], {%r0, %r1};\n"})
    EXPECT_EQ(rules(select + "cvt.u64.u32 %rd1, %r1;\n" + use, "select"), kNone)
        << use;
  // A load from another address gives another value.
  std::string load = "ld.shared.b32 %r1, [one];\n";
  EXPECT_EQ(rules(load + "setp.eq.b32 %p3, %r1, 0;\n", "address"),
            twice(kNobody));
  EXPECT_EQ(rules("st.shared.b32 [one], %r1;\n", "address"), twice(kNone));
}

//===----------------------------------------------------------------------===//
// Branches
//===----------------------------------------------------------------------===//

/// A store by which the kernel shows that both paths reach the end.
const char kEnd[] = "st.global.b32 [%rd0], %r0;\n";

/// "Negated", "always", "never".
std::string branch(const std::string &body, const std::string &after,
                   const std::string &guard = "setp.ge.s32 %p1, %r5, %r6;\n") {
  return rules(guard + "mov.b32 %r1, 0;\n@%p1 bra l;\n" + body + "l:\n" +
                   after + kEnd,
               "branch");
}

TEST(ReaderRules, BranchesAroundValues) {
  std::string load = "ld.shared.b32 %r1, [one];\n",
              use = "st.shared.b32 [two], %r1;\n";
  EXPECT_EQ(branch(load, ""), std::string(kNone) + twice(kNobody));
  EXPECT_EQ(branch(load, use), kNone + twice(kNone));
  // On the path past the end, the value is not read.
  std::string end = "@%p1 bra m;\n" + use + "m:\n";
  EXPECT_EQ(rules("setp.ge.s32 %p1, %r5, %r6;\nmov.b32 %r1, 0;\n"
                  "@%p1 bra l;\n" +
                      load + "l:\n" + end + kEnd,
                  "branch"),
            kNone + std::string(kNone) + kNobody + kNone + kNone + kNone);
  EXPECT_EQ(branch("st.shared.b32 [one], %r0;\n", ""), kNone + twice(kNone));
  EXPECT_EQ(branch("bar.warp.sync -1;\n", ""), kNone + twice(kNone));
  EXPECT_EQ(branch("ret;\n", ""), kNone + twice(kNone));
}

TEST(ReaderRules, BranchesAroundVotes) {
  std::string vote = "vote.sync.ballot.b32 %r1, %p5, ",
              use = "st.shared.b32 [two], %r1;\n";
  EXPECT_EQ(branch(vote + "-1;\n", ""), kNone + twice(kNobody));
  EXPECT_EQ(branch(vote + "-1;\n", use), kNone + twice(kNone));
  // Some lanes may take another path than the others.
  EXPECT_EQ(branch(vote + "15;\n", ""), kNone + twice(kNone));
  EXPECT_EQ(branch(vote + "%r7;\n", ""), kNone + twice(kNone));
  EXPECT_EQ(branch("@%p6 " + vote + "-1;\n", ""), kNone + twice(kNone));
}

} // namespace
