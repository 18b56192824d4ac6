//===- SortByExpertTest.cpp - gpu.sort_by_expert ----------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Schedules/Routing/Shape.h"
#include "SortHarness.h"
#include "moec/PtxSim/Simulator.h"
#include "moec/Target/NVPTX.h"
#include "moec/Transforms/Passes.h"

#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"

#include <gtest/gtest.h>

#include <map>

using namespace mlir;
using namespace moec;
using namespace moec::test;

namespace {

struct Config {
  int64_t expertsAtOnce = 8, threads = 64, rows = 4;
  /// The config of the kernel that counts, if there is one.
  int64_t countExpertsAtOnce = 8, countThreads = 32;

  std::string text() const {
    return "#tile.gpu_sort_by_expert<threads = " + std::to_string(threads) +
           ", tokens_per_cta = " + std::to_string(rows) +
           ", experts_at_once = " + std::to_string(expertsAtOnce) + ">";
  }
  std::string countText() const {
    return "#tile.gpu_count_slots<threads = " + std::to_string(countThreads) +
           ", experts_at_once = " + std::to_string(countExpertsAtOnce) + ">";
  }
};

/// Kernels for a GPU, and how each is launched, in order.
struct GpuKernels {
  std::string ptx;
  std::vector<std::pair<std::string, moert::LaunchDims>> launches;
};

void compile(const RankTensors &tensors, const Config &config,
             GpuKernels &kernels) {
  MLIRContext context;
  context.loadDialect<tile::TileDialect>();
  context.disableMultithreading();
  std::string text = tensors.text(config.text());
  if (tensors.hasCounts())
    text = tensors.countText(config.countText()) + text;
  auto module = parseSourceString<ModuleOp>(text, &context);
  ASSERT_TRUE(module);
  PassManager assign(&context);
  TileAssignConfigPassOptions options;
  options.target = "sm_80";
  assign.addPass(createTileAssignConfigPass(options));
  ASSERT_TRUE(succeeded(assign.run(*module)));
  for (auto tile : module->getOps<tile::KernelOp>()) {
    auto grid = tile.getGrid()->getExpr().evaluate(tensors.test.tokens);
    ASSERT_TRUE(grid);
    moert::LaunchDims dims;
    dims.grid = *grid;
    dims.block = tile.getBlockAttr().getInt();
    kernels.launches.emplace_back(tile.getSymName().str(), dims);
  }
  PassManager lower(&context);
  buildTileToNVVMPipeline(lower, "sm_80");
  ASSERT_TRUE(succeeded(lower.run(*module)));
  auto ptx = emitPTX(*module, {"sm_80"});
  ASSERT_TRUE(succeeded(ptx));
  kernels.ptx = *ptx;
}

size_t bytesOf(const Array &array) {
  return static_cast<size_t>(array.size() * moert::dtypeBits(array.getDType()) /
                             8);
}

void simulate(const RankTensors &tensors, const GpuKernels &kernels,
              uint64_t seed) {
  ptx::SimulatorOptions options;
  options.seed = seed;
  ptx::Simulator simulator(options);
  auto module = simulator.load(kernels.ptx, "rank.ptx");
  ASSERT_TRUE(module) << module.status().message();
  std::map<const Array *, uint64_t> addresses;
  for (const auto &[name, dims] : kernels.launches) {
    auto arguments =
        name == "rank" ? tensors.arguments() : tensors.countArguments();
    std::vector<uint64_t> slots;
    for (const Array *array : arguments) {
      auto [entry, isNew] = addresses.insert({array, 0});
      if (isNew) {
        // Rows of counts, which are a buffer, are read 16 bytes at a time.
        int64_t alignment = array == &tensors.counts ? 16 : 4;
        auto address =
            simulator.allocate(bytesOf(*array), alignment, "an argument");
        ASSERT_TRUE(address) << address.status().message();
        ASSERT_TRUE(simulator.write(*address, array->data(), bytesOf(*array)));
        entry->second = *address;
      }
      slots.push_back(entry->second);
    }
    slots.push_back(static_cast<uint64_t>(tensors.test.tokens));
    auto params = ptx::packParams(*(*module)->find(name), slots);
    ASSERT_TRUE(params);
    // Like a device.
    if (dims.grid == 0)
      continue;
    moert::Status status = simulator.launch(**module, name, dims, *params);
    ASSERT_TRUE(status) << status.message();
  }
  for (auto [array, address] : addresses)
    ASSERT_TRUE(simulator.read(array->data(), address, bytesOf(*array)));
}

void compareWithInterpreter(const RankCase &test, const Config &config,
                            int64_t lowest, int64_t highest,
                            int64_t numCtas = 0) {
  for (uint64_t seed : {1, 2})
    test::compareWithInterpreter(
        test, lowest, highest, [&](const RankTensors &tensors) {
          GpuKernels kernels;
          compile(tensors, config, kernels);
          if (testing::Test::HasFatalFailure())
            return;
          if (numCtas) {
            EXPECT_EQ(kernels.launches.back().second.grid, numCtas);
          }
          simulate(tensors, kernels, seed);
        });
}

/// Tests with slots that another kernel has counted.
struct Counted {
  RankCase test;
  Config config;

  /// Chunks of at least `tokens` tokens, `most` at most.
  explicit Counted(int64_t tokens = 4, int64_t most = 128) {
    test.chunkTokens = config.rows = tokens;
    test.numChunks = most;
  }
  void compare(int64_t lowest, int64_t highest, int64_t numCtas = 0) const {
    compareWithInterpreter(test, config, lowest, highest, numCtas);
  }
};

} // namespace

TEST(GpuSortByExpert, OneCta) {
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
  test.numExperts = config.expertsAtOnce = 1;
  compareWithInterpreter(test, config, 0, 0);
}

/// Even without tokens the offsets are written.
TEST(GpuSortByExpert, NoTokens) {
  RankCase test;
  test.tokens = 0;
  compareWithInterpreter(test, {}, 0, 7, 1);
}

TEST(GpuSortByExpert, ManyCtas) {
  RankCase test;
  compareWithInterpreter(test, {}, 0, 7, 13);
  compareWithInterpreter(test, {}, 7, 7);
  // Chunks that are not aligned.
  test.topK = 3;
  Config config;
  config.rows = 7;
  compareWithInterpreter(test, config, 0, 7, 8);
  config.threads = 1024;
  config.rows = 16;
  config.expertsAtOnce = test.numExperts = 200;
  test.tokens = 97;
  test.topK = 5;
  compareWithInterpreter(test, config, -1, 201, 7);
}

/// The number of CTAs is limited, so each takes more slots.
TEST(GpuSortByExpert, LargestGrid) {
  RankCase test;
  Config config;
  config.rows = config.threads = 32;
  for (int64_t more : {0, 1, 100}) {
    test.tokens = anygpu::SortByExpert::kMaxCtas * config.rows + more;
    compareWithInterpreter(test, config, 0, 7, anygpu::SortByExpert::kMaxCtas);
  }
}

TEST(GpuSortByExpert, LeavesOutWhatIsOutOfRange) {
  RankCase test;
  test.numZeroExperts = 3;
  compareWithInterpreter(test, {}, -2, 13);
  compareWithInterpreter(test, {}, std::numeric_limits<int32_t>::min(),
                         std::numeric_limits<int32_t>::max());
  compareWithInterpreter(test, {}, -1, -1);
}

TEST(GpuSortByExpert, LocalExperts) {
  RankCase test;
  test.numExperts = 200;
  test.local = {199, 0, 64, 63, 100};
  test.numZeroExperts = 2;
  Config config;
  config.expertsAtOnce = 5;
  compareWithInterpreter(test, config, -1, 203, 13);
}

/// CTAs without a valid slot, and one with some.
TEST(GpuSortByExpert, PaddingRows) {
  for (int64_t numValid : {0, 1, 21, 50, 90}) {
    RankCase test;
    test.numValid = numValid;
    test.numZeroExperts = 1;
    compareWithInterpreter(test, {}, -1, 9, 13);
  }
}

TEST(GpuSortByExpert, Rounds) {
  RankCase test;
  test.numExperts = 200;
  test.numValid = 45;
  Config config;
  for (int64_t expertsAtOnce : {7, 32, 199}) {
    config.expertsAtOnce = expertsAtOnce;
    compareWithInterpreter(test, config, -1, 201, 13);
  }
}

/// More groups of experts than lanes; a pass covers as many experts as shared
/// memory has counters for.
TEST(GpuSortByExpert, ManyExperts) {
  RankCase test;
  test.numExperts = 4096;
  test.topK = 8;
  Config config;
  config.expertsAtOnce = 4096;
  config.threads = 1024;
  config.rows = 32;
  compareWithInterpreter(test, config, -1, 4096, 2);
}

TEST(GpuSortByExpert, Counted) {
  Counted counted;
  counted.compare(0, 7, 13);
  counted.compare(7, 7);
  counted.test.tokens = 1;
  counted.compare(0, 7, 1);
  counted.test.tokens = 0;
  counted.compare(0, 7, 1);
  counted.test.tokens = 50;
  // Chunks with more slots than a kernel loads at once.
  counted.test.chunkTokens = counted.config.rows = 40;
  counted.test.topK = 7;
  counted.compare(-1, 8, 2);
}

/// The maximum number of chunks, with more tokens each; some CTAs have none.
/// Sums of several batches of counts, full and partial ones.
TEST(GpuSortByExpert, CountedInLargestGrid) {
  Counted counted(2, 35);
  for (int64_t tokens : {63, 70, 71, 176}) {
    counted.test.tokens = tokens;
    counted.compare(0, 7, std::min<int64_t>((tokens + 1) / 2, 35));
  }
}

TEST(GpuSortByExpert, CountedOutOfRange) {
  Counted counted;
  counted.test.numZeroExperts = 3;
  counted.compare(-2, 13);
  counted.compare(-1, -1);
  counted.test.numExperts = 200;
  counted.test.local = {199, 0, 64, 63, 100};
  counted.config.expertsAtOnce = counted.config.countExpertsAtOnce = 5;
  counted.compare(-1, 203, 13);
}

/// Chunks without a valid slot, and one with some.
TEST(GpuSortByExpert, CountedPaddingRows) {
  for (int64_t numValid : {0, 1, 21, 48, 90}) {
    Counted counted;
    counted.test.numValid = numValid;
    counted.compare(-1, 9, 13);
  }
}

/// Rounds, other ones in either kernel; parts of warps without an expert, and
/// threads without a part of the counts.
TEST(GpuSortByExpert, CountedRounds) {
  Counted counted;
  counted.test.numExperts = 200;
  counted.test.numValid = 45;
  counted.config.threads = 160;
  for (auto [expertsAtOnce, countExpertsAtOnce] :
       {std::pair<int64_t, int64_t>{7, 200}, {32, 64}, {199, 7}, {200, 199}}) {
    counted.config.expertsAtOnce = expertsAtOnce;
    counted.config.countExpertsAtOnce = countExpertsAtOnce;
    counted.compare(-1, 201, 13);
  }
}
