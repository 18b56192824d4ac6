//===- DescribeLayer.cpp - describes a layer in text ------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "DescribeLayer.h"

#include "moec/Schedules/QuantSupport.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/Support/FormatVariadic.h"

using namespace mlir;
using namespace moec;

/// Breaks the line after a comma where it would exceed 140 columns.
static void printWrapped(StringRef text, raw_ostream &os) {
  constexpr size_t width = 120;
  while (text.size() > width) {
    size_t cut = text.take_front(width).rfind(", ");
    if (cut == StringRef::npos)
      break;
    os << text.take_front(cut + 1) << "\n ";
    text = text.drop_front(cut + 1);
  }
  os << text << "\n";
}

static void describeExperts(const LayerSpec &spec, raw_ostream &os) {
  if (const std::optional<ParallelSpec> &parallel = spec.parallel) {
    os << "ranks: " << parallel->describeRanks();
    if (parallel->hasWholeExperts())
      os << ", "
         << (spec.getNumPhysicalExperts() <
                     spec.getNumLocalExperts() * parallel->getNumRanks()
                 ? "up to "
                 : "")
         << spec.getNumLocalExperts() << " whole experts on each, "
         << (parallel->placement == ExpertPlacement::Linear   ? "linear"
             : parallel->placement == ExpertPlacement::Listed ? "by a list"
                                                              : "round robin");
    else
      os << ", a slice of every expert on each";
    os << "\n";
  }
  if (spec.replicas)
    os << "replicas: " << spec.replicas->numPhysicalExperts
       << " physical experts, at most " << spec.replicas->maxReplicas
       << " replicas of each expert\n";
}

void moec::describeLayer(const LayerSpec &spec, raw_ostream &os) {
  std::string text;
  llvm::raw_string_ostream line(text);
  line << spec.name << ": " << stringify(spec.dtype) << ", hidden "
       << spec.hiddenSize << ", " << spec.numExperts << " experts, top "
       << spec.topK << ", intermediate " << spec.intermediateSize << ", "
       << stringify(spec.activation.kind);
  if (spec.quantization)
    line << ", weights " << describe(spec.quantization);
  if (spec.latentSize)
    line << ", latent " << *spec.latentSize;
  if (spec.sharedExperts) {
    line << ", shared expert " << spec.sharedExperts->intermediateSize;
    if (spec.sharedExperts->quantization != spec.quantization)
      line << ", its weights " << describe(spec.sharedExperts->quantization);
  }
  line << "; entry " << stringify(spec.entry) << ", up to " << spec.maxTokens
       << " tokens";
  printWrapped(text, os);
  describeExperts(spec, os);
  if (spec.entry == Entry::Ids)
    return;
  const RoutingSpec &routing = spec.routing;
  text.clear();
  line << "routing: " << stringify(routing.score) << ", "
       << stringify(routing.select);
  if (routing.numGroups > 1)
    line << " in " << routing.topkGroups << " of " << routing.numGroups
         << " groups by " << stringify(routing.groupScore);
  line << ", weight " << stringify(routing.weight)
       << (routing.selectionBias ? ", selection bias" : "")
       << (routing.renormalize ? ", renormalized" : "") << ", scale "
       << llvm::formatv("{0}", routing.scale);
  if (spec.recordIds)
    line << "; records ids as " << stringify(*spec.recordIds);
  if (spec.replayIds)
    line << "; replays ids of " << stringify(*spec.replayIds);
  printWrapped(text, os);
}

size_t moec::describeStrategies(ModuleOp module, const Target &target,
                                raw_ostream &os) {
  llvm::SetVector<std::tuple<moe::QuantAttr, moe::QuantAttr, moe::StrategyAttr>>
      kinds;
  module.walk([&](tile::GemmOp op) {
    if (op.getStrategy())
      kinds.insert({op.getInputQuantAttr(), op.getWeightQuantAttr(),
                    op.getStrategyAttr()});
  });
  auto show = [&](moe::QuantAttr quant) {
    std::string text;
    llvm::raw_string_ostream line(text);
    if (!quant)
      return std::string("plain");
    line << quant.getStorage() << " by "
         << stringifyGranularity(quant.getGranularity());
    if (!quant.getBlock().empty())
      line << " " << quant.getBlock()[0] << "x" << quant.getBlock()[1];
    return text;
  };
  for (auto [input, weight, strategy] : kinds)
    os << "gemm of " << show(input) << " and " << show(weight) << ": "
       << stringifyStrategy(strategy.getValue()) << ", "
       << getReason(target, strategy.getValue()) << "\n";
  llvm::SetVector<moe::QuantAttr> kept;
  module.walk([&](tile::QuantizeOp op) {
    if (moe::areKeptAsBF16(op.getQuant()))
      kept.insert(op.getQuant());
  });
  for (moe::QuantAttr quant : kept)
    os << "rows of " << show(quant) << ": dequantized to bf16, "
       << getReasonForBF16() << "\n";
  return kinds.size();
}

int64_t moec::findTopK(ModuleOp module) {
  int64_t found = 1;
  module.walk([&](tile::SortByExpertOp op) {
    found = cast<MemRefType>(op.getIds().getType()).getDimSize(1);
  });
  return found;
}
