//===- CollectiveCodes.cpp - codes that a collective may make ---*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "CollectiveCodes.h"

#include "Launches.h"
#include "ReplaceableLaunch.h"
#include "moec/Dialect/Moe/QuantLayout.h"
#include "moec/Dialect/RowCodes.h"

using namespace mlir;
using namespace moec;

static int64_t findPair(plan::CollectiveOp collective, Value input) {
  auto found = llvm::find(collective.getIns(), input);
  return std::distance(collective.getIns().begin(), found);
}

/// Whether groups of a row have a part of a warp each, and a scale of their own
/// in memory.
static bool hasGroups(tile::QuantizeOp phase) {
  moe::QuantAttr quant = phase.getQuant();
  if (phase.getOffsets() || !phase.getScale() || !quant.getDynamic() ||
      quant.getGranularity() != moe::Granularity::Group ||
      !quant.getScale().isF32())
    return false;
  auto codes = cast<MemRefType>(phase.getQuantized().getType());
  auto scales = cast<MemRefType>(phase.getScale().getType());
  Type rows = getElementTypeOrSelf(phase.getInput());
  return isa<Float8E4M3FNType>(codes.getElementType()) &&
         (rows.isBF16() || rows.isF16()) &&
         RowCodes::getGroup(codes, scales) == quant.getBlock()[1];
}

CollectiveCodes moec::findCodes(plan::CollectiveOp collective,
                                SymbolTable &symbols) {
  if (collective.getKind() != plan::CollectiveKind::AllGather)
    return {};
  for (Value input : collective.getIns()) {
    plan::LaunchOp launch = findReplaceable(collective, input);
    if (!launch)
      continue;
    auto phase = getPhase<tile::QuantizeOp>(launch, symbols);
    if (!phase || !hasGroups(phase))
      continue;
    CollectiveCodes codes{
        getPassed(launch, phase.getInput()),
        {findPair(collective, getPassed(launch, phase.getQuantized())),
         findPair(collective, getPassed(launch, phase.getScale()))}};
    ArrayRef<int64_t> owned =
        collective.getOwned().value_or(ArrayRef<int64_t>());
    if (llvm::is_contained(owned, codes.coded[0]) ==
        llvm::is_contained(owned, codes.coded[1]))
      return codes;
  }
  return {};
}

void moec::setCodes(plan::CollectiveOp collective,
                    const CollectiveCodes &codes) {
  collective.getUncodedMutable().assign(codes.uncoded);
  collective.setCoded(codes.coded);
}

moe::QuantAttr moec::getCodesQuant(plan::CollectiveOp collective,
                                   SymbolTable &symbols) {
  if (!collective.getUncoded())
    return {};
  plan::LaunchOp launch = collective.getReplacedLaunch();
  auto phase =
      launch ? getPhase<tile::QuantizeOp>(launch, symbols) : tile::QuantizeOp();
  return phase ? phase.getQuant() : moe::QuantAttr();
}
