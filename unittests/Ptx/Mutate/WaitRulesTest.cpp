//===- WaitRulesTest.cpp - MMAs that another wait ends ----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "MutateTesting.h"

using namespace moec::ptx::mutate::test;

namespace {

const char kCommit[] = "wgmma.commit_group.sync.aligned;\n";
const char kWait[] = "wgmma.wait_group.sync.aligned 0;\n";

/// An MMA whose A is in four registers from %r`first` on.
std::string product(int first) {
  std::string matrix;
  for (int i = 0; i < 4; ++i)
    matrix += (i ? ", %r" : "%r") + std::to_string(first + i);
  return "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 "
         "{%r1, %r2, %r3, %r4}, {" +
         matrix + "}, %rd2, 1, 1, 1, 0;\n";
}

std::string rulesOf(const std::string &kind, const std::string &between,
                    bool haveSurvived = true) {
  return rulesFor(product(10) + kCommit + kWait + between + product(20) +
                      kCommit + kWait + "st.global.b32 [%rd0], %r1;",
                  kind, /*threads=*/128, haveSurvived);
}

TEST(WaitRule, TheNextWaitIsForThemToo) {
  // Both mutants of the first wait are equivalent; those of the last are not.
  const char both[] = "waited for again; waited for again; -; -; ";
  EXPECT_EQ(rulesOf("wgmma wait", ""), both);
  EXPECT_EQ(rulesOf("wgmma wait", "mul.lo.s32 %r20, %r30, %r31;\n"), both);
  EXPECT_EQ(rulesOf("wgmma wait", "mbarrier.try_wait.parity.shared.b64 %p1, "
                                  "[one], %r30;\nld.shared.b32 %r20, [two];\n"),
            both);
  // The rule needs mutants that the simulator has not killed.
  EXPECT_EQ(rulesOf("wgmma wait", "", /*haveSurvived=*/false), "-; -; -; -; ");
}

TEST(WaitRule, NobodyTouchesOrLearnsOfThem) {
  for (const char *between :
       {// Registers of the matrix, and sums.
        "mul.lo.s32 %r11, %r30, %r31;\n", "add.s32 %r30, %r4, 1;\n",
        // The memory of B is released.
        "mbarrier.arrive.shared.b64 %rd5, [one];\n", "bar.sync 0;\n",
        "st.shared.b32 [one], %r30;\n",
        // On one of the paths no wait follows.
        "@%p1 ret;\n"})
    EXPECT_EQ(rulesOf("wgmma wait", between), "-; -; -; -; ") << between;
}

/// With waits that leave one group, the first wait ends the MMAs of %r10 to
/// %r13.
TEST(WaitRule, TheNextWaitThatLeavesAsManyIsForThemToo) {
  const char one[] = "wgmma.wait_group.sync.aligned 1;\n";
  auto rulesOf = [&](const std::string &between) {
    return rulesFor(product(10) + kCommit + product(20) + kCommit + one +
                        between + product(30) + kCommit + one +
                        "mul.lo.s32 %r20, %r40, %r41;\n" + kWait +
                        "st.global.b32 [%rd0], %r1;",
                    "wgmma wait", /*threads=*/128, /*haveSurvived=*/true);
  };
  EXPECT_EQ(rulesOf(""), "waited for again; waited for again; -; -; -; -; ");
  for (const char *between : {"mul.lo.s32 %r11, %r40, %r41;\n",
                              "mbarrier.arrive.shared.b64 %rd5, [one];\n"})
    EXPECT_EQ(rulesOf(between), "-; -; -; -; -; -; ") << between;
  // A wait that leaves more groups does not replace this one.
  EXPECT_EQ(rulesFor(product(10) + kCommit + kWait + product(20) + kCommit +
                         one + "mul.lo.s32 %r10, %r40, %r41;\n" + kWait +
                         "st.global.b32 [%rd0], %r1;",
                     "wgmma wait", /*threads=*/128, /*haveSurvived=*/true)
                .substr(0, 6),
            "-; -; ");
}

TEST(WaitRule, ACommitIsMadeUpForByTheNextOne) {
  EXPECT_EQ(rulesOf("commit", ""), "waited for again; -; ");
  EXPECT_EQ(rulesOf("commit", "mul.lo.s32 %r11, %r30, %r31;\n"), "-; -; ");
  // Without another commit, the MMAs are never waited for.
  EXPECT_EQ(rulesFor(product(10) + kCommit + kWait + kWait +
                         "st.global.b32 [%rd0], %r1;",
                     "commit", /*threads=*/128, /*haveSurvived=*/true),
            "-; ");
}

} // namespace
