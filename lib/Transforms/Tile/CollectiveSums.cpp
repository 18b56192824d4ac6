//===- CollectiveSums.cpp - sums that a collective may make -----*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "CollectiveSums.h"

#include "Launches.h"
#include "moec/Analysis/Exchange.h"
#include "moec/Analysis/Sm80.h"
#include "moert/PeerHeap.h"

#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace moec;

/// The step behind a launch on its stream.
static Operation *getNextOnStream(plan::LaunchOp launch) {
  auto isOnStream = [&](auto step) {
    return step.getStream() == launch.getStream();
  };
  for (Operation *op = launch->getNextNode(); op; op = op->getNextNode())
    if (llvm::TypeSwitch<Operation *, bool>(op)
            .Case<plan::LaunchOp, plan::CollectiveOp, plan::RecordOp,
                  plan::WaitOp>(isOnStream)
            .Default([](Operation *) { return false; }))
      return op;
  return nullptr;
}

/// Whether steps between a launch and a later one of its variant leave what it
/// reads as it is.
static bool isKept(plan::LaunchOp launch, Operation *until) {
  for (Operation *op = launch->getNextNode(); op != until;
       op = op->getNextNode()) {
    ValueRange outs;
    if (auto other = dyn_cast<plan::LaunchOp>(op))
      outs = other.getOuts();
    else if (auto collective = dyn_cast<plan::CollectiveOp>(op))
      outs = collective.getOuts();
    if (llvm::any_of(outs, [&](Value out) {
          return llvm::is_contained(launch.getIns(), out);
        }))
      return false;
  }
  return true;
}

SlotSums moec::findSums(plan::CollectiveOp collective, SymbolTable &symbols) {
  if (collective.getKind() == plan::CollectiveKind::AllGather ||
      collective.getIns().size() != 1)
    return {};
  Value sums = collective.getIns().front();
  if (!sums.getDefiningOp<plan::BufferOp>())
    return {};
  plan::LaunchOp launch;
  for (Operation *user : sums.getUsers()) {
    if (user == collective || user->getBlock() != collective->getBlock())
      continue;
    auto made = dyn_cast<plan::LaunchOp>(user);
    if (launch || !made || !llvm::is_contained(made.getOuts(), sums))
      return {};
    launch = made;
  }
  if (!launch || !launch->isBeforeInBlock(collective) ||
      launch.getOuts().size() != 1 ||
      launch.getStream() != collective.getStream() ||
      isa_and_nonnull<plan::LaunchOp>(getNextOnStream(launch)) ||
      !isKept(launch, collective))
    return {};
  auto phase = getPhase<tile::GatherReduceOp>(launch, symbols);
  if (!phase || phase.getIdentity())
    return {};
  auto pass = [&](Value argument) {
    return argument ? getPassed(launch, argument) : Value();
  };
  SlotSums found = {pass(phase.getRows()), pass(phase.getPosition()),
                    pass(phase.getAddend()), pass(phase.getNumValidTokens())};
  // A warp asks for the slots of a row at once.
  if (cast<MemRefType>(found.position.getType()).getDimSize(1) > sm80::kWarp)
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
