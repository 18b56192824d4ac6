//===- TileAssignConfig.cpp - choose how each phase runs --------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "LaunchShape.h"
#include "PassInputs.h"
#include "mlir/IR/Remarks.h"
#include "mlir/IR/Threading.h"
#include "moec/Schedules/Cost.h"
#include "moec/Schedules/Rewrites/PermuteRows.h"
#include "moec/Schedules/Rewrites/SplitLargeGroups.h"
#include "moec/Schedules/Schedules.h"
#include "moec/Schedules/Spills.h"
#include "moec/Transforms/Passes.h"

namespace moec {
#define GEN_PASS_DEF_TILEASSIGNCONFIGPASS
#include "moec/Transforms/Passes.h.inc"
} // namespace moec

using namespace mlir;
using namespace moec;

namespace {

constexpr llvm::StringLiteral kConfigAttr = "config";

/// Choices of the cost model, by op; null for ops without a model.
using ModelChoices = llvm::DenseMap<Operation *, tile::ConfigAttr>;

/// Chooses for all ops without a config, in parallel, since each choice takes
/// long.
ModelChoices askModels(ModuleOp module, const Target &target) {
  SmallVector<Operation *> ops;
  for (auto kernel : module.getOps<tile::KernelOp>())
    if (kernel.getLoadAttr())
      for (Operation &op : kernel.getBody().front().without_terminator())
        if (!op.getAttr(kConfigAttr))
          ops.push_back(&op);
  std::vector<tile::ConfigAttr> chosen(ops.size());
  parallelFor(module.getContext(), 0, ops.size(),
              [&](size_t i) { chosen[i] = chooseForLoad(ops[i], target); });
  ModelChoices choices;
  for (auto [op, config] : llvm::zip(ops, chosen))
    choices[op] = config;
  return choices;
}

/// Chooses configs for the phases of one kernel, then sets its grid.
class KernelConfigurator {
public:
  /// `forced`: the forced config, or null.
  KernelConfigurator(tile::KernelOp kernel, const Target &target,
                     const ForcedConfig *forced, const ModelChoices &choices)
      : kernel(kernel), target(target), forced(forced), choices(choices) {}

  LogicalResult run() {
    for (Operation &op : kernel.getBody().front().without_terminator()) {
      const Schedule *schedule = decide(op);
      if (!schedule)
        return failure();
      auto config = op.getAttrOfType<tile::ConfigAttr>(kConfigAttr);
      remarkChoice(op, config, schedule->grid(&op, config, target));
    }
    setLaunchShape(kernel, target);
    return success();
  }

private:
  /// Sets the op's config unless it has one; null after a diagnostic.
  const Schedule *decide(Operation &op) {
    if (forced && failed(force(op)))
      return nullptr;
    auto given = op.getAttrOfType<tile::ConfigAttr>(kConfigAttr);
    if (!given)
      return choose(op);
    const Schedule *schedule = findSchedule(target, given.getSchedule());
    if (!schedule) {
      refuseSchedule(op, given.getSchedule());
      return nullptr;
    }
    if (schedule->opName != op.getName().getStringRef()) {
      op.emitOpError("has the schedule \"")
          << schedule->name << "\", which runs " << schedule->opName
          << "; remove 'config' to have one chosen";
      return nullptr;
    }
    std::string reason = schedule->whyIllegal(&op, given, target);
    if (!reason.empty()) {
      InFlightDiagnostic diagnostic = op.emitOpError();
      if (forced)
        diagnostic << "of kernel '" << kernel.getSymName() << "' ";
      diagnostic << "cannot run as " << given << ": " << reason;
      return nullptr;
    }
    if (forced)
      warnOfSpills(op, *schedule, given);
    wasGiven = true;
    return schedule;
  }

  /// Warns if a forced config may spill registers: such configs are legal, but
  /// never chosen.
  void warnOfSpills(Operation &op, const Schedule &schedule,
                    tile::ConfigAttr config) {
    const auto *knows = schedule.as<KnowsSpills>();
    std::string reason =
        knows ? knows->whySpills(&op,
                                 bringsMaps ? config.withMapRows(true) : config)
              : std::string();
    if (!reason.empty())
      op.emitWarning() << "kernel '" << kernel.getSymName()
                       << "' may spill registers with the forced config: "
                       << reason;
  }

  /// Sets the forced config; its missing fields are those of the choice.
  LogicalResult force(Operation &op) {
    StringRef name = forced->getSchedule();
    tile::ConfigAttr base;
    if (name.empty()) {
      op.removeAttr(kConfigAttr);
      if (!choose(op))
        return failure();
      base = op.getAttrOfType<tile::ConfigAttr>(kConfigAttr);
    } else if (const Schedule *schedule = findSchedule(target, name);
               schedule && schedule->opName == op.getName().getStringRef()) {
      base = schedule->choose(&op, target);
    } else {
      // Refused below, like one in the IR, if it belongs to another target.
      base = tile::getEmptyConfig(op.getContext(), name);
      if (!base) {
        refuseSchedule(op, name);
        return failure();
      }
    }
    llvm::Expected<tile::ConfigAttr> config = forced->apply(base);
    if (!config)
      return op.emitOpError() << llvm::toString(config.takeError());
    op.setAttr(kConfigAttr, withoutMaps(op, *config));
    return success();
  }

  /// `config` without tensor maps of rows that are not permuted yet, if
  /// permute-rows can permute them.
  tile::ConfigAttr withoutMaps(Operation &op, tile::ConfigAttr config) {
    auto product = dyn_cast<tile::GemmOp>(op);
    const Schedule *schedule = findSchedule(target, config.getSchedule());
    bool mayComeInOrder = product && product.getSource() && schedule &&
                          schedule->as<PermutesRows>() && kernel.getLoadAttr();
    bringsMaps = mayComeInOrder && config.getMapRows();
    return mayComeInOrder ? config.withMapRows(false) : config;
  }

  /// Sets the config with the least predicted time, or that of the first
  /// schedule that can run the op.
  const Schedule *choose(Operation &op) {
    wasGiven = false;
    auto known = choices.find(&op);
    tile::ConfigAttr config =
        known != choices.end() ? known->second : chooseForLoad(&op, target);
    if (config) {
      op.setAttr(kConfigAttr, config);
      return findSchedule(target, config.getSchedule());
    }
    std::string reasons;
    llvm::raw_string_ostream os(reasons);
    for (const Schedule *schedule : getSchedulesFor(target, &op)) {
      config = schedule->choose(&op, target);
      std::string reason = schedule->whyIllegal(&op, config, target);
      if (reason.empty()) {
        op.setAttr(kConfigAttr, config);
        return schedule;
      }
      remark::missed(op.getLoc(), remarkOptions(schedule->name))
          << remark::reason("{0}", reason);
      os << (reasons.empty() ? "" : "; nor as ") << config << ": " << reason;
    }
    InFlightDiagnostic diagnostic = op.emitOpError();
    if (!reasons.empty()) {
      diagnostic << "cannot run as " << reasons;
      return nullptr;
    }
    diagnostic << "has no schedule on the target " << target.name
               << "; there are ";
    listSchedules(diagnostic);
    return nullptr;
  }

  void refuseSchedule(Operation &op, StringRef name) const {
    InFlightDiagnostic diagnostic = op.emitOpError("has the schedule \"");
    diagnostic << name << "\", which the target " << target.name
               << " does not have; there are ";
    listSchedules(diagnostic);
  }

  void listSchedules(InFlightDiagnostic &diagnostic) const {
    llvm::interleaveComma(getSchedules(target), diagnostic,
                          [&](const Schedule *s) { diagnostic << s->name; });
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
    if (target.isGpu())
      return target.name;
    std::string text = std::to_string(target.lanes) + " lanes";
    if (target.products != CpuProducts::Fma)
      text += " with " + Target::getName(target.products).str();
    return text;
  }

  tile::KernelOp kernel;
  const Target &target;
  const ForcedConfig *forced;
  const ModelChoices &choices;
  bool wasGiven = false;
  /// Whether a forced config has tensor maps of rows that are not permuted yet.
  bool bringsMaps = false;
};

struct TileAssignConfig
    : moec::impl::TileAssignConfigPassBase<TileAssignConfig> {
  using TileAssignConfigPassBase::TileAssignConfigPassBase;

  void runOnOperation() override {
    if (lanes != 0 && !Target::isLegalLanes(lanes)) {
      getOperation().emitError("tile-assign-config: lanes = ")
          << lanes.getValue()
          << "; 4, 8, 16, or 0 for the host's lanes are accepted";
      return signalPassFailure();
    }
    std::optional<PassInputs> inputs =
        PassInputs::read(getOperation(), "tile-assign-config", target, part,
                         configs, lanes, products);
    if (!inputs)
      return signalPassFailure();
    SmallVector<bool> isUsed(inputs->forced.size(), false);
    ModelChoices choices = askModels(getOperation(), inputs->target);
    for (auto kernel : getOperation().getOps<tile::KernelOp>()) {
      const ForcedConfig *last = nullptr;
      for (auto [config, used] : llvm::zip(inputs->forced, isUsed))
        if (config.isFor(kernel)) {
          last = &config;
          used = true;
        }
      if (failed(
              KernelConfigurator(kernel, inputs->target, last, choices).run()))
        return signalPassFailure();
    }
    for (auto [config, used] : llvm::zip(inputs->forced, isUsed))
      if (!used && failed(checkUnused(config, inputs->target)))
        return signalPassFailure();
  }

  /// Whether split-large-groups may make a kernel for large groups of this one.
  static bool mayHaveLargeGroups(tile::KernelOp kernel, const Target &machine) {
    auto product = dyn_cast<tile::GemmOp>(kernel.getBody().front().front());
    return product && product.getOffsets() && kernel.getLoadAttr() &&
           findSchedule(machine, product.getConfigAttr().getSchedule())
               ->as<SplitsLargeGroups>();
  }

  /// Checks a config that no kernel uses: legal if it is for more tokens than
  /// possible, or for a kernel that a later pass may make.
  LogicalResult checkUnused(const ForcedConfig &config, const Target &machine) {
    if (config.tokens)
      for (auto program : getOperation().getOps<plan::ProgramOp>())
        if (config.tokens->min > int64_t(program.getMaxTokens()))
          return success();
    for (auto kernel : getOperation().getOps<tile::KernelOp>())
      if (config.isFor(getLargeGroupsName(kernel), kernel.getLoadAttr()) &&
          mayHaveLargeGroups(kernel, machine))
        return success();
    bool isOfExchange = false;
    getOperation().walk([&](plan::CollectiveOp collective) {
      isOfExchange |=
          config.isFor(plan::stringifyCollectiveKind(collective.getKind()),
                       nullptr) ||
          config.isFor(getExchangeName(collective), nullptr);
    });
    if (isOfExchange)
      return success();
    InFlightDiagnostic diagnostic =
        getOperation().emitError("tile-assign-config: config '")
        << config.str() << "' matches no kernel; there are ";
    llvm::interleaveComma(
        getOperation().getOps<tile::KernelOp>(), diagnostic,
        [&](tile::KernelOp kernel) { diagnostic << kernel.getSymName(); });
    return diagnostic;
  }
};

} // namespace
