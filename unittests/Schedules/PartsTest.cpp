//===- PartsTest.cpp - tests of the table of parts --------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/Support/Parts.h"

#include "moec/PtxSim/Simulator.h"
#include "moec/Schedules/Device.h"
#include "moec/Schedules/Schedules.h"
#include "moert/GpuTarget.h"
#include "moert/Plan.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/MemoryBuffer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

using namespace moec;
using llvm::StringRef;

namespace {

TEST(PartsTest, EveryPartIsComplete) {
  std::set<std::string> names;
  for (const PartFacts &part : getParts()) {
    SCOPED_TRACE(part.name.str());
    EXPECT_TRUE(names.insert(part.name.str()).second);
    EXPECT_EQ(findPart(part.name), &part);
    EXPECT_TRUE(part.phrase.starts_with("a"));
    ASSERT_TRUE(llvm::is_contained(Target::getNames(), part.architecture));
    EXPECT_TRUE(runsOn(part.architecture, part));
    EXPECT_GT(part.multiprocessors, 0);
    EXPECT_GT(part.memoryBytes, int64_t(1) << 30);
    EXPECT_GT(part.l2Bytes, 1 << 20);
    EXPECT_GT(part.sharedBytesPerCta, 48 << 10);
    EXPECT_LT(part.sharedBytesPerCta, part.sharedBytesPerMultiprocessor);
    // Limits that plans may use.
    EXPECT_LE(part.sharedBytesPerCta, moert::kMaxShared);
    EXPECT_GT(part.sheetReadBytes, 1e12);
    EXPECT_GT(part.sheetF32Operations, 0);
    EXPECT_GT(part.sheetPower, 0);
    EXPECT_GT(part.sheetLinkBytes, 0);
    EXPECT_LT(part.sheetLinkBytes, part.sheetReadBytes);
    EXPECT_GT(part.sharedBytesPerClk, 0);
    EXPECT_GT(part.smL2BytesPerClk, 0);
    EXPECT_GT(part.instructionsPerClk, 0);
    // The rate by design, divided into the data sheet's: a plausible GPU clock.
    double clock = part.sheetBf16Operations /
                   (part.operationsPerClk * double(part.multiprocessors));
    EXPECT_GT(clock, 1.3e9);
    EXPECT_LT(clock, 2e9);
    EXPECT_EQ(part.sheetFp8Operations > 0, part.convertsFloat8);
    EXPECT_EQ(part.sheetFp4Operations > 0, part.hasTensorMemory);
    EXPECT_EQ(part.hasDependentLaunches,
              moert::GpuTarget::parse(part.architecture.str())
                  ->hasDependentLaunches());
  }
  for (StringRef target : Target::getNames()) {
    const PartFacts *unknown = getUnknownPart(target);
    EXPECT_EQ(unknown != nullptr, target != "cpu");
    if (unknown)
      EXPECT_EQ(unknown->architecture, target);
  }
  EXPECT_EQ(findPart("h300"), nullptr);
  EXPECT_EQ(getUnknownPart("h200"), nullptr);
}

TEST(PartsTest, NamesMayEndAtTheDash) {
  EXPECT_EQ(findPart("h100"), findPart("h100-sxm"));
  EXPECT_EQ(findPart("a100"), findPart("a100-sxm"));
  EXPECT_EQ(findPart("h10"), nullptr);
  EXPECT_EQ(findPart(""), nullptr);
}

TEST(PartsTest, EveryTargetIsComplete) {
  EXPECT_EQ(getTargets().front().name, "cpu");
  for (const TargetFacts &target : getTargets().drop_front()) {
    SCOPED_TRACE(target.name.str());
    EXPECT_EQ(findTarget(target.name), &target);
    auto code = moert::GpuTarget::parse(target.name.str());
    auto device = moert::GpuTarget::parse(target.simulated.str());
    ASSERT_TRUE(code && device);
    EXPECT_TRUE(code->runsOn(*device));
    // PTX ISA, release notes: sm_80 from 7.0 on, sm_90a 8.0, sm_100a 8.6.
    EXPECT_GE(target.ptxVersion, code->number() >= 100  ? 86u
                                 : code->number() >= 90 ? 80u
                                                        : 70u);
    const PartFacts *part = findPart(target.defaultPart);
    EXPECT_EQ(part == nullptr, target.defaultPart.empty());
    EXPECT_EQ(part != nullptr, target.hasModel);
    EXPECT_TRUE(!part || runsOn(target.name, *part));
  }
  EXPECT_EQ(findTarget("sm_75"), nullptr);
  EXPECT_EQ(getTargetChoices(), "cpu|sm_80|sm_90a|sm_100a");
  EXPECT_EQ(listGpuTargets(), "sm_80, sm_90a, sm_100a");
}

/// "sm90" of "sm90.gemm" is a target that the schedule runs on, alone if
/// its instructions have a suffix; schedules called "gpu" and those of sm_80
/// run everywhere.
TEST(PartsTest, SchedulesRunOnTheTargetOfTheirName) {
  std::set<StringRef> everywhere;
  for (const Schedule *schedule : getGpuSchedules())
    if (schedule->name.starts_with("sm80.") ||
        schedule->name.starts_with("gpu."))
      everywhere.insert(schedule->name);
  EXPECT_TRUE(everywhere.count("sm80.gemm"));
  for (const TargetFacts &facts : getTargets()) {
    SCOPED_TRACE(facts.name.str());
    std::set<StringRef> names, needed;
    if (facts.architecture != Architecture::Cpu)
      needed = everywhere;
    std::string own = facts.name.str();
    llvm::erase(own, '_');
    for (const Schedule *schedule : getSchedules(*Target::find(facts.name))) {
      EXPECT_TRUE(names.insert(schedule->name).second);
      StringRef of = schedule->name.split('.').first;
      EXPECT_TRUE(needed.count(schedule->name) || of == own ||
                  of.str() + "a" == own)
          << schedule->name.str();
    }
    EXPECT_TRUE(std::includes(names.begin(), names.end(), needed.begin(),
                              needed.end()));
  }
}

TEST(PartsTest, TheSimulatorHasTheLimitsOfAPart) {
  const PartFacts &part = *getUnknownPart("sm_90a");
  using Limits = ptx::SimulatedLimits;
  // Copies: the expectations take references.
  int64_t multiprocessors = Limits::kMultiprocessors,
          shared = Limits::kSharedBytesPerCta,
          registers = Limits::kRegistersPerMultiprocessor,
          perThread = Limits::kRegistersPerThread;
  EXPECT_EQ(multiprocessors, part.multiprocessors);
  EXPECT_EQ(shared, part.sharedBytesPerCta);
  EXPECT_EQ(registers, kRegistersPerMultiprocessor);
  EXPECT_EQ(perThread, kRegistersPerThread);
}

TEST(PartsTest, FitsAreOwnOrBorrowed) {
  for (const PartFacts &part : getParts()) {
    SCOPED_TRACE(part.name.str());
    const DeviceRates &rates = getPartRates(part);
    EXPECT_EQ(rates.name, part.name);
    EXPECT_EQ(rates.multiprocessors, part.multiprocessors);
    ASSERT_NE(findPart(rates.fittedOn), nullptr);
    EXPECT_EQ(rates.isMeasured(),
              part.name == "h200" || part.name == "h100-sxm");
    // Measured rates do not exceed published ones.
    EXPECT_LT(rates.readBytes, part.sheetReadBytes);
    EXPECT_LT(rates.copyBytes, rates.readBytes);
    EXPECT_LT(rates.bf16Operations, part.sheetBf16Operations);
    EXPECT_LE(rates.fp8Operations, part.sheetFp8Operations);
    EXPECT_LT(rates.l2KeptBytes, double(part.l2Bytes));
    EXPECT_LT(rates.power, part.sheetPower);
    for (double positive :
         {rates.readBytes, rates.copyBytes, rates.bf16Operations,
          rates.streamShare, rates.smReadBytes, rates.l2BytesPerClk,
          rates.l2KeptBytes, rates.rasterGroupBytes, rates.power,
          rates.tensorClock, rates.tensorShare, rates.productClk, rates.stepClk,
          rates.itemClk, rates.getLaunchTime(), rates.getIdleTime(),
          rates.overlapOrder})
      EXPECT_GT(positive, 0);
  }
  const DeviceRates &h200 = getPartRates(*findPart("h200"));
  const DeviceRates &h100 = getPartRates(*findPart("h100-sxm"));
  EXPECT_EQ(h200.readBytes, 4.54e12);
  EXPECT_EQ(h200.l2KeptBytes, 36e6);
  EXPECT_EQ(h200.describe(), "an H200");
  EXPECT_EQ(h100.describe(), "an H100 SXM");
  const DeviceRates &b200 = getPartRates(*findPart("b200"));
  EXPECT_DOUBLE_EQ(b200.readBytes, 4.54e12 * 8 / 4.8);
  EXPECT_DOUBLE_EQ(b200.l2KeptBytes, 36e6 * 126 / 60);
  EXPECT_EQ(b200.launchUs, h200.launchUs);
  EXPECT_EQ(b200.describe(), "a B200, with coefficients fitted on an H200");
}

TEST(PartsTest, ADeviceIsFound) {
  auto find = [](StringRef target, int64_t multiprocessors, double memory) {
    const PartFacts *part =
        findPartOfDevice(target, multiprocessors, int64_t(memory));
    return part ? part->name.str() : "none";
  };
  // As drivers report them.
  EXPECT_EQ(find("sm_90a", 132, 85017493504), "h100-sxm");
  EXPECT_EQ(find("sm_90a", 132, 150109880320), "h200");
  // Other boards with the same chip, and a slice of one.
  EXPECT_EQ(find("sm_90a", 132, 100e9), "sm_90a");
  EXPECT_EQ(find("sm_90a", 114, 85e9), "sm_90a");
  EXPECT_EQ(find("sm_90a", 78, 150e9), "sm_90a");
  EXPECT_EQ(find("sm_90a", 16, 18e9), "sm_90a");
  // Choices for these targets depend on no GPU model unless one is named.
  EXPECT_EQ(find("sm_80", 108, 85e9), "none");
  EXPECT_EQ(find("sm_100a", 148, 191.5e9), "none");
  EXPECT_EQ(find("cpu", 0, 0), "none");
}

TEST(PartsTest, ATargetHasAPart) {
  EXPECT_EQ(Target::find("sm_90a")->part, findPart("h200"));
  EXPECT_EQ(Target::find("sm_90a")->getMultiprocessors(), 132);
  EXPECT_EQ(Target::find("sm_90a", 0, "h100-sxm")->part, findPart("h100-sxm"));
  for (StringRef target : {"cpu", "sm_80", "sm_100a"}) {
    EXPECT_EQ(Target::find(target)->part, nullptr);
    EXPECT_EQ(Target::find(target)->getMultiprocessors(), 0);
  }
  EXPECT_EQ(Target::find("sm_80", 0, "a100-sxm")->getMultiprocessors(), 108);
  // Code of an older architecture runs on a newer one.
  EXPECT_EQ(Target::find("sm_80", 0, "h200")->getMultiprocessors(), 132);
  EXPECT_FALSE(Target::find("sm_90a", 0, "a100-sxm"));
  EXPECT_FALSE(Target::find("sm_90a", 0, "b200"));
  EXPECT_FALSE(Target::find("cpu", 0, "h200"));
  EXPECT_EQ(Target::find("sm_80")->getSharedBytes(), 163 << 10);
  EXPECT_EQ(Target::find("sm_90a")->getSharedBytes(), 227 << 10);
  EXPECT_FALSE(Target::find("cpu")->convertsFloat8());
  EXPECT_FALSE(Target::find("sm_80", 0, "h200")->convertsFloat8());
  EXPECT_TRUE(Target::find("sm_90a")->convertsFloat8());
  EXPECT_TRUE(Target::find("sm_100a")->convertsFloat8());
  // A part has times only where a schedule of the target has a model.
  EXPECT_NE(getDeviceRates(*Target::find("sm_90a", 0, "sm_90a")), nullptr);
  EXPECT_EQ(getDeviceRates(*Target::find("sm_80", 0, "a100-sxm")), nullptr);
}

TEST(PartsTest, SaysWhyNot) {
  EXPECT_EQ(whyNotPart("sm_90a", ""), "");
  EXPECT_EQ(whyNotPart("sm_90a", "h100-sxm"), "");
  EXPECT_EQ(whyNotPart("sm_90a", "H100"), "");
  EXPECT_EQ(whyNotPart("sm_90a", "h99"),
            "'h99' is unknown; accepted are a100-sxm, sm_80, h100-sxm, h200, "
            "sm_90a, b200, sm_100a");
  EXPECT_EQ(whyNotPart("sm_90a", "a100-sxm"),
            "'a100-sxm' does not run code for target 'sm_90a'; give target "
            "'sm_80', or one of h100-sxm, h200, sm_90a");
  EXPECT_EQ(whyNotPart("cpu", "h200"),
            "'h200' does not run code for target 'cpu'; give target 'sm_90a', "
            "or leave out the part");
}

/// docs/design/cost-model.md has a row per known part.
TEST(PartsTest, ThePageSaysTheSame) {
  auto page = llvm::MemoryBuffer::getFile(COST_MODEL_PAGE);
  ASSERT_TRUE(page);
  auto showRate = [](double operations) -> std::string {
    if (operations == 0)
      return "-";
    return llvm::formatv("{0:f0}", operations / 1e12);
  };
  for (const PartFacts &part : getParts()) {
    std::string row = llvm::formatv(
        "\n| {0} | {1} | {2} | {3:f1} | {4} | {5} | {6:f2} | {7} | {8} | {9} | "
        "{10:f0} | {11:f0} | {12} |\n",
        part.name, part.architecture, part.multiprocessors,
        double(part.memoryBytes) / 1e9, part.l2Bytes >> 20,
        part.sharedBytesPerCta >> 10, part.sheetReadBytes / 1e12,
        showRate(part.sheetBf16Operations), showRate(part.sheetFp8Operations),
        showRate(part.sheetFp4Operations), part.sheetPower,
        part.sheetLinkBytes / 1e9, getPartRates(part).fittedOn);
    EXPECT_EQ((*page)->getBuffer().contains(row), part.isKnown) << row;
  }
}

} // namespace
