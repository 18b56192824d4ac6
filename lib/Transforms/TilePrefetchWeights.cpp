//===- TilePrefetchWeights.cpp - weights of launches to come ----*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// A kernel can be launched in several variants, and has one signature: first
// all launches say what theirs could ask for, then kernels whose launches agree
// get it.

#include "moec/Analysis/Device.h"
#include "moec/Transforms/Passes.h"
#include "llvm/ADT/MapVector.h"

namespace moec {
#define GEN_PASS_DEF_TILEPREFETCHWEIGHTSPASS
#include "moec/Transforms/Passes.h.inc"
} // namespace moec

using namespace mlir;
using namespace moec;

namespace {

/// What a kernel's launches could ask for; null where they do not agree.
struct Wish {
  Value weight;
  SmallVector<plan::LaunchOp> launches;
};

class WeightPrefetcher {
public:
  WeightPrefetcher(ModuleOp module, const Target &target, int64_t bytes)
      : module(module), symbols(module), target(target), bytes(bytes) {}

  LogicalResult run() {
    module.walk([&](plan::LaunchOp launch) { collect(launch); });
    for (auto &[kernel, wish] : wishes)
      if (wish.weight && failed(grant(kernel, wish)))
        return failure();
    return success();
  }

private:
  void collect(plan::LaunchOp launch);
  LogicalResult grant(tile::KernelOp kernel, Wish &wish);

  /// The one phase of a launch's kernel, or null.
  Operation *getPhase(plan::LaunchOp launch) {
    auto kernel = symbols.lookup<tile::KernelOp>(launch.getKernel());
    if (!kernel)
      return nullptr;
    auto phases = kernel.getBody().front().without_terminator();
    return llvm::hasSingleElement(phases) ? &*phases.begin() : nullptr;
  }
  const Schedule *getSchedule(Operation *phase) {
    auto config = phase->getAttrOfType<tile::ConfigAttr>("config");
    return config ? findSchedule(target, config.getSchedule()) : nullptr;
  }
  /// What a launch passes for an operand of its phase; null for null.
  static Value getPassed(plan::LaunchOp launch, Value operand) {
    if (!operand)
      return {};
    unsigned number = cast<BlockArgument>(operand).getArgNumber();
    unsigned ins = launch.getIns().size();
    return number < ins ? launch.getIns()[number]
                        : launch.getOuts()[number - ins];
  }
  /// The weights of the next product on the launch's stream, if it is known
  /// which of them it reads.
  Value findNext(plan::LaunchOp launch, Operation *phase);

  ModuleOp module;
  SymbolTable symbols;
  const Target &target;
  int64_t bytes;
  llvm::MapVector<tile::KernelOp, Wish> wishes;
};

/// The number of bytes, or none of what has gaps or unknown sizes.
std::optional<int64_t> getPackedBytes(MemRefType type) {
  if (!type.hasStaticShape() || !type.getLayout().isIdentity())
    return std::nullopt;
  return type.getNumElements() * (type.getElementTypeBitWidth() / 8);
}

/// What schedules can ask for in pieces of 16 bytes.
bool isInPieces(MemRefType type) {
  constexpr int64_t piece = 16;
  std::optional<int64_t> all = getPackedBytes(type);
  if (!all)
    return false;
  int64_t matrices = type.getRank() == 3 ? type.getDimSize(0) : 1;
  return *all / matrices % piece == 0;
}

bool isWeight(Value value) {
  auto tensor = value.getDefiningOp<plan::TensorOp>();
  return tensor && (tensor.getRole() == plan::Role::Weight ||
                    tensor.getRole() == plan::Role::Prepared);
}

Value WeightPrefetcher::findNext(plan::LaunchOp launch, Operation *phase) {
  for (Operation *op = launch->getNextNode(); op; op = op->getNextNode()) {
    auto next = dyn_cast<plan::LaunchOp>(op);
    if (!next || next.getStream() != launch.getStream())
      continue;
    Operation *nextPhase = getPhase(next);
    if (!nextPhase)
      return {};
    auto product = dyn_cast<tile::ContractOp>(nextPhase);
    if (!product)
      continue;
    Value weight = getPassed(next, product.getWeight());
    if (!isWeight(weight) || !isInPieces(cast<MemRefType>(weight.getType())))
      return {};
    Value offsets = getPassed(next, product.getOffsets());
    if (auto rank = dyn_cast<tile::RankOp>(phase))
      return offsets && offsets == getPassed(launch, rank.getOffsets())
                 ? weight
                 : Value();
    auto own = cast<tile::ContractOp>(phase);
    return !offsets || offsets == getPassed(launch, own.getOffsets()) ? weight
                                                                      : Value();
  }
  return {};
}

void WeightPrefetcher::collect(plan::LaunchOp launch) {
  Operation *phase = getPhase(launch);
  if (!phase || !isa<tile::RankOp, tile::ContractOp>(phase))
    return;
  const Schedule *schedule = getSchedule(phase);
  if (!schedule || !schedule->prefetches)
    return;
  Value weight;
  if (isa<plan::VariantOp>(launch->getParentOp()))
    weight = findNext(launch, phase);
  auto kernel = cast<tile::KernelOp>(phase->getParentOp());
  auto [entry, isNew] = wishes.insert({kernel, {weight, {}}});
  Wish &wish = entry->second;
  if (!isNew && wish.weight != weight)
    wish.weight = {};
  wish.launches.push_back(launch);
}

LogicalResult WeightPrefetcher::grant(tile::KernelOp kernel, Wish &wish) {
  Operation *phase = &kernel.getBody().front().front();
  auto type = cast<MemRefType>(wish.weight.getType());
  // Behind the other ins; in the same place in every launch.
  unsigned number = wish.launches.front().getIns().size();
  if (failed(kernel.insertArgument(number, type, DictionaryAttr(),
                                   phase->getLoc())))
    return kernel.emitOpError("cannot take its weights to prefetch");
  for (plan::LaunchOp launch : wish.launches)
    launch.getInsMutable().append(wish.weight);
  Value argument = kernel.getArgument(number);
  int64_t most = std::min(bytes, *getPackedBytes(type));
  auto ask = [&](auto op) {
    op.getPrefetchMutable().assign(argument);
    op.setPrefetchBytes(most);
    const Schedule *schedule = getSchedule(op);
    auto config = op.getConfigAttr();
    kernel.setGridAttr(plan::ExprAttr::get(
        kernel.getContext(), schedule->grid(op, config, target).str()));
    // They name arguments by number.
    if (schedule->tensorMaps) {
      auto maps = schedule->tensorMaps(op, config);
      SmallVector<Attribute> attributes(maps.begin(), maps.end());
      kernel.setTensorMapsAttr(ArrayAttr::get(kernel.getContext(), attributes));
    }
  };
  if (auto rank = dyn_cast<tile::RankOp>(phase))
    ask(rank);
  else
    ask(cast<tile::ContractOp>(phase));
  return success();
}

struct TilePrefetchWeights
    : moec::impl::TilePrefetchWeightsPassBase<TilePrefetchWeights> {
  using TilePrefetchWeightsPassBase::TilePrefetchWeightsPassBase;

  void runOnOperation() override {
    std::optional<Target> machine = Target::find(target);
    if (!machine) {
      InFlightDiagnostic diagnostic =
          getOperation().emitError("tile-prefetch-weights: target '")
          << target << "' is unknown; accepted are ";
      llvm::interleaveComma(Target::getNames(), diagnostic);
      return signalPassFailure();
    }
    if (bytes < 0) {
      getOperation().emitError("tile-prefetch-weights: bytes = ")
          << bytes.getValue() << "; at least 1, or 0 for the table's, is "
          << "accepted";
      return signalPassFailure();
    }
    const DeviceRates *rates = getDeviceRates(*machine);
    if (!rates)
      return;
    int64_t most =
        bytes ? bytes.getValue() : static_cast<int64_t>(rates->l2AheadBytes);
    if (failed(WeightPrefetcher(getOperation(), *machine, most).run()))
      signalPassFailure();
  }
};

} // namespace
