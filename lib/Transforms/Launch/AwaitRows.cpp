//===- AwaitRows.cpp - rows ahead of their adapters -------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/Schedules/Rewrites/AwaitRows.h"
#include "AdapterRewrite.h"
#include "llvm/ADT/MapVector.h"

using namespace mlir;
using namespace moec;

namespace {

class AwaitRows final : public AdapterRewrite {
public:
  using AdapterRewrite::AdapterRewrite;

  std::vector<RewriteSite> match() override;
  std::string whyIllegal(const RewriteSite &site) override;
  std::optional<PredictedChange> predict(const RewriteSite &) override {
    return std::nullopt;
  }
  LogicalResult commit(const RewriteSite &site) override;
  void leave(const RewriteSite &) override {}

private:
  /// The adapters of the same rows that an earlier shrink has found; null if
  /// there is none.
  Value findAdapters(plan::LaunchOp shrink);
  std::string whyIllegal(const RewriteSite::Occurrence &occurrence);
  /// Gives a kernel's phase the counter as one more argument.
  FailureOr<Value> addCounter(tile::KernelOp kernel, Type type);

  /// The kernel of a shrink that signals, as only those do whose gemm awaits
  /// it: other gemms would find the bit in their counter of tiles.
  tile::KernelOp makeSignalling(plan::LaunchOp shrink, Type counter);

  /// From a shrink's kernel to the copy that signals.
  llvm::MapVector<Operation *, tile::KernelOp> signalling;
};

} // namespace

std::vector<RewriteSite> AwaitRows::match() {
  std::vector<RewriteSite> sites = AdapterRewrite::match();
  llvm::erase_if(sites, [&](const RewriteSite &site) {
    tile::GemmOp product = getPhase<tile::GemmOp>(site.getLaunch(1));
    return !getSchedule(product)->as<AwaitsRows>();
  });
  return sites;
}

Value AwaitRows::findAdapters(plan::LaunchOp shrink) {
  auto own = getPhase<tile::LoraShrinkOp>(shrink);
  for (Operation *op = shrink->getPrevNode(); op; op = op->getPrevNode()) {
    auto before = dyn_cast<plan::LaunchOp>(op);
    auto other = before ? getPhase<tile::LoraShrinkOp>(before) : nullptr;
    if (!other || before.getTokensAttr() ||
        before.getStream() != shrink.getStream() ||
        other.getTopK() != own.getTopK())
      continue;
    auto isSame = [&](Value one, Value two) {
      return getPassed(before, one) == getPassed(shrink, two);
    };
    if (isSame(other.getOffsets(), own.getOffsets()) &&
        isSame(other.getSource(), own.getSource()) &&
        isSame(other.getAdapterIds(), own.getAdapterIds()))
      return getPassed(before, other.getAdapter());
  }
  return {};
}

std::string AwaitRows::whyIllegal(const RewriteSite::Occurrence &occurrence) {
  plan::LaunchOp shrink = occurrence[0], product = occurrence[1];
  auto gemm = getPhase<tile::GemmOp>(product);
  if (product->getPrevNode() != shrink)
    return "another launch stands between the shrink and the gemm";
  auto before = dyn_cast_or_null<plan::LaunchOp>(shrink->getPrevNode());
  if (!before || before.getStream() != shrink.getStream())
    return "no launch on its stream stands before the shrink";
  if (!findAdapters(shrink))
    return "no earlier shrink finds the adapters of the rows";
  plan::LaunchOp ranking = findSort(product, gemm);
  if (!ranking || ranking == before)
    return "no earlier sort can clear a counter";
  // Others count tiles by it, in lower bits.
  Value counter = getPhase<tile::SortByExpertOp>(ranking).getCounter();
  if (!counter)
    return {};
  counter = getPassed(ranking, counter);
  for (Operation *op = ranking->getNextNode(); op; op = op->getNextNode()) {
    auto other = dyn_cast<plan::LaunchOp>(op);
    if (!other || other == product || other == shrink ||
        !llvm::is_contained(other.getOuts(), counter))
      continue;
    auto others = getPhase<tile::GemmOp>(other);
    if (!others || others.getSignals() || others.getAwaits())
      return "CTAs of another launch signal by the counter";
    if (product->isBeforeInBlock(other))
      return "a later launch uses the counter";
  }
  return {};
}

std::string AwaitRows::whyIllegal(const RewriteSite &site) {
  auto gemm = getPhase<tile::GemmOp>(site.getLaunch(1));
  std::string why = getSchedule(gemm)->as<AwaitsRows>()->whyNotAwaited(gemm);
  for (const RewriteSite::Occurrence &occurrence : site.occurrences) {
    if (!why.empty())
      break;
    why = whyIllegal(occurrence);
  }
  return why;
}

FailureOr<Value> AwaitRows::addCounter(tile::KernelOp kernel, Type type) {
  // After the other arguments, before the tokens.
  unsigned number = kernel.getBody().getNumArguments() - 1;
  if (failed(kernel.insertArgument(number, type, DictionaryAttr(),
                                   kernel.getLoc())))
    return kernel.emitOpError("cannot take the counter as an operand");
  return Value(kernel.getArgument(number));
}

tile::KernelOp AwaitRows::makeSignalling(plan::LaunchOp shrink, Type counter) {
  tile::KernelOp kernel = getKernel(shrink);
  tile::KernelOp &copy = signalling[kernel];
  if (copy)
    return copy;
  copy = kernel.clone();
  symbols.insert(copy, std::next(kernel->getIterator()));
  FailureOr<Value> argument = addCounter(copy, counter);
  if (failed(argument))
    return nullptr;
  auto phases = copy.getBody().getOps<tile::LoraShrinkOp>();
  (*phases.begin()).getSignalsMutable().assign(*argument);
  setLaunchShape(copy, context.target);
  return copy;
}

LogicalResult AwaitRows::commit(const RewriteSite &site) {
  tile::KernelOp product = getKernel(site.getLaunch(1));
  auto gemm = getPhase<tile::GemmOp>(site.getLaunch(1));
  bool hasCounter = static_cast<bool>(gemm.getTileCounter());
  Type type;
  for (const RewriteSite::Occurrence &occurrence : site.occurrences) {
    plan::LaunchOp shrink = occurrence[0], launch = occurrence[1];
    Value counter = getCounter(findSort(launch, gemm), symbols);
    type = counter.getType();
    Value found = getPassed(launch, gemm.getAdapters());
    launch->replaceUsesOfWith(found, findAdapters(shrink));
    if (!hasCounter)
      launch.getOutsMutable().append(counter);
    // The sort has ended when the gemm begins, so that the counter is clear.
    getKernel(cast<plan::LaunchOp>(shrink->getPrevNode())).setLate(true);
    tile::KernelOp kernel = makeSignalling(shrink, type);
    if (!kernel)
      return failure();
    shrink.setKernel(kernel.getSymName());
    shrink.getOutsMutable().append(counter);
  }
  if (hasCounter) {
    gemm.getAwaitsMutable().assign(gemm.getTileCounter());
  } else {
    FailureOr<Value> argument = addCounter(product, type);
    if (failed(argument))
      return failure();
    gemm.getAwaitsMutable().assign(*argument);
  }
  setLaunchShape(product, context.target);
  return success();
}

std::unique_ptr<LaunchRewrite> moec::makeAwaitRows(RewriteContext &context) {
  return std::make_unique<AwaitRows>("await-rows", context);
}
