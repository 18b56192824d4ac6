//===- Explain.cpp - what was chosen for a layer, for people ----*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/Tools/Explain.h"

#include "ExplainTimes.h"
#include "PhaseWork.h"
#include "moec/Analysis/ConfigText.h"
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
    for (plan::VariantOp variant : variants) {
      phases.clear();
      for (auto launch : variant.getBody().getOps<plan::LaunchOp>()) {
        auto kernel = module.lookupSymbol<tile::KernelOp>(launch.getKernel());
        for (Operation &phase : kernel.getBody().front().without_terminator())
          phases.push_back({launch, kernel, &phase});
      }
      if (variants.size() > 1)
        os << "\ntokens " << variant.getMinTokens() << " to "
           << variant.getMaxTokens() << "\n";
      printLaunches();
      printWork(getTokenCounts(variant.getMinTokens(), variant.getMaxTokens()));
      explainTimes(phases, variant, topK, target, os);
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
    os << "\nlaunches, in order\n"
       << llvm::formatv("  {0,-6} {1,-22} {2,-14} {3,-56} {4}\n", "stream",
                        "kernel", "op", "config", "CTAs");
    for (LaunchedPhase &phase : phases)
      os << llvm::formatv(
          "  {0,-6} {1,-22} {2,-14} {3,-56} {4}\n", phase.launch.getStream(),
          phase.kernel.getSymName(), phase.op->getName().stripDialect(),
          printConfig(phase.op->getAttrOfType<tile::ConfigAttr>("config")),
          phase.kernel.getGrid() ? phase.kernel.getGrid()->getText() : "?");
  }

  void printWork(ArrayRef<int64_t> counts) {
    os << "\nwork at least: million operations / MiB touched, experts equally "
          "likely\n"
       << llvm::formatv("  {0,-22}", "kernel");
    for (int64_t tokens : counts)
      os << llvm::formatv(" {0,22}", "T=" + std::to_string(tokens));
    os << "\n";
    SmallVector<Work> totals(counts.size());
    auto row = [&](StringRef name, ArrayRef<Work> works) {
      os << llvm::formatv("  {0,-22}", name);
      for (const Work &work : works)
        os << llvm::formatv(" {0,11:f1} / {1,8:f1}", work.operations / 1e6,
                            work.bytes / (1 << 20));
      os << "\n";
    };
    for (LaunchedPhase &phase : phases) {
      SmallVector<Work> works;
      for (auto [i, tokens] : llvm::enumerate(counts)) {
        works.push_back(getWork(phase.op, topK, tokens));
        totals[i].operations += works.back().operations;
        totals[i].bytes += works.back().bytes;
      }
      row(phase.kernel.getSymName(), works);
    }
    row("all", totals);
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
