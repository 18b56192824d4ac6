//===- PlanAssignSlots.cpp - buffers to workspace slots ---------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/Schedules/StepOrder.h"
#include "moec/Transforms/Passes.h"
#include "moert/Expr.h"

namespace moec {
#define GEN_PASS_DEF_PLANASSIGNSLOTSPASS
#include "moec/Transforms/Passes.h.inc"
} // namespace moec

using namespace mlir;
using namespace moec;

namespace {

struct SizedBuffer {
  plan::BufferOp op;
  /// Bytes at the token count that maximizes them.
  int64_t bytes;
  /// Index in the program.
  size_t index;
};

FailureOr<int64_t> largestSize(plan::BufferOp buffer, int64_t maxTokens) {
  auto type = cast<MemRefType>(buffer.getBuffer().getType());
  moert::Expr bits(type.getElementTypeBitWidth());
  for (int64_t size : type.getShape())
    if (!ShapedType::isDynamic(size))
      bits = bits * moert::Expr(size);
  if (plan::ExprAttr rows = buffer.getRowsAttr())
    bits = bits * rows.getExpr();
  moert::Result<int64_t> bytes =
      moert::Expr::ceilDiv(bits, 8).maxUpTo(maxTokens);
  if (!bytes)
    return buffer.emitOpError("has a size that overflows at up to ")
           << maxTokens << " tokens: " << bytes.status().message()
           << "; lower max_tokens";
  return *bytes;
}

/// Whether `second` may share the slot of `first`. A launch that reads no
/// result of earlier ones should not have to wait for their slots
/// (tile-find-independent).
bool isFreeFor(const StepOrder &order, Value first, Value second) {
  return order.endsBefore(first, second) && !order.isMadeFromInputs(second);
}

struct PlanAssignSlots : moec::impl::PlanAssignSlotsPassBase<PlanAssignSlots> {
  using PlanAssignSlotsPassBase::PlanAssignSlotsPassBase;

  void runOnOperation() override {
    plan::ProgramOp program = getOperation();
    SmallVector<SizedBuffer> buffers;
    for (auto buffer : program.getBody().getOps<plan::BufferOp>()) {
      FailureOr<int64_t> bytes = largestSize(buffer, program.getMaxTokens());
      if (failed(bytes))
        return signalPassFailure();
      buffers.push_back({buffer, *bytes, buffers.size()});
    }
    // Largest first, so that later buffers fit into existing slots.
    if (!keepAll)
      llvm::sort(buffers, [](const SizedBuffer &a, const SizedBuffer &b) {
        return std::make_pair(-a.bytes, a.index) <
               std::make_pair(-b.bytes, b.index);
      });

    SmallVector<StepOrder> orders;
    for (auto variant : program.getBody().getOps<plan::VariantOp>())
      orders.emplace_back(variant);
    SmallVector<SmallVector<Value>> slots;
    for (SizedBuffer &buffer : buffers) {
      Value value = buffer.op.getBuffer();
      auto isFree = [&](ArrayRef<Value> members) {
        return !keepAll && llvm::all_of(members, [&](Value member) {
          return llvm::all_of(orders, [&](const StepOrder &order) {
            return isFreeFor(order, member, value) ||
                   isFreeFor(order, value, member);
          });
        });
      };
      auto *slot = llvm::find_if(slots, isFree);
      if (slot == slots.end())
        slot = &slots.emplace_back();
      slot->push_back(value);
      buffer.op.setSlot(slot - slots.begin());
    }
  }
};

} // namespace
