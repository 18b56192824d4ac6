//===- StepOrder.cpp - what happens before what in a variant ----*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/Schedules/StepOrder.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/TypeSwitch.h"

#include <map>

using namespace mlir;
using namespace moec;

StepOrder::StepOrder(plan::VariantOp variant) {
  Block &block = variant.getBody().front();
  unsigned numSteps = llvm::range_size(block);
  readsInputs.resize(numSteps);
  // Steps that have ended when a stream's next step begins, and when an event
  // is complete. Both ids may be any number, including the reserved keys of a
  // DenseMap.
  std::map<int64_t, llvm::BitVector> streams, events;
  auto at = [&](std::map<int64_t, llvm::BitVector> &map,
                int64_t key) -> llvm::BitVector & {
    return map.try_emplace(key, numSteps).first->second;
  };
  for (auto [index, op] : llvm::enumerate(block)) {
    int64_t stream =
        llvm::TypeSwitch<Operation *, int64_t>(&op)
            .Case<plan::LaunchOp, plan::CollectiveOp, plan::RecordOp,
                  plan::WaitOp>([](auto step) { return step.getStream(); })
            .Default([](Operation *) { return 0; });
    llvm::BitVector &past = at(streams, stream);
    if (auto wait = dyn_cast<plan::WaitOp>(op))
      past |= at(events, wait.getEvent());
    indices[&op] = unsigned(index);
    predecessors.push_back(past);
    past.set(index);
    if (auto record = dyn_cast<plan::RecordOp>(op))
      at(events, record.getEvent()) = past;
    for (Value operand : op.getOperands())
      uses[operand].push_back(index);
    auto launch = dyn_cast<plan::LaunchOp>(op);
    if (launch && llvm::none_of(launch.getIns(), [](Value in) {
          return in.getDefiningOp<plan::BufferOp>();
        }))
      readsInputs.set(index);
  }
}

bool StepOrder::endsBefore(Value first, Value second) const {
  auto firstUses = uses.find(first), secondUses = uses.find(second);
  if (firstUses == uses.end() || secondUses == uses.end())
    return true;
  return llvm::all_of(secondUses->second, [&](unsigned later) {
    return llvm::all_of(firstUses->second, [&](unsigned earlier) {
      return predecessors[later].test(earlier);
    });
  });
}

bool StepOrder::isFirst(Operation *step, Value memory) const {
  auto found = uses.find(memory);
  return found == uses.end() || found->second.front() >= indices.lookup(step);
}

bool StepOrder::isUsedUp(Value memory, Operation *step) const {
  auto found = uses.find(memory);
  unsigned index = indices.lookup(step);
  return found == uses.end() || llvm::all_of(found->second, [&](unsigned use) {
           return use == index || predecessors[index].test(use);
         });
}

bool StepOrder::isMadeFromInputs(Value buffer) const {
  auto found = uses.find(buffer);
  return found != uses.end() && readsInputs.test(found->second.front());
}
