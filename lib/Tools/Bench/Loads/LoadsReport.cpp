//===- LoadsReport.cpp - regrets of many loads ------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Loads.h"

#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/FormatVariadic.h"

using namespace moec;
using namespace moec::bench;

/// The mean of the two in the middle of `count` observations from `first` on.
static double findMiddle(llvm::ArrayRef<double> all, size_t first,
                         size_t count) {
  llvm::SmallVector<double> times(all.slice(first, count));
  llvm::sort(times);
  return (times[(count - 1) / 2] + times[count / 2]) / 2;
}

double MeasuredLoad::getSeconds(size_t config) const {
  llvm::ArrayRef<double> all = observations[config];
  return all.empty() ? 0 : findMiddle(all, 0, all.size());
}

size_t MeasuredLoad::getBest() const {
  size_t best = 0, half = observations.front().size() / 2;
  if (half == 0)
    return best;
  for (size_t i = 1; i < observations.size(); ++i)
    if (findMiddle(observations[i], 0, half) <
        findMiddle(observations[best], 0, half))
      best = i;
  return best;
}

double MeasuredLoad::getRegret() const {
  size_t half = observations.front().size() / 2;
  if (half == 0)
    return 0;
  return findMiddle(observations.front(), half, half) /
             findMiddle(observations[getBest()], half, half) -
         1;
}

void moec::bench::writeLoads(const LoadsOfRow &row,
                             llvm::json::Object &result) {
  llvm::json::Array loads;
  for (const MeasuredLoad &measured : row.loads) {
    llvm::json::Array us, observations;
    for (auto [config, times] : llvm::enumerate(measured.observations)) {
      us.push_back(measured.getSeconds(config) * 1e6);
      llvm::json::Array own;
      for (double seconds : times)
        own.push_back(seconds * 1e6);
      observations.push_back(std::move(own));
    }
    llvm::json::Object load{{"load", measured.load.name},
                            {"kind", measured.load.kind},
                            {"experts_touched", measured.experts},
                            {"most_rows", measured.mostRows},
                            {"checked", measured.isChecked}};
    if (measured.isTimed()) {
      load["us"] = std::move(us);
      load["observations"] = std::move(observations);
      load["regret"] = measured.getRegret();
    }
    loads.push_back(std::move(load));
  }
  result[kLoadsField] = std::move(loads);
  result["load_configs"] = llvm::json::Array(row.configs);
  result["load_failed"] = row.numFailed;
}

namespace {

/// Regrets of several loads.
struct Regrets {
  int64_t count = 0, numChecked = 0;
  double seconds = 0, sum = 0, worst = 0;
  std::string worstName;

  void add(const MeasuredLoad &measured) {
    ++count;
    numChecked += measured.isChecked;
    seconds += measured.getSeconds(0);
    double regret = measured.getRegret();
    sum += regret;
    if (worstName.empty() || regret > worst) {
      worst = regret;
      worstName = measured.load.name;
    }
  }
  void print(llvm::StringRef kind, llvm::raw_ostream &os) const {
    auto loads = static_cast<double>(count);
    os << llvm::formatv("  {0,-10} {1,6} {2,8} ", kind, count, numChecked);
    if (seconds > 0)
      os << llvm::formatv("{0,10:F1} {1,12:P2} {2,12:P2}  {3}",
                          seconds / loads * 1e6, sum / loads, worst, worstName);
    else
      os << "         -            -            -";
    os << "\n";
  }
};

} // namespace

void moec::bench::printRegrets(const LoadsOfRow &row, llvm::raw_ostream &os) {
  for (const MeasuredLoad &measured : row.loads) {
    if (!measured.isTimed())
      break;
    size_t best = measured.getBest();
    os << llvm::formatv(
        "    {0,-10} {1,4} experts, at most {2,6} rows: {3,9:F1} us, best "
        "{4,9:F1} us, {5,7:P2} more than {6}\n",
        measured.load.name, measured.experts, measured.mostRows,
        measured.getSeconds(0) * 1e6, measured.getSeconds(best) * 1e6,
        measured.getRegret(), row.configs[best]);
  }
  llvm::MapVector<llvm::StringRef, Regrets> kinds;
  Regrets all;
  for (const MeasuredLoad &measured : row.loads) {
    kinds[measured.load.kind].add(measured);
    all.add(measured);
  }
  os << llvm::formatv("  {0,-10} {1,6} {2,8} {3,10} {4,12} {5,12}  {6}\n",
                      "load", "count", "checked", "mean us", "mean regret",
                      "worst regret", "worst load");
  for (const auto &[kind, regrets] : kinds)
    regrets.print(kind, os);
  all.print("all", os);
}
