//===- StreamSchedule.cpp - which kernel runs when and where ----*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "StreamSchedule.h"

#include "llvm/ADT/BitVector.h"

using namespace mlir;
using namespace moec;
using namespace moec::moe;

namespace {

/// Kernels on the side stream, joined before `consumer`.
struct SideBranch {
  int64_t consumer = -1;
  llvm::BitVector members;
  /// Kernels of the main stream whose results the members read.
  llvm::BitVector inputs;
  /// The last collective of the main stream that overlaps with the branch, if
  /// there are several.
  int64_t lastCollective = -1;
  /// Members that wait for `lastCollective`, so that each overlaps with one.
  llvm::BitVector late;
  /// Whether the members that are not late have been launched.
  bool hasBegun = false;
  /// The event that joins the branch, once it has been launched.
  int64_t joinEvent = -1;
};

class Scheduler {
public:
  explicit Scheduler(const LayerFunction &layer)
      : layer(layer), numGroups(layer.getGroups().size()), onSide(numGroups),
        emitted(numGroups) {}

  SmallVector<ScheduledStep> run() {
    // From the last kernel: members of a branch do not form branches of their
    // own.
    for (int64_t i = numGroups - 1; i >= 0; --i)
      if (!onSide.test(i))
        formBranch(i);
    std::reverse(branches.begin(), branches.end());
    launchReadyBranches();
    for (int64_t i = 0; i < numGroups; ++i) {
      if (onSide.test(i) || layer.getGroups()[i].prepares())
        continue;
      for (SideBranch &branch : branches) {
        if (branch.lastCollective == i)
          launch(branch, branch.late);
        if (branch.consumer == i)
          steps.push_back({ScheduledStep::Kind::Wait, branch.joinEvent, 0});
      }
      steps.push_back({ScheduledStep::Kind::Launch, i, 0});
      emitted.set(i);
      launchReadyBranches();
    }
    return std::move(steps);
  }

private:
  static SmallVector<Value, 1> getAddends(const KernelGroup &group) {
    // The results of zero experts are added to the sum itself on each rank.
    if (auto sum = dyn_cast<UnpermuteOp>(group.ops.front()))
      return sum.getAddend() && sum.getAddend() != sum.getRows()
                 ? SmallVector<Value, 1>{sum.getAddend()}
                 : SmallVector<Value, 1>{};
    if (auto matmul = dyn_cast<GroupedMatmulOp>(group.ops.front()))
      return SmallVector<Value, 1>(matmul.getElementwiseOperands());
    if (auto map = dyn_cast<RowMapOp>(group.ops.front()))
      return SmallVector<Value, 1>(map.getElementwiseOperands());
    return {};
  }

  void formBranch(int64_t consumer) {
    const KernelGroup &group = layer.getGroups()[consumer];
    SideBranch branch;
    branch.consumer = consumer;
    branch.members.resize(numGroups);
    branch.inputs.resize(numGroups);
    for (Value addend : getAddends(group))
      if (int64_t producer = layer.getProducer(addend); producer >= 0)
        branch.members.set(producer);
    // Producers come before their users, so that one backward sweep closes the
    // set; a kernel whose result is read outside the branch stays outside.
    for (int64_t i = consumer - 1; i >= 0; --i) {
      if (!branch.members.test(i))
        continue;
      // Collectives have the same order on all ranks.
      if (onSide.test(i) || layer.getGroups()[i].isCollective() ||
          isReadOutside(i, branch)) {
        branch.members.reset(i);
        branch.inputs.set(i);
        continue;
      }
      for (Value in : layer.getGroups()[i].ins)
        if (int64_t producer = layer.getProducer(in); producer >= 0)
          branch.members.set(producer);
    }
    // Inputs of the consumer that no member reads are no inputs of the branch.
    branch.inputs.reset();
    for (int64_t i : branch.members.set_bits())
      for (Value in : layer.getGroups()[i].ins)
        if (int64_t producer = layer.getProducer(in);
            producer >= 0 && !branch.members.test(producer))
          branch.inputs.set(producer);
    if (branch.members.none() || !hasCompany(branch))
      return;
    onSide |= branch.members;
    deferLastProduct(branch);
    branches.push_back(std::move(branch));
  }

  /// A shared expert takes longer than either of the two collectives that
  /// overlap with it: its first gemm goes beside the dispatch, its last one
  /// beside the combine.
  void deferLastProduct(SideBranch &branch) const {
    SmallVector<int64_t> collectives, products;
    for (int64_t i = branch.inputs.find_last() + 1; i < branch.consumer; ++i) {
      if (branch.members.test(i)) {
        if (isa<GroupedMatmulOp>(layer.getGroups()[i].ops.front()))
          products.push_back(i);
      } else if (layer.getGroups()[i].isCollective()) {
        collectives.push_back(i);
      }
    }
    if (collectives.size() < 2 || products.size() < 2)
      return;
    branch.lastCollective = collectives.back();
    branch.late = branch.members;
    branch.late.reset(0, products.back());
  }

  /// Whether the main stream has work between the branch's inputs and its end.
  bool hasCompany(const SideBranch &branch) const {
    for (int64_t i = branch.inputs.find_last() + 1; i < branch.consumer; ++i)
      if (!layer.getGroups()[i].prepares() && !branch.members.test(i) &&
          !onSide.test(i))
        return true;
    return false;
  }

  bool isReadOutside(int64_t index, const SideBranch &branch) const {
    for (Value out : layer.getGroups()[index].outs)
      for (Operation *user : out.getUsers()) {
        if (user->getNumResults() == 0)
          return true; // The function's return: an output of the layer.
        int64_t reader = layer.getProducer(user->getResult(0));
        if (reader != branch.consumer && !branch.members.test(reader))
          return true;
      }
    return false;
  }

  void launchReadyBranches() {
    for (SideBranch &branch : branches) {
      // True if an input is not available yet.
      if (branch.hasBegun || branch.inputs.test(emitted))
        continue;
      branch.hasBegun = true;
      llvm::BitVector members = branch.members;
      members.reset(branch.late);
      launch(branch, members);
    }
  }

  /// The last members join the branch again.
  void launch(SideBranch &branch, const llvm::BitVector &members) {
    steps.push_back({ScheduledStep::Kind::Record, numEvents, 0});
    steps.push_back({ScheduledStep::Kind::Wait, numEvents++, 1});
    for (int64_t i : members.set_bits())
      steps.push_back({ScheduledStep::Kind::Launch, i, 1});
    if (!members.test(branch.members.find_last()))
      return;
    branch.joinEvent = numEvents++;
    steps.push_back({ScheduledStep::Kind::Record, branch.joinEvent, 1});
  }

  const LayerFunction &layer;
  int64_t numGroups;
  /// Per kernel: whether it is in a branch; whether it has been launched on the
  /// main stream.
  llvm::BitVector onSide, emitted;
  SmallVector<SideBranch, 1> branches;
  SmallVector<ScheduledStep> steps;
  int64_t numEvents = 0;
};

} // namespace

SmallVector<ScheduledStep> moec::scheduleStreams(const LayerFunction &layer) {
  return Scheduler(layer).run();
}
