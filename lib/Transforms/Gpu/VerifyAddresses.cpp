//===- VerifyAddresses.cpp - global addresses take 64 bits ------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// Verifies that offsets into global memory do not overflow. An offset is a sum
// of products of row indices with pitches, formed in 64 bits, and of offsets
// within a row. The latter may be computed in fewer bits if, by the ranges of
// their factors, no product in them needs more: otherwise it is a row times a
// pitch that was not widened in time. Row indices fit 32 bits, by the limits of
// a layer.

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/Matchers.h"
#include "mlir/IR/TypeUtilities.h"
#include "mlir/Interfaces/InferIntRangeInterface.h"
#include "moec/Transforms/Passes.h"
#include "llvm/ADT/TypeSwitch.h"
#include "llvm/Support/MathExtras.h"

#include <array>

namespace moec {
#define GEN_PASS_DEF_VERIFYGPUADDRESSESPASS
#include "moec/Transforms/Passes.h.inc"
} // namespace moec

using namespace mlir;
using namespace moec;

namespace {

constexpr unsigned kSharedSpace = 3;
constexpr unsigned kAddressBits = 64;

/// Bits of an integer or of an index; 0 for other types.
unsigned getWidth(Type type) {
  if (type.isIndex())
    return kAddressBits;
  auto integer = dyn_cast<IntegerType>(type);
  return integer ? integer.getWidth() : 0;
}

bool isShared(Type type) {
  if (auto pointer = dyn_cast<LLVM::LLVMPointerType>(type))
    return pointer.getAddressSpace() >= kSharedSpace;
  auto memref = dyn_cast<MemRefType>(type);
  auto space = memref ? dyn_cast_or_null<IntegerAttr>(memref.getMemorySpace())
                      : IntegerAttr();
  return space && space.getInt() >= static_cast<int64_t>(kSharedSpace);
}

/// Offsets, or terms of them, in memory that is not shared. Except for the last
/// one, indices of a memref are multiplied by strides later, in 64 bits. The
/// last index is a column if the number of columns is known, and a row in an
/// argument of rank 1.
SmallVector<Value> getOffsets(Operation *op) {
  auto last = [](Value memref, OperandRange indices) -> SmallVector<Value> {
    auto type = cast<ShapedType>(memref.getType());
    if (isShared(type) || indices.empty() ||
        !type.isDynamicDim(type.getRank() - 1) ||
        (type.getRank() == 1 &&
         !memref.getDefiningOp<memref::ReinterpretCastOp>()))
      return {};
    return {indices.back()};
  };
  return llvm::TypeSwitch<Operation *, SmallVector<Value>>(op)
      .Case([&](LLVM::GEPOp op) {
        return isShared(op.getType())
                   ? SmallVector<Value>()
                   : SmallVector<Value>(op.getDynamicIndices());
      })
      .Case<memref::LoadOp, memref::StoreOp>(
          [&](auto op) { return last(op.getMemRef(), op.getIndices()); })
      .Case<vector::LoadOp, vector::StoreOp, vector::MaskedLoadOp,
            vector::MaskedStoreOp, vector::TransferReadOp,
            vector::TransferWriteOp>(
          [&](auto op) { return last(op.getBase(), op.getIndices()); })
      .Case<memref::SubViewOp, memref::ReinterpretCastOp>([&](auto op) {
        return isShared(op.getSource().getType())
                   ? SmallVector<Value>()
                   : SmallVector<Value>(op.getOffsets());
      })
      .Case([&](LLVM::IntToPtrOp op) {
        return isShared(op.getType()) ? SmallVector<Value>()
                                      : SmallVector<Value>{op.getArg()};
      })
      .Default([](Operation *) { return SmallVector<Value>(); });
}

/// The values of a structured op that `value` may be equal to.
SmallVector<Value> getIncoming(Value value) {
  if (auto argument = dyn_cast<BlockArgument>(value)) {
    Operation *parent = argument.getOwner()->getParentOp();
    if (auto loop = dyn_cast<scf::ForOp>(parent)) {
      if (argument == loop.getInductionVar())
        return {loop.getLowerBound(), loop.getStep()};
      unsigned i = argument.getArgNumber() - loop.getNumInductionVars();
      return {loop.getInitArgs()[i], loop.getYieldedValues()[i]};
    }
    if (auto loop = dyn_cast<scf::WhileOp>(parent)) {
      unsigned i = argument.getArgNumber();
      if (argument.getOwner() == loop.getBeforeBody())
        return {loop.getInits()[i], loop.getYieldedValues()[i]};
      return {loop.getConditionOp().getArgs()[i]};
    }
    return {};
  }
  Operation *op = value.getDefiningOp();
  unsigned i = cast<OpResult>(value).getResultNumber();
  if (auto loop = dyn_cast<scf::ForOp>(op))
    return {loop.getInitArgs()[i], loop.getYieldedValues()[i]};
  if (auto loop = dyn_cast<scf::WhileOp>(op))
    return {loop.getConditionOp().getArgs()[i]};
  if (auto branch = dyn_cast<scf::IfOp>(op))
    return {branch.thenYield().getOperand(i), branch.elseYield().getOperand(i)};
  return {};
}

/// Whether the op computes its result from the operands' values, in contrast to
/// loading through them.
bool isArithmetic(Operation *op) {
  // Results of divisions and comparisons are new numbers, not offsets.
  if (isa<arith::DivUIOp, arith::DivSIOp, arith::RemUIOp, arith::RemSIOp,
          arith::ShRUIOp, arith::ShRSIOp, arith::CmpIOp>(op))
    return false;
  return isa<arith::ArithDialect>(op->getDialect()) ||
         isa<LLVM::AddOp, LLVM::SubOp, LLVM::MulOp, LLVM::ShlOp, LLVM::ZExtOp,
             LLVM::SExtOp, LLVM::TruncOp, LLVM::SelectOp, LLVM::OrOp,
             LLVM::XOrOp, LLVM::SMinOp, LLVM::SMaxOp, LLVM::UMinOp,
             LLVM::UMaxOp, UnrealizedConversionCastOp>(op);
}

bool isProduct(Operation *op) {
  return isa<arith::MulIOp, arith::ShLIOp, LLVM::MulOp, LLVM::ShlOp>(op);
}

/// Whether an offset counts bytes instead of elements of a tensor.
bool countsBytes(Operation *access) {
  auto element = dyn_cast<LLVM::GEPOp>(access);
  return isa<LLVM::IntToPtrOp>(access) ||
         (element && element.getElemType().isInteger(8));
}

/// Whether a multiplication may scale elements to bytes.
bool isScaling(Operation *op) {
  constexpr int64_t maxBytes = 16;
  APInt factor;
  if (!matchPattern(op->getOperand(1), m_ConstantInt(&factor)))
    return false;
  bool isShift = isa<arith::ShLIOp, LLVM::ShlOp>(op);
  return factor.ule(isShift ? llvm::Log2_64(maxBytes) : maxBytes);
}

/// Whether a multiplication has flags that exclude overflow of its type.
bool isVouchedFor(Operation *op, unsigned bits) {
  auto product = dyn_cast<arith::ArithIntegerOverflowFlagsInterface>(op);
  return product && product.hasNoSignedWrap() &&
         getWidth(op->getResult(0).getType()) <= bits;
}

/// Ranges of integers, computed on demand. Values carried by loops, loaded or
/// passed to the kernel have any value.
class Ranges {
public:
  ConstantIntRanges get(Value value) {
    ConstantIntRanges any =
        ConstantIntRanges::maxRange(ConstantIntRanges::getStorageBitwidth(
            getElementTypeOrSelf(value.getType())));
    auto [known, isNew] = ranges.try_emplace(value, any);
    if (!isNew)
      return known->second;
    ConstantIntRanges range = find(value, any);
    ranges.insert_or_assign(value, range);
    return range;
  }

private:
  ConstantIntRanges find(Value value, const ConstantIntRanges &any) {
    if (auto argument = dyn_cast<BlockArgument>(value))
      return findInduction(argument, any);
    Operation *op = value.getDefiningOp();
    if (isa<NVVM::ThreadIdXOp>(op)) {
      constexpr int64_t maxThreads = 1024;
      unsigned width = getWidth(value.getType());
      return ConstantIntRanges::fromUnsigned(APInt(width, 0),
                                             APInt(width, maxThreads - 1));
    }
    if (isa<math::CtPopOp>(op)) {
      unsigned width = getWidth(value.getType());
      return width == 0 ? any
                        : ConstantIntRanges::fromUnsigned(APInt(width, 0),
                                                          APInt(width, width));
    }
    // Another lane's value has the same range.
    if (auto shuffle = dyn_cast<NVVM::ShflOp>(op))
      return value.getType().isInteger() ? get(shuffle.getVal()) : any;
    if (auto branch = dyn_cast<scf::IfOp>(op)) {
      SmallVector<Value> sources = getIncoming(value);
      return get(sources[0]).rangeUnion(get(sources[1]));
    }
    auto inferrable = dyn_cast<InferIntRangeInterface>(op);
    if (!inferrable)
      return any;
    SmallVector<ConstantIntRanges> operands;
    for (Value operand : op->getOperands()) {
      if (getWidth(operand.getType()) == 0)
        return any;
      operands.push_back(get(operand));
    }
    ConstantIntRanges range = any;
    inferrable.inferResultRanges(
        operands, [&](Value result, const ConstantIntRanges &inferred) {
          if (result == value)
            range = inferred;
        });
    return range;
  }

  /// The range of the induction variable of a loop with a signed upward count.
  ConstantIntRanges findInduction(BlockArgument argument,
                                  const ConstantIntRanges &any) {
    auto loop = dyn_cast<scf::ForOp>(argument.getOwner()->getParentOp());
    if (!loop || argument != loop.getInductionVar())
      return any;
    APInt first = get(loop.getLowerBound()).smin();
    APInt end = get(loop.getUpperBound()).smax();
    return first.slt(end) ? ConstantIntRanges::fromSigned(first, end - 1) : any;
  }

  llvm::DenseMap<Value, ConstantIntRanges> ranges;
};

class AddressVerifier {
public:
  explicit AddressVerifier(LLVM::LLVMFuncOp func) : func(func) {}

  LogicalResult run() {
    func.walk([&](Operation *op) {
      for (Value offset : getOffsets(op))
        follow(op, offset);
    });
    return failure(hasFailed);
  }

private:
  /// A value, and the fewest bits on its way to an offset.
  using Place = std::pair<Value, unsigned>;

  void follow(Operation *access, Value offset) {
    bool isInBytes = countsBytes(access);
    SmallVector<Place> worklist{{offset, kAddressBits}};
    while (!worklist.empty()) {
      auto [value, bits] = worklist.pop_back_val();
      unsigned width = getWidth(value.getType());
      if (width == 0)
        continue;
      bits = std::min(bits, width);
      // Values visited with fewer bits are done.
      unsigned &least = followed[isInBytes]
                            .try_emplace(value, kAddressBits + 1)
                            .first->second;
      if (least <= bits)
        continue;
      least = bits;
      for (Value source : getIncoming(value))
        worklist.push_back({source, bits});
      Operation *op = value.getDefiningOp();
      if (!op || !isArithmetic(op))
        continue;
      if (isProduct(op)) {
        // In 64 bits, any factors are legal.
        if (bits == kAddressBits && !(isInBytes && isScaling(op)))
          continue;
        if (bits < kAddressBits && !isVouchedFor(op, bits) &&
            !fits(value, bits))
          report(access, op, bits);
      }
      for (Value operand : op->getOperands())
        // A condition is not part of the chosen value.
        if (getWidth(operand.getType()) > 1)
          worklist.push_back({operand, bits});
    }
  }

  /// Whether the range of the value is known to fit that many bits. A
  /// multiplication that may wrap has the range of all bits.
  bool fits(Value value, unsigned bits) {
    ConstantIntRanges range = ranges.get(value);
    if (range.smin().isMinSignedValue() && range.smax().isMaxSignedValue() &&
        range.umin().isMinValue() && range.umax().isMaxValue())
      return false;
    bool isSigned = range.smin().getSignificantBits() <= bits &&
                    range.smax().getSignificantBits() <= bits;
    return isSigned || range.umax().getActiveBits() <= bits;
  }

  void report(Operation *access, Operation *product, unsigned bits) {
    hasFailed = true;
    InFlightDiagnostic diagnostic = product->emitOpError();
    diagnostic
        << "is part of an offset into global memory and may need more than the "
        << bits
        << " bits that it keeps; extend the factors to 64 bits before the "
           "multiplication";
    diagnostic.attachNote(access->getLoc())
        << "the offset is used here, by '" << access->getName() << "'";
  }

  LLVM::LLVMFuncOp func;
  /// The fewest bits that a value was visited with, from offsets in elements
  /// and from offsets in bytes.
  std::array<llvm::DenseMap<Value, unsigned>, 2> followed;
  Ranges ranges;
  bool hasFailed = false;
};

struct VerifyGpuAddresses
    : moec::impl::VerifyGpuAddressesPassBase<VerifyGpuAddresses> {
  void runOnOperation() override {
    LLVM::LLVMFuncOp func = getOperation();
    if (func.isExternal())
      return;
    if (failed(AddressVerifier(func).run()))
      signalPassFailure();
    markAllAnalysesPreserved();
  }
};

} // namespace
