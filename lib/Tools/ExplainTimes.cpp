//===- ExplainTimes.cpp - explains expected times ---------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ExplainTimes.h"

#include "ExpectedRun.h"
#include "TextTable.h"
#include "moec/Schedules/ConfigText.h"
#include "moec/Schedules/Cost.h"
#include "moec/Schedules/Device.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallSet.h"
#include "llvm/Support/FormatVariadic.h"

using namespace mlir;
using namespace moec;

namespace {

/// A number with its sign: "+1.3", "-0.2".
std::string signedText(double value) {
  return llvm::formatv("{0}{1:f1}", value < 0 ? "" : "+", value);
}

class TimeTable {
public:
  TimeTable(ArrayRef<LaunchedPhase> phases, plan::VariantOp variant,
            int64_t topK, const Target &target, const DeviceRates &device,
            raw_ostream &os)
      : phases(phases), variant(variant), topK(topK), target(target),
        device(device), os(os),
        counts(getEnds(variant.getMinTokens(), variant.getMaxTokens())) {}

  void printTimes();
  /// Prints the config choices of kernels that are not in `told` yet.
  void printChoices(ToldKernels &told);

private:
  /// The least and the most tokens that times are printed for.
  static SmallVector<int64_t> getEnds(uint64_t min, uint64_t max) {
    SmallVector<int64_t> ends{std::max<int64_t>(int64_t(min), 1)};
    if (int64_t(max) > ends.front())
      ends.push_back(int64_t(max));
    return ends;
  }
  /// Whether it is one of two joined gemms, which share one pipeline.
  static bool isJoined(const LaunchedPhase &phase) {
    auto product = dyn_cast<tile::GemmOp>(phase.op);
    return product && (product.getSignals() || product.getAwaits());
  }
  /// The joined gemm that awaits this one; null if there is none.
  const LaunchedPhase *findSecond(const LaunchedPhase &first) const;
  /// The launch for the groups with fewer rows than this launch takes; null if
  /// there is none.
  const LaunchedPhase *findOthers(const LaunchedPhase &large) const;
  void printJoined(const LaunchedPhase &first, const LaunchedPhase &second);
  void printLargeGroups(const LaunchedPhase &large,
                        const LaunchedPhase &others);
  void printOthers(const LaunchedPhase &phase);
  const ModelsTime *findModelled(const LaunchedPhase &phase) const {
    return moec::findModelled(phase, target);
  }

  ArrayRef<LaunchedPhase> phases;
  plan::VariantOp variant;
  int64_t topK;
  const Target &target;
  const DeviceRates &device;
  raw_ostream &os;
  SmallVector<int64_t> counts;
};

const LaunchedPhase *TimeTable::findSecond(const LaunchedPhase &first) const {
  auto product = dyn_cast<tile::GemmOp>(first.op);
  if (!product || !product.getSignals())
    return nullptr;
  const auto *found = llvm::find_if(phases, [&](const LaunchedPhase &phase) {
    auto other = dyn_cast<tile::GemmOp>(phase.op);
    return phase.launch == first.launch && other &&
           other.getAwaits() == product.getSignals();
  });
  return found == phases.end() ? nullptr : found;
}

const LaunchedPhase *TimeTable::findOthers(const LaunchedPhase &large) const {
  auto product = dyn_cast<tile::GemmOp>(large.op);
  if (!product || !product.getMinGroupRows() || !findModelled(large))
    return nullptr;
  plan::LaunchOp launch = large.launch;
  const auto *found = llvm::find_if(phases, [&](const LaunchedPhase &phase) {
    auto other = dyn_cast<tile::GemmOp>(phase.op);
    plan::LaunchOp before = phase.launch;
    return other && other.getMaxGroupRows() && findModelled(phase) &&
           before.getOuts().front() == launch.getOuts().front();
  });
  return found == phases.end() ? nullptr : found;
}

void TimeTable::printTimes() {
  os << "\nexpected on " << device.describe()
     << ": us / floor us, fraction of the floor, bound\n";
  TextTable::Row names{"phase"};
  for (int64_t tokens : counts)
    names.push_back(llvm::formatv("{0,9}", "T=" + std::to_string(tokens)));
  TextTable table(std::move(names));
  auto getCell = [&](double us, double floorUs,
                     StringRef bound) -> std::string {
    return llvm::formatv("{0,9:f1} / {1,7:f1} {2,3:f0} % {3}", us, floorUs,
                         100 * floorUs / us, bound);
  };
  SmallVector<ExpectedRun> runs;
  for (int64_t tokens : counts)
    runs.push_back(expectRun(variant, tokens, topK, target, &device));
  for (auto [i, first] : llvm::enumerate(runs.front().steps)) {
    TextTable::Row row{first.name};
    for (const ExpectedRun &run : runs) {
      const ExpectedStep &step = run.steps[i];
      row.push_back(getCell(step.time->us, step.time->floorUs, step.bound));
    }
    table.addRow(std::move(row));
  }
  TextTable::Row all{"in sequence"};
  for (const ExpectedRun &run : runs)
    all.push_back(getCell(*run.us, run.floorUs, ""));
  table.addRow(std::move(all));
  table.print(os);
  for (auto collective : variant.getBody().getOps<plan::CollectiveOp>())
    os << describeDestinations(collective) << describeReplaced(collective);
}

void TimeTable::printChoices(ToldKernels &told) {
  ToldKernels here;
  std::string before;
  for (const LaunchedPhase &phase : phases) {
    // Launches for other columns have the same kernel.
    plan::LaunchOp launch = phase.launch;
    if (launch.getColumns() && launch.getColumns()->front() > 0)
      continue;
    if (told.contains(phase.kernel)) {
      if (findModelled(phase))
        before += (before.empty() ? "" : ", ") + phase.name;
      continue;
    }
    here.insert(phase.kernel);
    if (const LaunchedPhase *second = findSecond(phase))
      printJoined(phase, *second);
    if (const LaunchedPhase *others = findOthers(phase))
      printLargeGroups(phase, *others);
    else
      printOthers(phase);
  }
  if (!before.empty())
    os << "\ninstead of " << before << ": as above\n";
  told.insert_range(here);
}

/// Prints why joined gemms have no separate tables.
void TimeTable::printJoined(const LaunchedPhase &first,
                            const LaunchedPhase &second) {
  os << "\n"
     << first.name << " and " << second.name
     << " are one kernel with one pipeline and one tile table,\nso their "
        "configs differ only in block_n and map_rows; "
        "moe-compile --disable=join-products explains each alone\n";
}

/// Prints the purpose of a launch that has no work while experts are equally
/// likely.
void TimeTable::printLargeGroups(const LaunchedPhase &large,
                                 const LaunchedPhase &others) {
  auto product = cast<tile::GemmOp>(large.op);
  tile::KernelOp kernel = large.kernel;
  std::unique_ptr<CostModel> model =
      findModelled(large)->costModel(product, kernel.getLoadAttr(), target);
  auto getTime = [&](Operation *phase) {
    return model
        ->predict(phase->getAttrOfType<tile::ConfigAttr>("config"),
                  counts.back(), Routing::Same)
        .us;
  };
  os << "\n"
     << large.name << " computes the groups with " << *product.getMinGroupRows()
     << " rows or more, " << others.name << " all others;\n"
     << llvm::formatv(
            "with all tokens at the same experts it takes {0:f1} us at T={1}, "
            "with the other's config {2:f1} us;\nwith "
            "moe-compile --disable=split-large-groups one launch computes all "
            "groups\n",
            getTime(large.op), counts.back(), getTime(others.op));
}

/// Prints the best configs that were not taken, and why others are illegal.
void TimeTable::printOthers(const LaunchedPhase &phase) {
  const ModelsTime *schedule = findModelled(phase);
  if (!schedule)
    return;
  constexpr size_t shown = 4;
  auto taken = phase.op->getAttrOfType<tile::ConfigAttr>("config");
  tile::KernelOp kernel = phase.kernel;
  std::vector<Candidate> candidates =
      enumerateCandidates(phase.op, *schedule, target, kernel.getLoadAttr());
  std::unique_ptr<CostModel> model =
      schedule->costModel(phase.op, kernel.getLoadAttr(), target);
  // A forced config, or that of a joined gemm, may not be among the candidates.
  std::optional<double> own;
  for (const Candidate &candidate : candidates)
    if (candidate.config == taken)
      own = candidate.relative;
  if (isJoined(phase)) {
    // Almost all others are illegal only because they need another pipeline or
    // tile table.
    llvm::erase_if(candidates, [&](const Candidate &candidate) {
      return !candidate.whyNot.empty() || candidate.config == taken;
    });
    if (candidates.empty())
      return;
  }
  os << "\ninstead of " << phase.name << " " << printConfig(taken) << "\n";
  size_t count = 0;
  llvm::SmallSet<std::pair<int64_t, int64_t>, 4> kinds;
  kinds.insert(schedule->getTile(taken));
  llvm::MapVector<StringRef, SmallVector<tile::ConfigAttr>> reasons;
  for (const Candidate &candidate : candidates) {
    if (candidate.config == taken)
      continue;
    if (!candidate.whyNot.empty()) {
      reasons[candidate.whyNot].push_back(candidate.config);
      continue;
    }
    // Shows one config per width and greatest BLOCK_M: others hardly differ.
    auto kind = schedule->getTile(candidate.config);
    if (++count && (kinds.size() >= shown || !kinds.insert(kind).second))
      continue;
    StringRef separator = " ";
    for (int64_t tokens : getEnds(kernel.getLoadAttr().getMinTokens(),
                                  kernel.getLoadAttr().getMaxTokens())) {
      os << separator
         << llvm::formatv(
                " {0,8} us at T={1}",
                signedText(model->predict(candidate.config, tokens).us -
                           model->predict(taken, tokens).us),
                tokens);
      separator = ",";
    }
    if (own)
      os << llvm::formatv(", {0,5:f1} % over the range",
                          100 * (candidate.relative / *own - 1));
    os << ": " << printConfig(candidate.config) << "\n";
  }
  if (count >= kinds.size())
    os << (own ? "  slower: " : "  others: ") << count - kinds.size() + 1
       << " more\n";
  count = 0;
  for (auto &[reason, configs] : reasons) {
    if (++count > shown)
      break;
    os << "  illegal: " << printConfig(configs.front());
    if (configs.size() > 1)
      os << " and " << configs.size() - 1 << " more";
    os << ": " << reason << "\n";
  }
  if (reasons.size() > shown)
    os << "  illegal: " << reasons.size() - shown << " more reasons\n";
}

} // namespace

void moec::explainTimes(ArrayRef<LaunchedPhase> phases, plan::VariantOp variant,
                        int64_t topK, const Target &target, raw_ostream &os) {
  if (const DeviceRates *device = getDeviceRates(target))
    TimeTable(phases, variant, topK, target, *device, os).printTimes();
}

void moec::explainChoices(ArrayRef<LaunchedPhase> phases,
                          plan::VariantOp variant, int64_t topK,
                          const Target &target, ToldKernels &told,
                          raw_ostream &os) {
  if (const DeviceRates *device = getDeviceRates(target))
    TimeTable(phases, variant, topK, target, *device, os).printChoices(told);
}
