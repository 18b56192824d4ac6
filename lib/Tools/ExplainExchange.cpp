//===- ExplainExchange.cpp - explains collectives ---------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ExplainExchange.h"

#include "../../runtime/src/plan/GatheredResults.h"
#include "PhaseTime.h"
#include "TextTable.h"
#include "moec/Schedules/ExchangeTime.h"
#include "moert/PeerCommunicator.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/FormatVariadic.h"

using namespace mlir;
using namespace moec;

namespace {

class ExchangeTable {
public:
  ExchangeTable(plan::VariantOp variant, const moert::Plan &data,
                const DeviceRates *device, raw_ostream &os)
      : variant(variant), data(data), device(device), os(os),
        tokens(int64_t(variant.getMaxTokens())),
        steps(data.variants[data.findVariant(tokens)]) {}

  size_t print();

private:
  /// The launches that run beside a step, the nearest first; only as many as
  /// fit in `columns` characters.
  std::string describeBeside(size_t step, size_t columns);
  /// The tensors of a step that copy engines move, and the least tokens per
  /// rank of each.
  std::string describeCopies(size_t step);
  /// The least tokens per rank from which the contents of the tensor are copied
  /// in some variant; nothing if they never are.
  std::optional<int64_t> findLeastCopied(int64_t tensor);

  plan::VariantOp variant;
  const moert::Plan &data;
  const DeviceRates *device;
  raw_ostream &os;
  int64_t tokens;
  const moert::Variant &steps;
};

std::string ExchangeTable::describeBeside(size_t step, size_t columns) {
  std::vector<size_t> beside = moert::findLaunchesBeside(data, steps, step);
  llvm::stable_sort(beside, [&](size_t a, size_t b) {
    return std::max(a, step) - std::min(a, step) <
           std::max(b, step) - std::min(b, step);
  });
  constexpr size_t maxCount = sizeof(" and 99 more") - 1;
  std::string text;
  for (auto [shown, launch] : llvm::enumerate(beside)) {
    const std::string &name = data.kernels[steps.steps[launch].kernel].name;
    if (shown > 0 && text.size() + 2 + name.size() + maxCount > columns)
      return text + " and " + std::to_string(beside.size() - shown) + " more";
    text += (text.empty() ? "" : ", ") + name;
  }
  return text.empty() ? "nothing" : text;
}

std::optional<int64_t> ExchangeTable::findLeastCopied(int64_t tensor) {
  int64_t ranks = data.mesh.tokenRanks();
  for (const moert::Variant &range : data.variants) {
    std::vector<moert::GatheredResult> results =
        moert::findResults(data, range);
    auto result = llvm::find_if(
        results, [&](const auto &each) { return each.tensor == tensor; });
    if (result == results.end())
      continue;
    auto counts = llvm::seq(int64_t(llvm::divideCeil(range.minTokens, ranks)),
                            range.maxTokens / ranks + 1);
    auto least = llvm::partition_point(counts, [&](int64_t count) {
      auto copied = moert::isCopied(data, range, *result, count * ranks,
                                    moert::kLeastCopiedBytes);
      return !copied || !*copied;
    });
    if (least != counts.end())
      return *least;
  }
  return std::nullopt;
}

std::string ExchangeTable::describeCopies(size_t step) {
  std::string text;
  for (const moert::GatheredResult &result : moert::findResults(data, steps)) {
    auto copied = moert::isCopied(data, steps, result, steps.maxTokens,
                                  moert::kLeastCopiedBytes);
    if (result.step != step || !copied || !*copied)
      continue;
    const moert::Argument &in = steps.steps[step].args[2 * result.pair];
    if (std::optional<int64_t> least = findLeastCopied(result.tensor))
      text += (text.empty() ? "from " : ", from ") + std::to_string(*least) +
              " on: " + data.tensors[in.tensor].name;
  }
  return text.empty() ? "never" : text;
}

size_t ExchangeTable::print() {
  auto collectives =
      llvm::to_vector(variant.getBody().getOps<plan::CollectiveOp>());
  if (collectives.empty())
    return 0;
  bool runsKernels = llvm::any_of(steps.steps, [](const moert::Step &step) {
    return step.kind == moert::Step::Kind::Collective && step.kernel >= 0;
  });
  os << llvm::formatv(
      "\nbetween ranks, {0} tokens each: data that a rank sends to the others, "
      "{1}launches that may run at the same time{2}\n",
      tokens / data.mesh.tokenRanks(), device ? "expected time of NCCL, " : "",
      runsKernels ? ";" : "");
  if (runsKernels)
    os << llvm::formatv("through peer memory a kernel moves rows; copy engines "
                        "do if a rank sends {0} MiB of a tensor to each other "
                        "rank and a launch runs beside\n",
                        moert::kLeastCopiedBytes >> 20);
  TextTable table({"collective", " MiB sent", "  NCCL us", " peers us",
                   "copied, tokens per rank", "beside it"});
  SmallVector<TextTable::Row> rows;
  SmallVector<size_t> indices;
  // Width left of 140 columns after the fixed columns and their separators.
  size_t width = 140 - 2 - 3 * (9 + 2);
  size_t nameWidth = 0, copiesWidth = 0;
  for (auto [index, step] : llvm::enumerate(steps.steps)) {
    if (step.kind != moert::Step::Kind::Collective)
      continue;
    plan::CollectiveOp collective = collectives[rows.size()];
    std::string us, peersUs;
    if (device)
      us = llvm::formatv("{0,9:f1}",
                         predictCollective(collective, tokens, *device).us);
    if (device && runsKernels)
      peersUs = llvm::formatv(
          "{0,9:f1}", predictPeerExchange(collective, tokens, *device).us);
    double bytes = getMovedBytes(collective, tokens);
    indices.push_back(index);
    rows.push_back({getName(collective),
                    llvm::formatv("{0,9:f2}", bytes / (1 << 20)), us, peersUs,
                    runsKernels ? describeCopies(index) : "", ""});
    nameWidth = std::max(nameWidth, rows.back()[0].size() + 2);
    copiesWidth = std::max(copiesWidth, rows.back()[4].size() + 2);
  }
  width -= std::min(width, nameWidth + std::max<size_t>(copiesWidth, 26));
  for (auto [row, index] : llvm::zip(rows, indices)) {
    row.back() = describeBeside(index, width);
    table.addRow(std::move(row));
  }
  table.print(os);
  return 3 + runsKernels + collectives.size();
}

} // namespace

size_t moec::explainExchange(plan::VariantOp variant, const moert::Plan &data,
                             const DeviceRates *device, raw_ostream &os) {
  return ExchangeTable(variant, data, device, os).print();
}
