//===- TileJoinProducts.cpp - two products in one kernel --------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "LaunchShape.h"
#include "Launches.h"
#include "ProductPass.h"
#include "mlir/IR/IRMapping.h"
#include "moec/Transforms/Passes.h"
#include "llvm/ADT/MapVector.h"

namespace moec {
#define GEN_PASS_DEF_TILEJOINPRODUCTSPASS
#include "moec/Transforms/Passes.h.inc"
} // namespace moec

using namespace mlir;
using namespace moec;

namespace {

/// Two launches, of which the second multiplies what the first makes.
struct Pair {
  plan::LaunchOp first, second;
  /// The launch before them that writes their offsets.
  plan::LaunchOp ranking;
};

class ProductJoiner {
public:
  ProductJoiner(plan::ProgramOp program, SymbolTable &symbols,
                const Target &target, ArrayRef<ForcedConfig> forced)
      : program(program), symbols(symbols), target(target), forced(forced) {}

  void run();

private:
  std::optional<Pair> findPair(plan::LaunchOp second);
  std::optional<JoinedConfigs> chooseConfigs(Pair pair);
  void join(Pair pair, const JoinedConfigs &configs);
  tile::KernelOp makeKernel(Pair pair, ValueRange ins, ValueRange outs,
                            Value counter, const JoinedConfigs &configs);
  /// The second product's results must not lie where the first reads.
  void separate(Pair pair);
  void eraseKernels();

  plan::ProgramOp program;
  SymbolTable &symbols;
  const Target &target;
  ArrayRef<ForcedConfig> forced;
  /// By the kernels that they are made of.
  llvm::MapVector<std::pair<StringAttr, StringAttr>, tile::KernelOp> kernels;
};

std::optional<Pair> ProductJoiner::findPair(plan::LaunchOp second) {
  auto first = dyn_cast_or_null<plan::LaunchOp>(second->getPrevNode());
  if (!first || first.getStream() != second.getStream())
    return std::nullopt;
  auto one = getPhase<tile::ContractOp>(first, symbols);
  auto other = getPhase<tile::ContractOp>(second, symbols);
  if (!one || !other || !one.getConfig() || !other.getConfig() ||
      one.getConfigAttr().getSchedule() != other.getConfigAttr().getSchedule())
    return std::nullopt;
  const Schedule *schedule =
      findSchedule(target, one.getConfigAttr().getSchedule());
  Value offsets = getPassed(first, one.getOffsets());
  if (!schedule || !schedule->join || !offsets ||
      offsets != getPassed(second, other.getOffsets()) ||
      getPassed(first, one.getIds()) != getPassed(second, other.getIds()) ||
      getPassed(first, one.getResult()) != getPassed(second, other.getInput()))
    return std::nullopt;
  // Rows are in order for maps, which the first product of a kernel has none
  // of.
  plan::LaunchOp before = findWriter(first, getPassed(first, one.getInput()));
  if (before && getPhase<tile::GatherRowsOp>(before, symbols))
    return std::nullopt;
  // It clears the counter, too.
  plan::LaunchOp ranking = findWriter(first, offsets);
  if (!ranking || ranking.getStream() != first.getStream() ||
      !getPhase<tile::RankOp>(ranking, symbols))
    return std::nullopt;
  return Pair{first, second, ranking};
}

std::optional<JoinedConfigs> ProductJoiner::chooseConfigs(Pair pair) {
  auto one = getPhase<tile::ContractOp>(pair.first, symbols);
  auto other = getPhase<tile::ContractOp>(pair.second, symbols);
  tile::LoadAttr load = getKernel(pair.first, symbols).getLoadAttr();
  bool areFixed = isForced(getKernel(pair.first, symbols), forced) ||
                  isForced(getKernel(pair.second, symbols), forced);
  if (!load && !areFixed)
    return std::nullopt;
  if (load) {
    // Of a kernel of several variants, this one's.
    auto variant = cast<plan::VariantOp>(pair.first->getParentOp());
    load = tile::LoadAttr::get(load.getContext(), variant.getMinTokens(),
                               variant.getMaxTokens(), load.getTopK(),
                               load.getExperts());
  }
  const Schedule &schedule =
      *findSchedule(target, one.getConfigAttr().getSchedule());
  return schedule.join(one, other, load, areFixed, target);
}

void ProductJoiner::separate(Pair pair) {
  for (Value in : pair.first.getIns()) {
    auto buffer = in.getDefiningOp<plan::BufferOp>();
    if (!buffer || !buffer.getSlot())
      continue;
    for (Value out : pair.second.getOuts())
      if (auto other = out.getDefiningOp<plan::BufferOp>();
          other && other.getSlot() == buffer.getSlot())
        buffer.setSlot(makeSlot(program));
  }
}

tile::KernelOp ProductJoiner::makeKernel(Pair pair, ValueRange ins,
                                         ValueRange outs, Value counter,
                                         const JoinedConfigs &configs) {
  tile::KernelOp one = getKernel(pair.first, symbols),
                 other = getKernel(pair.second, symbols);
  tile::KernelOp &kernel =
      kernels[{one.getSymNameAttr(), other.getSymNameAttr()}];
  if (kernel)
    return kernel;
  OpBuilder builder(one);
  SmallVector<Type> types(ins.getTypes());
  llvm::append_range(types, outs.getTypes());
  types.push_back(builder.getI64Type());
  kernel = tile::KernelOp::create(
      builder, one.getLoc(),
      (one.getSymName() + "_" + other.getSymName()).str(),
      builder.getFunctionType(types, {}));
  symbols.insert(kernel, one->getIterator());
  kernel.setLoadAttr(one.getLoadAttr());
  kernel.setResident(true);
  SmallVector<Value> passed(ins);
  llvm::append_range(passed, outs);
  auto getArgument = [&](Value value) -> Value {
    return kernel.getArgument(llvm::find(passed, value) - passed.begin());
  };
  builder.setInsertionPointToStart(&kernel.getBody().front());
  for (auto [launch, config] : {std::pair(pair.first, configs.first),
                                std::pair(pair.second, configs.second)}) {
    auto product = getPhase<tile::ContractOp>(launch, symbols);
    IRMapping mapping;
    mapping.map(getKernel(launch, symbols).getTokens(), kernel.getTokens());
    for (auto [argument, operand] :
         llvm::zip(getKernel(launch, symbols).getBody().getArguments(),
                   getOperands(launch)))
      mapping.map(argument, getArgument(operand));
    auto copy = cast<tile::ContractOp>(builder.clone(*product, mapping));
    copy.setConfigAttr(config);
    MutableOperandRange role = launch == pair.first ? copy.getSignalsMutable()
                                                    : copy.getAwaitsMutable();
    role.assign(getArgument(counter));
  }
  tile::ReturnOp::create(builder, kernel.getLoc());
  setLaunchShape(kernel, target);
  return kernel;
}

void ProductJoiner::join(Pair pair, const JoinedConfigs &configs) {
  Value counter = getCounter(pair.ranking, symbols);
  separate(pair);
  SmallVector<Value> ins(pair.first.getIns()), outs(pair.first.getOuts());
  llvm::append_range(outs, pair.second.getOuts());
  outs.push_back(counter);
  for (Value in : pair.second.getIns())
    if (!llvm::is_contained(ins, in) && !llvm::is_contained(outs, in))
      ins.push_back(in);
  tile::KernelOp kernel = makeKernel(pair, ins, outs, counter, configs);
  OpBuilder builder(pair.first);
  plan::LaunchOp::create(builder, pair.first.getLoc(), kernel.getSymName(),
                         pair.first.getStream(), ins, outs,
                         pair.first.getDependent());
  pair.first->erase();
  pair.second->erase();
}

/// Those that nobody launches any more.
void ProductJoiner::eraseKernels() {
  for (auto &[names, kernel] : kernels)
    for (StringAttr name : {names.first, names.second}) {
      bool isLaunched = false;
      program.walk([&](plan::LaunchOp launch) {
        isLaunched |= launch.getKernelAttr().getAttr() == name;
      });
      if (Operation *old = isLaunched ? nullptr : symbols.lookup(name))
        symbols.erase(old);
    }
}

void ProductJoiner::run() {
  SmallVector<plan::LaunchOp> launches;
  for (auto variant : program.getBody().getOps<plan::VariantOp>())
    llvm::append_range(launches, variant.getBody().getOps<plan::LaunchOp>());
  for (plan::LaunchOp second : launches)
    if (std::optional<Pair> pair = findPair(second))
      if (std::optional<JoinedConfigs> configs = chooseConfigs(*pair))
        join(*pair, *configs);
  eraseKernels();
}

struct TileJoinProducts
    : moec::impl::TileJoinProductsPassBase<TileJoinProducts> {
  using TileJoinProductsPassBase::TileJoinProductsPassBase;

  void runOnOperation() override {
    std::optional<ProductPassInputs> inputs = ProductPassInputs::read(
        getOperation(), "tile-join-products", target, configs);
    if (!inputs)
      return signalPassFailure();
    SymbolTable symbols(getOperation());
    for (auto program : getOperation().getOps<plan::ProgramOp>())
      ProductJoiner(program, symbols, inputs->target, inputs->forced).run();
  }
};

} // namespace
