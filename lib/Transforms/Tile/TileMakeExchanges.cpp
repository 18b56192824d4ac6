//===- TileMakeExchanges.cpp - kernels of collectives -----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "LaunchShape.h"
#include "moec/Analysis/Exchange.h"
#include "moec/Analysis/Schedules.h"
#include "moec/Transforms/Passes.h"
#include "moert/PeerHeap.h"

namespace moec {
#define GEN_PASS_DEF_TILEMAKEEXCHANGESPASS
#include "moec/Transforms/Passes.h.inc"
} // namespace moec

using namespace mlir;
using namespace moec;

namespace {

class ExchangeMaker {
public:
  ExchangeMaker(ModuleOp module, const Target &target)
      : module(module), target(target), symbols(module) {}

  /// Fails where the schedule does not take what it chose itself.
  LogicalResult make(plan::CollectiveOp collective) {
    auto program = collective->getParentOfType<plan::ProgramOp>();
    plan::MeshAttr mesh = program.getMeshAttr();
    int64_t ranks =
        collective.getAxis() == plan::Axis::Dp ? mesh.getDp() : mesh.getTp();
    std::optional<moert::Expr> rows = getExchangedRows(collective);
    if (!rows || ranks < 2 || ranks > moert::PeerHeap::kMaxRanks)
      return success();
    SmallVector<Type> types(collective.getIns().getTypes());
    llvm::append_range(types, collective.getOuts().getTypes());
    auto heap = MemRefType::get(ShapedType::kDynamic,
                                IntegerType::get(module.getContext(), 64));
    types.append(ranks, heap);
    types.push_back(heap.getElementType());
    auto type = FunctionType::get(module.getContext(), types, {});
    // The runtime has one answer per kernel to how many rows there are.
    Made *same = llvm::find_if(made, [&](Made &other) {
      return other.kernel.getFunctionType() == type &&
             other.kind == collective.getKind() && other.rows == *rows;
    });
    if (same == made.end()) {
      FailureOr<tile::KernelOp> kernel =
          makeKernel(collective, type, unsigned(ranks));
      if (failed(kernel))
        return failure();
      made.push_back({*kernel, collective.getKind(), *rows});
      same = &made.back();
    }
    collective->setAttr(kExchangeKernelAttr,
                        FlatSymbolRefAttr::get(same->kernel));
    return success();
  }

private:
  struct Made {
    tile::KernelOp kernel;
    plan::CollectiveKind kind;
    moert::Expr rows;
  };

  FailureOr<tile::KernelOp> makeKernel(plan::CollectiveOp collective,
                                       FunctionType type, unsigned ranks) {
    OpBuilder builder(module.getContext());
    Location loc = collective.getLoc();
    std::string name =
        plan::stringifyCollectiveKind(collective.getKind()).str();
    auto kernel = tile::KernelOp::create(builder, loc, name, type);
    symbols.insert(kernel);
    kernel.setResident(true);
    Block &body = kernel.getBody().front();
    builder.setInsertionPointToStart(&body);
    ValueRange arguments = body.getArguments();
    size_t pairs = collective.getIns().size();
    auto exchange = tile::ExchangeOp::create(
        builder, loc, collective.getKindAttr(), arguments.back(),
        arguments.take_front(pairs), arguments.slice(pairs, pairs),
        arguments.slice(2 * pairs, ranks), tile::ConfigAttr());
    tile::ReturnOp::create(builder, loc);
    for (const Schedule *schedule : getSchedulesFor(target, exchange)) {
      tile::ConfigAttr config = schedule->choose(exchange, target);
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
  SymbolTable symbols;
  SmallVector<Made> made;
};

struct TileMakeExchanges
    : moec::impl::TileMakeExchangesPassBase<TileMakeExchanges> {
  using TileMakeExchangesPassBase::TileMakeExchangesPassBase;

  void runOnOperation() override {
    std::optional<Target> machine =
        Target::findFor(getOperation(), "tile-make-exchanges", target);
    if (!machine)
      return signalPassFailure();
    if (!machine->isGpu())
      return;
    SmallVector<plan::CollectiveOp> collectives;
    getOperation().walk(
        [&](plan::CollectiveOp op) { collectives.push_back(op); });
    ExchangeMaker maker(getOperation(), *machine);
    for (plan::CollectiveOp collective : collectives)
      if (failed(maker.make(collective)))
        return signalPassFailure();
  }
};

} // namespace
