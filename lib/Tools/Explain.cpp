//===- Explain.cpp - explains the choices for a layer -----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/Tools/Explain.h"

#include "DescribeLayer.h"
#include "ExplainExchange.h"
#include "ExplainSummary.h"
#include "ExplainTimes.h"
#include "Host/HostRates.h"
#include "PhaseWork.h"
#include "TextTable.h"
#include "moec/Compiler/PlanData.h"
#include "moec/Schedules/ConfigText.h"
#include "moec/Transforms/LaunchRewrites.h"
#include "moert/Workspace.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/FormatVariadic.h"

using namespace mlir;
using namespace moec;

namespace {

SmallVector<int64_t> getTokenCounts(int64_t minTokens, int64_t maxTokens) {
  SmallVector<int64_t> counts;
  for (int64_t tokens : {1, 16, 128, 1024})
    if (tokens >= minTokens && tokens <= maxTokens)
      counts.push_back(tokens);
  if (counts.empty())
    counts.push_back(maxTokens);
  return counts;
}

class Explanation {
public:
  Explanation(ModuleOp module, plan::ProgramOp program, const moert::Plan &data,
              const Target &target, raw_ostream &os)
      : module(module), program(program), data(data), target(target), os(os) {}

  void printSummary(size_t maxLines) {
    printCounts();
    // Reserved: 2 lines for the counts, 4 for the workspace and the hint.
    explainSummary(program, data, findTopK(module), target, maxLines - 6, os);
    os << "\nworkspace in bytes:";
    printBytes();
    os << "\n--explain=all prints each launch with its work and time, and the "
          "rejected configs with the reason\n";
  }

  void print() {
    topK = findTopK(module);
    auto variants =
        llvm::to_vector(program.getBody().getOps<plan::VariantOp>());
    printCounts();
    ToldKernels told;
    for (plan::VariantOp variant : variants) {
      phases = getLaunchedPhases(variant);
      if (variants.size() > 1)
        os << "\ntokens " << variant.getMinTokens() << " to "
           << variant.getMaxTokens() << "\n";
      printLaunches();
      printWork(getTokenCounts(variant.getMinTokens(), variant.getMaxTokens()));
      explainTimes(phases, variant, topK, target, os);
      explainExchange(variant, data, getDeviceRates(target), os);
      explainChoices(phases, variant, topK, target, told, os);
    }
    printWorkspace();
  }

private:
  void printCounts() {
    auto numRanges =
        llvm::range_size(program.getBody().getOps<plan::VariantOp>());
    os << "\n"
       << llvm::range_size(module.getOps<tile::KernelOp>()) << " kernels, "
       << numRanges << (numRanges == 1 ? " range" : " ranges")
       << " of tokens\n";
  }

  void printLaunches() {
    auto launches =
        llvm::count_if(phases, [](auto &phase) { return phase.isFirst; });
    os << "\n"
       << launches << (launches == 1 ? " launch" : " launches, in order")
       << "\n";
    TextTable table({"stream", "kernel", "phase", "op", "config", "CTAs"});
    for (LaunchedPhase &phase : phases) {
      auto config = phase.op->getAttrOfType<tile::ConfigAttr>("config");
      TextTable::Row row{"",
                         "",
                         phase.isAlone ? "" : phase.name,
                         phase.op->getName().stripDialect().str(),
                         printConfig(config),
                         ""};
      if (phase.isFirst) {
        plan::ExprAttr grid = phase.kernel.getGridAttr();
        row[0] = std::to_string(phase.launch.getStream());
        row[1] = phase.kernel.getSymName().str();
        row[5] = grid ? grid.getText().str() : "?";
      }
      table.addRow(std::move(row));
    }
    table.print(os);
  }

  void printWork(ArrayRef<int64_t> counts) {
    os << "\nleast work: million operations / MiB touched, experts equally "
          "likely\n";
    TextTable::Row names{"phase"};
    for (int64_t tokens : counts)
      names.push_back(llvm::formatv("{0,22}", "T=" + std::to_string(tokens)));
    TextTable table(std::move(names));
    SmallVector<Work> totals(counts.size());
    auto addRow = [&](std::string name, ArrayRef<Work> works) {
      TextTable::Row row{std::move(name)};
      for (const Work &work : works)
        row.push_back(llvm::formatv("{0,11:f1} / {1,8:f1}",
                                    work.operations / 1e6,
                                    work.bytes / (1 << 20)));
      table.addRow(std::move(row));
    };
    for (LaunchedPhase &phase : phases) {
      SmallVector<Work> works;
      for (auto [i, tokens] : llvm::enumerate(counts)) {
        works.push_back(getWork(phase.op, topK, tokens));
        totals[i].operations += works.back().operations;
        totals[i].bytes += works.back().bytes;
      }
      addRow(phase.name, works);
    }
    addRow("all", totals);
    table.print(os);
  }

  void printWorkspace() {
    os << "\nworkspace\n";
    llvm::MapVector<int64_t, std::string> slots;
    for (int64_t slot = 0; slot < data.numSlots; ++slot)
      slots[slot] = "";
    for (const moert::TensorDecl &tensor : data.tensors)
      if (tensor.role == moert::TensorRole::Workspace)
        slots[tensor.slot] +=
            (slots[tensor.slot].empty() ? "" : ", ") + tensor.name;
    for (auto &[slot, names] : slots)
      os << "  slot " << slot << ": " << names << "\n";
    os << "  bytes:";
    printBytes();
  }

  void printBytes() {
    for (int64_t tokens : getTokenCounts(0, data.maxTokens)) {
      moert::Result<int64_t> bytes = moert::workspaceBytes(data, tokens);
      os << " T=" << tokens << " "
         << (bytes ? std::to_string(*bytes) : bytes.status().message());
    }
    os << "\n";
  }

  ModuleOp module;
  plan::ProgramOp program;
  const moert::Plan &data;
  const Target &target;
  raw_ostream &os;
  int64_t topK = 1;
  SmallVector<LaunchedPhase> phases;
};

} // namespace

/// Prints a line for each rewrite that the facts of the compilation rule out.
/// Returns the number of lines.
static size_t describeRewrites(const TileOptions &options, raw_ostream &os) {
  size_t lines = 0;
  for (StringRef name : getLaunchRewriteNames()) {
    std::string why =
        whyOff(name, {options.dependentLaunches, options.keepAllBuffers},
               /*disabled=*/{});
    if (why.empty() || llvm::is_contained(options.disable, name))
      continue;
    os << "rewrite " << name << ": off, " << why << "\n";
    ++lines;
  }
  return lines;
}

LogicalResult moec::explainLayer(ModuleOp module,
                                 const std::optional<LayerSpec> &spec,
                                 const CompileOptions &options,
                                 ExplainMode mode, raw_ostream &os) {
  Target target = getExpectedTarget(options, module);
  FailureOr<moert::Plan> data = translatePlan(module, target.name);
  if (failed(data))
    return failure();
  if (spec)
    describeLayer(*spec, os);
  size_t numLines = describeStrategies(module, target, os);
  // Differences between the layer and its configuration.
  for (const std::string &remark :
       spec ? spec->remarks : std::vector<std::string>()) {
    os << "remark: " << remark << "\n";
    ++numLines;
  }
  // IR may be at level tile already, where no rewrite runs.
  if (spec && options.isGpu())
    numLines += describeRewrites(options, os);
  auto programs = module.getOps<plan::ProgramOp>();
  Explanation explanation(module, *programs.begin(), *data, target, os);
  if (mode == ExplainMode::All) {
    explanation.print();
    return success();
  }
  constexpr size_t maxLines = 40, linesOfLayer = 4;
  explanation.printSummary(maxLines - linesOfLayer - numLines);
  return success();
}
