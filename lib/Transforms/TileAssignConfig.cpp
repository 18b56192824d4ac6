//===- TileAssignConfig.cpp - choose how each phase runs --------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "mlir/IR/Remarks.h"
#include "moec/Analysis/Schedules.h"
#include "moec/Transforms/Passes.h"

namespace moec {
#define GEN_PASS_DEF_TILEASSIGNCONFIGPASS
#include "moec/Transforms/Passes.h.inc"
} // namespace moec

using namespace mlir;
using namespace moec;

namespace {

constexpr llvm::StringLiteral kConfigAttr = "config";

/// Decides the phases of one kernel, then its grid.
class KernelConfigurator {
public:
  KernelConfigurator(tile::KernelOp kernel, const Target &target)
      : kernel(kernel), target(target) {}

  LogicalResult run() {
    moert::Expr grid = 0;
    int64_t block = 0, shared = 0;
    SmallVector<Attribute> maps;
    for (Operation &op : kernel.getBody().front().without_terminator()) {
      const Schedule *schedule = decide(op);
      if (!schedule)
        return failure();
      // A CTA of a kernel with several phases takes part in each of them.
      auto config = op.getAttrOfType<tile::ConfigAttr>(kConfigAttr);
      moert::Expr phaseGrid = schedule->grid(&op, config, target);
      grid = grid == moert::Expr(0) ? phaseGrid
                                    : moert::Expr::max(grid, phaseGrid);
      if (schedule->block)
        block = std::max(block, schedule->block(&op, config));
      if (schedule->shared)
        shared = std::max(shared, schedule->shared(&op, config));
      if (schedule->tensorMaps)
        llvm::append_range(maps, schedule->tensorMaps(&op, config));
      remarkChoice(op, config, phaseGrid);
    }
    kernel.setGridAttr(plan::ExprAttr::get(kernel.getContext(), grid.str()));
    if (target.isGpu()) {
      kernel.setBlock(block);
      kernel.setShared(shared);
      if (!maps.empty())
        kernel.setTensorMapsAttr(ArrayAttr::get(kernel.getContext(), maps));
    }
    return success();
  }

private:
  /// Sets the op's config unless it has one; null after a diagnostic.
  const Schedule *decide(Operation &op) {
    auto given = op.getAttrOfType<tile::ConfigAttr>(kConfigAttr);
    if (!given)
      return choose(op);
    const Schedule *schedule = findSchedule(target, given.getSchedule());
    if (!schedule) {
      InFlightDiagnostic diagnostic = op.emitOpError("has the schedule \"");
      diagnostic << given.getSchedule() << "\", which the target "
                 << target.name << " does not have; there are ";
      listSchedules(diagnostic);
      return nullptr;
    }
    if (schedule->opName != op.getName().getStringRef()) {
      op.emitOpError("has the schedule \"")
          << schedule->name << "\", which runs " << schedule->opName
          << "; drop 'config' to have one chosen";
      return nullptr;
    }
    std::string reason = schedule->whyIllegal(&op, given, target);
    if (!reason.empty()) {
      op.emitOpError("cannot run as ") << given << ": " << reason;
      return nullptr;
    }
    wasGiven = true;
    return schedule;
  }

  /// Sets the config of the first schedule that can run the op.
  const Schedule *choose(Operation &op) {
    wasGiven = false;
    tile::ConfigAttr config;
    std::string reason;
    for (const Schedule *schedule : getSchedulesFor(target, &op)) {
      config = schedule->choose(&op, target);
      reason = schedule->whyIllegal(&op, config, target);
      if (reason.empty()) {
        op.setAttr(kConfigAttr, config);
        return schedule;
      }
      remark::missed(op.getLoc(), remarkOptions(schedule->name))
          << remark::reason("{0}", reason);
    }
    InFlightDiagnostic diagnostic = op.emitOpError();
    if (config) {
      diagnostic << "cannot run as " << config << ": " << reason;
      return nullptr;
    }
    diagnostic << "has no schedule on the target " << target.name
               << "; there are ";
    listSchedules(diagnostic);
    return nullptr;
  }

  void listSchedules(InFlightDiagnostic &diagnostic) const {
    llvm::interleaveComma(getSchedules(target), diagnostic,
                          [&](const Schedule &s) { diagnostic << s.name; });
  }

  remark::RemarkOpts remarkOptions(StringRef schedule) {
    return remark::RemarkOpts::name(schedule)
        .category("tile-assign-config")
        .function(kernel.getSymName());
  }

  void remarkChoice(Operation &op, tile::ConfigAttr config,
                    const moert::Expr &grid) {
    remark::passed(op.getLoc(), remarkOptions(config.getSchedule()))
        << remark::metric("config", config)
        << remark::metric("grid", grid.str())
        << remark::reason("{0}", wasGiven ? "given in the IR and legal"
                                          : "the schedule's choice for " +
                                                describeTarget());
  }

  std::string describeTarget() const {
    return target.isGpu() ? target.name
                          : std::to_string(target.lanes) + " lanes";
  }

  tile::KernelOp kernel;
  const Target &target;
  bool wasGiven = false;
};

struct TileAssignConfig
    : moec::impl::TileAssignConfigPassBase<TileAssignConfig> {
  using TileAssignConfigPassBase::TileAssignConfigPassBase;

  void runOnOperation() override {
    if (lanes != 0 && !Target::isLegalLanes(lanes)) {
      getOperation().emitError("tile-assign-config: lanes = ")
          << lanes.getValue() << "; 4, 8, 16 or 0 for the host's are accepted";
      return signalPassFailure();
    }
    std::optional<Target> machine = Target::find(target, lanes);
    if (!machine) {
      InFlightDiagnostic diagnostic =
          getOperation().emitError("tile-assign-config: target '")
          << target << "' is unknown; accepted are ";
      llvm::interleaveComma(Target::getNames(), diagnostic);
      return signalPassFailure();
    }
    for (auto kernel : getOperation().getOps<tile::KernelOp>())
      if (failed(KernelConfigurator(kernel, *machine).run()))
        return signalPassFailure();
  }
};

} // namespace
