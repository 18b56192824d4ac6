//===- ReplaceableLaunch.cpp - launches for a collective --------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ReplaceableLaunch.h"

#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace moec;

/// The step after a launch on its stream.
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

/// Whether steps between a launch and `until` do not write its inputs.
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

/// Whether no other step of the collective's variant uses the launch's results,
/// and the collective reads all of them.
static bool isForAlone(plan::LaunchOp launch, plan::CollectiveOp collective) {
  return llvm::all_of(launch.getOuts(), [&](Value out) {
    return out.getDefiningOp<plan::BufferOp>() &&
           llvm::is_contained(collective.getIns(), out) &&
           llvm::all_of(out.getUsers(), [&](Operation *user) {
             return user == launch || user == collective ||
                    user->getBlock() != collective->getBlock();
           });
  });
}

plan::LaunchOp moec::findReplaceable(plan::CollectiveOp collective,
                                     Value input) {
  for (Operation *user : input.getUsers()) {
    auto launch = dyn_cast<plan::LaunchOp>(user);
    if (!launch || launch->getBlock() != collective->getBlock() ||
        !llvm::is_contained(launch.getOuts(), input))
      continue;
    // Another launch that writes it would be another use.
    bool isReplaceable =
        isForAlone(launch, collective) && launch->isBeforeInBlock(collective) &&
        launch.getStream() == collective.getStream() &&
        !isa_and_nonnull<plan::LaunchOp>(getNextOnStream(launch)) &&
        isKept(launch, collective);
    return isReplaceable ? launch : nullptr;
  }
  return nullptr;
}
