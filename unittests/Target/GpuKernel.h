//===- GpuKernel.h - a kernel on a simulated GPU ----------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_UNITTESTS_TARGET_GPUKERNEL_H
#define MOEC_UNITTESTS_TARGET_GPUKERNEL_H

#include "moec/Ptx/Sim/Simulator.h"
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
    mlir::PassManager lower(&context);
    buildTileToNVVMPipeline(lower, target);
    if (mlir::failed(lower.run(*module)))
      return;
    if (auto text = emitPTX(*module, {target}); mlir::succeeded(text))
      ptx = *text;
  }

  /// A buffer that holds the values, or is not written before the kernel.
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
    auto params = moec::ptx::packParams(*(*loaded)->find("kernel"), slots);
    ASSERT_TRUE(params) << params.status().message();
    dims.grid = *grid->evaluate(tokens);
    moert::Status status = simulator.launch(**loaded, "kernel", dims, *params);
    ASSERT_TRUE(status) << status.message();
  }
  template <typename T>
  std::vector<T> read(size_t argument, size_t count) {
    std::vector<T> values(count);
    EXPECT_TRUE(
        simulator.read(values.data(), slots[argument], count * sizeof(T)));
    return values;
  }

private:
  mlir::MLIRContext context;
  mlir::OwningOpRef<mlir::ModuleOp> module;
  std::optional<moert::Expr> grid;
  moert::LaunchDims dims;
  std::string ptx;
  moec::ptx::Simulator simulator;
  std::vector<uint64_t> slots;
};

} // namespace moec::test

#endif // MOEC_UNITTESTS_TARGET_GPUKERNEL_H
