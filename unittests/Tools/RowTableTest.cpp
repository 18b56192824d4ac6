//===- RowTableTest.cpp - tests of the table of rows ------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Tools/Bench/Table/RowTable.h"
#include "ClockedDevice.h"
#include "Tools/Bench/Fit/Fit.h"
#include "moec/Compiler/Registry.h"
#include "moec/PtxSim/SimDevice.h"

#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"
#include <gtest/gtest.h>

using namespace moec;
using namespace moec::bench;
using namespace moec::testing;

namespace {

/// Replaces PyTorch.
constexpr char kYardstick[] = R"(
import json, sys
print(json.dumps({"torch": "none"}), flush=True)
answers = {"ceilings": {"bandwidth": 2e12, "bf16": 1e8, "fp8": 1e9}, "layer": {}, "row": {},
           "observe": {"us": 120000.0}, "dense": {}, "observe_dense": {"us": 25000.0},
           "sustain_dense": {"us": 30000.0}}
for line in sys.stdin:
    print(json.dumps(answers[json.loads(line)["do"]]), flush=True)
)";

void write(llvm::StringRef folder, llvm::StringRef name, llvm::StringRef text) {
  llvm::SmallString<128> path(folder);
  llvm::sys::path::append(path, name);
  std::error_code error;
  llvm::raw_fd_ostream(path, error) << text;
  ASSERT_FALSE(error);
}

/// LLVM keeps options registered until the process ends.
Options &getOptions() {
  static Options options;
  return options;
}

BenchLayer makeTinyLayer() {
  BenchLayer layer;
  layer.name = "tiny";
  layer.numExperts = layer.localExperts = 4;
  layer.topK = 2;
  layer.hiddenSize = layer.intermediateSize = 64;
  return layer;
}

} // namespace

TEST(RowTable, RecordsTimes) {
  llvm::SmallString<128> folder;
  ASSERT_FALSE(llvm::sys::fs::createUniqueDirectory("row-table", folder));
  write(folder, "yardstick.py", kYardstick);
  std::string json = (folder + "/record.json").str();
  Options &options = getOptions();
  std::string data = ("--data=" + folder).str(), record = "--json=" + json;
  const char *arguments[] = {"moe-bench", data.c_str(), record.c_str(),
                             "--observations=2",
                             // The simulator is slow under sanitizers.
                             "--row-limit=600"};
  ASSERT_TRUE(options.parse(5, const_cast<char **>(arguments)));

  Table table;
  BenchLayer layer = makeTinyLayer();
  table.layers.push_back(layer);
  BenchLayer single = layer;
  single.name = "single";
  single.topK = 1;
  table.layers.push_back(single);
  table.rows = {{0, 3, 0, "tiny"}, {1, 4, 0, "single@one", true}};
  Peers peers;
  peers.ceilings = {1e12, 1e8, 1e9, "recorded"};
  Peer &peer = peers.rows["tiny:3"];
  peer.expertsTouched = 3;
  peer.operations = 12 * layer.getExpertElements();
  peer.floorUs = 50;
  peer.bestUs = 100;
  peer.torchUs = 200;
  peer.denseUs = 80;
  peer.best = "somebody";

  auto simulator = ptx::createSimDevice({});
  ASSERT_TRUE(simulator);
  ClockedDevice clocked(**simulator);
  TimedDevice timed(static_cast<moert::Device &>(clocked));
  mlir::DialectRegistry registry;
  registerDialects(registry);
  mlir::MLIRContext context(registry);
  auto generator = DeviceGenerator::create(context, **simulator, "sm_90a");
  ASSERT_TRUE(generator);
  JitOptions jit;
  jit.compile.target = "sm_90a";
  jit.useCache = false;
  // Simulating all CTAs of a joined kernel at once takes minutes here.
  jit.compile.disable = {"join-products"};
  Session session = {timed, *generator, jit, 8, 1, true};
  EXPECT_EQ(RowTable(session, options, table, peers, "abc", "sm_90a").run(), 0);

  auto document = readJson(json);
  ASSERT_TRUE(document) << document.status().message();
  const llvm::json::Object &file = *document->getAsObject();
  EXPECT_EQ(file.getString("commit"), "abc");
  EXPECT_EQ(file.getObject("ceilings")->getString("source"), "measured");
  EXPECT_EQ(file.getObject("yardstick")->getString("torch"), "none");
  ASSERT_EQ(file.getArray("rows")->size(), 2u);
  const llvm::json::Object &row = *file.getArray("rows")->front().getAsObject();
  ASSERT_EQ(row.getString("status"), "measured")
      << row.getString("reason").value_or("").str();
  auto get = [&](const char *key) { return row.getNumber(key).value_or(-1); };
  // The clock ticks once per launch.
  double us =
      kTick * 1e6 * static_cast<double>(row.getArray("kernels")->size());
  EXPECT_NEAR(get("us"), us, us * 1e-4);
  EXPECT_EQ(row.getArray("observations")->size(), 2u);
  EXPECT_EQ(get("spread"), 0);
  // The row is limited by operations, at the measured rate.
  double floor = get("operations") / 1e8 * 1e6;
  EXPECT_NEAR(get("floor_us"), floor, floor * 1e-4);
  EXPECT_NEAR(get("fraction"), floor / us, floor / us * 1e-3);
  EXPECT_NEAR(get("peer_fraction"), 0.5, 1e-4);
  EXPECT_NEAR(get("speedup"), 2 * floor / us, floor / us * 1e-3);
  EXPECT_NEAR(get("torch_us"), 120000, 1);
  // The recorded fraction was a quarter of the floor.
  EXPECT_NEAR(get("torch_drift"), floor / 120000 / 0.25, 1e-3);
  EXPECT_NEAR(get("sustained_us"), us, us * 1e-4);
  EXPECT_NEAR(get("dense_row_us"), 25000, 1);
  EXPECT_EQ(row.getArray("dense_row_observations")->size(), 2u);
  // The recorded rate was equal.
  EXPECT_NEAR(get("dense_drift"), 80.0 / 25000, 1e-5);
  EXPECT_NEAR(get("dense_speedup"), 25000 / us * 100 / 80, 25000 / us * 1e-3);
  EXPECT_NEAR(get("dense_us"), 30000, 1);
  EXPECT_NEAR(get("dense_fraction"), 30000 / us, 30000 / us * 1e-3);
  EXPECT_NEAR(get("sustained_fraction"), 30000 / us, 30000 / us * 1e-3);
  EXPECT_FALSE(row.get("dense_ratio"));

  const llvm::json::Object &one = *file.getArray("rows")->back().getAsObject();
  ASSERT_EQ(one.getString("status"), "measured")
      << one.getString("reason").value_or("").str();
  EXPECT_EQ(one.getString("routing"), "one");
  EXPECT_EQ(one.getNumber("rows"), 4);
  EXPECT_EQ(one.getNumber("experts_touched"), 1);
  double ratio = *one.getNumber("sustained_us") / 30000;
  EXPECT_NEAR(one.getNumber("dense_ratio").value_or(-1), ratio, ratio * 1e-3);
  llvm::sys::fs::remove_directories(folder);
}

TEST(RowTable, FitsThePartToTimes) {
  llvm::SmallString<128> folder;
  ASSERT_FALSE(llvm::sys::fs::createUniqueDirectory("row-table", folder));
  write(folder, "yardstick.py", kYardstick);
  Options &options = getOptions();
  options.data.setValue(folder.str().str());
  options.fit.setValue((folder + "/part.inc").str());
  options.json.setValue((folder + "/record.json").str());
  options.candidates.setValue(1);
  options.rowLimit.setValue(600);
  Table table;
  table.layers.push_back(makeTinyLayer());
  table.rows = {{0, 3, 0, "tiny"}};

  auto simulator = ptx::createSimDevice({});
  ASSERT_TRUE(simulator);
  ClockedDevice clocked(**simulator);
  TimedDevice timed(static_cast<moert::Device &>(clocked));
  mlir::DialectRegistry registry;
  registerDialects(registry);
  mlir::MLIRContext context(registry);
  auto generator = DeviceGenerator::create(context, **simulator, "sm_90a");
  ASSERT_TRUE(generator);
  JitOptions jit;
  jit.compile.target = "sm_90a";
  jit.compile.part = "h100-sxm";
  jit.useCache = false;
  Session session = {timed, *generator, jit, 8, 1, true};
  Peers peers;
  EXPECT_EQ(RowTable(session, options, table, peers, "abc", "sm_90a").run(), 0);

  auto document = readJson((folder + "/record.json").str());
  ASSERT_TRUE(document) << document.status().message();
  const llvm::json::Object &row =
      *document->getAsObject()->getArray("rows")->front().getAsObject();
  ASSERT_EQ(row.getString("status"), "measured")
      << row.getString("reason").value_or("").str();
  // Runs with the chosen configs, and with others of both gemms.
  TimedConfigs read = readTimedConfigs(row);
  ASSERT_EQ(read.runs.size(), 3u);
  EXPECT_EQ(read.numFailed, 0);
  EXPECT_EQ(read.runs.front().configs.size(), 2u);
  EXPECT_NE(read.runs[1].configs, read.runs[0].configs);
  EXPECT_GT(read.othersSeconds, 0);
  auto entry = llvm::MemoryBuffer::getFile(folder + "/part.inc");
  ASSERT_TRUE(entry);
  options.fit.setValue("");
  options.candidates.setValue(0);
  llvm::StringRef text = (*entry)->getBuffer();
  EXPECT_TRUE(text.contains("fitted by moe-bench --fit to 3 times of layers"))
      << text.str();
  EXPECT_TRUE(text.contains("/*fittedOn=*/\"h100-sxm\",")) << text.str();
  // A ceiling is the measured rate.
  EXPECT_TRUE(text.contains("/*readBytes=*/2e+12, // B/s, measured"))
      << text.str();
  llvm::sys::fs::remove_directories(folder);
}

/// Without ceilings there is nothing to fit to.
TEST(RowTable, FitsNothingWithoutAYardstick) {
  llvm::SmallString<128> folder;
  ASSERT_FALSE(llvm::sys::fs::createUniqueDirectory("row-table", folder));
  std::string json = (folder + "/record.json").str();
  Options &options = getOptions();
  options.data.setValue(folder.str().str());
  options.fit.setValue((folder + "/part.inc").str());
  options.json.setValue(json);
  options.yardstick.setValue("none");
  Table table;
  table.layers.push_back(makeTinyLayer());
  table.rows = {{0, 3, 0, "tiny"}};

  auto simulator = ptx::createSimDevice({});
  ASSERT_TRUE(simulator);
  ClockedDevice clocked(**simulator);
  TimedDevice timed(static_cast<moert::Device &>(clocked));
  mlir::DialectRegistry registry;
  registerDialects(registry);
  mlir::MLIRContext context(registry);
  auto generator = DeviceGenerator::create(context, **simulator, "sm_90a");
  ASSERT_TRUE(generator);
  JitOptions jit;
  jit.compile.target = "sm_90a";
  jit.useCache = false;
  Session session = {timed, *generator, jit, 8, 1, true};
  Peers peers;
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(RowTable(session, options, table, peers, "abc", "sm_90a").run(), 1);
  std::string complaint = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(complaint.find("--yardstick has to name a Python with PyTorch"),
            std::string::npos)
      << complaint;
  // No row was begun.
  EXPECT_FALSE(llvm::sys::fs::exists(json));
  options.fit.setValue("");
  options.yardstick.setValue("python3");
  llvm::sys::fs::remove_directories(folder);
}
