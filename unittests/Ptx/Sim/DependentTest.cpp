//===- DependentTest.cpp - tests of dependent launches ----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/PtxSim/SimDevice.h"

#include "SimulatorTesting.h"

using namespace moec::ptx;
using namespace moec::ptx::test;

namespace {

#define EXPECT_MESSAGE(text, part)                                             \
  EXPECT_NE((text).find(part), std::string::npos) << (text)

/// A kernel of two CTAs of 64 threads; %rd3, %rd4 and %rd5 are the thread's
/// words of the three buffers.
std::string kernelOf(const std::string &body) {
  return kernelText("mov.u32 %r1, %ctaid.x;\nshl.b32 %r2, %r1, 6;\n"
                    "add.s32 %r3, %r2, %r0;\nmul.wide.u32 %rd6, %r3, 4;\n"
                    "add.s64 %rd3, %rd0, %rd6;\nadd.s64 %rd4, %rd1, %rd6;\n"
                    "add.s64 %rd5, %rd2, %rd6;\n" +
                        body,
                    3, 64);
}

constexpr char kBegin[] = "griddepcontrol.launch_dependents;\n";
constexpr char kWait[] = "griddepcontrol.wait;\n";

/// Kernels that write the first buffer, the second from it, and the third from
/// that.
std::string first() {
  return kernelOf(std::string(kBegin) + kWait + "st.global.b32 [%rd3], 5;");
}
std::string second() {
  return kernelOf(std::string(kBegin) + kWait +
                  "ld.global.b32 %r4, [%rd3];\nadd.s32 %r4, %r4, 1;\n"
                  "st.global.b32 [%rd4], %r4;");
}
std::string third() {
  return kernelOf(std::string(kBegin) + kWait +
                  "ld.global.b32 %r4, [%rd4];\nadd.s32 %r4, %r4, 1;\n"
                  "st.global.b32 [%rd5], %r4;");
}

struct Outcome {
  std::string message;
  std::vector<uint32_t> values;
};

/// Launches kernels one after the other; all but the first are dependent, or
/// those that `areDependent` says.
Outcome runChain(const std::vector<std::string> &kernels, uint64_t seed,
                 std::vector<bool> areDependent = {}) {
  areDependent.resize(kernels.size(), areDependent.empty());
  constexpr size_t kWords = 128;
  SimulatorOptions options;
  options.seed = seed;
  options.maxWarpInstructions = 100'000;
  Simulator simulator(options);
  std::vector<uint64_t> slots;
  for (const char *name : {"first", "second", "third"}) {
    slots.push_back(*simulator.allocate(kWords * 4, 256, name));
    std::vector<uint32_t> zeros(kWords);
    EXPECT_TRUE(simulator.write(slots.back(), zeros.data(), kWords * 4));
  }
  std::vector<WorkId> last;
  for (size_t i = 0; i < kernels.size(); ++i) {
    auto module =
        simulator.load(kernels[i], "launch" + std::to_string(i) + ".ptx");
    EXPECT_TRUE(module) << module.status().message();
    moert::LaunchDims dims;
    dims.grid = 2;
    dims.block = 64;
    dims.dependent = areDependent[i] && i > 0;
    auto params = packParams((*module)->kernels().front(), slots);
    EXPECT_TRUE(params);
    last = {*simulator.submit(**module, "k", dims, *params, last)};
  }
  Outcome outcome;
  outcome.message = simulator.run().message();
  outcome.values.resize(kWords);
  EXPECT_TRUE(simulator.read(outcome.values.data(), slots[2], kWords * 4));
  return outcome;
}

/// The first error of any seed, or "".
std::string findError(const std::vector<std::string> &kernels) {
  for (uint64_t seed = 0; seed < kSeeds; ++seed)
    if (std::string text = runChain(kernels, seed).message; !text.empty())
      return text;
  return "";
}

TEST(Dependent, WaitsOrderAChain) {
  for (uint64_t seed = 0; seed < 32; ++seed) {
    Outcome outcome = runChain({first(), second(), third()}, seed);
    EXPECT_EQ(outcome.message, "");
    EXPECT_EQ(outcome.values, std::vector<uint32_t>(128, 7));
  }
}

/// Whether a run was aborted because no thread made progress.
bool isStuck(const std::string &message) {
  return message.find("deadlock") != std::string::npos ||
         message.find("instructions of warps") != std::string::npos;
}

/// A kernel that ends only when the launch after it has started.
std::string spinning(const std::string &before) {
  return kernelOf(before + "again:\nld.relaxed.gpu.global.b32 %r4, [%rd2];\n"
                           "setp.eq.b32 %p1, %r4, 0;\n@%p1 bra again;");
}

TEST(Dependent, BeginWhenAllCtasLetThem) {
  std::string raising =
      kernelOf(std::string("st.relaxed.gpu.global.b32 [%rd2], 1;\n") + kWait);
  // A CTA triggers by one thread's instruction, or by its end.
  std::string leaving =
      spinning("setp.ne.b32 %p2, %r0, 40;\nsetp.eq.b32 %p3, %r1, 1;\n"
               "@%p3 ret;\n@!%p2 griddepcontrol.launch_dependents;\n");
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    EXPECT_EQ(runChain({spinning(kBegin), raising}, seed).message, "");
    EXPECT_EQ(runChain({leaving, raising}, seed).message, "");
    EXPECT_TRUE(isStuck(
        runChain({spinning(kBegin), raising}, seed, {false, false}).message));
    EXPECT_TRUE(isStuck(runChain({spinning(""), raising}, seed).message));
    std::string one = replaced(leaving, "@%p3 ret;", "@%p3 bra again;");
    EXPECT_TRUE(isStuck(runChain({one, raising}, seed).message));
  }
}

TEST(Dependent, AMissingWaitIsFoundInEverySchedule) {
  std::string text = without(second(), kWait);
  for (uint64_t seed = 0; seed < kSeeds; ++seed)
    EXPECT_MESSAGE(runChain({first(), text}, seed).message,
                   "that nothing orders after the");
  EXPECT_EQ(runChain({first(), text}, 0, {false, false}).message, "");
}

TEST(Dependent, AnEarlyLoadIsFound) {
  std::string load = "ld.global.b32 %r4, [%rd3];\n";
  std::string text = replaced(without(second(), load), kWait, load + kWait);
  EXPECT_MESSAGE(findError({first(), text}), "race: a read");
}

TEST(Dependent, WritesWaitForReaders) {
  std::string writer = kernelOf("st.global.b32 [%rd4], 9;");
  std::string reader = third();
  EXPECT_MESSAGE(findError({reader, writer}),
                 "race: a write that nothing orders after the read");
  EXPECT_EQ(findError({reader, kernelOf(std::string(kWait) +
                                        "st.global.b32 [%rd4], 9;")}),
            "");
}

/// A kernel that does not wait may not know of writes before the chain, but its
/// own writes are ordered after them.
TEST(Dependent, WritesComeBehindWhatEndedAheadOfTheChain) {
  std::string write =
      kernelOf(std::string(kBegin) + "st.global.b32 [%rd3], 9;");
  std::string reader = without(second(), kWait);
  std::string idle = kernelOf(std::string(kBegin) + kWait);
  std::vector<bool> twice = {false, true, false, true};
  int numRaces = 0;
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    EXPECT_EQ(runChain({idle, write, idle, write}, seed, twice).message, "");
    EXPECT_EQ(runChain({first(), second(), idle, write}, seed, twice).message,
              "");
    EXPECT_MESSAGE(runChain({first(), write}, seed).message, "race: a write");
    std::string error =
        runChain({idle, write, idle, reader}, seed, twice).message;
    numRaces += error.find("race: a read") != std::string::npos;
  }
  // No race is reported if nothing else ran when the chain began.
  EXPECT_GT(numRaces, 0);
}

TEST(Dependent, WhoEndsWithoutWaitingBreaksTheChain) {
  // The third kernel waits only for the second.
  std::string reader = replaced(third(), "[%rd4]", "[%rd3]");
  std::string idle = kernelOf(kBegin);
  EXPECT_EQ(findError({first(), kernelOf(std::string(kBegin) + kWait), reader}),
            "");
  EXPECT_MESSAGE(findError({first(), idle, reader}), "race: a read");
}

TEST(Dependent, LaunchesBeforeALateOneHaveEndedWhenTheNextBegins) {
  std::string load = "ld.global.b32 %r4, [%rd3];\n";
  std::string reader = kernelOf(std::string(kBegin) + load + kWait +
                                "st.global.b32 [%rd5], %r4;");
  std::string late = kernelOf(std::string(kWait) + kBegin);
  EXPECT_EQ(findError({first(), late, reader}), "");
  EXPECT_MESSAGE(
      findError({first(), kernelOf(std::string(kBegin) + kWait), reader}),
      "race: a read");
  // One CTA lets it begin without a wait.
  std::string mixed = kernelOf("setp.eq.b32 %p1, %r1, 1;\n"
                               "@%p1 griddepcontrol.launch_dependents;\n" +
                               std::string(kWait) + kBegin);
  EXPECT_MESSAGE(findError({first(), mixed, reader}), "race: a read");
  // The late launch itself may still run.
  std::string writer =
      kernelOf(std::string(kWait) + kBegin + "st.global.b32 [%rd4], 9;");
  std::string next = replaced(reader, "[%rd3]", "[%rd4]");
  EXPECT_MESSAGE(findError({first(), writer, next}), "race: a read");
}

TEST(Dependent, OneThreadWaitsForAllThatSynchronizeWithIt) {
  std::string text = replaced(
      second(), kWait,
      "setp.ne.b32 %p1, %r0, 33;\n@%p1 bra join;\ngriddepcontrol.wait;\n"
      "join:\nbar.sync 0;\n");
  EXPECT_EQ(findError({first(), text}), "");
  EXPECT_MESSAGE(findError({first(), without(text, "bar.sync 0;\n")}), "race");
}

TEST(Dependent, RunsFollowEachOtherWhole) {
  // The first launch of a run is an ordinary one: it may overwrite what the
  // last launch of the previous run reads, without waiting itself.
  std::string begin = without(first(), kWait);
  std::vector<std::string> twice = {begin, second(), begin, second()};
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    EXPECT_EQ(runChain(twice, seed, {false, true, false, true}).message, "");
    EXPECT_MESSAGE(runChain(twice, seed, {false, true, true, true}).message,
                   "race");
  }
}

TEST(Dependent, AWaitWithoutADependencyIsNone) {
  EXPECT_EQ(
      runChain({first(), second(), third()}, 1, {false, false, false}).message,
      "");
}

TEST(Dependent, ADeviceOverlapsLaunchesButNotFills) {
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    SimDeviceOptions options;
    options.simulator.seed = seed;
    auto device = createSimDevice(options);
    ASSERT_TRUE(device);
    moert::ModuleImage image;
    image.kind = moert::ModuleImage::Kind::Ptx;
    std::string text = kernelText("st.global.b32 [%rd0], 1;", 1, 1);
    image.modules.push_back({text.begin(), text.end()});
    auto module = (*device)->loadModule(image);
    ASSERT_TRUE(module);
    auto buffer = (*device)->allocate(4, 256);
    auto stream = (*device)->createStream();
    uint64_t slot = reinterpret_cast<uintptr_t>((*buffer)->data());
    auto launch = [&](bool isDependent) {
      moert::LaunchDims dims;
      dims.grid = dims.block = 1;
      dims.dependent = isDependent;
      return (*device)->launch(**stream, **(*module)->kernel("k"), dims,
                               {&slot, 1});
    };
    ASSERT_TRUE(launch(false));
    ASSERT_TRUE((*device)->fill(**stream, (*buffer)->data(), 0, 4));
    ASSERT_TRUE(launch(true));
    EXPECT_EQ((*device)->synchronize(**stream).message(), "");
    ASSERT_TRUE(launch(false));
    ASSERT_TRUE(launch(true));
    EXPECT_MESSAGE((*device)->synchronize(**stream).message(),
                   "race: a write that nothing orders after the write");
  }
}

} // namespace
