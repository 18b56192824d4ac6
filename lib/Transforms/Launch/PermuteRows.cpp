//===- PermuteRows.cpp - rows in order before a product ---------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/Schedules/Rewrites/PermuteRows.h"
#include "LaunchRewrite.h"
#include "llvm/ADT/MapVector.h"

using namespace mlir;
using namespace moec;

namespace {

class PermuteRows final : public LaunchRewrite {
public:
  using LaunchRewrite::LaunchRewrite;

  std::vector<RewriteSite> match() override;
  std::string whyIllegal(const RewriteSite &site) override;
  FailureOr<std::string> build(const RewriteSite &site) override;
  std::optional<PredictedChange> predict(const RewriteSite &site) override;
  LogicalResult commit(const RewriteSite &site) override;
  void leave(const RewriteSite &) override;

private:
  tile::KernelOp makeProduct(tile::KernelOp kernel);
  /// Adds a launch of `permuted` like `product`, and before it one that copies
  /// its rows.
  plan::LaunchOp launch(plan::LaunchOp product, tile::KernelOp permuted);
  /// Adds a launch before `before` that copies rows of `inputs` to buffers.
  plan::LaunchOp makeGather(plan::LaunchOp before, ArrayRef<Value> inputs,
                            tile::GemmOp gemm);
  tile::KernelOp getGatherKernel(ArrayRef<Type> types, int64_t topK,
                                 Location loc);
  /// The buffer for `topK` rows of `input` per token, of all variants.
  Value getBuffer(Value input, int64_t topK);
  bool wantsMaps(tile::KernelOp kernel, const PermutesRows &permutes);
  /// The config of the gemm with permuted rows; null if there is none.
  tile::ConfigAttr chooseConfig(tile::KernelOp kernel, tile::GemmOp product,
                                const PermutesRows &permutes);
  bool isAlways() const { return getParameter("always").value_or(0) != 0; }

  llvm::MapVector<std::pair<Value, int64_t>, Value> buffers;
  SmallVector<tile::KernelOp> gathers;
  /// Built for a site: launches of copies and of gemms.
  tile::KernelOp permuted;
  RewriteSite added;
};

} // namespace

/// The operands of a gemm with a row per input row.
static SmallVector<Value> getRows(tile::GemmOp product) {
  SmallVector<Value> rows{product.getInput()};
  // A scale shared by all rows is not permuted.
  Value scale = product.getInputScale();
  if (scale && cast<MemRefType>(scale.getType()).getRank() > 1)
    rows.push_back(scale);
  return rows;
}

std::vector<RewriteSite> PermuteRows::match() {
  return matchKernels<tile::GemmOp>(
      [&](plan::LaunchOp launch, tile::GemmOp product) {
        const Schedule *schedule = getSchedule(product);
        return product.getSource() && schedule &&
               schedule->as<PermutesRows>() && getKernel(launch).getLoadAttr();
      });
}

tile::KernelOp PermuteRows::makeProduct(tile::KernelOp kernel) {
  tile::KernelOp permuted = kernel.clone();
  symbols.insert(permuted, std::next(kernel->getIterator()));
  tile::GemmOp product = getProduct(permuted);
  unsigned source = cast<BlockArgument>(product.getSource()).getArgNumber();
  product.getSourceMutable().clear();
  // No other operand of a gemm has its type.
  (void)permuted.eraseArgument(source);
  return permuted;
}

Value PermuteRows::getBuffer(Value input, int64_t topK) {
  Value &buffer = buffers[{input, topK}];
  if (buffer)
    return buffer;
  buffer = addRows(input.getDefiningOp()->getParentOfType<plan::ProgramOp>(),
                   input.getLoc(), input.getType(),
                   moec::getName(input) + "_in_order", topK);
  return buffer;
}

tile::KernelOp PermuteRows::getGatherKernel(ArrayRef<Type> types, int64_t topK,
                                            Location loc) {
  // The grid of the copy covers the most rows that there can be.
  for (tile::KernelOp kernel : gathers)
    if (kernel.getFunctionType().getInputs() == types &&
        cast<tile::GatherRowsOp>(kernel.getBody().front().front()).getTopK() ==
            static_cast<uint64_t>(topK))
      return kernel;
  OpBuilder builder(loc.getContext());
  builder.setInsertionPointToEnd(context.module.getBody());
  auto kernel = tile::KernelOp::create(builder, loc, "gather_rows",
                                       builder.getFunctionType(types, {}));
  symbols.insert(kernel);
  auto arguments = kernel.getBody().getArguments().drop_back();
  size_t numRows = (arguments.size() - 2) / 2;
  SmallVector<Value> values(arguments.begin(), arguments.end());
  ArrayRef<Value> all(values);
  builder.setInsertionPointToStart(&kernel.getBody().front());
  auto op = tile::GatherRowsOp::create(
      builder, loc, kernel.getTokens(), all.take_front(numRows), all[numRows],
      all[numRows + 1], /*columns=*/Value(), all.take_back(numRows),
      builder.getI64IntegerAttr(topK), tile::ConfigAttr());
  tile::ReturnOp::create(builder, loc);
  const Schedule *schedule = getSchedulesFor(context.target, op).front();
  op.setConfigAttr(schedule->choose(op, context.target));
  setLaunchShape(kernel, context.target);
  gathers.push_back(kernel);
  return kernel;
}

plan::LaunchOp PermuteRows::makeGather(plan::LaunchOp before,
                                       ArrayRef<Value> inputs,
                                       tile::GemmOp gemm) {
  auto kernel = cast<tile::KernelOp>(gemm->getParentOp());
  int64_t topK = kernel.getLoadAttr().getTopK();
  SmallVector<Value> ins(inputs), outs;
  ins.push_back(getPassed(before, gemm.getOffsets()));
  ins.push_back(getPassed(before, gemm.getSource()));
  for (Value input : inputs)
    outs.push_back(getBuffer(input, topK));
  SmallVector<Type> types(ValueRange(ins).getTypes());
  llvm::append_range(types, ValueRange(outs).getTypes());
  OpBuilder builder(before);
  types.push_back(builder.getI64Type());
  tile::KernelOp gather = getGatherKernel(types, topK, before.getLoc());
  return plan::LaunchOp::create(builder, before.getLoc(), gather.getSymName(),
                                before.getStream(), ins, outs,
                                /*dependent=*/false, /*tokens=*/{},
                                /*columns=*/{});
}

plan::LaunchOp PermuteRows::launch(plan::LaunchOp product,
                                   tile::KernelOp permuted) {
  tile::GemmOp gemm = getPhase<tile::GemmOp>(product);
  SmallVector<Value> rows = getRows(gemm), inputs;
  for (Value row : rows)
    inputs.push_back(getPassed(product, row));
  plan::LaunchOp gather = makeGather(product, inputs, gemm);
  SmallVector<Value> ins;
  for (auto [argument, value] :
       llvm::zip(gemm->getBlock()->getArguments(), product.getIns())) {
    if (argument == gemm.getSource())
      continue;
    auto *row = llvm::find(rows, Value(argument));
    ins.push_back(row == rows.end()
                      ? Value(value)
                      : gather.getOuts()[std::distance(rows.begin(), row)]);
  }
  OpBuilder builder(product);
  plan::LaunchOp::create(builder, product.getLoc(), permuted.getSymName(),
                         product.getStream(), ins, product.getOuts(),
                         product.getDependent(), /*tokens=*/{},
                         /*columns=*/{});
  return gather;
}

/// Whether the config forced for a kernel uses tensor maps of rows.
bool PermuteRows::wantsMaps(tile::KernelOp kernel,
                            const PermutesRows &permutes) {
  bool wants = false;
  for (const ForcedConfig &config : context.forced)
    if (config.isFor(kernel)) {
      llvm::Expected<tile::ConfigAttr> whole =
          config.apply(getProduct(kernel).getConfigAttr());
      wants = whole && permutes.hasMaps(*whole);
      llvm::consumeError(whole.takeError());
    }
  return wants;
}

std::string PermuteRows::whyIllegal(const RewriteSite &site) {
  tile::KernelOp kernel = getKernel(site.getLaunch());
  const auto &permutes = *getSchedule(getProduct(kernel))->as<PermutesRows>();
  if (isForced(kernel) && !isAlways() && !wantsMaps(kernel, permutes))
    return "the forced config reads rows by 'source'";
  return {};
}

tile::ConfigAttr PermuteRows::chooseConfig(tile::KernelOp kernel,
                                           tile::GemmOp product,
                                           const PermutesRows &permutes) {
  if (isForced(kernel)) {
    tile::ConfigAttr config = permutes.withMaps(product.getConfigAttr());
    bool isLegal = getSchedule(product)
                       ->whyIllegal(product, config, context.target)
                       .empty();
    return isLegal ? config : tile::ConfigAttr();
  }
  tile::ConfigAttr config =
      chooseForLoad(product, context.target, kernel.getLoadAttr());
  return config && permutes.hasMaps(config) ? config : tile::ConfigAttr();
}

FailureOr<std::string> PermuteRows::build(const RewriteSite &site) {
  tile::KernelOp kernel = getKernel(site.getLaunch());
  permuted = makeProduct(kernel);
  // The new kernel needs launches, since its schedule looks at their operands.
  for (const RewriteSite::Occurrence &occurrence : site.occurrences) {
    plan::LaunchOp gather = launch(occurrence.front(), permuted);
    added.occurrences.push_back(
        {gather, cast<plan::LaunchOp>(occurrence.front()->getPrevNode())});
  }
  tile::GemmOp product = getProduct(permuted);
  tile::ConfigAttr config =
      chooseConfig(kernel, product, *getSchedule(product)->as<PermutesRows>());
  if (!config)
    return std::string("no config of the gemm loads rows by tensor maps");
  product.setConfigAttr(config);
  setLaunchShape(permuted, context.target);
  return std::string();
}

std::optional<PredictedChange> PermuteRows::predict(const RewriteSite &site) {
  tile::KernelOp kernel = getKernel(site.getLaunch());
  if (isForced(kernel) || isAlways())
    return std::nullopt;
  tile::LoadAttr load = kernel.getLoadAttr();
  PredictedChange change{getPoints(site)};
  change.before =
      context.objective.predict(getForm(site.getLaunch()), change.points);
  change.after = context.objective.predict(
      {getForm(added.getLaunch(0), load), getForm(added.getLaunch(1))},
      change.points);
  change.penalty = getPenaltyOf(added.getLaunch(0), added);
  return change;
}

LogicalResult PermuteRows::commit(const RewriteSite &site) {
  commitAdded(site, added, permuted);
  return success();
}

void PermuteRows::leave(const RewriteSite &) { eraseAdded(added, permuted); }

std::unique_ptr<LaunchRewrite> moec::makePermuteRows(RewriteContext &context) {
  return std::make_unique<PermuteRows>("permute-rows", context);
}
