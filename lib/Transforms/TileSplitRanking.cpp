//===- TileSplitRanking.cpp - rankings behind counts ------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// First variants are split where their rankings begin to have many slots, so
// that the launches of each agree. Then the launches of many slots get a kernel
// of their own, unless there are no others, and one that counts before it.

#include "LaunchShape.h"
#include "Launches.h"
#include "moec/Transforms/Passes.h"
#include "llvm/ADT/MapVector.h"

namespace moec {
#define GEN_PASS_DEF_TILESPLITRANKINGPASS
#include "moec/Transforms/Passes.h.inc"
} // namespace moec

using namespace mlir;
using namespace moec;

namespace {

class RankingSplitter {
public:
  RankingSplitter(ModuleOp module, const Target &target, int64_t most)
      : module(module), symbols(module), target(target), most(most) {}

  LogicalResult run();

private:
  /// The launch's ranking, if slots can be counted before it; or null.
  tile::RankOp getRank(plan::LaunchOp launch);
  TokenChunks getChunks(tile::RankOp rank) {
    tile::ConfigAttr config = rank.getConfigAttr();
    return *findSchedule(target, config.getSchedule())->chunks(rank, config);
  }
  /// Of how many tokens on there are too many slots for one launch.
  int64_t getFirstTokens(tile::RankOp rank) {
    int64_t topK = cast<MemRefType>(rank.getIds().getType()).getDimSize(1);
    return most / topK + 1;
  }
  void splitVariants();
  bool splitVariant(plan::VariantOp variant);
  LogicalResult split(tile::KernelOp kernel, ArrayRef<plan::LaunchOp> launches);
  bool areAll(tile::KernelOp kernel, ArrayRef<plan::LaunchOp> launches);
  tile::KernelOp makeCounting(tile::KernelOp kernel, MemRefType counts);
  LogicalResult takeCounts(tile::KernelOp kernel, unsigned number,
                           MemRefType counts);
  Value getCounts(plan::LaunchOp launch, tile::KernelOp counting);

  ModuleOp module;
  SymbolTable symbols;
  const Target &target;
  int64_t most;
  /// The counts of a kernel's launches on a stream, which follow each other.
  llvm::MapVector<std::pair<Operation *, std::pair<Operation *, int64_t>>,
                  Value>
      buffers;
};

tile::RankOp RankingSplitter::getRank(plan::LaunchOp launch) {
  auto rank = getPhase<tile::RankOp>(launch, symbols);
  if (!rank || rank.getCounts() || !rank.getConfig() ||
      !isa<plan::VariantOp>(launch->getParentOp()))
    return nullptr;
  tile::ConfigAttr config = rank.getConfigAttr();
  const Schedule *schedule = findSchedule(target, config.getSchedule());
  bool hasChunks =
      schedule && schedule->chunks && schedule->chunks(rank, config);
  return hasChunks ? rank : nullptr;
}

/// Splits the variant where a ranking begins to have many slots; whether there
/// is such a place.
bool RankingSplitter::splitVariant(plan::VariantOp variant) {
  for (auto launch : variant.getBody().getOps<plan::LaunchOp>()) {
    tile::RankOp rank = getRank(launch);
    if (!rank)
      continue;
    int64_t first = getFirstTokens(rank);
    if (first <= static_cast<int64_t>(variant.getMinTokens()) ||
        first > static_cast<int64_t>(variant.getMaxTokens()))
      continue;
    OpBuilder builder(variant->getContext());
    builder.setInsertionPointAfter(variant);
    cast<plan::VariantOp>(builder.clone(*variant)).setMinTokens(first);
    variant.setMaxTokens(first - 1);
    return true;
  }
  return false;
}

void RankingSplitter::splitVariants() {
  SmallVector<plan::VariantOp> variants;
  module.walk([&](plan::VariantOp variant) { variants.push_back(variant); });
  // Both parts may be split again, by other rankings.
  while (!variants.empty()) {
    plan::VariantOp variant = variants.pop_back_val();
    if (splitVariant(variant))
      variants.append({variant, cast<plan::VariantOp>(variant->getNextNode())});
  }
}

bool RankingSplitter::areAll(tile::KernelOp kernel,
                             ArrayRef<plan::LaunchOp> launches) {
  size_t count = 0;
  module.walk([&](plan::LaunchOp launch) {
    count += launch.getKernel() == kernel.getSymName();
  });
  return count == launches.size();
}

/// The kernel that counts what another one ranks.
tile::KernelOp RankingSplitter::makeCounting(tile::KernelOp kernel,
                                             MemRefType counts) {
  auto rank = cast<tile::RankOp>(kernel.getBody().front().front());
  OpBuilder builder(kernel);
  SmallVector<Type> types{rank.getIds().getType()};
  if (Value valid = rank.getNumValidTokens())
    types.push_back(valid.getType());
  llvm::append_values(types, Type(counts), Type(builder.getI64Type()));
  auto counting = tile::KernelOp::create(
      builder, kernel.getLoc(), (kernel.getSymName() + "_counts").str(),
      builder.getFunctionType(types, {}));
  symbols.insert(counting, kernel->getIterator());
  counting.setLoadAttr(kernel.getLoadAttr());
  auto arguments = counting.getBody().getArguments();
  builder.setInsertionPointToStart(&counting.getBody().front());
  auto count = tile::CountSlotsOp::create(
      builder, rank.getLoc(), counting.getTokens(), arguments.front(),
      rank.getNumValidTokens() ? arguments[1] : Value(),
      arguments.drop_back().back(), rank.getNumExpertsAttr(),
      rank.getLocalExpertsAttr(),
      builder.getI64IntegerAttr(getChunks(rank).tokens), tile::ConfigAttr());
  tile::ReturnOp::create(builder, rank.getLoc());
  const Schedule *schedule = getSchedulesFor(target, count).front();
  count.setConfigAttr(schedule->choose(count, target));
  setLaunchShape(counting, target);
  return counting;
}

/// Lets the ranking of a kernel take counts as argument `number`.
LogicalResult RankingSplitter::takeCounts(tile::KernelOp kernel,
                                          unsigned number, MemRefType counts) {
  auto rank = cast<tile::RankOp>(kernel.getBody().front().front());
  int64_t chunkTokens = getChunks(rank).tokens;
  if (failed(kernel.insertArgument(number, counts, DictionaryAttr(),
                                   rank.getLoc())))
    return kernel.emitOpError("cannot take counts of its slots");
  rank.getCountsMutable().assign(kernel.getArgument(number));
  rank.setChunkTokens(chunkTokens);
  setLaunchShape(kernel, target);
  return success();
}

Value RankingSplitter::getCounts(plan::LaunchOp launch,
                                 tile::KernelOp counting) {
  auto program = launch->getParentOfType<plan::ProgramOp>();
  int64_t stream = launch.getStream();
  Value &buffer = buffers[{program, {counting, stream}}];
  if (!buffer) {
    std::string name = counting.getSymName().str();
    if (stream)
      name += "_stream" + std::to_string(stream);
    buffer = addBuffer(program, launch.getLoc(),
                       counting.getArgumentTypes().drop_back().back(), name);
  }
  return buffer;
}

LogicalResult RankingSplitter::split(tile::KernelOp kernel,
                                     ArrayRef<plan::LaunchOp> launches) {
  auto rank = cast<tile::RankOp>(kernel.getBody().front().front());
  auto offsets = cast<MemRefType>(rank.getOffsets().getType());
  auto counts =
      MemRefType::get({getChunks(rank).most, offsets.getDimSize(0) - 1},
                      offsets.getElementType());
  tile::KernelOp counting = makeCounting(kernel, counts);
  tile::KernelOp own = kernel;
  if (!areAll(kernel, launches)) {
    own = kernel.clone();
    own.setSymName((kernel.getSymName() + "_by_counts").str());
    symbols.insert(own, std::next(kernel->getIterator()));
  }
  // Behind the other ins; in the same place in every launch.
  plan::LaunchOp first = launches.front();
  for (plan::LaunchOp launch : launches) {
    Value buffer = getCounts(launch, counting);
    SmallVector<Value> ins{getPassed(launch, rank.getIds())};
    if (Value valid = getPassed(launch, rank.getNumValidTokens()))
      ins.push_back(valid);
    OpBuilder builder(launch);
    plan::LaunchOp::create(builder, launch.getLoc(), counting.getSymName(),
                           launch.getStream(), ins, buffer,
                           /*dependent=*/false);
  }
  unsigned number = first.getIns().size();
  for (plan::LaunchOp launch : launches) {
    launch.getInsMutable().append(getCounts(launch, counting));
    launch.setKernel(own.getSymName());
  }
  return takeCounts(own, number, counts);
}

LogicalResult RankingSplitter::run() {
  splitVariants();
  llvm::MapVector<tile::KernelOp, SmallVector<plan::LaunchOp>> kernels;
  module.walk([&](plan::LaunchOp launch) {
    tile::RankOp rank = getRank(launch);
    if (rank &&
        getFirstTokens(rank) <=
            static_cast<int64_t>(
                cast<plan::VariantOp>(launch->getParentOp()).getMinTokens()))
      kernels[getKernel(launch, symbols)].push_back(launch);
  });
  for (auto &[kernel, launches] : kernels)
    if (failed(split(kernel, launches)))
      return failure();
  return success();
}

struct TileSplitRanking
    : moec::impl::TileSplitRankingPassBase<TileSplitRanking> {
  using TileSplitRankingPassBase::TileSplitRankingPassBase;

  void runOnOperation() override {
    std::optional<Target> machine =
        Target::findFor(getOperation(), "tile-split-ranking", target);
    if (!machine)
      return signalPassFailure();
    if (most < 0) {
      getOperation().emitError("tile-split-ranking: most = ")
          << most.getValue() << "; give 0 or more slots";
      return signalPassFailure();
    }
    if (failed(RankingSplitter(getOperation(), *machine, most).run()))
      signalPassFailure();
  }
};

} // namespace
