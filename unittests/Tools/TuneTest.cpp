//===- TuneTest.cpp - tests of tuned configs --------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Tools/Bench/Tune/Tune.h"

#include <gtest/gtest.h>

using namespace moec::bench;

static TunedRow makeRow(const char *text) {
  TunedRow row;
  row.chosenSeconds = 2e-6;
  row.foundSeconds = 1e-6;
  row.configs = {{"first", text}, {"second", "block_n=8"}};
  return row;
}

static std::vector<std::string> print(const std::map<int64_t, TunedRow> &rows,
                                      int64_t maxTokens) {
  std::vector<std::string> texts;
  for (const moec::ForcedConfig &config : getRanges(rows, maxTokens))
    texts.push_back(config.str());
  return texts;
}

TEST(Tune, RangesMeetAtPowersOfTwo) {
  std::vector<std::string> expected = {
      "first@1-2:block_n=1",     "second@1-2:block_n=8",
      "first@3-16:block_n=2",    "second@3-16:block_n=8",
      "first@17-128:block_n=3",  "second@17-128:block_n=8",
      "first@129-256:block_n=4", "second@129-256:block_n=8",
  };
  EXPECT_EQ(print({{1, makeRow("block_n=1")},
                   {8, makeRow("block_n=2")},
                   {64, makeRow("block_n=3")},
                   {256, makeRow("block_n=4")}},
                  256),
            expected);
}

TEST(Tune, OneRowIsForAllTokens) {
  std::vector<std::string> expected = {"first@1-16384:block_n=1",
                                       "second@1-16384:block_n=8"};
  EXPECT_EQ(print({{64, makeRow("block_n=1")}}, 16384), expected);
}

TEST(Tune, RowsWithoutABetterConfigHaveNone) {
  // A forced config must gain more than measurements scatter.
  TunedRow chosen = makeRow("block_n=2");
  chosen.foundSeconds = 1.995e-6;
  EXPECT_FALSE(chosen.isBetter());
  std::vector<std::string> expected = {"first@1-2:block_n=1",
                                       "second@1-2:block_n=8"};
  EXPECT_EQ(print({{1, makeRow("block_n=1")}, {8, chosen}}, 16), expected);
}

TEST(Tune, RowsOfARecordAreReadAsTheyWereWritten) {
  TunedRow row = makeRow("block_n=1");
  row.numMeasured = 5;
  row.numFailed = 1;
  llvm::json::Object fields;
  writeTunedRow(row, fields);
  TunedRow read = readTunedRow(fields);
  EXPECT_DOUBLE_EQ(read.chosenSeconds, row.chosenSeconds);
  EXPECT_DOUBLE_EQ(read.foundSeconds, row.foundSeconds);
  EXPECT_EQ(read.configs, row.configs);
  EXPECT_EQ(read.numMeasured, 5);
  EXPECT_EQ(read.numFailed, 1);
  EXPECT_EQ(readTunedRow({}).numMeasured, 0);
}

TEST(Tune, RowsBetweenPowersOfTwoHaveRangesOfTheirOwn) {
  std::vector<std::string> expected = {
      "first@1-5:block_n=1", "second@1-5:block_n=8", "first@6-32:block_n=2",
      "second@6-32:block_n=8"};
  EXPECT_EQ(print({{5, makeRow("block_n=1")}, {6, makeRow("block_n=2")}}, 32),
            expected);
}
