//===- CollectiveSums.cpp - sums that a collective may make -----*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "CollectiveSums.h"

#include "Launches.h"
#include "ReplaceableLaunch.h"
#include "moec/Schedules/Exchange.h"
#include "moert/PeerHeap.h"

using namespace mlir;
using namespace moec;

SlotSums moec::findSums(plan::CollectiveOp collective, SymbolTable &symbols) {
  if (collective.getKind() == plan::CollectiveKind::AllGather ||
      collective.getIns().size() != 1)
    return {};
  plan::LaunchOp launch =
      findReplaceable(collective, collective.getIns().front());
  if (!launch || launch.getOuts().size() != 1)
    return {};
  auto phase = getPhase<tile::GatherReduceOp>(launch, symbols);
  if (!phase || phase.getIdentity() || phase.getUnreduced())
    return {};
  auto pass = [&](Value argument) {
    return argument ? getPassed(launch, argument) : Value();
  };
  SlotSums found = {pass(phase.getRows()), pass(phase.getPosition()),
                    pass(phase.getAddend()), pass(phase.getNumValidTokens())};
  if (cast<MemRefType>(found.position.getType()).getDimSize(1) >
      kMostSummedSlots)
    return {};
  return found;
}

void moec::setSums(plan::CollectiveOp collective, const SlotSums &sums) {
  collective.getRowsMutable().assign(sums.rows);
  collective.getPositionMutable().assign(sums.position);
  if (sums.addend)
    collective.getAddendMutable().assign(sums.addend);
  if (sums.numValidTokens)
    collective.getNumValidTokensMutable().assign(sums.numValidTokens);
}

bool moec::hasExchange(plan::CollectiveOp collective) {
  plan::MeshAttr mesh =
      collective->getParentOfType<plan::ProgramOp>().getMeshAttr();
  int64_t ranks =
      collective.getAxis() == plan::Axis::Dp ? mesh.getDp() : mesh.getTp();
  return getExchangedRows(collective) && ranks > 1 &&
         ranks <= moert::PeerHeap::kMaxRanks;
}
