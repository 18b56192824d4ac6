//===- ExpandAdapters.cpp - LoRA updates ahead of a gemm --------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "AdapterRewrite.h"
#include "llvm/ADT/MapVector.h"

using namespace mlir;
using namespace moec;

namespace {

class ExpandAdapters final : public AdapterRewrite {
public:
  using AdapterRewrite::AdapterRewrite;

  FailureOr<std::string> build(const RewriteSite &site) override;

private:
  tile::KernelOp makeProduct(tile::KernelOp kernel);
  /// The kernel of the update; null if no schedule has a legal config.
  tile::KernelOp makeUpdate(const RewriteSite &site);
  Value getResult(plan::LaunchOp product, int64_t number);
  void launch(plan::LaunchOp shrink, plan::LaunchOp product);

  /// Updates by the gemm's result and their number, in all variants.
  llvm::MapVector<std::pair<Value, int64_t>, Value> results;
  /// Kernels of updates by those of the shrinks.
  llvm::MapVector<Operation *, tile::KernelOp> updates;
  /// The kernel of the update that is built for a site.
  tile::KernelOp update;
};

} // namespace

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
    growLoad(made, site);
    return made;
  }
  size_t count = product.getMatrices().size();
  SmallVector<Value> operands{shrink.getInput()};
  llvm::append_range(operands, shrink.getMatrices());
  llvm::append_range(operands, product.getMatrices());
  operands.append(
      {shrink.getOffsets(), shrink.getSource(), shrink.getAdapterIds()});
  SmallVector<Type> types(ValueRange(operands).getTypes());
  auto added = getProduct(built).getElementwiseOperands().take_back(count);
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
  Type type = getProduct(built)
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
      builder, product.getLoc(), built.getSymName(), product.getStream(), rows,
      product.getOuts(), product.getDependent(), /*tokens=*/{},
      /*columns=*/{});
  added.occurrences.push_back({ahead, adds});
}

FailureOr<std::string> ExpandAdapters::build(const RewriteSite &site) {
  tile::KernelOp kernel = getKernel(site.getLaunch(1));
  built = makeProduct(kernel);
  update = makeUpdate(site);
  if (!update)
    return std::string("no schedule computes such updates");
  // The new kernel needs launches, since its schedule looks at their operands.
  for (const RewriteSite::Occurrence &occurrence : site.occurrences)
    launch(occurrence[0], occurrence[1]);
  tile::GemmOp product = getProduct(built);
  if (!isForced(kernel))
    if (tile::ConfigAttr config =
            chooseForLoad(product, context.target, kernel.getLoadAttr()))
      product.setConfigAttr(config);
  setLaunchShape(built, context.target);
  return std::string();
}

std::unique_ptr<LaunchRewrite>
moec::makeExpandAdapters(RewriteContext &context) {
  return std::make_unique<ExpandAdapters>("expand-adapters", context);
}
