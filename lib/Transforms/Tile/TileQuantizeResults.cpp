//===- TileQuantizeResults.cpp - products that quantize ---------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// A kernel can be launched in several variants, and has one signature: all of
// its launches have to be followed by a quantization.

#include "LaunchShape.h"
#include "Launches.h"
#include "PassInputs.h"
#include "mlir/IR/IRMapping.h"
#include "moec/Analysis/Rewrites/QuantizeResults.h"
#include "moec/Transforms/Passes.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/StringSet.h"

namespace moec {
#define GEN_PASS_DEF_TILEQUANTIZERESULTSPASS
#include "moec/Transforms/Passes.h.inc"
} // namespace moec

using namespace mlir;
using namespace moec;

namespace {

/// A launch of a product, and the one behind it that quantizes what it makes.
struct Pair {
  plan::LaunchOp product, quantization;
};

class ResultQuantizer {
public:
  ResultQuantizer(plan::ProgramOp program, SymbolTable &symbols,
                  const Target &target, ArrayRef<ForcedConfig> forced)
      : program(program), symbols(symbols), target(target), forced(forced) {}

  /// Whether something has changed.
  bool run();

private:
  std::optional<Pair> findPair(plan::LaunchOp product);
  /// Those of all launches of a kernel; none if one is not followed so.
  SmallVector<Pair> findPairs(tile::KernelOp kernel);
  /// The kernel with a product that quantizes, under a name of its own.
  tile::KernelOp makeKernel(tile::KernelOp kernel, Pair pair);
  tile::ConfigAttr chooseConfig(tile::KernelOp kernel, tile::KernelOp quantized,
                                Pair pair);
  bool quantize(tile::KernelOp kernel);
  void replace(Pair pair);
  void eraseUnused();

  plan::ProgramOp program;
  SymbolTable &symbols;
  const Target &target;
  ArrayRef<ForcedConfig> forced;
};

std::optional<Pair> ResultQuantizer::findPair(plan::LaunchOp product) {
  auto next = dyn_cast_or_null<plan::LaunchOp>(product->getNextNode());
  if (!next || next.getStream() != product.getStream() ||
      product.getOuts().size() != 1)
    return std::nullopt;
  auto contract = getPhase<tile::ContractOp>(product, symbols);
  auto quantize = getPhase<tile::QuantizeOp>(next, symbols);
  Value result = product.getOuts().front();
  if (!contract || !quantize || !contract.getOffsets() ||
      getPassed(product, contract.getOffsets()) !=
          getPassed(next, quantize.getOffsets()) ||
      getPassed(next, quantize.getInput()) != result ||
      isForced(getKernel(next, symbols), forced) ||
      !isa<BFloat16Type, Float16Type>(
          getElementTypeOrSelf(contract.getResult().getType())))
    return std::nullopt;
  // Nobody else of this variant uses it, and nobody outside of the program.
  if (!result.getDefiningOp<plan::BufferOp>())
    return std::nullopt;
  for (Operation *user : result.getUsers())
    if (user->getParentOp() == product->getParentOp() && user != product &&
        user != next)
      return std::nullopt;
  return Pair{product, next};
}

SmallVector<Pair> ResultQuantizer::findPairs(tile::KernelOp kernel) {
  SmallVector<Pair> pairs;
  bool areAll = true;
  program.walk([&](plan::LaunchOp launch) {
    if (getKernel(launch, symbols) != kernel)
      return;
    if (std::optional<Pair> pair = findPair(launch))
      pairs.push_back(*pair);
    else
      areAll = false;
  });
  return areAll ? pairs : SmallVector<Pair>();
}

tile::KernelOp ResultQuantizer::makeKernel(tile::KernelOp kernel, Pair pair) {
  auto product = getPhase<tile::ContractOp>(pair.product, symbols);
  SmallVector<Type> types(pair.product.getIns().getTypes());
  llvm::append_range(types, pair.quantization.getOuts().getTypes());
  OpBuilder builder(kernel);
  types.push_back(builder.getI64Type());
  auto quantized =
      tile::KernelOp::create(builder, kernel.getLoc(), kernel.getSymName(),
                             builder.getFunctionType(types, {}));
  symbols.insert(quantized, kernel->getIterator());
  quantized.setLoadAttr(kernel.getLoadAttr());
  // Behind what is read, the result becomes codes and scales.
  auto arguments = quantized.getBody().getArguments().drop_back();
  Value scale = arguments.back();
  IRMapping mapping;
  for (auto [from, to] : llvm::zip(kernel.getBody().getArguments().drop_back(),
                                   arguments.drop_back()))
    mapping.map(from, to);
  mapping.map(kernel.getTokens(), quantized.getTokens());
  builder.setInsertionPointToStart(&quantized.getBody().front());
  auto copy = cast<tile::ContractOp>(builder.clone(*product, mapping));
  copy.getResultScaleMutable().assign(scale);
  copy.setResultQuantAttr(
      getPhase<tile::QuantizeOp>(pair.quantization, symbols).getQuantAttr());
  copy.setRoundedToAttr(
      TypeAttr::get(getElementTypeOrSelf(product.getResult().getType())));
  tile::ReturnOp::create(builder, kernel.getLoc());
  return quantized;
}

tile::ConfigAttr ResultQuantizer::chooseConfig(tile::KernelOp kernel,
                                               tile::KernelOp quantized,
                                               Pair pair) {
  auto product = getPhase<tile::ContractOp>(pair.product, symbols);
  auto copy = cast<tile::ContractOp>(quantized.getBody().front().front());
  const Schedule *schedule =
      findSchedule(target, product.getConfigAttr().getSchedule());
  tile::LoadAttr load = kernel.getLoadAttr();
  bool isFixed = isForced(kernel, forced);
  if (!schedule || !schedule->as<QuantizesResults>() || (!load && !isFixed))
    return {};
  return schedule->as<QuantizesResults>()->quantizeResult(
      product, getPhase<tile::QuantizeOp>(pair.quantization, symbols), copy,
      load, isFixed, target);
}

void ResultQuantizer::replace(Pair pair) {
  OpBuilder builder(pair.product);
  plan::LaunchOp::create(builder, pair.product.getLoc(),
                         pair.product.getKernel(), pair.product.getStream(),
                         pair.product.getIns(), pair.quantization.getOuts(),
                         pair.product.getDependent());
  pair.product->erase();
  pair.quantization->erase();
}

bool ResultQuantizer::quantize(tile::KernelOp kernel) {
  SmallVector<Pair> pairs = findPairs(kernel);
  if (pairs.empty())
    return false;
  tile::KernelOp quantized = makeKernel(kernel, pairs.front());
  tile::ConfigAttr config = chooseConfig(kernel, quantized, pairs.front());
  if (!config) {
    symbols.erase(quantized);
    return false;
  }
  cast<tile::ContractOp>(quantized.getBody().front().front())
      .setConfigAttr(config);
  setLaunchShape(quantized, target);
  for (Pair pair : pairs)
    replace(pair);
  StringAttr name = kernel.getSymNameAttr();
  symbols.erase(kernel);
  symbols.remove(quantized);
  quantized.setSymNameAttr(name);
  symbols.insert(quantized, quantized->getIterator());
  return true;
}

/// Kernels of quantizations that nobody launches any more, and buffers.
void ResultQuantizer::eraseUnused() {
  llvm::StringSet<> launched;
  program.walk(
      [&](plan::LaunchOp launch) { launched.insert(launch.getKernel()); });
  auto module = program->getParentOfType<ModuleOp>();
  for (auto kernel :
       llvm::make_early_inc_range(module.getOps<tile::KernelOp>()))
    if (isa<tile::QuantizeOp>(kernel.getBody().front().front()) &&
        !launched.contains(kernel.getSymName()))
      symbols.erase(kernel);
  for (auto buffer :
       llvm::make_early_inc_range(program.getBody().getOps<plan::BufferOp>()))
    if (buffer.getBuffer().use_empty())
      buffer->erase();
}

bool ResultQuantizer::run() {
  llvm::SetVector<tile::KernelOp> products;
  program.walk([&](plan::LaunchOp launch) {
    auto product = getPhase<tile::ContractOp>(launch, symbols);
    if (product && product.getConfig())
      products.insert(getKernel(launch, symbols));
  });
  bool hasChanged = false;
  for (tile::KernelOp kernel : products)
    hasChanged |= quantize(kernel);
  if (hasChanged)
    eraseUnused();
  return hasChanged;
}

struct TileQuantizeResults
    : moec::impl::TileQuantizeResultsPassBase<TileQuantizeResults> {
  using TileQuantizeResultsPassBase::TileQuantizeResultsPassBase;

  void runOnOperation() override {
    std::optional<PassInputs> inputs = PassInputs::read(
        getOperation(), "tile-quantize-results", target, part, configs);
    if (!inputs)
      return signalPassFailure();
    SymbolTable symbols(getOperation());
    auto change = [&](plan::ProgramOp program) {
      return ResultQuantizer(program, symbols, inputs->target, inputs->forced)
          .run();
    };
    auto assignSlots = [&](OpPassManager &pipeline, Operation *op) {
      return runPipeline(pipeline, op);
    };
    // What products read must not lie where they write now.
    if (failed(changePrograms(getOperation(), change, assignSlots)))
      signalPassFailure();
  }
};

} // namespace
