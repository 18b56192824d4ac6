//===- PhaseLoad.cpp - how many rows a gemm has -----------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "PhaseLoad.h"

#include "Launches.h"

#include <algorithm>

using namespace mlir;
using namespace moec;

int64_t moec::getLaunchTokens(plan::LaunchOp launch, int64_t tokens) {
  plan::ExprAttr own = launch.getTokensAttr();
  moert::Result<int64_t> told =
      own ? own.getExpr().evaluate(tokens) : moert::Result<int64_t>(tokens);
  return told ? *told : tokens;
}

tile::LoadAttr moec::getPhaseLoad(plan::LaunchOp launch, tile::GemmOp phase,
                                  SymbolTable &symbols) {
  auto variant = launch->getParentOfType<plan::VariantOp>();
  int64_t topK = 1, experts = 1;
  if (phase.getOffsets()) {
    // The kernel that writes the offsets counts rows per expert.
    Value offsets =
        launch.getIns()[cast<BlockArgument>(phase.getOffsets()).getArgNumber()];
    plan::LaunchOp ranking = findWriter(launch, offsets);
    tile::SortByExpertOp rank;
    if (tile::KernelOp kernel = ranking ? getKernel(ranking, symbols) : nullptr)
      kernel.walk([&](tile::SortByExpertOp op) { rank = op; });
    if (!rank)
      return {};
    topK = cast<MemRefType>(rank.getIds().getType()).getDimSize(1);
    experts = rank.getNumExperts() + rank.getNumZeroExperts();
    // Ids before their mapping to local ones may be of experts of other ranks.
    if (plan::LaunchOp placing =
            findWriter(ranking, getPassed(ranking, rank.getIds())))
      if (auto place = getPhase<tile::PlaceIdsOp>(placing, symbols);
          place && place.getTable())
        experts = cast<MemRefType>(place.getTable().getType()).getDimSize(0);
    // Zero experts of layers over ranks are not sorted, and with replicas they
    // are not in the table.
    for (auto other : launch->getBlock()->getOps<plan::LaunchOp>())
      if (auto place = getPhase<tile::PlaceIdsOp>(other, symbols);
          place && place.getZeroExperts())
        experts += (*place.getZeroExperts())[1];
    // A token has distinct experts if there are enough.
    experts = std::max(experts, topK);
  }
  return tile::LoadAttr::get(
      variant.getContext(), getLaunchTokens(launch, variant.getMinTokens()),
      getLaunchTokens(launch, variant.getMaxTokens()), topK, experts);
}
