//===- GpuKernel.h - a kernel on a simulated GPU ----------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_UNITTESTS_TARGET_GPUKERNEL_H
#define MOEC_UNITTESTS_TARGET_GPUKERNEL_H

#include "moec/PtxSim/Simulator.h"
#include "moec/Target/NVPTX.h"
#include "moec/Transforms/Passes.h"

#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"
#include "moec/Dialect/Tile/Tile.h"

#include <gtest/gtest.h>

namespace moec::test {

/// One kernel of level tile for a GPU; `run` simulates it.
class GpuKernel {
public:
  GpuKernel(const std::string &text, const std::string &target) {
    context.loadDialect<tile::TileDialect>();
    context.disableMultithreading();
    module = mlir::parseSourceString<mlir::ModuleOp>(text, &context);
    if (!module)
      return;
    TileAssignConfigPassOptions options;
    options.target = target;
    mlir::PassManager assign(&context);
    assign.addPass(createTileAssignConfigPass(options));
    if (mlir::failed(assign.run(*module)))
      return;
    auto kernel = *module->getOps<tile::KernelOp>().begin();
    grid = kernel.getGrid()->getExpr();
    dims.block = kernel.getBlockAttr().getInt();
    dims.shared = kernel.getSharedAttr().getInt();
    if (mlir::ArrayAttr all = kernel.getTensorMapsAttr())
      for (auto map : all.getAsRange<tile::TensorMapAttr>())
        addMap(map, kernel);
    mlir::PassManager lower(&context);
    buildTileToNVVMPipeline(lower, target);
    if (mlir::failed(lower.run(*module)))
      return;
    if (auto text = emitPTX(*module, {target}); mlir::succeeded(text))
      ptx = *text;
  }

  /// A buffer with these values, or an uninitialized one.
  template <typename T>
  void input(const std::vector<T> &values) {
    output(values.size() * sizeof(T));
    EXPECT_TRUE(simulator.write(slots.back(), values.data(),
                                values.size() * sizeof(T)));
  }
  void output(size_t bytes) {
    auto address = simulator.allocate(bytes, 256, "an argument");
    ASSERT_TRUE(address);
    slots.push_back(*address);
  }
  void run(int64_t tokens) {
    ASSERT_FALSE(ptx.empty());
    auto loaded = simulator.load(ptx, "kernel.ptx");
    ASSERT_TRUE(loaded) << loaded.status().message();
    slots.push_back(static_cast<uint64_t>(tokens));
    std::vector<moert::TensorMap> encoded;
    for (auto [argument, recipe] : maps) {
      recipe.data = reinterpret_cast<void *>(slots[argument]);
      auto map = moec::ptx::encodeTensorMap(recipe);
      ASSERT_TRUE(map) << map.status().message();
      encoded.push_back(*map);
    }
    auto params =
        moec::ptx::packParams(*(*loaded)->find("kernel"), slots, encoded);
    ASSERT_TRUE(params) << params.status().message();
    dims.grid = *grid->evaluate(tokens);
    moert::Status status = simulator.launch(**loaded, "kernel", dims, *params);
    ASSERT_TRUE(status) << status.message();
  }
  const std::string &getPtx() const { return ptx; }
  template <typename T>
  std::vector<T> read(size_t argument, size_t count) {
    std::vector<T> values(count);
    EXPECT_TRUE(
        simulator.read(values.data(), slots[argument], count * sizeof(T)));
    return values;
  }

private:
  /// Makes the tensor map of a dense argument of known sizes.
  void addMap(tile::TensorMapAttr map, tile::KernelOp kernel) {
    auto type = mlir::cast<mlir::MemRefType>(
        kernel.getBody().getArgument(map.getArgument()).getType());
    int64_t bytes = type.getElementTypeBitWidth() / 8;
    moert::TensorMapRecipe recipe;
    recipe.dtype = bytes == 1 ? moert::DType::F8E4M3 : moert::DType::BF16;
    recipe.shape = map.getSizes().vec();
    recipe.box = map.getBox().vec();
    recipe.swizzleBytes = map.getSwizzle();
    for (auto [along, step] : llvm::zip(map.getAlong(), map.getSteps())) {
      int64_t stride = bytes * step;
      for (int64_t size : type.getShape().drop_front(along + 1))
        stride *= size;
      recipe.strideBytes.push_back(stride);
    }
    recipe.strideBytes.pop_back();
    maps.push_back({size_t(map.getArgument()), recipe});
  }

  mlir::MLIRContext context;
  mlir::OwningOpRef<mlir::ModuleOp> module;
  std::optional<moert::Expr> grid;
  moert::LaunchDims dims;
  std::string ptx;
  moec::ptx::Simulator simulator;
  std::vector<uint64_t> slots;
  /// Each belongs to the argument with this index.
  std::vector<std::pair<size_t, moert::TensorMapRecipe>> maps;
};

} // namespace moec::test

#endif // MOEC_UNITTESTS_TARGET_GPUKERNEL_H
