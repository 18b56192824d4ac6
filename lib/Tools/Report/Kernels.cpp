//===- Kernels.cpp - kernels of a token range -------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Parts.h"
#include "moec/Schedules/ConfigText.h"
#include "moec/Schedules/Device.h"
#include "llvm/Support/FormatVariadic.h"

using namespace mlir;
using namespace moec;
using namespace moec::report;
using llvm::formatv;

/// Threads and CTAs of a multiprocessor, equal for compute capabilities 8.0,
/// 9.0 and 10.0, and the shared memory in bytes that is reserved per CTA. CUDA
/// C++ Programming Guide, technical specifications.
static constexpr int64_t kThreads = 2048, kCtas = 32, kReservedShared = 1024;

/// CTAs of a kernel per multiprocessor, their limit, and their share of its
/// threads.
static std::string describeOccupancy(const Layer &layer,
                                     const moert::KernelDecl &kernel,
                                     const KernelReport *report) {
  const PartFacts *part = layer.target.part;
  if (!part)
    part = getUnknownPart(layer.target.name);
  if (!part || kernel.block <= 0)
    return "";
  int64_t shared =
      kernel.shared + (report ? report->sharedBytes : 0) + kReservedShared;
  int64_t warpThreads = (kernel.block + 31) / 32 * 32;
  std::pair<int64_t, StringRef> bounds[] = {
      {kThreads / warpThreads, "threads"},
      {part->sharedBytesPerMultiprocessor / shared, "shared memory"},
      {kCtas, "CTAs"},
      {kCtas, "registers"}};
  if (report && report->registers > 0) {
    int64_t each =
        (report->registers + kRegisterUnit - 1) / kRegisterUnit * kRegisterUnit;
    bounds[3].first = kRegistersPerMultiprocessor / (each * warpThreads);
  }
  auto [ctas, bound] = *llvm::min_element(bounds, llvm::less_first());
  return formatv("{0} by {1}, {2:f0} %{3}", ctas, bound,
                 100.0 * double(ctas * warpThreads) / kThreads,
                 report ? "" : " at most");
}

static std::string describeRegisters(const KernelReport *report) {
  if (!report)
    return "";
  std::string text = std::to_string(report->registers);
  if (report->spillStoreBytes + report->spillLoadBytes > 0)
    text += formatv(", {0} B spilled", report->spillStoreBytes);
  return text;
}

static std::string describeCtas(const moert::KernelDecl &kernel,
                                const TokenRange &range) {
  SmallVector<int64_t> ctas;
  for (int64_t tokens : range.ends)
    if (moert::Result<int64_t> count = kernel.grid.evaluate(tokens))
      ctas.push_back(*count);
  return ctas.empty() ? kernel.grid.str()
                      : showRange(ctas.front(), ctas.back());
}

void moec::report::showKernels(const Layer &layer, const TokenRange &range,
                               raw_ostream &os) {
  SmallVector<StringRef> names{"kernel", "phase", "schedule and tiles", "CTAs"};
  bool isGpu = layer.target.isGpu(), isAssembled = !layer.assembled.empty();
  if (isGpu)
    names.append({"threads", "shared", "CTAs per SM, occupancy"});
  if (isAssembled)
    names.push_back("registers");
  std::vector<std::string> heads;
  for (int64_t tokens : range.ends) {
    heads.push_back(formatv("work at T={0}", tokens));
    if (layer.device)
      heads.push_back(formatv("expected, of the floor, bound", tokens));
  }
  llvm::append_range(names, heads);
  Table table(names, os);
  for (auto [phase, figures] : llvm::zip(range.phases, range.figures)) {
    tile::KernelOp op = phase.kernel;
    std::string symbol = op.getSymName().str();
    const moert::KernelDecl &kernel = *llvm::find_if(
        layer.plan.kernels, [&](auto &decl) { return decl.name == symbol; });
    auto found = layer.assembled.find(symbol);
    const KernelReport *report =
        found == layer.assembled.end() ? nullptr : &found->second;
    SmallVector<std::string> row{
        phase.isFirst ? symbol : "", getStage(phase),
        printConfig(phase.op->getAttrOfType<tile::ConfigAttr>("config")),
        phase.isFirst ? describeCtas(kernel, range) : ""};
    if (isGpu && phase.isFirst)
      row.append({std::to_string(kernel.block),
                  showBytes(double(kernel.shared +
                                   (report ? report->sharedBytes : 0))),
                  describeOccupancy(layer, kernel, report)});
    else if (isGpu)
      row.append({"", "", ""});
    if (isAssembled)
      row.push_back(phase.isFirst ? describeRegisters(report) : "");
    for (const PhaseFigures &figure : figures) {
      row.push_back(showOperations(figure.work.operations) + ", " +
                    showBytes(figure.work.bytes));
      if (figure.prediction)
        row.push_back(formatv(
            "{0}, {1:f0} %, {2}", showTime(figure.prediction->us),
            figure.prediction->us > 0
                ? 100 * figure.prediction->floorUs / figure.prediction->us
                : 0,
            getBound(*figure.prediction)));
    }
    table.addRow(row, getKeys(phase));
  }
}
