//===- CollectiveQuantization.cpp - rows a gather quantizes -----*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "CollectiveQuantization.h"

#include "Launches.h"
#include "ReplaceableLaunch.h"
#include "moec/Dialect/Moe/QuantLayout.h"
#include "moec/Dialect/RowQuantization.h"
#include "moec/Schedules/Exchange.h"

using namespace mlir;
using namespace moec;

static int64_t findPair(plan::CollectiveOp collective, Value input) {
  auto found = llvm::find(collective.getIns(), input);
  return std::distance(collective.getIns().begin(), found);
}

/// Whether each group of a row, or each row, has its own scale in memory and is
/// handled by part of a warp, or part of a CTA.
static bool isOfGroupsOrRows(tile::QuantizeOp phase, const Target &target) {
  moe::QuantAttr quant = phase.getQuant();
  if (phase.getOffsets() || !phase.getScale() || !quant.getDynamic())
    return false;
  auto values = cast<MemRefType>(phase.getQuantized().getType());
  auto scales = cast<MemRefType>(phase.getScale().getType());
  Type rows = getElementTypeOrSelf(phase.getInput());
  if ((!rows.isBF16() && !rows.isF16()) ||
      !RowQuantization::areMade(values, scales))
    return false;
  if (quant.getGranularity() == moe::Granularity::Token)
    return RowQuantization::areRows(values, scales) &&
           holdsQuantizedRows(quant, target) &&
           values.getDimSize(1) <= getMaxQuantizedColumns();
  return quant.getGranularity() == moe::Granularity::Group &&
         RowQuantization::getGroup(values, scales) == quant.getBlock()[1];
}

CollectiveQuantization moec::findQuantization(plan::CollectiveOp collective,
                                              SymbolTable &symbols,
                                              const Target &target) {
  if (collective.getKind() != plan::CollectiveKind::AllGather)
    return {};
  for (Value input : collective.getIns()) {
    plan::LaunchOp launch = findReplaceable(collective, input);
    if (!launch)
      continue;
    auto phase = getPhase<tile::QuantizeOp>(launch, symbols);
    if (!phase || !isOfGroupsOrRows(phase, target))
      continue;
    CollectiveQuantization values{
        getPassed(launch, phase.getInput()),
        {findPair(collective, getPassed(launch, phase.getQuantized())),
         findPair(collective, getPassed(launch, phase.getScale()))}};
    ArrayRef<int64_t> routed =
        collective.getRouted().value_or(ArrayRef<int64_t>());
    if (llvm::is_contained(routed, values.quantized[0]) ==
        llvm::is_contained(routed, values.quantized[1]))
      return values;
  }
  return {};
}

void moec::setQuantization(plan::CollectiveOp collective,
                           const CollectiveQuantization &values) {
  collective.getUnquantizedMutable().assign(values.unquantized);
  collective.setQuantized(values.quantized);
}

moe::QuantAttr moec::getCollectiveQuant(plan::CollectiveOp collective,
                                        SymbolTable &symbols) {
  if (!collective.getUnquantized())
    return {};
  plan::LaunchOp launch = collective.getReplacedLaunch();
  auto phase =
      launch ? getPhase<tile::QuantizeOp>(launch, symbols) : tile::QuantizeOp();
  return phase ? phase.getQuant() : moe::QuantAttr();
}
