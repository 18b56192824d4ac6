//===- Explain.cpp - what was chosen for a layer, for people ----*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/Tools/Explain.h"

#include "ExplainTimes.h"
#include "PhaseWork.h"
#include "TextTable.h"
#include "moec/Analysis/ConfigText.h"
#include "moec/Analysis/Names.h"
#include "moec/Compiler/PlanData.h"
#include "moert/Workspace.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FormatVariadic.h"

using namespace mlir;
using namespace moec;

namespace {

/// The token counts that the tables show.
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

  void print() {
    topK = findTopK();
    auto variants =
        llvm::to_vector(program.getBody().getOps<plan::VariantOp>());
    os << "\n"
       << llvm::range_size(module.getOps<tile::KernelOp>()) << " kernels, "
       << variants.size() << (variants.size() == 1 ? " range" : " ranges")
       << " of tokens\n";
    ToldKernels told;
    for (plan::VariantOp variant : variants) {
      phases = getLaunchedPhases(variant);
      if (variants.size() > 1)
        os << "\ntokens " << variant.getMinTokens() << " to "
           << variant.getMaxTokens() << "\n";
      printLaunches();
      printWork(getTokenCounts(variant.getMinTokens(), variant.getMaxTokens()));
      explainTimes(phases, variant, topK, target, told, os);
    }
    printWorkspace();
  }

private:
  int64_t findTopK() {
    int64_t found = 1;
    module.walk([&](tile::RankOp op) {
      found = cast<MemRefType>(op.getIds().getType()).getDimSize(1);
    });
    return found;
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
    os << "\nwork at least: million operations / MiB touched, experts equally "
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

void printLayer(const LayerSpec &spec, raw_ostream &os) {
  os << spec.name << ": " << stringify(spec.dtype) << ", hidden "
     << spec.hiddenSize << ", " << spec.numExperts << " experts, top "
     << spec.topK << ", intermediate " << spec.intermediateSize << ", "
     << stringify(spec.activation.kind);
  if (spec.latentSize)
    os << ", latent " << *spec.latentSize;
  if (spec.sharedExperts)
    os << ", shared expert " << spec.sharedExperts->intermediateSize;
  os << "; entry " << stringify(spec.entry) << ", up to " << spec.maxTokens
     << " tokens\n";
  if (spec.entry != Entry::Ids)
    os << "routing: " << stringify(spec.routing.score) << ", "
       << stringify(spec.routing.select) << ", weight "
       << stringify(spec.routing.weight)
       << (spec.routing.selectionBias ? ", selection bias" : "")
       << (spec.routing.renormalize ? ", renormalized" : "") << ", scale "
       << llvm::formatv("{0}", spec.routing.scale) << "\n";
}

} // namespace

SmallVector<LaunchedPhase> moec::getLaunchedPhases(plan::VariantOp variant) {
  SmallVector<LaunchedPhase> phases;
  auto module = variant->getParentOfType<ModuleOp>();
  for (auto launch : variant.getBody().getOps<plan::LaunchOp>()) {
    auto kernel = module.lookupSymbol<tile::KernelOp>(launch.getKernel());
    auto ops = kernel.getBody().front().without_terminator();
    bool isAlone = llvm::hasSingleElement(ops);
    for (Operation &op : ops) {
      StringRef name = isAlone ? kernel.getSymName() : getResultName(&op, 0);
      if (name.empty())
        name = op.getName().stripDialect();
      phases.push_back({launch, kernel, &op, name.str(),
                        /*isFirst=*/&op == &*ops.begin(), isAlone});
    }
  }
  return phases;
}

LogicalResult moec::explainLayer(ModuleOp module,
                                 const std::optional<LayerSpec> &spec,
                                 const Target &target, raw_ostream &os) {
  FailureOr<moert::Plan> data = translatePlan(module, target.name);
  if (failed(data))
    return failure();
  if (spec)
    printLayer(*spec, os);
  auto programs = module.getOps<plan::ProgramOp>();
  Explanation(module, *programs.begin(), *data, target, os).print();
  return success();
}
