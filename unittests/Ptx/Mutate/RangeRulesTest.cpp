//===- RangeRulesTest.cpp - tests of rules about ranges ---------*- C++ -*-===//
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

std::string survivors(const std::string &body, const std::string &kind) {
  return rulesFor(body, kind, 128, /*haveSurvived=*/true);
}

//===----------------------------------------------------------------------===//
// Always one way
//===----------------------------------------------------------------------===//

/// Negated, always, never.
const char kStore[] = "st.global.b32 [%rd0], %r0;\nl:\n";

TEST(WayRule, ThreadsAreFew) {
  // A CTA has at most 1024 threads.
  EXPECT_EQ(rulesFor("setp.gt.u32 %p1, %r0, 1023;\n@%p1 bra l;\n" +
                         std::string(kStore),
                     "branch"),
            "-; -; always one way; ");
  EXPECT_EQ(rulesFor("setp.gt.u32 %p1, %r0, 1022;\n@%p1 bra l;\n" +
                         std::string(kStore),
                     "branch"),
            "-; -; -; ");
  EXPECT_EQ(rulesFor("setp.lt.u32 %p1, %r0, 1024;\n@%p1 bra l;\n" +
                         std::string(kStore),
                     "branch"),
            "-; always one way; -; ");
  EXPECT_EQ(rulesFor("add.s32 %r1, %r0, 5;\nsetp.lt.u32 %p1, %r1, 4;", "bound"),
            "always one way; ");
  EXPECT_EQ(rulesFor("add.s32 %r1, %r0, 5;\nsetp.lt.u32 %p1, %r1, 5;", "bound"),
            "-; ");
}

TEST(WayRule, LoopsOfOneRound) {
  std::string loop = "mov.b32 %r1, 0;\nl:\nst.global.b32 [%rd0], %r1;\n"
                     "add.s32 %r1, %r1, 1;\n";
  EXPECT_EQ(
      rulesFor(loop + "setp.lt.s32 %p1, %r1, 1;\n@%p1 bra l;\n", "branch"),
      "-; -; always one way; ");
  EXPECT_EQ(
      rulesFor(loop + "setp.lt.s32 %p1, %r1, 2;\n@%p1 bra l;\n", "branch"),
      "-; -; -; ");
}

/// The number left over from the round before: at most one, or none, and then
/// another branch skips the loop.
TEST(WayRule, BranchesOfTheSameRegister) {
  auto loop = [](const std::string &most, const std::string &skip) {
    return "mov.b32 %r1, 0;\nl:\nsetp.eq.b32 %p1, %r1, 0;\n" + skip +
           "mov.b32 %r2, %r1;\nm:\nst.global.b32 [%rd0], %r0;\n"
           "add.s32 %r2, %r2, -1;\nsetp.ne.b32 %p2, %r2, 0;\n@%p2 bra m;\n"
           "n:\nadd.s32 %r1, %r1, 1;\nmin.s32 %r1, %r1, " +
           most + ";\nld.global.b32 %r3, [%rd0];\nsetp.ne.b32 %p3, %r3, 0;\n" +
           "@%p3 bra l;\n";
  };
  auto ofLoop = [](const std::string &body) {
    std::string rules = rulesFor(body, "branch");
    size_t skipped = body.find("bra n") == std::string::npos ? 0 : 3;
    for (; skipped > 0; --skipped)
      rules.erase(0, rules.find("; ") + 2);
    return rules;
  };
  std::string skip = "@%p1 bra n;\n";
  EXPECT_EQ(ofLoop(loop("1", skip)), "-; -; always one way; -; -; -; ");
  EXPECT_EQ(ofLoop(loop("2", skip)), "-; -; -; -; -; -; ");
  EXPECT_EQ(ofLoop(loop("1", "")), "-; -; -; -; -; -; ");
}

/// The last round of a loop over 128 rows per round, which begins at the last
/// multiple of 128.
std::string lastRound(const std::string &begin, const std::string &step) {
  return "shl.b64 %rd1, %rd0, 1;\ncvt.u64.u32 %rd2, %r0;\n" + begin +
         "l:\nst.global.b32 [%rd0], %r0;\nadd.s64 %rd4, %rd4, " + step +
         ";\nsetp.lt.s64 %p1, %rd4, %rd1;\n@%p1 bra l;\n";
}

TEST(WayRule, DistanceFromTheEnd) {
  // The remainder, from 0 to 127, is subtracted.
  std::string begin = "and.b64 %rd3, %rd1, 127;\nsub.s64 %rd4, %rd1, %rd3;\n";
  EXPECT_EQ(rulesFor(lastRound(begin, "128"), "bound"), "always one way; ");
  EXPECT_EQ(rulesFor(lastRound(begin, "128"), "branch"),
            "-; -; always one way; ");
  // A row is left out, or may be.
  EXPECT_EQ(rulesFor(lastRound(begin, "127"), "bound"), "-; ");
  EXPECT_EQ(rulesFor(lastRound(begin, "126"), "branch"), "-; -; -; ");
  // Rounds down to a multiple of 128.
  begin = "and.b64 %rd4, %rd1, -128;\n";
  EXPECT_EQ(rulesFor(lastRound(begin, "128"), "bound"), "always one way; ");
  EXPECT_EQ(rulesFor(lastRound("and.b64 %rd4, %rd1, -256;\n", "128"), "branch"),
            "-; -; -; ");
}

TEST(WayRule, SumsThatWrapAround) {
  // An unknown number plus one may overflow and be less.
  std::string sum = "ld.global.b32 %r1, [%rd0];\nadd.s32 %r2, %r1, 1;\n";
  EXPECT_EQ(rulesFor(sum + "setp.gt.s32 %p1, %r2, %r1;\n@%p1 bra l;\n" + kStore,
                     "branch"),
            "-; -; -; ");
  // The sum fits 64 bits.
  sum = "ld.global.b32 %r1, [%rd0];\ncvt.s64.s32 %rd1, %r1;\n"
        "add.s64 %rd2, %rd1, 1;\n";
  EXPECT_EQ(
      rulesFor(sum + "setp.gt.s64 %p1, %rd2, %rd1;\n@%p1 bra l;\n" + kStore,
               "branch"),
      "-; always one way; -; ");
  // Unsigned, -1 is the largest number.
  EXPECT_EQ(rulesFor("ld.global.b32 %r1, [%rd0];\ncvt.u64.u32 %rd1, %r1;\n"
                     "setp.lt.s64 %p1, %rd1, 4294967295;",
                     "bound"),
            "-; ");
  EXPECT_EQ(rulesFor("ld.global.b32 %r1, [%rd0];\ncvt.u64.u32 %rd1, %r1;\n"
                     "setp.lt.s64 %p1, %rd1, 4294967296;",
                     "bound"),
            "always one way; ");
}

TEST(WayRule, OneOfTwoWrites) {
  std::string two = "mov.b32 %r1, 4;\n@%p2 bra m;\nmov.b32 %r1, 1;\nm:\n";
  EXPECT_EQ(rulesFor(two + "setp.lt.s32 %p1, %r1, 4;", "bound"), "-; ");
  EXPECT_EQ(rulesFor(two + "setp.lt.s32 %p1, %r1, 5;", "bound"),
            "always one way; ");
  // Under a predicate, the old value may stay.
  EXPECT_EQ(rulesFor("mov.b32 %r1, 5;\n@%p2 mov.b32 %r1, 4;\n"
                     "setp.lt.s32 %p1, %r1, 5;",
                     "bound"),
            "-; ");
}

//===----------------------------------------------------------------------===//
// Bits
//===----------------------------------------------------------------------===//

TEST(BoundRule, AnyBit) {
  // Bit 3 of 136 is set.
  std::string row = "shr.u32 %r1, %r0, 2;\nand.b32 %r2, %r1, 7;\n"
                    "ld.global.b32 %r3, [%rd0];\nmul.lo.s32 %r4, %r3, 64;\n"
                    "or.b32 %r5, %r4, %r2;\n";
  EXPECT_EQ(rulesFor(row + "setp.lt.s32 %p1, %r5, 136;", "bound"),
            "never equal; ");
  EXPECT_EQ(rulesFor(row + "setp.lt.s32 %p1, %r5, 144;", "bound"),
            "never equal; ");
  EXPECT_EQ(rulesFor(row + "setp.lt.s32 %p1, %r5, 135;", "bound"), "-; ");
  // A sum may carry into the bit.
  EXPECT_EQ(rulesFor(row + "add.s32 %r6, %r5, 1;\n"
                           "setp.lt.s32 %p1, %r6, 136;",
                     "bound"),
            "-; ");
  EXPECT_EQ(rulesFor(row + "add.s32 %r6, %r5, 16;\n"
                           "setp.lt.s32 %p1, %r6, 136;",
                     "bound"),
            "never equal; ");
}

//===----------------------------------------------------------------------===//
// Nothing more is written
//===----------------------------------------------------------------------===//

/// A loop over the rows from %rd1 up to %rd2, 64 per round. Thread %rd3 has one
/// row in a round, and skips it if it is out of range.
std::string rows(const std::string &guard, const std::string &end = "") {
  return "ld.global.nc.b32 %r1, [%rd0];\nld.global.nc.b32 %r2, [%rd0+4];\n"
         "cvt.s64.s32 %rd1, %r1;\ncvt.s64.s32 %rd2, %r2;\n"
         "cvt.u64.u32 %rd3, %r0;\nl:\nst.shared.b32 [one], %r0;\nbar.sync 0;\n"
         "add.s64 %rd4, %rd1, %rd3;\n" +
         guard +
         "@%p1 bra m;\nst.global.b32 [%rd0], %r0;\nm:\n"
         "add.s64 %rd1, %rd1, 64;\nsetp.lt.s64 %p2, %rd1, %rd2;\n"
         "@%p2 bra l;\n" +
         end;
}

const char kMasked[] = "setp.gt.s64 %p3, %rd2, %rd4;\nnot.pred %p1, %p3;\n";

/// The rule for the bound of the loop, which is the last one.
std::string ofLoop(const std::string &body) {
  std::string all = survivors(body, "bound");
  size_t last = all.rfind("; ", all.size() - 3);
  return last == std::string::npos ? all : all.substr(last + 2);
}

TEST(EndRule, OneRoundMore) {
  EXPECT_EQ(ofLoop(rows(kMasked)), "nothing more is written; ");
  // The rule is only for mutants that have survived.
  EXPECT_EQ(rulesFor(rows(kMasked), "bound"), "-; -; ");
  // The mask leaves a row.
  EXPECT_EQ(ofLoop(rows("setp.ge.s64 %p3, %rd2, %rd4;\nnot.pred %p1, %p3;\n")),
            "-; ");
  // An unknown mask.
  EXPECT_EQ(ofLoop(rows("setp.gt.s64 %p1, %rd0, %rd4;\n")), "-; ");
  // A write after the loop.
  EXPECT_EQ(ofLoop(rows(kMasked, "st.global.b32 [%rd0], %r0;\n")), "-; ");
  EXPECT_EQ(ofLoop(rows(kMasked, "mbarrier.arrive.shared.b64 _, [one];\n")),
            "-; ");
  EXPECT_EQ(ofLoop(rows(kMasked, "red.global.add.u32 [%rd0], 1;\n")), "-; ");
}

TEST(EndRule, AllThreadsTogether) {
  std::string own = rows(kMasked);
  // Rows that start at the thread's number.
  own.insert(own.find("l:\n"), "add.s64 %rd1, %rd1, %rd3;\n");
  EXPECT_EQ(ofLoop(own), "-; ");
  // The loaded values may have changed in between.
  own = rows(kMasked);
  own.replace(own.find("global.nc"), 9, "global");
  EXPECT_EQ(ofLoop(own), "-; ");
}

TEST(EndRule, ThreadsThatShareNothing) {
  std::string tile = "mov.u32 %r1, %ctaid.x;\nmul.wide.u32 %rd1, %r1, 32;\n"
                     "shr.u32 %r2, %r0, 4;\ncvt.u64.u32 %rd2, %r2;\n"
                     "setp.ge.s64 %p1, %rd1, %rd0;\n@%p1 bra m;\n"
                     "or.b64 %rd3, %rd1, %rd2;\n"
                     "setp.ge.s64 %p2, %rd3, %rd0;\n@%p2 bra m;\n"
                     "st.global.b32 [%rd0], %r0;\nm:\n";
  // Negated, always and never, for two branches.
  EXPECT_EQ(survivors(tile, "branch"),
            "-; -; nothing more is written; -; -; -; ");
  EXPECT_EQ(survivors(tile, "bound").substr(0, 25),
            "nothing more is written; ");
  // Another bound implies less.
  std::string other = tile;
  other.replace(other.find("%p2, %rd3, %rd0"), 15, "%p2, %rd3, %rd4");
  EXPECT_EQ(survivors(other, "branch"), "-; -; -; -; -; -; ");
}

} // namespace
