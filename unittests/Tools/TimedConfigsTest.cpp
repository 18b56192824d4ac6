//===- TimedConfigsTest.cpp - configs chosen for few tokens -----*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// A record of `moe-bench --fit` on an H200: layers with several configs of each
// gemm. Of these, the model's choice for few tokens is about the fastest.

#include "ClockedDevice.h"
#include "Tools/Bench/Fit/Fit.h"
#include "Tools/Bench/Run/LayerModule.h"
#include "moec/Compiler/Registry.h"
#include "moec/PtxSim/SimDevice.h"

#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>

using namespace moec;
using namespace moec::bench;
using namespace moec::testing;

namespace {

class TimedConfigsTest : public ::testing::Test {
protected:
  /// The time of the launches with a cost model.
  double predict(Session &session, const BenchLayer &layer,
                 const TimedConfigs::Run &run, int64_t tokens) {
    std::vector<std::string> configs;
    for (const auto &[kernel, text] : run.configs)
      configs.push_back(kernel + ":" + text);
    auto module = LayerModule::lower(session, layer, &configs,
                                     /*productsApart=*/true);
    EXPECT_TRUE(module) << module.status().message();
    double us = 0;
    if (module)
      for (const ModelledPhase &phase : (*module)->getPhases(tokens))
        us += phase.schedule
                  ->costModel(phase.phase, phase.load, (*module)->getTarget())
                  ->predict(phase.getConfig(), tokens)
                  .us;
    return us;
  }
};

} // namespace

TEST_F(TimedConfigsTest, ChoicesForFewTokensAreFast) {
  auto simulator = ptx::createSimDevice({});
  ASSERT_TRUE(simulator);
  ClockedDevice clocked(**simulator);
  TimedDevice timed(static_cast<moert::Device &>(clocked));
  mlir::DialectRegistry registry;
  registerDialects(registry);
  mlir::MLIRContext context(registry);
  auto generator = DeviceGenerator::create(context, **simulator, "sm_90a");
  ASSERT_TRUE(generator);
  constexpr int64_t tokens = 8;
  JitOptions jit;
  jit.compile.target = "sm_90a";
  jit.compile.part = "h200";
  Session session = {timed, *generator, jit, tokens, 1, true};

  auto table = loadTable(RESULTS "/../asked.json");
  ASSERT_TRUE(table) << table.status().message();
  auto record = readJson(RESULTS "/h200/few_token_configs.json");
  ASSERT_TRUE(record) << record.status().message();
  std::map<std::string, TimedConfigs> timedRows;
  for (llvm::json::Value &row : *record->getAsObject()->getArray("rows"))
    timedRows[row.getAsObject()->getString("row")->str()] =
        readTimedConfigs(*row.getAsObject());

  double all = 0, squares = 0;
  int64_t numRows = 0, numRuns = 0;
  for (const Row &row : table->rows) {
    auto found = timedRows.find(row.getName());
    if (row.tokens != tokens || !row.isUniform() || found == timedRows.end())
      continue;
    const std::vector<TimedConfigs::Run> &runs = found->second.runs;
    std::vector<double> expected;
    double rest = 0;
    for (const TimedConfigs::Run &run : runs) {
      expected.push_back(
          predict(session, table->getLayer(row), run, row.tokens));
      rest += run.seconds * 1e6 - expected.back();
    }
    rest = std::clamp(rest / double(runs.size()), 0.0,
                      found->second.othersSeconds * 1e6);
    double best = runs.front().seconds;
    for (auto [run, us] : llvm::zip(runs, expected)) {
      best = std::min(best, run.seconds);
      double error = std::log((us + rest) / (run.seconds * 1e6));
      squares += error * error;
    }
    auto chosen =
        std::min_element(expected.begin(), expected.end()) - expected.begin();
    EXPECT_LT(runs[chosen].seconds, 1.04 * best) << row.getName();
    all += std::log(runs[chosen].seconds / best);
    ++numRows;
    numRuns += int64_t(runs.size());
  }
  EXPECT_GT(numRows, 15);
  EXPECT_LT(all / double(numRows), std::log(1.006));
  EXPECT_LT(std::sqrt(squares / double(numRuns)), 0.02);
}
