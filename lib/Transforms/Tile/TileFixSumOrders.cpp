//===- TileFixSumOrders.cpp - one order for all token counts ----*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// In a batch-invariant program all kernels of a gemm add in one order. Orders
// differ in speed by the number of tokens: many threads that split K are best
// for few tokens, none for many. The order is chosen by the times of its best
// configs over all token counts.

#include "Launches.h"
#include "PassInputs.h"
#include "PhaseLoad.h"
#include "moec/Schedules/Cost.h"
#include "moec/Schedules/SumOrder.h"
#include "moec/Transforms/Passes.h"
#include "llvm/ADT/MapVector.h"

#include <limits>

namespace moec {
#define GEN_PASS_DEF_TILEFIXSUMORDERSPASS
#include "moec/Transforms/Passes.h.inc"
} // namespace moec

using namespace mlir;
using namespace moec;

namespace {

/// Relative times of the configs with one order: the best one at each of the
/// token points.
using Scores = SmallVector<double>;

/// Chooses the order of one gemm.
class OrderChooser {
public:
  OrderChooser(tile::GemmOp gemm, plan::LaunchOp launch, const Target &target,
               SymbolTable &symbols)
      : gemm(gemm), launch(launch), target(target), symbols(symbols) {}

  /// Null if no schedule that can run the gemm states an order.
  tile::SumOrderAttr choose() const {
    SmallVector<const Schedule *> schedules = getSchedulesFor(target, gemm);
    if (schedules.empty())
      return nullptr;
    tile::LoadAttr load = getPhaseLoad(launch, gemm, symbols);
    const auto *modelled = schedules.front()->as<ModelsTime>();
    tile::SumOrderAttr order =
        modelled && load ? chooseByTime(*modelled, load) : nullptr;
    return order ? order : chooseFirst(schedules);
  }

private:
  tile::SumOrderAttr chooseByTime(const ModelsTime &schedule,
                                  tile::LoadAttr load) const {
    llvm::MapVector<tile::SumOrderAttr, Scores> best;
    for (const Candidate &candidate : evaluateCandidates(
             gemm, schedule, target, load,
             getTokenPoints(load.getMinTokens(), load.getMaxTokens()))) {
      if (!candidate.whyNot.empty())
        continue;
      tile::SumOrderAttr order = getSumOrder(gemm, candidate.config, target);
      if (!order)
        continue;
      Scores &scores = best[order];
      scores.resize(candidate.scores.size(),
                    std::numeric_limits<double>::infinity());
      for (auto [least, score] : llvm::zip(scores, candidate.scores))
        least = std::min(least, score);
    }
    tile::SumOrderAttr chosen;
    double least = std::numeric_limits<double>::infinity();
    for (auto &[order, scores] : best) {
      double sum = 0;
      for (double score : scores)
        sum += score;
      if (sum < least) {
        least = sum;
        chosen = order;
      }
    }
    return chosen;
  }

  /// The order of the config that is chosen without a model of time.
  tile::SumOrderAttr chooseFirst(ArrayRef<const Schedule *> schedules) const {
    for (const Schedule *schedule : schedules) {
      tile::ConfigAttr config = schedule->choose(gemm, target);
      if (schedule->whyIllegal(gemm, config, target).empty())
        return getSumOrder(gemm, config, target);
    }
    return nullptr;
  }

  tile::GemmOp gemm;
  plan::LaunchOp launch;
  const Target &target;
  SymbolTable &symbols;
};

/// Whether all ranks but one give +0.0 to each sum.
bool movesSlots(plan::CollectiveOp collective, SymbolTable &symbols) {
  return llvm::all_of(collective.getIns(), [&](Value in) {
    return llvm::any_of(collective->getBlock()->getOps<plan::LaunchOp>(),
                        [&](plan::LaunchOp launch) {
                          auto phase =
                              getPhase<tile::GatherReduceOp>(launch, symbols);
                          return phase && phase.getUnreduced() &&
                                 llvm::is_contained(launch.getOuts(), in);
                        });
  });
}

struct TileFixSumOrders
    : moec::impl::TileFixSumOrdersPassBase<TileFixSumOrders> {
  using TileFixSumOrdersPassBase::TileFixSumOrdersPassBase;

  void runOnOperation() override {
    std::optional<PassInputs> inputs =
        PassInputs::read(getOperation(), "tile-fix-sum-orders", target, part,
                         /*configs=*/{}, lanes, products);
    if (!inputs)
      return signalPassFailure();
    SymbolTable symbols(getOperation());
    for (auto program : getOperation().getOps<plan::ProgramOp>())
      if (program.getBatchInvariant() &&
          failed(fix(program, inputs->target, symbols)))
        return signalPassFailure();
  }

private:
  static LogicalResult fix(plan::ProgramOp program, const Target &target,
                           SymbolTable &symbols) {
    WalkResult sums = program.walk([&](plan::CollectiveOp collective) {
      if (collective.getKind() == plan::CollectiveKind::AllGather ||
          movesSlots(collective, symbols))
        return WalkResult::advance();
      collective.emitOpError(
          "adds partials of ranks in an order that a batch-invariant program "
          "cannot state; exchange rows of slots (tile.gather_reduce "
          "unreduced), or remove 'batch_invariant'");
      return WalkResult::interrupt();
    });
    if (sums.wasInterrupted())
      return failure();
    WalkResult result = program.walk([&](plan::LaunchOp launch) {
      tile::KernelOp kernel = getKernel(launch, symbols);
      return kernel && failed(fix(kernel, launch, target, symbols))
                 ? WalkResult::interrupt()
                 : WalkResult::advance();
    });
    return failure(result.wasInterrupted());
  }

  static LogicalResult fix(tile::KernelOp kernel, plan::LaunchOp launch,
                           const Target &target, SymbolTable &symbols) {
    for (Operation &phase : kernel.getBody().front().without_terminator()) {
      if (isa<tile::TensorScaleOp>(phase))
        return phase.emitOpError(
            "computes one scale from all rows, so that the bits of a row "
            "depend on the others; quantize activations by token, by group or "
            "with a given scale, or remove 'batch_invariant'");
      auto gemm = dyn_cast<tile::GemmOp>(phase);
      if (!gemm || gemm.getSumOrderAttr())
        continue;
      tile::SumOrderAttr order =
          OrderChooser(gemm, launch, target, symbols).choose();
      if (!order)
        return gemm.emitOpError("has no schedule on the target ")
               << target.name
               << " that states the order in which it adds, which a "
                  "batch-invariant program needs";
      gemm.setSumOrderAttr(order);
    }
    return success();
  }
};

} // namespace
