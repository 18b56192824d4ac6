//===- ExpandAdapters.cpp - LoRA updates ahead of a gemm --------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "LaunchRewrite.h"
#include "llvm/ADT/MapVector.h"

using namespace mlir;
using namespace moec;

namespace {

/// An occurrence has the launch of the shrink and that of the gemm.
class ExpandAdapters final : public LaunchRewrite {
public:
  using LaunchRewrite::LaunchRewrite;

  std::vector<RewriteSite> match() override;
  std::string whyIllegal(const RewriteSite &site) override;
  FailureOr<std::string> build(const RewriteSite &site) override;
  std::optional<PredictedChange> predict(const RewriteSite &site) override;
  LogicalResult commit(const RewriteSite &site) override;
  void leave(const RewriteSite &) override;

private:
  /// The launch that shrinks the rows of a gemm, for it alone; or null.
  plan::LaunchOp findShrink(plan::LaunchOp launch);
  tile::KernelOp makeProduct(tile::KernelOp kernel);
  /// The kernel of the update; null if no schedule has a legal config.
  tile::KernelOp makeUpdate(const RewriteSite &site);
  Value getResult(plan::LaunchOp product, int64_t number);
  void launch(plan::LaunchOp shrink, plan::LaunchOp product);

  /// Updates by the gemm's result and their number, in all variants.
  llvm::MapVector<std::pair<Value, int64_t>, Value> results;
  /// Kernels of updates by those of the shrinks.
  llvm::MapVector<Operation *, tile::KernelOp> updates;
  /// Built for a site: its kernels, and launches of both.
  tile::KernelOp update, expanded;
  RewriteSite added;
};

} // namespace

plan::LaunchOp ExpandAdapters::findShrink(plan::LaunchOp launch) {
  Value shrunk = getPassed(launch, getPhase<tile::GemmOp>(launch).getShrunk());
  plan::LaunchOp shrink = findWriter(launch, shrunk);
  if (!shrink || shrink.getStream() != launch.getStream() ||
      shrink.getTokensAttr() || !getPhase<tile::LoraShrinkOp>(shrink))
    return nullptr;
  bool isShared = llvm::any_of(shrunk.getUsers(), [&](Operation *user) {
    return user->getBlock() == launch->getBlock() && user != launch &&
           user != shrink;
  });
  return isShared ? nullptr : shrink;
}

std::vector<RewriteSite> ExpandAdapters::match() {
  std::vector<RewriteSite> sites = matchKernels<tile::GemmOp>(
      [&](plan::LaunchOp launch, tile::GemmOp product) {
        return product.getShrunk() && getSchedule(product);
      });
  // A kernel has one signature: all of its launches are rewritten.
  llvm::erase_if(sites, [&](RewriteSite &site) {
    return llvm::any_of(
        site.occurrences, [&](RewriteSite::Occurrence &occurrence) {
          plan::LaunchOp shrink = findShrink(occurrence.front());
          if (shrink)
            occurrence.insert(occurrence.begin(), shrink);
          return !shrink;
        });
  });
  return sites;
}

std::string ExpandAdapters::whyIllegal(const RewriteSite &site) {
  if (isForced(getKernel(site.getLaunch(0))))
    return "the shrink has a forced config";
  if (getPhase<tile::GemmOp>(site.getLaunch(1)).getSumOrderAttr())
    return "the order of sums is fixed, but updates have another one";
  for (const RewriteSite::Occurrence &occurrence : site.occurrences)
    if (getKernel(occurrence[0]) != getKernel(site.getLaunch(0)))
      return "launches of the gemm have rows of different shrinks";
  return {};
}

/// A copy of the gemm that adds updates, the last ones of its ins.
tile::KernelOp ExpandAdapters::makeProduct(tile::KernelOp kernel) {
  tile::KernelOp copy = kernel.clone();
  symbols.insert(copy, std::next(kernel->getIterator()));
  tile::GemmOp product = getProduct(copy);
  SmallVector<Type> types;
  auto rows = cast<MemRefType>(product.getResult().getType()).getDimSize(0);
  for (Value matrix : product.getMatrices()) {
    auto type = cast<MemRefType>(matrix.getType());
    types.push_back(MemRefType::get({rows, type.getDimSize(2)},
                                    Float32Type::get(kernel.getContext())));
  }
  SmallVector<Value> dropped(product.getMatrices());
  dropped.append({product.getShrunk(), product.getAdapters()});
  llvm::BitVector numbers(kernel.getNumArguments());
  for (Value argument : dropped)
    numbers.set(cast<BlockArgument>(argument).getArgNumber());
  product.getShrunkMutable().clear();
  product.getAdaptersMutable().clear();
  product.getMatricesMutable().clear();
  (void)copy.eraseArguments(numbers);
  // The result is the first of the outs.
  unsigned at = cast<BlockArgument>(product.getResult()).getArgNumber();
  for (auto [i, type] : llvm::enumerate(types)) {
    (void)copy.insertArgument(at + i, type, DictionaryAttr(), product.getLoc());
    product.getElementwiseOperandsMutable().append(copy.getArgument(at + i));
  }
  return copy;
}

tile::KernelOp ExpandAdapters::makeUpdate(const RewriteSite &site) {
  tile::KernelOp shrunk = getKernel(site.getLaunch(0));
  tile::LoadAttr load = getKernel(site.getLaunch(1)).getLoadAttr();
  auto shrink = getPhase<tile::LoraShrinkOp>(site.getLaunch(0));
  auto product = getPhase<tile::GemmOp>(site.getLaunch(1));
  if (tile::KernelOp made = updates.lookup(shrunk)) {
    tile::LoadAttr other = made.getLoadAttr();
    if (load && other)
      made.setLoadAttr(tile::LoadAttr::get(
          load.getContext(),
          std::min(load.getMinTokens(), other.getMinTokens()),
          std::max(load.getMaxTokens(), other.getMaxTokens()), load.getTopK(),
          load.getExperts()));
    return made;
  }
  size_t count = product.getMatrices().size();
  SmallVector<Value> operands{shrink.getInput()};
  llvm::append_range(operands, shrink.getMatrices());
  llvm::append_range(operands, product.getMatrices());
  operands.append(
      {shrink.getOffsets(), shrink.getSource(), shrink.getAdapterIds()});
  SmallVector<Type> types(ValueRange(operands).getTypes());
  auto added = getProduct(expanded).getElementwiseOperands().take_back(count);
  llvm::append_range(types, added.getTypes());
  OpBuilder builder(shrunk);
  types.push_back(builder.getI64Type());
  auto kernel = tile::KernelOp::create(builder, shrunk.getLoc(),
                                       (shrunk.getSymName() + "_update").str(),
                                       builder.getFunctionType(types, {}));
  symbols.insert(kernel);
  SmallVector<Value> arguments(kernel.getBody().getArguments().drop_back());
  ArrayRef<Value> left(arguments);
  auto take = [&](size_t number) {
    ArrayRef<Value> taken = left.take_front(number);
    left = left.drop_front(number);
    return taken;
  };
  builder.setInsertionPointToStart(&kernel.getBody().front());
  Value input = take(1).front();
  ArrayRef<Value> first = take(count), second = take(count), tables = take(3);
  auto op = tile::LoraUpdateOp::create(
      builder, shrunk.getLoc(), kernel.getTokens(), input, first, second,
      tables[0], tables[1], tables[2], left, shrink.getGatherAttr(),
      shrink.getTopKAttr(), tile::ConfigAttr());
  tile::ReturnOp::create(builder, shrunk.getLoc());
  // A CPU has no schedule.
  SmallVector<const Schedule *> all = getSchedulesFor(context.target, op);
  tile::ConfigAttr config =
      all.empty() ? nullptr : all.front()->choose(op, context.target);
  if (!config || !all.front()->whyIllegal(op, config, context.target).empty()) {
    symbols.erase(kernel);
    return nullptr;
  }
  op.setConfigAttr(config);
  kernel.setLoadAttr(load);
  setLaunchShape(kernel, context.target);
  updates[shrunk] = kernel;
  return kernel;
}

Value ExpandAdapters::getResult(plan::LaunchOp product, int64_t number) {
  tile::GemmOp gemm = getPhase<tile::GemmOp>(product);
  Value result = getPassed(product, gemm.getResult());
  Value &update = results[{result, number}];
  if (update)
    return update;
  auto shrink = getPhase<tile::LoraShrinkOp>(findShrink(product));
  Type type = getProduct(expanded)
                  .getElementwiseOperands()
                  .take_back(gemm.getMatrices().size())[number]
                  .getType();
  update = addRows(product->getParentOfType<plan::ProgramOp>(),
                   product.getLoc(), type, moec::getName(result) + "_update",
                   static_cast<int64_t>(shrink.getTopK()));
  return update;
}

void ExpandAdapters::launch(plan::LaunchOp shrink, plan::LaunchOp product) {
  auto first = getPhase<tile::LoraShrinkOp>(shrink);
  tile::GemmOp gemm = getPhase<tile::GemmOp>(product);
  SmallVector<Value> ins, outs;
  auto pass = [&](plan::LaunchOp launch, ValueRange arguments) {
    for (Value argument : arguments)
      ins.push_back(getPassed(launch, argument));
  };
  pass(shrink, first.getInput());
  pass(shrink, first.getMatrices());
  pass(product, gemm.getMatrices());
  pass(shrink, {first.getOffsets(), first.getSource(), first.getAdapterIds()});
  for (size_t i = 0; i < gemm.getMatrices().size(); ++i)
    outs.push_back(getResult(product, int64_t(i)));
  OpBuilder builder(shrink);
  auto ahead = plan::LaunchOp::create(
      builder, shrink.getLoc(), update.getSymName(), shrink.getStream(), ins,
      outs, shrink.getDependent(), /*tokens=*/{}, /*columns=*/{});
  SmallVector<Value> rows;
  for (auto [argument, value] :
       llvm::zip(gemm->getBlock()->getArguments(), product.getIns()))
    if (argument != gemm.getShrunk() && argument != gemm.getAdapters() &&
        !llvm::is_contained(gemm.getMatrices(), argument))
      rows.push_back(value);
  llvm::append_range(rows, outs);
  builder.setInsertionPoint(product);
  auto adds = plan::LaunchOp::create(
      builder, product.getLoc(), expanded.getSymName(), product.getStream(),
      rows, product.getOuts(), product.getDependent(), /*tokens=*/{},
      /*columns=*/{});
  added.occurrences.push_back({ahead, adds});
}

FailureOr<std::string> ExpandAdapters::build(const RewriteSite &site) {
  tile::KernelOp kernel = getKernel(site.getLaunch(1));
  expanded = makeProduct(kernel);
  update = makeUpdate(site);
  if (!update)
    return std::string("no schedule computes such updates");
  // The new kernel needs launches, since its schedule looks at their operands.
  for (const RewriteSite::Occurrence &occurrence : site.occurrences)
    launch(occurrence[0], occurrence[1]);
  tile::GemmOp product = getProduct(expanded);
  if (!isForced(kernel))
    if (tile::ConfigAttr config =
            chooseForLoad(product, context.target, kernel.getLoadAttr()))
      product.setConfigAttr(config);
  setLaunchShape(expanded, context.target);
  return std::string();
}

std::optional<PredictedChange>
ExpandAdapters::predict(const RewriteSite &site) {
  if (getParameter("always").value_or(0))
    return std::nullopt;
  tile::LoadAttr load = getKernel(site.getLaunch(1)).getLoadAttr();
  // All launches of the gemm's kernel.
  std::vector<plan::LaunchOp> launches;
  for (const RewriteSite::Occurrence &occurrence : site.occurrences)
    launches.push_back(occurrence[1]);
  PredictedChange change{getPoints(RewriteSite(launches))};
  change.before = context.objective.predict(
      {getForm(site.getLaunch(0), load), getForm(site.getLaunch(1))},
      change.points);
  change.after = context.objective.predict(
      {getForm(added.getLaunch(0), load), getForm(added.getLaunch(1))},
      change.points);
  change.penalty = getPenaltyOf(added.getLaunch(0), added) -
                   getPenaltyOf(site.getLaunch(0), site);
  return change;
}

LogicalResult ExpandAdapters::commit(const RewriteSite &site) {
  commitAdded(site, added, expanded);
  return success();
}

void ExpandAdapters::leave(const RewriteSite &) { eraseAdded(added, expanded); }

std::unique_ptr<LaunchRewrite>
moec::makeExpandAdapters(RewriteContext &context) {
  return std::make_unique<ExpandAdapters>("expand-adapters", context);
}
