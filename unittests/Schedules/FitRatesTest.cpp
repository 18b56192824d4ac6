//===- FitRatesTest.cpp - tests of a part's coefficients --------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/Schedules/FitRates.h"

#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/raw_ostream.h"
#include "gtest/gtest.h"

#include <cmath>

using namespace moec;

namespace {

/// Memory and k tiles in sequence.
double predict(const DeviceRates &rates, double bytes, double steps) {
  return 1e6 * (bytes / (rates.readBytes * rates.streamShare) +
                steps * rates.stepClk / rates.tensorClock);
}

/// Times of a device with other rates, each `others` us longer.
std::vector<TimedRun> measure(const DeviceRates &truth, double others) {
  std::vector<TimedRun> runs;
  for (size_t row = 0; row < 4; ++row)
    for (int i = 0; i < 5; ++i) {
      double bytes = 1e8 * double(row + 1) * (1 + i % 2), steps = 200 * (i + 1);
      runs.push_back({row, predict(truth, bytes, steps) + others,
                      [=](const DeviceRates &rates) {
                        return predict(rates, bytes, steps);
                      }});
    }
  return runs;
}

/// The names of the fields of an entry, in their order.
std::vector<std::string> getNames(llvm::StringRef text) {
  std::vector<std::string> names;
  for (size_t at = 0; (at = text.find("/*", at)) != llvm::StringRef::npos; ++at)
    names.push_back(text.drop_front(at + 2).split('=').first.str());
  return names;
}

} // namespace

TEST(FitRates, FindsWhatTimesTellOf) {
  const DeviceRates &start = getPartRates(*findPart("h100-sxm"));
  DeviceRates truth = start;
  truth.streamShare *= 0.8;
  truth.stepClk *= 1.5;
  constexpr double others = 3;
  RatesFit fit =
      fitRates(start, measure(truth, others), std::vector<double>(4, 10.0));
  EXPECT_GT(fit.before, 0.1);
  EXPECT_LT(fit.after, 0.01);
  EXPECT_NEAR(fit.rates.streamShare / truth.streamShare, 1, 0.03);
  EXPECT_NEAR(fit.rates.stepClk / truth.stepClk, 1, 0.03);
  // The times do not depend on these.
  EXPECT_EQ(fit.rates.gatherShare, start.gatherShare);
  EXPECT_EQ(fit.rates.launchUs, start.launchUs);
}

TEST(FitRates, OtherLaunchesTakeAsMuchAsTheyMayAtMost) {
  const DeviceRates &start = getPartRates(*findPart("h200"));
  std::vector<TimedRun> runs = measure(start, 100);
  // The coefficients must explain the time above the bound.
  EXPECT_LT(fitRates(start, runs, std::vector<double>(4, 100.0)).before, 1e-6);
  EXPECT_GT(fitRates(start, runs, std::vector<double>(4, 10.0)).before, 0.1);
}

TEST(FitRates, OneTimeMovesNothingFar) {
  const DeviceRates &start = getPartRates(*findPart("h200"));
  std::vector<TimedRun> runs = measure(start, 0);
  runs.resize(1);
  runs.front().us *= 1.1;
  RatesFit fit = fitRates(start, runs, std::vector<double>(1, 0.0));
  for (const Coefficient &coefficient : getCoefficients())
    EXPECT_NEAR(fit.rates.*coefficient.member / (start.*coefficient.member), 1,
                0.15)
        << coefficient.name.str();
}

TEST(FitRates, PrintsAnEntryOfTheTable) {
  std::string text;
  llvm::raw_string_ostream os(text);
  const DeviceRates &rates = getPartRates(*findPart("b200"));
  printFit(rates, "b200", {"A line."}, os);
  EXPECT_TRUE(llvm::StringRef(text).starts_with(
      "// A line.\n/*fittedOn=*/\"b200\",\n/*readBytes=*/"))
      << text;
  EXPECT_NE(text.find("// us, borrowed from h200\n"), std::string::npos);
  std::vector<std::string> names = {"fittedOn"};
  for (const Coefficient &coefficient : getCoefficients())
    names.push_back(coefficient.name.str());
  EXPECT_EQ(getNames(text), names);
}

TEST(FitRates, EntriesNameEachFieldInItsPlace) {
  std::vector<std::string> names = {"fittedOn"};
  for (const Coefficient &coefficient : getCoefficients())
    names.push_back(coefficient.name.str());
  auto file = llvm::MemoryBuffer::getFile(FITS "/h200.inc");
  ASSERT_TRUE(file);
  EXPECT_EQ(getNames((*file)->getBuffer()), names);
  auto other = llvm::MemoryBuffer::getFile(FITS "/h100_sxm.inc");
  ASSERT_TRUE(other);
  EXPECT_EQ(getNames((*other)->getBuffer()), names);
}
