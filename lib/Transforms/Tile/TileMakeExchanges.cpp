//===- TileMakeExchanges.cpp - kernels of collectives -----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "CollectiveQuantization.h"
#include "CollectiveSums.h"
#include "GatherToResults.h"
#include "LaunchShape.h"
#include "PackedExchange.h"
#include "PassInputs.h"
#include "moec/Schedules/Exchange.h"
#include "moec/Transforms/Passes.h"

#include "mlir/Pass/PassManager.h"
#include "llvm/ADT/SetVector.h"

namespace moec {
#define GEN_PASS_DEF_TILEMAKEEXCHANGESPASS
#include "moec/Transforms/Passes.h.inc"
} // namespace moec

using namespace mlir;
using namespace moec;

namespace {

class ExchangeMaker {
public:
  ExchangeMaker(ModuleOp module, const PassInputs &inputs)
      : module(module), target(inputs.target), forced(inputs.forced),
        symbols(module) {}

  /// Programs with buffers whose last read has moved to a later step.
  ArrayRef<plan::ProgramOp> getChanged() const { return changed.getArrayRef(); }

  /// Moves sums of an earlier launch into the collective's kernel.
  void addSums(plan::CollectiveOp collective) {
    // Chunks have them already.
    if (!hasExchange(collective) || collective.getRows())
      return;
    SlotSums sums = findSums(collective, symbols);
    if (!sums.rows)
      return;
    changed.insert(collective->getParentOfType<plan::ProgramOp>());
    setSums(collective, sums);
  }

  /// Moves the quantization of an earlier launch into the kernel of a gather.
  void addQuantization(plan::CollectiveOp collective) {
    if (!hasExchange(collective) || collective.getUnquantized())
      return;
    CollectiveQuantization values =
        findQuantization(collective, symbols, target);
    if (!values.unquantized)
      return;
    changed.insert(collective->getParentOfType<plan::ProgramOp>());
    setQuantization(collective, values);
  }

  /// Makes the kernel. Fails if the schedule refuses its own config.
  LogicalResult make(plan::CollectiveOp collective) {
    auto program = collective->getParentOfType<plan::ProgramOp>();
    plan::MeshAttr mesh = program.getMeshAttr();
    int64_t ranks =
        collective.getAxis() == plan::Axis::Dp ? mesh.getDp() : mesh.getTp();
    if (!hasExchange(collective))
      return success();
    moert::Expr rows = *getExchangedRows(collective);
    SmallVector<Type> types(collective.getIns().getTypes());
    llvm::append_range(types, collective.getOuts().getTypes());
    SmallVector<Value> read = collective.getRead();
    for (Value value : ArrayRef(read).drop_front(collective.getIns().size()))
      types.push_back(value.getType());
    auto heap = MemRefType::get(ShapedType::kDynamic,
                                IntegerType::get(module.getContext(), 64));
    types.append(ranks, heap);
    if (collective.getColumns())
      types.push_back(heap.getElementType());
    types.push_back(heap.getElementType());
    auto type = FunctionType::get(module.getContext(), types, {});
    std::optional<int64_t> chunks = getChunksOfFewRows(collective, ranks, rows);
    // The runtime computes the number of rows per kernel.
    Made *same = llvm::find_if(made, [&](Made &other) {
      return other.kernel.getFunctionType() == type &&
             other.name == getExchangeName(collective) && other.rows == rows &&
             other.routed == collective.getRoutedAttr() &&
             other.expertsPerRank == collective.getExpertsPerRankAttr() &&
             other.sums == getSums(collective) &&
             other.quantized == collective.getQuantizedAttr() &&
             other.quant == getCollectiveQuant(collective, symbols) &&
             other.numColumns == getNumColumns(collective) &&
             other.toResults == collective.getToResults() &&
             other.chunks == chunks;
    });
    if (same == made.end()) {
      FailureOr<tile::KernelOp> kernel =
          makeKernel(collective, type, unsigned(ranks), chunks);
      if (failed(kernel))
        return failure();
      made.push_back(
          {*kernel, getExchangeName(collective), rows,
           collective.getRoutedAttr(), collective.getExpertsPerRankAttr(),
           getSums(collective), collective.getQuantizedAttr(),
           getCollectiveQuant(collective, symbols), getNumColumns(collective),
           collective.getToResults(), chunks});
      same = &made.back();
    }
    collective->setAttr(kExchangeKernelAttr,
                        FlatSymbolRefAttr::get(same->kernel));
    return success();
  }

private:
  struct Made {
    tile::KernelOp kernel;
    /// The kind and the axis.
    std::string name;
    moert::Expr rows;
    DenseI64ArrayAttr routed;
    IntegerAttr expertsPerRank;
    std::array<bool, 4> sums;
    DenseI64ArrayAttr quantized;
    moe::QuantAttr quant;
    IntegerAttr numColumns;
    bool toResults;
    /// The config's `chunks`, if there are few rows.
    std::optional<int64_t> chunks;
  };

  /// Columns of a chunk; null for all.
  static IntegerAttr getNumColumns(plan::CollectiveOp collective) {
    if (!collective.getColumns())
      return {};
    return Builder(collective.getContext())
        .getI64IntegerAttr(collective.getColumns()->back());
  }

  /// Whether each operand of SlotSums is present.
  static std::array<bool, 4> getSums(plan::CollectiveOp collective) {
    return {bool(collective.getRows()), bool(collective.getPosition()),
            bool(collective.getAddend()), bool(collective.getNumValidTokens())};
  }

  FailureOr<tile::KernelOp> makeKernel(plan::CollectiveOp collective,
                                       FunctionType type, unsigned ranks,
                                       std::optional<int64_t> chunks) {
    OpBuilder builder(module.getContext());
    Location loc = collective.getLoc();
    std::string name =
        plan::stringifyCollectiveKind(collective.getKind()).str();
    auto kernel = tile::KernelOp::create(builder, loc, name, type);
    symbols.insert(kernel);
    kernel.setResident(true);
    Block &body = kernel.getBody().front();
    builder.setInsertionPointToStart(&body);
    ValueRange rest = body.getArguments();
    auto take = [&](size_t count) {
      ValueRange taken = rest.take_front(count);
      rest = rest.drop_front(count);
      return taken;
    };
    size_t pairs = collective.getIns().size();
    ValueRange ins = take(pairs), outs = take(pairs);
    ValueRange ids = take(collective.getIds().size());
    auto takeIf = [&](Value given) {
      return given ? take(1).front() : Value();
    };
    Value destinations = takeIf(collective.getDestinations());
    Value rows = takeIf(collective.getRows());
    Value position = takeIf(collective.getPosition());
    Value addend = takeIf(collective.getAddend());
    Value numValidTokens = takeIf(collective.getNumValidTokens());
    Value unquantized = takeIf(collective.getUnquantized());
    ValueRange heaps = take(ranks);
    Value firstColumn = collective.getColumns() ? take(1).front() : Value();
    auto exchange = tile::ExchangeOp::create(
        builder, loc, collective.getKindAttr(), rest.front(), ins, outs,
        destinations, ids, collective.getRoutedAttr(),
        collective.getExpertsPerRankAttr(), rows, position, addend,
        numValidTokens, unquantized, collective.getQuantizedAttr(),
        getCollectiveQuant(collective, symbols), heaps, firstColumn,
        getNumColumns(collective), collective.getToResultsAttr(),
        tile::ConfigAttr());
    tile::ReturnOp::create(builder, loc);
    for (const Schedule *schedule : getSchedulesFor(target, exchange)) {
      tile::ConfigAttr config = schedule->choose(exchange, target);
      if (chunks)
        config = withChunks(config, *chunks);
      for (const ForcedConfig &given : forced)
        if (given.isFor(kernel) ||
            given.isFor(getExchangeName(collective), nullptr)) {
          llvm::Expected<tile::ConfigAttr> applied = given.apply(config);
          if (!applied)
            return exchange.emitOpError()
                   << llvm::toString(applied.takeError());
          config = *applied;
        }
      std::string reason = schedule->whyIllegal(exchange, config, target);
      if (!reason.empty())
        return exchange.emitOpError("cannot run as ")
               << config << ": " << reason;
      exchange.setConfigAttr(config);
      setLaunchShape(kernel, target);
      return kernel;
    }
    return exchange.emitOpError("has no schedule on the target ")
           << target.name;
  }

  ModuleOp module;
  const Target &target;
  ArrayRef<ForcedConfig> forced;
  SymbolTable symbols;
  SmallVector<Made> made;
  llvm::SetVector<plan::ProgramOp> changed;
};

struct TileMakeExchanges
    : moec::impl::TileMakeExchangesPassBase<TileMakeExchanges> {
  using TileMakeExchangesPassBase::TileMakeExchangesPassBase;

  void runOnOperation() override {
    std::optional<PassInputs> inputs = PassInputs::read(
        getOperation(), "tile-make-exchanges", target, /*part=*/"", configs);
    if (!inputs)
      return signalPassFailure();
    if (!inputs->target.isGpu())
      return;
    SmallVector<plan::CollectiveOp> collectives;
    getOperation().walk(
        [&](plan::CollectiveOp op) { collectives.push_back(op); });
    ExchangeMaker maker(getOperation(), *inputs);
    for (plan::CollectiveOp collective : collectives) {
      maker.addSums(collective);
      maker.addQuantization(collective);
    }
    // After all operands of the kernels are known.
    SymbolTable symbols(getOperation());
    getOperation().walk(
        [&](plan::VariantOp variant) { gatherToResults(variant, symbols); });
    for (plan::CollectiveOp collective : collectives)
      if (failed(maker.make(collective)))
        return signalPassFailure();
    PackedExchangeMaker packed(getOperation(), symbols, inputs->target);
    for (auto program : getOperation().getOps<plan::ProgramOp>())
      for (auto variant : program.getBody().getOps<plan::VariantOp>())
        if (failed(packed.run(variant)))
          return signalPassFailure();
    OpPassManager slots(plan::ProgramOp::getOperationName());
    slots.addPass(createPlanAssignSlotsPass());
    for (plan::ProgramOp program : maker.getChanged())
      if (failed(runPipeline(slots, program)))
        return signalPassFailure();
  }
};

} // namespace
