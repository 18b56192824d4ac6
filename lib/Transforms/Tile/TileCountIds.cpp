//===- TileCountIds.cpp - products that count ids themselves ----*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// A kernel can be launched in several variants, and has one signature: first
// all launches say which ids theirs could count, then kernels whose launches
// agree get them.

#include "LaunchShape.h"
#include "Launches.h"
#include "moec/Analysis/Rewrites/CountIds.h"
#include "moec/Transforms/Passes.h"
#include "llvm/ADT/MapVector.h"

namespace moec {
#define GEN_PASS_DEF_TILECOUNTIDSPASS
#include "moec/Transforms/Passes.h.inc"
} // namespace moec

using namespace mlir;
using namespace moec;

namespace {

/// The launch of a `tile.rank` over ids that can be counted, and these.
struct Ranking {
  tile::RankOp rank;
  Value ids;
};

/// What a kernel's launches could count; without a rank where they do not
/// agree.
struct Wish {
  Ranking ranking;
  SmallVector<plan::LaunchOp> launches;
};

class IdCounter {
public:
  IdCounter(ModuleOp module, const Target &target, int64_t most)
      : module(module), symbols(module), target(target), most(most) {}

  LogicalResult run() {
    module.walk([&](plan::LaunchOp launch) { collect(launch); });
    for (auto &[kernel, wish] : wishes)
      if (wish.ranking.rank && failed(grant(kernel, wish)))
        return failure();
    return success();
  }

private:
  void collect(plan::LaunchOp launch);
  LogicalResult grant(tile::KernelOp kernel, Wish &wish);

  const Schedule *getSchedule(tile::ContractOp product) {
    return product.getConfig()
               ? findSchedule(target, product.getConfigAttr().getSchedule())
               : nullptr;
  }
  /// Where the offsets of a launch before come from.
  Ranking findRanking(plan::LaunchOp launch, Value offsets);
  bool isConstant(Value ids);
  bool areFew(plan::LaunchOp launch, Value ids);

  ModuleOp module;
  SymbolTable symbols;
  const Target &target;
  int64_t most;
  llvm::MapVector<tile::KernelOp, Wish> wishes;
};

/// Whether the caller brings them, and no launch writes them.
bool IdCounter::isConstant(Value ids) {
  auto tensor = ids.getDefiningOp<plan::TensorOp>();
  if (!tensor || tensor.getRole() != plan::Role::Input)
    return false;
  return llvm::none_of(ids.getUsers(), [&](Operation *user) {
    auto launch = dyn_cast<plan::LaunchOp>(user);
    return !launch || llvm::is_contained(launch.getOuts(), ids);
  });
}

bool IdCounter::areFew(plan::LaunchOp launch, Value ids) {
  auto variant = dyn_cast<plan::VariantOp>(launch->getParentOp());
  if (!variant)
    return false;
  int64_t topK = cast<MemRefType>(ids.getType()).getDimSize(1);
  return static_cast<int64_t>(variant.getMaxTokens()) <= most / topK;
}

Ranking IdCounter::findRanking(plan::LaunchOp launch, Value offsets) {
  plan::LaunchOp before = findWriter(launch, offsets);
  auto rank = before ? getPhase<tile::RankOp>(before, symbols) : nullptr;
  if (!rank || rank.getNumValidTokens() ||
      getPassed(before, rank.getOffsets()) != offsets)
    return {};
  Value ids = getPassed(before, rank.getIds());
  if (!isConstant(ids) || !areFew(launch, ids))
    return {};
  return {rank, ids};
}

void IdCounter::collect(plan::LaunchOp launch) {
  auto product = getPhase<tile::ContractOp>(launch, symbols);
  // Groups with many rows are rare: mostly there are no weights to copy early.
  if (!product || !product.getOffsets() || product.getIds() ||
      product.getMinGroupRows())
    return;
  const Schedule *schedule = getSchedule(product);
  if (!schedule || !schedule->as<CountsIds>())
    return;
  Ranking ranking =
      findRanking(launch, getPassed(launch, product.getOffsets()));
  auto kernel = cast<tile::KernelOp>(product->getParentOp());
  auto [entry, isNew] = wishes.insert({kernel, {ranking, {}}});
  Wish &wish = entry->second;
  Ranking &first = wish.ranking;
  bool agrees =
      first.rank && ranking.rank && first.ids == ranking.ids &&
      first.rank.getNumExperts() == ranking.rank.getNumExperts() &&
      first.rank.getLocalExpertsAttr() == ranking.rank.getLocalExpertsAttr();
  if (!isNew && !agrees)
    first = {};
  wish.launches.push_back(launch);
}

LogicalResult IdCounter::grant(tile::KernelOp kernel, Wish &wish) {
  auto product = cast<tile::ContractOp>(kernel.getBody().front().front());
  auto [rank, ids] = wish.ranking;
  // Behind the other ins; in the same place in every launch.
  unsigned number = wish.launches.front().getIns().size();
  if (failed(kernel.insertArgument(number, ids.getType(), DictionaryAttr(),
                                   product.getLoc())))
    return kernel.emitOpError("cannot take the ids that it could count");
  for (plan::LaunchOp launch : wish.launches)
    launch.getInsMutable().append(ids);
  product.getIdsMutable().assign(kernel.getArgument(number));
  product.setNumExperts(rank.getNumExperts());
  product.setLocalExpertsAttr(rank.getLocalExpertsAttr());
  // Tensor maps name arguments by number.
  setLaunchShape(kernel, target);
  return success();
}

struct TileCountIds : moec::impl::TileCountIdsPassBase<TileCountIds> {
  using TileCountIdsPassBase::TileCountIdsPassBase;

  void runOnOperation() override {
    std::optional<Target> machine = Target::findFor(
        getOperation(), "tile-count-ids", target, /*lanes=*/0, part);
    if (!machine)
      return signalPassFailure();
    if (failed(IdCounter(getOperation(), *machine, most).run()))
      signalPassFailure();
  }
};

} // namespace
