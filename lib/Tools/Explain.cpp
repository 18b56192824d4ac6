//===- Explain.cpp - what was chosen for a layer, for people ----*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/Tools/Explain.h"

#include "moec/Compiler/PlanData.h"
#include "moec/Dialect/Tile/Tile.h"
#include "moert/Workspace.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FormatVariadic.h"

#include <cmath>

using namespace mlir;
using namespace moec;

namespace {

/// The token counts that the tables show.
SmallVector<int64_t> getTokenCounts(int64_t maxTokens) {
  SmallVector<int64_t> counts;
  for (int64_t tokens : {1, 16, 128, 1024})
    if (tokens <= maxTokens)
      counts.push_back(tokens);
  if (counts.empty())
    counts.push_back(maxTokens);
  return counts;
}

/// What a step has to do at least.
struct Work {
  double operations = 0;
  double bytes = 0;
};

double getElementBytes(Value memref) {
  return cast<MemRefType>(memref.getType()).getElementTypeBitWidth() / 8.0;
}

/// Elements of a row of a memref: those behind its first dimension.
int64_t getRowElements(Value memref) {
  return ShapedType::getNumElements(
      cast<MemRefType>(memref.getType()).getShape().drop_front());
}

double getRowBytes(Value memref) {
  return getElementBytes(memref) * double(getRowElements(memref));
}

/// Experts that `tokens` tokens with `topK` distinct experts each reach on
/// average, if all experts are equally likely.
double getActiveGroups(double groups, double topK, double tokens) {
  return groups * (1 - std::pow(1 - std::min(1.0, topK / groups), tokens));
}

Work getWork(tile::ContractOp op, int64_t topK, int64_t tokens) {
  auto weight = cast<MemRefType>(op.getWeight().getType());
  bool grouped = static_cast<bool>(op.getOffsets());
  double rows = double(tokens) * double(grouped ? topK : 1);
  double columns = double(weight.getShape()[grouped ? 1 : 0]);
  double groups = grouped ? getActiveGroups(double(weight.getDimSize(0)),
                                            double(topK), double(tokens))
                          : 1;
  Work work;
  work.operations = 2 * rows * columns * double(weight.getShape().back());
  work.bytes =
      groups * columns * double(weight.getShape().back()) *
          getElementBytes(op.getWeight()) +
      rows * getRowBytes(op.getResult()) +
      std::min(rows, double(tokens) * double(op.getSource() ? 1 : topK)) *
          getRowBytes(op.getInput());
  return work;
}

Work getWork(Operation *phase, int64_t topK, int64_t tokens) {
  if (auto op = dyn_cast<tile::ContractOp>(phase))
    return getWork(op, topK, tokens);
  Work work;
  double slots = double(tokens * topK);
  if (auto op = dyn_cast<tile::GatherReduceOp>(phase)) {
    work.operations = slots * double(getRowElements(op.getRows()));
    work.bytes = slots * getRowBytes(op.getRows()) +
                 double(tokens) * getRowBytes(op.getResult());
    if (op.getAddend())
      work.bytes += double(tokens) * getRowBytes(op.getAddend());
  } else if (auto op = dyn_cast<tile::TopKOp>(phase)) {
    work.bytes = double(tokens) * getRowBytes(op.getLogits()) + 8 * slots;
  } else if (auto op = dyn_cast<tile::RowMapOp>(phase)) {
    work.bytes = double(tokens) *
                 (getRowBytes(op.getInput()) + getRowBytes(op.getResult()));
  } else if (isa<tile::RankOp>(phase)) {
    work.bytes = slots * 20;
  }
  return work;
}

std::string printConfig(tile::ConfigAttr config) {
  if (!config)
    return "undecided";
  std::string text = config.getSchedule().str();
  auto add = [&](StringRef name, int64_t value) {
    if (value)
      text += (" " + name + "=" + Twine(value)).str();
  };
  add("m", config.getM());
  add("n", config.getN());
  add("k", config.getK());
  add("panel", config.getPanel());
  add("lanes", config.getLanes());
  add("rows", config.getRows());
  return text;
}

class Explanation {
public:
  Explanation(ModuleOp module, plan::ProgramOp program, const moert::Plan &data,
              raw_ostream &os)
      : module(module), program(program), data(data), os(os) {}

  void print() {
    topK = findTopK();
    program.walk([&](plan::LaunchOp launch) {
      auto kernel = module.lookupSymbol<tile::KernelOp>(launch.getKernel());
      for (Operation &phase : kernel.getBody().front().without_terminator())
        phases.push_back({launch, kernel, &phase});
    });
    printLaunches();
    printWork();
    printWorkspace();
  }

private:
  struct Phase {
    plan::LaunchOp launch;
    tile::KernelOp kernel;
    Operation *op;
  };

  int64_t findTopK() {
    int64_t found = 1;
    module.walk([&](tile::RankOp op) {
      found = cast<MemRefType>(op.getIds().getType()).getDimSize(1);
    });
    return found;
  }

  void printLaunches() {
    os << "\nlaunches, in order\n"
       << llvm::formatv("  {0,-6} {1,-18} {2,-14} {3,-46} {4}\n", "stream",
                        "kernel", "op", "config", "CTAs");
    for (Phase &phase : phases)
      os << llvm::formatv(
          "  {0,-6} {1,-18} {2,-14} {3,-46} {4}\n", phase.launch.getStream(),
          phase.kernel.getSymName(), phase.op->getName().stripDialect(),
          printConfig(phase.op->getAttrOfType<tile::ConfigAttr>("config")),
          phase.kernel.getGrid() ? phase.kernel.getGrid()->getText() : "?");
  }

  void printWork() {
    SmallVector<int64_t> counts = getTokenCounts(data.maxTokens);
    os << "\nwork at least: million operations / MiB touched, experts equally "
          "likely\n"
       << llvm::formatv("  {0,-18}", "kernel");
    for (int64_t tokens : counts)
      os << llvm::formatv(" {0,22}", "T=" + std::to_string(tokens));
    os << "\n";
    SmallVector<Work> totals(counts.size());
    auto row = [&](StringRef name, ArrayRef<Work> works) {
      os << llvm::formatv("  {0,-18}", name);
      for (const Work &work : works)
        os << llvm::formatv(" {0,11:f1} / {1,8:f1}", work.operations / 1e6,
                            work.bytes / (1 << 20));
      os << "\n";
    };
    for (Phase &phase : phases) {
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
    for (int64_t tokens : getTokenCounts(data.maxTokens)) {
      moert::Result<int64_t> bytes = moert::workspaceBytes(data, tokens);
      os << " T=" << tokens << " "
         << (bytes ? std::to_string(*bytes) : bytes.status().message());
    }
    os << "\n";
  }

  ModuleOp module;
  plan::ProgramOp program;
  const moert::Plan &data;
  raw_ostream &os;
  int64_t topK = 1;
  SmallVector<Phase> phases;
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
                                 raw_ostream &os) {
  FailureOr<moert::Plan> data = translatePlan(module, "cpu");
  if (failed(data))
    return failure();
  if (spec)
    printLayer(*spec, os);
  auto programs = module.getOps<plan::ProgramOp>();
  Explanation(module, *programs.begin(), *data, os).print();
  return success();
}
