//===- QuantizeResults.cpp - products that quantize -------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "LaunchRewrite.h"
#include "mlir/IR/IRMapping.h"
#include "moec/Dialect/Moe/QuantLayout.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;
using namespace moec;

namespace {

class QuantizeResults final : public LaunchRewrite {
public:
  using LaunchRewrite::LaunchRewrite;

  std::vector<RewriteSite> match() override;
  std::string whyIllegal(const RewriteSite &site) override;
  FailureOr<std::string> build(const RewriteSite &site) override;
  std::optional<PredictedChange> predict(const RewriteSite &site) override;
  LogicalResult commit(const RewriteSite &site) override;
  void leave(const RewriteSite &) override;

private:
  /// The launch after a gemm's that quantizes its result; or null.
  plan::LaunchOp findQuantization(plan::LaunchOp launch);
  /// A kernel with a gemm that quantizes, under a new name.
  tile::KernelOp makeKernel(plan::LaunchOp launch, plan::LaunchOp quantization);

  /// The built kernel; null if none was built.
  tile::KernelOp quantized;
};

} // namespace

plan::LaunchOp QuantizeResults::findQuantization(plan::LaunchOp launch) {
  auto next = dyn_cast_or_null<plan::LaunchOp>(launch->getNextNode());
  if (!next || next.getStream() != launch.getStream() ||
      launch.getOuts().size() != 1)
    return nullptr;
  auto product = getPhase<tile::GemmOp>(launch);
  auto quantize = getPhase<tile::QuantizeOp>(next);
  Value result = launch.getOuts().front();
  if (!quantize || !product.getOffsets() ||
      getPassed(launch, product.getOffsets()) !=
          getPassed(next, quantize.getOffsets()) ||
      getPassed(next, quantize.getInput()) != result ||
      !isa<BFloat16Type, Float16Type>(
          getElementTypeOrSelf(product.getResult().getType())))
    return nullptr;
  // No other launch of this variant uses the result, and it is not visible
  // outside of the program.
  if (!result.getDefiningOp<plan::BufferOp>())
    return nullptr;
  for (Operation *user : result.getUsers())
    if (user->getParentOp() == launch->getParentOp() && user != launch &&
        user != next)
      return nullptr;
  return next;
}

std::vector<RewriteSite> QuantizeResults::match() {
  std::vector<RewriteSite> sites =
      matchKernels<tile::GemmOp>([](plan::LaunchOp, tile::GemmOp op) {
        return op.getConfig().has_value();
      });
  // A kernel has one signature: a quantization follows all of its launches.
  llvm::erase_if(sites, [&](RewriteSite &site) {
    return llvm::any_of(
        site.occurrences, [&](RewriteSite::Occurrence &occurrence) {
          plan::LaunchOp next = findQuantization(occurrence.front());
          if (next)
            occurrence.push_back(next);
          return !next;
        });
  });
  return sites;
}

std::string QuantizeResults::whyIllegal(const RewriteSite &site) {
  for (const RewriteSite::Occurrence &occurrence : site.occurrences)
    if (isForced(getKernel(occurrence[1])))
      return "the quantization has a forced config";
  auto quantize = getPhase<tile::QuantizeOp>(site.getLaunch(1));
  if (moe::areKeptAsBF16(quantize.getQuant()) && !quantize.getTensorScale())
    return "with 'packing = bf16' only a given scale is supported";
  tile::KernelOp kernel = getKernel(site.getLaunch());
  if (!kernel.getLoadAttr() && !isForced(kernel))
    return "the kernel has no 'load', so the gemm's rows are unknown";
  return {};
}

tile::KernelOp QuantizeResults::makeKernel(plan::LaunchOp launch,
                                           plan::LaunchOp quantization) {
  tile::KernelOp kernel = getKernel(launch);
  tile::GemmOp product = getProduct(kernel);
  auto quantize = getPhase<tile::QuantizeOp>(quantization);
  SmallVector<Type> types(launch.getIns().getTypes());
  if (Value given = quantize.getTensorScale())
    types.push_back(given.getType());
  llvm::append_range(types, quantization.getOuts().getTypes());
  OpBuilder builder(kernel);
  types.push_back(builder.getI64Type());
  auto made =
      tile::KernelOp::create(builder, kernel.getLoc(), kernel.getSymName(),
                             builder.getFunctionType(types, {}));
  symbols.insert(made, kernel->getIterator());
  made.setLoadAttr(kernel.getLoadAttr());
  // After the inputs, the result is replaced by quantized values and scales, or
  // by quantized values with a scale as input.
  auto arguments = made.getBody().getArguments();
  auto own = kernel.getBody().getArguments();
  size_t reads = launch.getIns().size();
  IRMapping mapping;
  for (size_t i = 0; i < reads; ++i)
    mapping.map(own[i], arguments[i]);
  Value next = arguments[reads], last = arguments[reads + 1];
  bool isGiven = static_cast<bool>(quantize.getTensorScale());
  mapping.map(own[reads], isGiven ? last : next);
  mapping.map(kernel.getTokens(), made.getTokens());
  builder.setInsertionPointToStart(&made.getBody().front());
  auto copy = cast<tile::GemmOp>(builder.clone(*product, mapping));
  if (isGiven)
    copy.getResultTensorScaleMutable().assign(next);
  else
    copy.getResultScaleMutable().assign(last);
  copy.setResultQuantAttr(quantize.getQuantAttr());
  copy.setRoundedToAttr(
      TypeAttr::get(getElementTypeOrSelf(product.getResult().getType())));
  tile::ReturnOp::create(builder, kernel.getLoc());
  return made;
}

FailureOr<std::string> QuantizeResults::build(const RewriteSite &site) {
  tile::KernelOp kernel = getKernel(site.getLaunch());
  quantized = makeKernel(site.getLaunch(), site.getLaunch(1));
  tile::GemmOp product = getProduct(quantized);
  if (isForced(kernel)) {
    std::string why = getSchedule(product)->whyIllegal(
        product, product.getConfigAttr(), context.target);
    if (!why.empty())
      return why;
  } else {
    tile::ConfigAttr config =
        chooseForLoad(product, context.target, kernel.getLoadAttr());
    if (!config)
      return std::string("no config of the gemm quantizes results");
    product.setConfigAttr(config);
  }
  setLaunchShape(quantized, context.target);
  return std::string();
}

std::optional<PredictedChange>
QuantizeResults::predict(const RewriteSite &site) {
  tile::KernelOp kernel = getKernel(site.getLaunch());
  if (isForced(kernel))
    return std::nullopt;
  tile::LoadAttr load = kernel.getLoadAttr();
  tile::GemmOp product = getProduct(quantized);
  PredictedChange change{getPoints(site)};
  change.before = context.objective.predict(
      {getForm(site.getLaunch()), getForm(site.getLaunch(1), load)},
      change.points);
  change.after = context.objective.predict(
      PhaseForm{product, product.getConfigAttr(), load}, change.points);
  change.penalty = -getPenaltyOf(site.getLaunch(1), site);
  return change;
}

LogicalResult QuantizeResults::commit(const RewriteSite &site) {
  for (const RewriteSite::Occurrence &occurrence : site.occurrences) {
    plan::LaunchOp launch = occurrence[0], quantization = occurrence[1];
    OpBuilder builder(launch);
    SmallVector<Value> ins(launch.getIns());
    auto quantize = getPhase<tile::QuantizeOp>(quantization);
    if (Value given = quantize.getTensorScale())
      ins.push_back(getPassed(quantization, given));
    plan::LaunchOp::create(builder, launch.getLoc(), launch.getKernel(),
                           launch.getStream(), ins, quantization.getOuts(),
                           launch.getDependent(),
                           /*tokens=*/{}, /*columns=*/{});
  }
  replaceKernel(getKernel(site.getLaunch()), quantized);
  for (const RewriteSite::Occurrence &occurrence : site.occurrences)
    for (plan::LaunchOp launch : occurrence)
      launch->erase();
  quantized = nullptr;
  return success();
}

void QuantizeResults::leave(const RewriteSite &) {
  if (quantized)
    symbols.erase(quantized);
  quantized = nullptr;
}

std::unique_ptr<LaunchRewrite>
moec::makeQuantizeResults(RewriteContext &context) {
  return std::make_unique<QuantizeResults>("quantize-results", context);
}
