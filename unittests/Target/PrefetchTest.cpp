//===- PrefetchTest.cpp - which weights are asked for -----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// A prefetch leaves no trace. Here each one adds 1 to the first word of what it
// asks for instead, and the words tell.

#include "moec/Dialect/Tile/Tile.h"
#include "moec/PtxSim/Simulator.h"
#include "moec/Target/NVPTX.h"
#include "moec/Transforms/Passes.h"

#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <regex>

using namespace mlir;
using namespace moec;

namespace {

constexpr int64_t kChunkWords = 2048;

/// A kernel `k` of level tile, on a simulated GPU.
class CountingKernel {
public:
  CountingKernel(const std::string &text, int64_t tokens) : tokens(tokens) {
    context.loadDialect<tile::TileDialect>();
    context.disableMultithreading();
    auto module = parseSourceString<ModuleOp>(text, &context);
    EXPECT_TRUE(module);
    PassManager assign(&context);
    TileAssignConfigPassOptions options;
    options.target = "sm_90a";
    assign.addPass(createTileAssignConfigPass(options));
    EXPECT_TRUE(succeeded(assign.run(*module)));
    auto kernel = *module->getOps<tile::KernelOp>().begin();
    dims.grid = *kernel.getGrid()->getExpr().evaluate(tokens);
    dims.block = kernel.getBlockAttr().getInt();
    dims.shared = kernel.getSharedAttr().getInt();
    if (kernel.getTensorMaps())
      for (auto map : kernel.getTensorMaps()->getAsRange<tile::TensorMapAttr>())
        maps.push_back(map);
    for (Type type : kernel.getArgumentTypes().drop_back())
      types.push_back(cast<MemRefType>(type));
    PassManager lower(&context);
    buildTileToNVVMPipeline(lower, "sm_90a");
    EXPECT_TRUE(succeeded(lower.run(*module)));
    FailureOr<std::string> made = emitPTX(*module, {"sm_90a"});
    EXPECT_TRUE(succeeded(made));
    static const std::regex prefetch(
        R"(cp\.async\.bulk\.prefetch\.L2\.global\s+(\[[^\]]*\]), [^;]*;)");
    real = *made;
    counting = std::regex_replace(real, prefetch, "red.global.add.u32 $1, 1;");
    EXPECT_NE(counting, real);
  }

  /// Runs on these words per argument, and returns how often each chunk of
  /// argument `ahead` was asked for, as digits, matrix by matrix.
  std::string run(const std::vector<std::vector<int32_t>> &arguments,
                  size_t ahead, uint64_t seed) {
    std::vector<int32_t> words = arguments[ahead];
    for (const std::string &text : {real, counting})
      if (std::string error = run(text, arguments, ahead, seed, words);
          !error.empty())
        return error;
    ArrayRef<int64_t> shape = types[ahead].getShape();
    size_t matrix = shape[shape.size() - 1] * shape[shape.size() - 2] / 2;
    std::string counts;
    for (size_t first = 0; first < words.size(); first += matrix) {
      counts += first ? " " : "";
      for (size_t i = 0; i < matrix; i += kChunkWords)
        counts += std::to_string(words[first + i]);
    }
    return counts;
  }

private:
  /// Returns the error, and what argument `ahead` then has in `words`.
  std::string run(const std::string &ptx,
                  const std::vector<std::vector<int32_t>> &arguments,
                  size_t ahead, uint64_t seed, std::vector<int32_t> &words) {
    ptx::SimulatorOptions options;
    options.seed = seed;
    ptx::Simulator simulator(options);
    auto module = simulator.load(ptx, "k.ptx");
    if (!module)
      return module.status().message();
    std::vector<uint64_t> slots;
    for (const std::vector<int32_t> &words : arguments) {
      auto address = simulator.allocate(words.size() * 4, 256, "an argument");
      EXPECT_TRUE(simulator.write(*address, words.data(), words.size() * 4));
      slots.push_back(*address);
    }
    std::vector<moert::TensorMap> encoded;
    for (tile::TensorMapAttr map : maps)
      encoded.push_back(*ptx::encodeTensorMap(getRecipe(map, slots)));
    slots.push_back(static_cast<uint64_t>(tokens));
    auto params = ptx::packParams(*(*module)->find("k"), slots, encoded);
    if (!params)
      return params.status().message();
    if (moert::Status status = simulator.launch(**module, "k", dims, *params);
        !status)
      return status.message();
    EXPECT_TRUE(simulator.read(words.data(), slots[ahead], words.size() * 4));
    return "";
  }

  /// Of a tensor without gaps.
  moert::TensorMapRecipe getRecipe(tile::TensorMapAttr map,
                                   ArrayRef<uint64_t> slots) {
    MemRefType type = types[map.getArgument()];
    moert::TensorMapRecipe recipe;
    recipe.data = reinterpret_cast<void *>(slots[map.getArgument()]);
    recipe.dtype = moert::DType::BF16;
    recipe.swizzleBytes = map.getSwizzle();
    for (auto [size, along, step, box] : llvm::zip(
             map.getSizes(), map.getAlong(), map.getSteps(), map.getBox())) {
      int64_t stride = 2 * step;
      for (int64_t inner : type.getShape().drop_front(along + 1))
        stride *= inner;
      recipe.shape.push_back(ShapedType::isDynamic(size) ? tokens : size);
      recipe.strideBytes.push_back(stride);
      recipe.box.push_back(box);
    }
    recipe.strideBytes.pop_back();
    return recipe;
  }

  MLIRContext context;
  int64_t tokens;
  moert::LaunchDims dims;
  std::vector<tile::TensorMapAttr> maps;
  std::vector<MemRefType> types;
  /// As it is, and with additions in place of prefetches.
  std::string real, counting;
};

std::vector<int32_t> words(int64_t count) {
  return std::vector<int32_t>(static_cast<size_t>(count), 0);
}

//===----------------------------------------------------------------------===//
// sm80.rank
//===----------------------------------------------------------------------===//

/// Chunks of the matrices that a rank asks for.
struct RankCase {
  std::vector<int32_t> ids;
  int64_t bytes = 1 << 30;
  /// The local ones of 6 experts.
  std::string local = "";
  int32_t valid = 1000;
  std::string matrix = "128x128";

  std::string run() const {
    int64_t numLocal =
        local.empty() ? 6 : std::count(local.begin(), local.end(), ',') + 1;
    int64_t slots = static_cast<int64_t>(ids.size());
    std::string ahead =
        "memref<" + std::to_string(numLocal) + "x" + matrix + "xbf16>";
    std::string offsets = "memref<" + std::to_string(numLocal + 1) + "xi32>";
    CountingKernel kernel(
        "tile.kernel @k(%i: memref<?x2xi32>, %r: memref<?x2xf32>, %v: "
        "memref<1xi32>, %a: " +
            ahead + ", %o: " + offsets +
            ", %p: memref<?x2xi32>, %s: memref<?xi32>, %w: memref<?x1xf32>, "
            "%t: i64) {\n"
            "tile.rank tokens(%t) ids(%i, %r : memref<?x2xi32>, "
            "memref<?x2xf32>) num_valid_tokens(%v : memref<1xi32>) "
            "prefetch(%a : " +
            ahead + ") outs(%o, %p, %s, %w : " + offsets +
            ", memref<?x2xi32>, memref<?xi32>, memref<?x1xf32>) "
            "{num_experts = 6 : i64, prefetch_bytes = " +
            std::to_string(bytes) + " : i64" +
            (local.empty() ? ""
                           : ", local_experts = array<i64: " + local + ">") +
            "}\ntile.return\n}\n",
        slots / 2);
    int64_t matrixWords = matrix == "128x128" ? 8192 : 7168;
    std::vector<std::vector<int32_t>> arguments{ids,
                                                words(slots),
                                                {valid},
                                                words(numLocal * matrixWords),
                                                words(numLocal + 1),
                                                words(slots),
                                                words(slots),
                                                words(slots)};
    std::string counts = kernel.run(arguments, 3, 1);
    EXPECT_EQ(kernel.run(arguments, 3, 2), counts);
    return counts;
  }
};

//===----------------------------------------------------------------------===//
// sm90.contract
//===----------------------------------------------------------------------===//

/// Chunks that a product over 4 groups asks for of as many matrices of 4.
std::string chunksOfGroups(std::vector<int32_t> offsets, int64_t bytes) {
  int64_t rows = offsets.back();
  CountingKernel kernel(
      "tile.kernel @k(%x: memref<?x64xbf16>, %w: memref<4x64x64xbf16>, %o: "
      "memref<5xi32>, %a: memref<4x128x128xbf16>, %y: memref<?x64xbf16>, %t: "
      "i64) {\n"
      "tile.contract tokens(%t) ins(%x, %w : memref<?x64xbf16>, "
      "memref<4x64x64xbf16>) offsets(%o : memref<5xi32>) prefetch(%a : "
      "memref<4x128x128xbf16>) outs(%y : memref<?x64xbf16>) {prefetch_bytes "
      "= " +
          std::to_string(bytes) + " : i64}\ntile.return\n}\n",
      std::max<int64_t>(rows, 1));
  int64_t allocated = std::max<int64_t>(rows, 1) * 32;
  return kernel.run({words(allocated), words(4 * 64 * 32), offsets,
                     words(4 * 8192), words(allocated)},
                    3, 1);
}

/// And a dense one of one row, of a matrix of 8.
std::string chunksOfDense(int64_t bytes) {
  CountingKernel kernel(
      "tile.kernel @k(%x: memref<?x64xbf16>, %w: memref<64x64xbf16>, %a: "
      "memref<256x128xbf16>, %y: memref<?x64xbf16>, %t: i64) {\n"
      "tile.contract tokens(%t) ins(%x, %w : memref<?x64xbf16>, "
      "memref<64x64xbf16>) prefetch(%a : memref<256x128xbf16>) outs(%y : "
      "memref<?x64xbf16>) {prefetch_bytes = " +
          std::to_string(bytes) + " : i64}\ntile.return\n}\n",
      1);
  return kernel.run({words(32), words(64 * 32), words(256 * 64), words(32)}, 2,
                    1);
}

constexpr int64_t kMatrix = 32768;

} // namespace

TEST(Prefetch, OfChosenExperts) {
  EXPECT_EQ((RankCase{{0, 2}}.run()), "1111 0000 1111 0000 0000 0000");
  EXPECT_EQ((RankCase{{5, 5, 1, 5}}.run()), "0000 1111 0000 0000 0000 1111");
  EXPECT_EQ((RankCase{{-1, 3}}.run()), "0000 0000 0000 1111 0000 0000");
  EXPECT_EQ((RankCase{{-1, -1}}.run()), "0000 0000 0000 0000 0000 0000");
}

TEST(Prefetch, OfTokensThatCount) {
  RankCase test{{0, 1, 2, 3}};
  test.valid = 1;
  EXPECT_EQ(test.run(), "1111 1111 0000 0000 0000 0000");
  test.valid = 0;
  EXPECT_EQ(test.run(), "0000 0000 0000 0000 0000 0000");
}

TEST(Prefetch, OfLocalExperts) {
  RankCase test{{1, 0, 3, -1}};
  test.local = "4, 1, 0";
  EXPECT_EQ(test.run(), "0000 1111 1111");
}

/// What does not fit is asked for by halves, the first experts first.
TEST(Prefetch, WithinTheBudget) {
  RankCase test{{3, 1, 4, 0}};
  test.bytes = 4 * kMatrix;
  EXPECT_EQ(test.run(), "1111 1111 0000 1111 1111 0000");
  test.bytes = 4 * kMatrix - 1;
  EXPECT_EQ(test.run(), "1010 1010 0000 1010 1010 0000");
  test.bytes = kMatrix;
  EXPECT_EQ(test.run(), "1010 1010 0000 0000 0000 0000");
  test.bytes = kMatrix / 4;
  EXPECT_EQ(test.run(), "1000 0000 0000 0000 0000 0000");
}

/// Of matrices of three chunks and a half. Nothing past the last one is asked
/// for, which the simulator would say.
TEST(Prefetch, ChunksThatAreNotWhole) {
  RankCase test{{5, 0}};
  test.matrix = "112x128";
  EXPECT_EQ(test.run(), "1111 0000 0000 0000 0000 1111");
}

TEST(Prefetch, OfFewSlots) {
  std::vector<int32_t> ids(64, 2);
  ids.back() = 4;
  EXPECT_EQ(RankCase{ids}.run(), "0000 0000 1111 0000 1111 0000");
  ids.insert(ids.end(), {1, 1});
  EXPECT_EQ(RankCase{ids}.run(), "0000 0000 0000 0000 0000 0000");
}

TEST(Prefetch, OfGroupsWithRows) {
  EXPECT_EQ(chunksOfGroups({0, 1, 1, 3, 3}, 2 * kMatrix),
            "1111 0000 1111 0000");
  EXPECT_EQ(chunksOfGroups({0, 1, 1, 3, 3}, kMatrix), "1010 0000 1010 0000");
  EXPECT_EQ(chunksOfGroups({0, 0, 0, 0, 2}, kMatrix / 2),
            "0000 0000 0000 1010");
  EXPECT_EQ(chunksOfGroups({0, 0, 0, 0, 0}, kMatrix), "0000 0000 0000 0000");
  // Of a group with several tiles it is still the one matrix.
  EXPECT_EQ(chunksOfGroups({0, 300, 301, 301, 302}, 2 * kMatrix),
            "1010 1010 0000 1010");
}

TEST(Prefetch, OfOneMatrix) {
  EXPECT_EQ(chunksOfDense(2 * kMatrix), "11111111");
  EXPECT_EQ(chunksOfDense(kMatrix), "10101010");
  EXPECT_EQ(chunksOfDense(kMatrix / 2), "10100000");
}
