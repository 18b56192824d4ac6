//===- TileSplitPhases.cpp - one kernel and launch per phase ----*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "mlir/IR/IRMapping.h"
#include "moec/Transforms/Passes.h"

namespace moec {
#define GEN_PASS_DEF_TILESPLITPHASESPASS
#include "moec/Transforms/Passes.h.inc"
} // namespace moec

using namespace mlir;
using namespace moec;

namespace {

/// One phase of a kernel as a separate kernel.
struct Phase {
  StringAttr symbol;
  /// Indices of arguments of the original kernel.
  SmallVector<unsigned> ins, outs;
};

class KernelSplitter {
public:
  KernelSplitter(tile::KernelOp kernel, SymbolTable &symbols)
      : kernel(kernel), symbols(symbols), builder(kernel) {}

  /// Splits the kernel; empty if it has only one phase and stays.
  SmallVector<Phase> run() {
    SmallVector<Phase> phases;
    auto ops = kernel.getBody().front().without_terminator();
    if (llvm::range_size(ops) <= 1)
      return phases;
    for (auto [index, op] : llvm::enumerate(ops))
      phases.push_back(split(op, index));
    return phases;
  }

private:
  Phase split(Operation &op, size_t index) {
    SmallVector<MemoryEffects::EffectInstance> effects;
    cast<MemoryEffectOpInterface>(op).getEffects(effects);
    DenseSet<Value> written;
    for (const MemoryEffects::EffectInstance &effect : effects)
      if (isa<MemoryEffects::Write>(effect.getEffect()))
        written.insert(effect.getValue());

    Phase phase;
    SmallVector<Type> types;
    Block::BlockArgListType args =
        kernel.getBody().front().getArguments().drop_back();
    for (BlockArgument arg : args)
      if (llvm::is_contained(op.getOperands(), arg))
        (written.contains(arg) ? phase.outs : phase.ins)
            .push_back(arg.getArgNumber());
    auto order = llvm::concat<unsigned>(phase.ins, phase.outs);
    for (unsigned number : order)
      types.push_back(args[number].getType());
    types.push_back(builder.getI64Type());

    auto part = tile::KernelOp::create(
        builder, op.getLoc(), (kernel.getSymName() + "_" + Twine(index)).str(),
        builder.getFunctionType(types, {}));
    phase.symbol = symbols.insert(part);
    IRMapping mapping;
    Block &body = part.getBody().front();
    for (auto [number, to] : llvm::zip(order, body.getArguments()))
      mapping.map(args[number], to);
    mapping.map(kernel.getTokens(), part.getTokens());
    OpBuilder inner = OpBuilder::atBlockEnd(&body);
    inner.clone(op, mapping);
    tile::ReturnOp::create(inner, op.getLoc());
    return phase;
  }

  tile::KernelOp kernel;
  SymbolTable &symbols;
  OpBuilder builder;
};

void replaceLaunch(plan::LaunchOp launch, ArrayRef<Phase> phases) {
  OpBuilder builder(launch);
  SmallVector<Value> args(launch.getIns());
  llvm::append_range(args, launch.getOuts());
  for (const Phase &phase : phases) {
    auto select = [&](ArrayRef<unsigned> numbers) {
      return llvm::map_to_vector(numbers, [&](unsigned n) { return args[n]; });
    };
    plan::LaunchOp::create(
        builder, launch.getLoc(), FlatSymbolRefAttr::get(phase.symbol),
        launch.getStreamAttr(), select(phase.ins), select(phase.outs),
        /*dependent=*/UnitAttr(), launch.getTokensAttr(),
        launch.getColumnsAttr());
  }
  launch.erase();
}

struct TileSplitPhases : moec::impl::TileSplitPhasesPassBase<TileSplitPhases> {
  void runOnOperation() override {
    SymbolTable symbols(getOperation());
    llvm::StringMap<SmallVector<Phase>> split;
    for (auto kernel :
         llvm::make_early_inc_range(getOperation().getOps<tile::KernelOp>())) {
      SmallVector<Phase> phases = KernelSplitter(kernel, symbols).run();
      if (phases.empty())
        continue;
      split[kernel.getSymName()] = std::move(phases);
      symbols.erase(kernel);
    }
    SmallVector<plan::LaunchOp> launches;
    getOperation().walk([&](plan::LaunchOp launch) {
      if (split.contains(launch.getKernel()))
        launches.push_back(launch);
    });
    for (plan::LaunchOp launch : launches)
      replaceLaunch(launch, split[launch.getKernel()]);
  }
};

} // namespace
