//===- VerifyFences.cpp - fences between proxies ----------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// Verifies fences by a forward analysis over the blocks of a kernel. Its facts
// are writes that are, on some path, done without a later fence. Copies
// (cp.async) are not done before a wait, so a fence before the wait does not
// cover them: their age is counted in commits.

#include "SharedMemory.h"

#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/IR/RegionGraphTraits.h"
#include "moec/Transforms/Passes.h"
#include "llvm/ADT/BitVector.h"
#include "llvm/ADT/PostOrderIterator.h"
#include "llvm/ADT/SmallPtrSet.h"

#include <array>
#include <optional>
#include <vector>

namespace moec {
#define GEN_PASS_DEF_VERIFYGPUFENCESPASS
#include "moec/Transforms/Passes.h.inc"
} // namespace moec

using namespace mlir;
using namespace moec;

namespace {

/// The facts at a program point; every bit is one of the relevant writes.
struct State {
  /// Larger ages count as this one.
  static constexpr size_t kMaxAge = 16;

  explicit State(unsigned numWrites = 0)
      : unfenced(numWrites), uninitialized(numWrites) {
    copies.fill(llvm::BitVector(numWrites));
  }

  /// Done, without a later fence.proxy.async.
  llvm::BitVector unfenced;
  /// Barriers initialized without a later fence.mbarrier.init.
  llvm::BitVector uninitialized;
  /// Copies by the number of commits since their start.
  std::array<llvm::BitVector, kMaxAge + 1> copies;

  /// Adds the facts of another path; returns whether there were new ones.
  bool join(const State &other) {
    bool isNew = addTo(unfenced, other.unfenced);
    isNew |= addTo(uninitialized, other.uninitialized);
    for (size_t age = 0; age < copies.size(); ++age)
      isNew |= addTo(copies[age], other.copies[age]);
    return isNew;
  }

  void commit() {
    copies[kMaxAge] |= copies[kMaxAge - 1];
    for (size_t age = kMaxAge - 1; age > 0; --age)
      copies[age] = copies[age - 1];
    copies[0].reset();
  }

  /// Marks copies older than `numGroups` commits as done.
  void wait(int64_t numGroups) {
    for (size_t age = numGroups + 1; age < copies.size(); ++age) {
      unfenced |= copies[age];
      copies[age].reset();
    }
  }

  /// Marks all copies as done, committed or not.
  void finishCopies() {
    unfenced |= copies[0];
    copies[0].reset();
    wait(0);
  }

private:
  static bool addTo(llvm::BitVector &bits, const llvm::BitVector &others) {
    if (!others.test(bits))
      return false;
    bits |= others;
    return true;
  }
};

class FenceVerifier {
public:
  explicit FenceVerifier(LLVM::LLVMFuncOp func)
      : func(func), described(findDescribed(func)) {}

  LogicalResult run() {
    collect();
    if (writes.empty())
      return success();
    solve();
    for (Block &block : func.getBody()) {
      State state(writes.size());
      // A block that is not reachable has no facts.
      if (auto found = numberOf.find(&block); found != numberOf.end())
        state = *entries[found->second];
      for (Operation &op : block)
        visit(op, state, /*report=*/true);
    }
    return failure(hasFailed);
  }

private:
  /// Finds the accesses of the async proxy, and the writes that they may see.
  void collect() {
    SharedAddresses asynchronous;
    SharedParts parts;
    func.walk([&](Operation *op) {
      SharedAccess access = getSharedAccess(op, described);
      if (access.effect == SharedEffect::None)
        return;
      bool isAsync = access.effect == SharedEffect::AsyncAccess;
      for (const SharedAddress &address : access.addresses.list)
        if (isAsync || address.isMoved)
          parts.beginPart(address);
      if (isAsync)
        asynchronous.append(access.addresses);
      accesses.try_emplace(op, std::move(access));
    });
    if (asynchronous.empty())
      return;
    func.walk([&](Operation *op) {
      auto found = accesses.find(op);
      if (found == accesses.end())
        return;
      const SharedAccess &access = found->second;
      bool isWrite = access.effect == SharedEffect::Write ||
                     access.effect == SharedEffect::Copy;
      if (access.effect == SharedEffect::InitBarrier ||
          (isWrite && parts.overlap(access.addresses, asynchronous))) {
        numbers[op] = writes.size();
        writes.push_back(op);
      }
    });
  }

  /// Visits blocks in reverse post-order, so that most have the facts of all
  /// paths at their first visit.
  void solve() {
    llvm::ReversePostOrderTraversal<Block *> inOrder(&func.getBody().front());
    SmallVector<Block *> blocks(inOrder.begin(), inOrder.end());
    for (auto [number, block] : llvm::enumerate(blocks))
      numberOf[block] = number;
    entries.resize(blocks.size());
    entries.front().emplace(writes.size());
    llvm::BitVector pending(blocks.size());
    pending.set(0);
    for (int at = 0; at >= 0; at = pending.find_first()) {
      pending.reset(at);
      State state = *entries[at];
      for (Operation &op : *blocks[at])
        visit(op, state, /*report=*/false);
      for (Block *next : blocks[at]->getSuccessors()) {
        unsigned number = numberOf.at(next);
        std::optional<State> &entry = entries[number];
        if (!entry)
          entry = state;
        else if (!entry->join(state))
          continue;
        pending.set(number);
      }
    }
  }

  void visit(Operation &op, State &state, bool report) {
    auto found = accesses.find(&op);
    if (found == accesses.end())
      return;
    auto number = numbers.find(&op);
    bool isTracked = number != numbers.end();
    switch (found->second.effect) {
    case SharedEffect::None:
      return;
    case SharedEffect::Write:
      if (isTracked)
        state.unfenced.set(number->second);
      return;
    case SharedEffect::Copy:
      if (isTracked)
        state.copies[0].set(number->second);
      return;
    case SharedEffect::CommitCopies:
      return state.commit();
    case SharedEffect::WaitCopies:
      return state.wait(found->second.numGroups);
    case SharedEffect::InitBarrier:
      if (isTracked) {
        state.unfenced.set(number->second);
        state.uninitialized.set(number->second);
      }
      return;
    case SharedEffect::FenceProxy:
      state.unfenced.reset();
      return;
    case SharedEffect::FenceBarrierInit:
      state.uninitialized.reset();
      return;
    case SharedEffect::PublishCopies:
      state.finishCopies();
      return check(op, state, report, "publishes");
    case SharedEffect::Publish:
      return check(op, state, report, "publishes");
    case SharedEffect::AsyncAccess:
      return check(op, state, report, "accesses");
    }
  }

  /// Clears the facts afterwards, so that each missing fence is reported once.
  void check(Operation &op, State &state, bool report, StringRef verb) {
    if (report) {
      constexpr StringLiteral proxy =
          "nvvm.fence.proxy {kind = #nvvm.proxy_kind<async.shared>, space = "
          "#nvvm.shared_space<cta>}";
      reportLack(op, state.unfenced, verb, proxy);
      reportLack(op, state.uninitialized, verb, "nvvm.fence.mbarrier.init");
    }
    state.unfenced.reset();
    state.uninitialized.reset();
  }

  void reportLack(Operation &op, const llvm::BitVector &lacking, StringRef verb,
                  StringRef fence) {
    if (lacking.none())
      return;
    hasFailed = true;
    InFlightDiagnostic diagnostic = op.emitOpError();
    diagnostic << verb
               << " shared memory that this thread wrote and that copies or "
                  "tensor cores access, with no fence since on some path; "
                  "insert '"
               << fence << "' between the write and here";
    for (unsigned number : lacking.set_bits())
      diagnostic.attachNote(writes[number]->getLoc())
          << "written here by '" << writes[number]->getName() << "'";
  }

  LLVM::LLVMFuncOp func;
  SharedAddresses described;
  llvm::DenseMap<Operation *, SharedAccess> accesses;
  SmallVector<Operation *> writes;
  llvm::DenseMap<Operation *, unsigned> numbers;
  /// Reachable blocks by number, and the facts at their begin.
  llvm::DenseMap<Block *, unsigned> numberOf;
  std::vector<std::optional<State>> entries;
  bool hasFailed = false;
};

struct VerifyGpuFences : moec::impl::VerifyGpuFencesPassBase<VerifyGpuFences> {
  void runOnOperation() override {
    LLVM::LLVMFuncOp func = getOperation();
    if (!func->hasAttr(NVVM::NVVMDialect::getKernelFuncAttrName()) ||
        func.isExternal())
      return;
    if (failed(FenceVerifier(func).run()))
      signalPassFailure();
    markAllAnalysesPreserved();
  }
};

} // namespace
