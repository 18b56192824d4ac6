//===- RunnerTest.cpp - tests of verdicts on mutants ------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "PtxMutate/Runner.h"

#include "MutateTesting.h"
#include <cstring>

using namespace moec::ptx;
using namespace moec::ptx::mutate;
using namespace moec::ptx::mutate::test;

namespace {

/// Each thread hands a number to a thread of another warp; the second barrier
/// is redundant.
const char kExchange[] = "mul.wide.u32 %rd1, %r0, 4;\nmov.b64 %rd2, one;\n"
                         "add.s64 %rd3, %rd2, %rd1;\n"
                         "st.shared.b32 [%rd3], %r0;\nbar.sync 0;\n"
                         "xor.b32 %r1, %r0, 32;\nmul.wide.u32 %rd4, %r1, 4;\n"
                         "add.s64 %rd5, %rd2, %rd4;\n"
                         "ld.shared.b32 %r2, [%rd5];\nbar.sync 0;\n"
                         "add.s64 %rd6, %rd0, %rd1;\n"
                         "setp.lt.u32 %p1, %r0, 60;\n"
                         "@%p1 st.global.b32 [%rd6], %r2;";

Recording recordingOf(const std::string &body, size_t bytes = 256) {
  Recording recording;
  recording.modules["k"] =
      std::make_shared<const RawModule>(parseBody(body, 64));
  Simulator simulator;
  Allocation memory;
  memory.bytes = bytes;
  memory.alignment = 16;
  memory.isUsed = true;
  memory.data.resize(bytes);
  memory.initialized.resize(bytes);
  memory.address = *simulator.allocate(bytes, memory.alignment, "out");
  Launch launch;
  launch.kernel = "k";
  launch.dims = {1, 64, 0};
  launch.params.resize(sizeof(uint64_t));
  std::memcpy(launch.params.data(), &memory.address, sizeof(uint64_t));
  launch.memory = {memory};
  recording.launches = {launch};
  return recording;
}

const Verdict &find(const std::vector<Verdict> &verdicts,
                    const std::string &kind, const std::string &change,
                    size_t number = 0) {
  for (const Verdict &verdict : verdicts)
    if (verdict.mutant.kind == kind && verdict.mutant.change == change &&
        number-- == 0)
      return verdict;
  static const Verdict none;
  ADD_FAILURE() << "no mutant " << kind << ": " << change;
  return none;
}

TEST(Runner, TellsWhatBecomesOfMutants) {
  RunnerOptions options;
  options.threads = 2;
  moert::Result<std::vector<Verdict>> verdicts =
      runMutants(recordingOf(kExchange), "k", options);
  ASSERT_TRUE(verdicts) << verdicts.status().message();
  const Verdict &needed = find(*verdicts, "CTA barrier", "deleted", 0);
  EXPECT_EQ(needed.outcome, Outcome::Killed);
  EXPECT_TRUE(needed.by == "race" || needed.by == "uninitialized") << needed.by;
  const Verdict &useless = find(*verdicts, "CTA barrier", "deleted", 1);
  EXPECT_EQ(useless.outcome, Outcome::Equivalent);
  EXPECT_EQ(useless.by, "stronger neighbours");
  EXPECT_EQ(find(*verdicts, "bound", "lt to le").by, "bits");
  EXPECT_EQ(find(*verdicts, "predicate", "dropped").by, "bits");
  EXPECT_EQ(find(*verdicts, "address", "operand 0 -4 bytes", 0).by, "bounds");
}

TEST(Runner, AMutantThatHangsIsKilled) {
  std::string body = std::string(kExchange) +
                     "\nmov.b32 %r3, 0;\nagain:\nadd.s32 %r3, %r3, 1;\n"
                     "st.shared.b32 [%rd3], %r3;\n"
                     "setp.lt.u32 %p2, %r3, 4;\n@%p2 bra again;";
  RunnerOptions options;
  options.kind = "branch";
  moert::Result<std::vector<Verdict>> verdicts =
      runMutants(recordingOf(body), "k", options);
  ASSERT_TRUE(verdicts) << verdicts.status().message();
  EXPECT_EQ(find(*verdicts, "branch", "always").by, "time");
  // The loop's stores are never read, so the mutant survives and a rule proves
  // it.
  EXPECT_EQ(find(*verdicts, "branch", "never").by, "nothing more is written");
}

/// Only with a CTA without work can a test see whether such a CTA exits.
TEST(Runner, CtasWithoutWork) {
  const char body[] = "mov.u32 %r1, %ctaid.x;\nsetp.ge.u32 %p1, %r1, 1;\n"
                      "@%p1 bra end;\nmul.wide.u32 %rd1, %r0, 4;\n"
                      "add.s64 %rd2, %rd0, %rd1;\n"
                      "st.global.b32 [%rd2], %r0;\nend:\n";
  Recording recording = recordingOf(body);
  RunnerOptions options;
  moert::Result<std::vector<Verdict>> verdicts =
      runMutants(recording, "k", options);
  ASSERT_TRUE(verdicts) << verdicts.status().message();
  EXPECT_EQ(find(*verdicts, "branch", "never").outcome, Outcome::Missed);
  recording.launches[0].moreCtas = 1;
  verdicts = runMutants(recording, "k", options);
  ASSERT_TRUE(verdicts) << verdicts.status().message();
  const Verdict &never = find(*verdicts, "branch", "never");
  EXPECT_EQ(never.outcome, Outcome::Killed);
  EXPECT_EQ(never.by, "race");
  // A CTA that works does not count as one.
  recording = recordingOf("mov.u32 %r1, %ctaid.x;\n"
                          "mul.wide.u32 %rd1, %r1, 4;\n"
                          "add.s64 %rd2, %rd0, %rd1;\n"
                          "setp.eq.u32 %p1, %r0, 0;\n"
                          "@%p1 st.global.b32 [%rd2], %r1;\n");
  recording.launches[0].moreCtas = 1;
  EXPECT_FALSE(runMutants(recording, "k", options));
}

/// One more lane copies zeros to a location that is never read.
TEST(Runner, MoreCopiesThanTheOriginalShow) {
  RunnerOptions options;
  options.kind = "bound";
  moert::Result<std::vector<Verdict>> verdicts =
      runMutants(recordingOf("mov.b64 %rd1, one;\nmul.wide.u32 %rd2, %r0, 16;\n"
                             "add.s64 %rd3, %rd1, %rd2;\nmov.b32 %r1, 0;\n"
                             "setp.lt.u32 %p1, %r0, 8;\n"
                             "@%p1 cp.async.cg.shared.global [%rd3], [%rd0], "
                             "16, %r1;\ncp.async.commit_group;\n"
                             "cp.async.wait_group 0;\n"
                             "mul.wide.u32 %rd4, %r0, 4;\n"
                             "add.s64 %rd5, %rd0, %rd4;\n"
                             "st.global.b32 [%rd5], %r0;"),
                 "k", options);
  ASSERT_TRUE(verdicts) << verdicts.status().message();
  EXPECT_EQ(find(*verdicts, "bound", "lt to le").by, "work");
}

TEST(Runner, SamplesAreTheSameForTheirSeed) {
  Recording recording = recordingOf(kExchange);
  RunnerOptions options;
  options.sample = 4;
  options.sampleSeed = 3;
  auto lines = [&] {
    std::vector<std::pair<unsigned, std::string>> found;
    moert::Result<std::vector<Verdict>> verdicts =
        runMutants(recording, "k", options);
    if (verdicts)
      for (const Verdict &verdict : *verdicts)
        found.push_back({verdict.mutant.line, verdict.mutant.change});
    return found;
  };
  EXPECT_EQ(lines().size(), 4u);
  EXPECT_EQ(lines(), lines());
}

TEST(Runner, SamplesOfIndicesLeaveTheSynchronization) {
  Recording recording = recordingOf(kExchange);
  auto count = [&](size_t indexSample) {
    RunnerOptions options;
    options.indexSample = indexSample;
    std::pair<size_t, size_t> counts;
    moert::Result<std::vector<Verdict>> verdicts =
        runMutants(recording, "k", options);
    if (verdicts)
      for (const Verdict &verdict : *verdicts)
        ++(verdict.mutant.group == Group::Index ? counts.first : counts.second);
    return counts;
  };
  EXPECT_EQ(count(1).first, 1u);
  EXPECT_GT(count(0).first, 1u);
  EXPECT_GT(count(1).second, 0u);
  EXPECT_EQ(count(1).second, count(0).second);
}

TEST(Runner, TheOriginalHasToRun) {
  RunnerOptions options;
  moert::Result<std::vector<Verdict>> verdicts =
      runMutants(recordingOf(kExchange, 64), "k", options);
  ASSERT_FALSE(verdicts);
  EXPECT_NE(verdicts.status().message().find("the original, seed 0"),
            std::string::npos);
  EXPECT_FALSE(runMutants(recordingOf(kExchange), "none", options));
}

} // namespace
