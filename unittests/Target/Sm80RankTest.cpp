//===- Sm80RankTest.cpp - sm80.rank against the interpreter -----*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "RankHarness.h"
#include "moec/Analysis/Sm80.h"
#include "moec/PtxSim/Simulator.h"
#include "moec/Target/NVPTX.h"
#include "moec/Transforms/Passes.h"

#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"

#include <gtest/gtest.h>

using namespace mlir;
using namespace moec;
using namespace moec::test;

namespace {

struct Config {
  int64_t panel = 8, threads = 64, rows = 4;

  std::string text() const {
    return "schedule = \"sm80.rank\", panel = " + std::to_string(panel) +
           ", lanes = " + std::to_string(threads) +
           ", rows = " + std::to_string(rows);
  }
};

/// A kernel for a GPU, and how it is launched.
struct GpuKernel {
  std::string ptx;
  moert::LaunchDims dims;
};

void compile(const RankTensors &tensors, const Config &config,
             GpuKernel &kernel) {
  MLIRContext context;
  context.loadDialect<tile::TileDialect>();
  context.disableMultithreading();
  auto module =
      parseSourceString<ModuleOp>(tensors.text(config.text()), &context);
  ASSERT_TRUE(module);
  PassManager assign(&context);
  TileAssignConfigPassOptions options;
  options.target = "sm_80";
  assign.addPass(createTileAssignConfigPass(options));
  ASSERT_TRUE(succeeded(assign.run(*module)));
  auto tile = *module->getOps<tile::KernelOp>().begin();
  auto grid = tile.getGrid()->getExpr().evaluate(tensors.test.tokens);
  ASSERT_TRUE(grid);
  kernel.dims.grid = *grid;
  kernel.dims.block = tile.getBlockAttr().getInt();
  PassManager lower(&context);
  buildTileToNVVMPipeline(lower, "sm_80");
  ASSERT_TRUE(succeeded(lower.run(*module)));
  auto ptx = emitPTX(*module, {"sm_80"});
  ASSERT_TRUE(succeeded(ptx));
  kernel.ptx = *ptx;
}

size_t bytesOf(const Array &array) {
  return static_cast<size_t>(array.size() * moert::dtypeBits(array.getDType()) /
                             8);
}

void simulate(const RankTensors &tensors, const GpuKernel &kernel,
              uint64_t seed) {
  ptx::SimulatorOptions options;
  options.seed = seed;
  ptx::Simulator simulator(options);
  auto module = simulator.load(kernel.ptx, "rank.ptx");
  ASSERT_TRUE(module) << module.status().message();
  std::vector<uint64_t> slots;
  for (const Array *array : tensors.arguments()) {
    auto address = simulator.allocate(bytesOf(*array), 4, "an argument");
    ASSERT_TRUE(address) << address.status().message();
    ASSERT_TRUE(simulator.write(*address, array->data(), bytesOf(*array)));
    slots.push_back(*address);
  }
  slots.push_back(static_cast<uint64_t>(tensors.test.tokens));
  auto params = ptx::packParams(*(*module)->find("rank"), slots);
  ASSERT_TRUE(params);
  moert::Status status =
      simulator.launch(**module, "rank", kernel.dims, *params);
  ASSERT_TRUE(status) << status.message();
  for (auto [i, array] : llvm::enumerate(tensors.arguments()))
    ASSERT_TRUE(simulator.read(array->data(), slots[i], bytesOf(*array)));
}

void compareWithInterpreter(const RankCase &test, const Config &config,
                            int64_t lowest, int64_t highest,
                            int64_t numCtas = 0) {
  for (uint64_t seed : {1, 2})
    test::compareWithInterpreter(test, lowest, highest,
                                 [&](const RankTensors &tensors) {
                                   GpuKernel kernel;
                                   compile(tensors, config, kernel);
                                   if (numCtas) {
                                     EXPECT_EQ(kernel.dims.grid, numCtas);
                                   }
                                   if (!testing::Test::HasFatalFailure())
                                     simulate(tensors, kernel, seed);
                                 });
}

} // namespace

TEST(Sm80Rank, OneCta) {
  RankCase test;
  Config config;
  config.rows = 64;
  compareWithInterpreter(test, config, 0, 7, 1);
  // Empty experts, and all slots to one.
  compareWithInterpreter(test, config, 2, 3);
  compareWithInterpreter(test, config, 7, 7);
  test.tokens = 1;
  compareWithInterpreter(test, config, 0, 7, 1);
  test.topK = 1;
  test.numExperts = config.panel = 1;
  compareWithInterpreter(test, config, 0, 0);
}

/// Even without tokens the offsets are written.
TEST(Sm80Rank, NoTokens) {
  RankCase test;
  test.tokens = 0;
  compareWithInterpreter(test, {}, 0, 7, 1);
}

TEST(Sm80Rank, ManyCtas) {
  RankCase test;
  compareWithInterpreter(test, {}, 0, 7, 13);
  compareWithInterpreter(test, {}, 7, 7);
  // Chunks on no multiple of anything.
  test.topK = 3;
  Config config;
  config.rows = 7;
  compareWithInterpreter(test, config, 0, 7, 8);
  config.threads = 1024;
  config.rows = 16;
  config.panel = test.numExperts = 200;
  test.tokens = 97;
  test.topK = 5;
  compareWithInterpreter(test, config, -1, 201, 7);
}

/// There are no more CTAs, and each takes more.
TEST(Sm80Rank, LargestGrid) {
  RankCase test;
  Config config;
  config.rows = config.threads = 32;
  for (int64_t more : {0, 1, 100}) {
    test.tokens = sm80::Rank::kMaxCtas * config.rows + more;
    compareWithInterpreter(test, config, 0, 7, sm80::Rank::kMaxCtas);
  }
}

TEST(Sm80Rank, LeavesOutWhatIsOutOfRange) {
  RankCase test;
  test.numZeroExperts = 3;
  compareWithInterpreter(test, {}, -2, 13);
  compareWithInterpreter(test, {}, std::numeric_limits<int32_t>::min(),
                         std::numeric_limits<int32_t>::max());
  compareWithInterpreter(test, {}, -1, -1);
}

TEST(Sm80Rank, LocalExperts) {
  RankCase test;
  test.numExperts = 200;
  test.local = {199, 0, 64, 63, 100};
  test.numZeroExperts = 2;
  Config config;
  config.panel = 5;
  compareWithInterpreter(test, config, -1, 203, 13);
}

/// CTAs without a slot that counts, and one that has some.
TEST(Sm80Rank, PaddingRows) {
  for (int64_t numValid : {0, 1, 21, 50, 90}) {
    RankCase test;
    test.numValid = numValid;
    test.numZeroExperts = 1;
    compareWithInterpreter(test, {}, -1, 9, 13);
  }
}

TEST(Sm80Rank, Panels) {
  RankCase test;
  test.numExperts = 200;
  test.numValid = 45;
  Config config;
  for (int64_t panel : {7, 32, 199}) {
    config.panel = panel;
    compareWithInterpreter(test, config, -1, 201, 13);
  }
}

/// Groups of experts are more than a warp has lanes; a run is all that shared
/// memory has counters for.
TEST(Sm80Rank, ManyExperts) {
  RankCase test;
  test.numExperts = 4096;
  test.topK = 8;
  Config config;
  config.panel = 4096;
  config.threads = 1024;
  config.rows = 32;
  compareWithInterpreter(test, config, -1, 4096, 2);
}
