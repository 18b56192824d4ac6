//===- ExplainSummary.cpp - summary of a layer's choices --------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ExplainSummary.h"

#include "../../runtime/src/plan/BatchHalves.h"
#include "ExpectedRun.h"
#include "ExplainExchange.h"
#include "ExplainSumOrders.h"
#include "Host/HostRates.h"
#include "TextTable.h"
#include "moec/Schedules/ConfigText.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/FormatVariadic.h"

#include <array>

using namespace mlir;
using namespace moec;

namespace {

std::string showTokens(int64_t min, int64_t max) {
  return min == max ? std::to_string(min)
                    : llvm::formatv("{0} to {1}", min, max).str();
}

class Summary {
public:
  Summary(plan::ProgramOp program, const moert::Plan &data, int64_t topK,
          const Target &target, size_t maxLines, raw_ostream &os)
      : variants(llvm::to_vector(program.getBody().getOps<plan::VariantOp>())),
        data(data), topK(topK), target(target), device(getDeviceRates(target)),
        maxLines(maxLines), os(os) {}

  void print() {
    os << "\n";
    size_t lines = 1 + (device ? printTimes() : printWork());
    lines += explainSumOrders(data, os);
    lines += explainExchange(variants.back(), data, device, os);
    lines += device ? printHalves() : 0;
    printProducts(maxLines - std::min(maxLines, lines));
  }

private:
  /// Each prints one table and returns the number of its lines.
  size_t printTimes();
  size_t printWork();
  /// The expected time of the most tokens as two micro-batches, if ranks may
  /// run them.
  size_t printHalves();
  void printProducts(size_t lines);
  /// Microseconds, share of the floor, and bound of all phases in sequence.
  std::array<std::string, 3> getTime(plan::VariantOp variant, int64_t tokens);

  SmallVector<plan::VariantOp> variants;
  const moert::Plan &data;
  int64_t topK;
  const Target &target;
  /// Null if no rates are known.
  const DeviceRates *device;
  size_t maxLines;
  raw_ostream &os;
};

std::array<std::string, 3> Summary::getTime(plan::VariantOp variant,
                                            int64_t tokens) {
  ExpectedRun run = expectRun(variant, tokens, topK, target, device);
  return {llvm::formatv("{0,9:f1}", run.us.value_or(0)),
          llvm::formatv("{0,10:f0} %", run.getFloorPercent()), run.bound.str()};
}

size_t Summary::printTimes() {
  bool isMeasured = device->isMeasured();
  bool isLeast =
      !device->host && llvm::any_of(variants, [&](plan::VariantOp variant) {
        return llvm::any_of(getLaunchedPhases(variant), [&](auto &phase) {
          return isa<tile::GemmOp>(phase.op) && !findModelled(phase, target);
        });
      });
  os << "expected on " << device->describe() << (isMeasured ? " " : ",\n")
     << "in microseconds, launches in sequence, experts equally likely;\nof "
        "the floor: fraction of the time that the least bytes or operations "
        "take at "
     << (isMeasured ? "the device's measured rates\n"
                    : "rates scaled by the data sheets\n");
  if (isLeast)
    os << "some gemms have no cost model: their least time counts\n";
  TextTable table({"tokens", "launches", "   least", "       us",
                   "of the floor", "bound by", "    most", "       us",
                   "of the floor", "bound by"});
  for (plan::VariantOp variant : variants) {
    auto phases = getLaunchedPhases(variant);
    auto min = std::max<int64_t>(int64_t(variant.getMinTokens()), 1);
    auto max = int64_t(variant.getMaxTokens());
    auto launches =
        llvm::count_if(phases, [](auto &phase) { return phase.isFirst; });
    TextTable::Row row{showTokens(int64_t(variant.getMinTokens()), max),
                       llvm::formatv("{0,8}", launches)};
    for (int64_t tokens : {min, max}) {
      row.push_back(llvm::formatv("{0,8}", "T=" + std::to_string(tokens)));
      llvm::append_range(row, getTime(variant, tokens));
    }
    table.addRow(std::move(row));
  }
  table.print(os);
  return (isMeasured ? 3 : 4) + isLeast + variants.size();
}

size_t Summary::printHalves() {
  if (data.mesh.numRanks() == 1 || !moert::checkHalves(data))
    return 0;
  moert::Result<bool> mayRun = moert::mayRunBeside(data, data.maxTokens);
  if (!mayRun || !*mayRun)
    return 0;
  auto getLaunches = [&](int64_t tokens) {
    plan::VariantOp variant = variants[data.findVariant(tokens)];
    double us = 0;
    for (const LaunchedPhase &phase : getLaunchedPhases(variant))
      us += predictPhase(phase, tokens, topK, target, *device).us;
    return us;
  };
  auto getExchange = [&](int64_t tokens, bool gathers) {
    plan::VariantOp variant = variants[data.findVariant(tokens)];
    double us = 0;
    for (auto collective : variant.getBody().getOps<plan::CollectiveOp>())
      if ((collective.getKind() == plan::CollectiveKind::AllGather) == gathers)
        us += predictCollective(collective, tokens, *device).us;
    return us;
  };
  moert::BatchHalves split = moert::splitBatch(data, data.maxTokens);
  // The first half's gathers and the second half's sums overlap with nothing.
  double halves = getLaunches(split[0]) + getLaunches(split[1]) +
                  getExchange(split[0], /*gathers=*/true) +
                  getExchange(split[1], /*gathers=*/false);
  double whole = getLaunches(data.maxTokens) +
                 getExchange(data.maxTokens, /*gathers=*/true) +
                 getExchange(data.maxTokens, /*gathers=*/false);
  os << llvm::formatv(
      "as two micro-batches (moe-run --micro-batches-from), one exchanging "
      "while the other computes: {0:f1} us, as one batch {1:f1}\n",
      halves, whole);
  return 1;
}

size_t Summary::printWork() {
  os << "least work, experts equally likely (no expected times: "
     << whyNoRates(target) << ")\n";
  TextTable table(
      {"tokens", "launches", "       T", "million operations", "MiB touched"});
  size_t numRows = 0;
  for (plan::VariantOp variant : variants) {
    auto phases = getLaunchedPhases(variant);
    auto max = int64_t(variant.getMaxTokens());
    auto launches =
        llvm::count_if(phases, [](auto &phase) { return phase.isFirst; });
    std::string range = showTokens(int64_t(variant.getMinTokens()), max);
    SmallVector<int64_t> counts;
    for (int64_t tokens : {1, 16, 128, 1024})
      if (tokens >= int64_t(variant.getMinTokens()) && tokens < max &&
          variants.size() == 1)
        counts.push_back(tokens);
    counts.push_back(max);
    numRows += counts.size();
    for (int64_t tokens : counts) {
      Work total = expectRun(variant, tokens, topK, target, device).work;
      table.addRow({range, llvm::formatv("{0,8}", launches),
                    llvm::formatv("{0,8}", tokens),
                    llvm::formatv("{0,18:f1}", total.operations / 1e6),
                    llvm::formatv("{0,11:f1}", total.bytes / (1 << 20))});
    }
  }
  table.print(os);
  return 2 + numRows;
}

void Summary::printProducts(size_t lines) {
  struct Product {
    std::string name, config;
    int64_t min, max;
  };
  // Merges neighbouring ranges that share a kernel.
  llvm::MapVector<Operation *, Product> products;
  for (plan::VariantOp variant : variants) {
    auto min = int64_t(variant.getMinTokens());
    auto max = int64_t(variant.getMaxTokens());
    for (const LaunchedPhase &phase : getLaunchedPhases(variant)) {
      auto config = phase.op->getAttrOfType<tile::ConfigAttr>("config");
      if (!isa<tile::GemmOp>(phase.op) || !config)
        continue;
      auto [found, isNew] = products.insert(
          {phase.op, {phase.name, printConfig(config), min, max}});
      found->second.min = std::min(found->second.min, min);
      found->second.max = std::max(found->second.max, max);
    }
  }
  // Reserved: a blank line, the column names, and the count of omitted rows.
  size_t limit = lines > 3 ? lines - 3 : 0;
  if (products.empty() || limit == 0)
    return;
  TextTable table({"product", "tokens", "config"});
  for (const auto &[op, product] :
       llvm::ArrayRef(products.begin(), products.end()).take_front(limit))
    table.addRow(
        {product.name, showTokens(product.min, product.max), product.config});
  os << "\n";
  table.print(os);
  if (products.size() > limit)
    os << "  and " << products.size() - limit << " more\n";
}

} // namespace

void moec::explainSummary(plan::ProgramOp program, const moert::Plan &data,
                          int64_t topK, const Target &target, size_t maxLines,
                          raw_ostream &os) {
  Summary(program, data, topK, target, maxLines, os).print();
}
