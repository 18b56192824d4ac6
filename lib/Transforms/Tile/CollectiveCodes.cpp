//===- CollectiveCodes.cpp - codes that a collective may make ---*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "CollectiveCodes.h"

#include "Launches.h"
#include "ReplaceableLaunch.h"
#include "moec/Analysis/Exchange.h"
#include "moec/Dialect/Moe/QuantLayout.h"
#include "moec/Dialect/RowCodes.h"

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
  auto codes = cast<MemRefType>(phase.getQuantized().getType());
  auto scales = cast<MemRefType>(phase.getScale().getType());
  Type rows = getElementTypeOrSelf(phase.getInput());
  if ((!rows.isBF16() && !rows.isF16()) || !RowCodes::areMade(codes, scales))
    return false;
  if (quant.getGranularity() == moe::Granularity::Token)
    return RowCodes::areRows(codes, scales) &&
           holdsCodesOfRows(quant, target) &&
           codes.getDimSize(1) <= getMostCodesOfRow();
  return quant.getGranularity() == moe::Granularity::Group &&
         RowCodes::getGroup(codes, scales) == quant.getBlock()[1];
}

CollectiveCodes moec::findCodes(plan::CollectiveOp collective,
                                SymbolTable &symbols, const Target &target) {
  if (collective.getKind() != plan::CollectiveKind::AllGather)
    return {};
  for (Value input : collective.getIns()) {
    plan::LaunchOp launch = findReplaceable(collective, input);
    if (!launch)
      continue;
    auto phase = getPhase<tile::QuantizeOp>(launch, symbols);
    if (!phase || !isOfGroupsOrRows(phase, target))
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
