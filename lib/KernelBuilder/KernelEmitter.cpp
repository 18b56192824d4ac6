//===- KernelEmitter.cpp - what emission functions share --------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "KernelEmitter.h"

using namespace mlir;
using namespace moec;

KernelEmitter::KernelEmitter(func::FuncOp func, tile::KernelOp kernel,
                             Value cta)
    : b(kernel.getLoc(), OpBuilder::atBlockEnd(&func.getBody().front())),
      ctaIndex(b, cta), func(func) {
  for (auto [from, to] :
       llvm::zip(kernel.getBody().getArguments(), func.getArguments()))
    mapping.map(from, to);
  if (kernel.getPrivateRows())
    for (auto memory : func.getBody().front().getOps<memref::GetGlobalOp>())
      if (auto number = memory->getAttrOfType<IntegerAttr>(kPrivateAttr))
        mapping.map(kernel.getArgument(number.getInt()), memory.getResult());
  tokenCount = I32(b, operand(kernel.getTokens())).toIndex();
}

//===----------------------------------------------------------------------===//
// Kernel arguments
//===----------------------------------------------------------------------===//

Value KernelEmitter::operand(Value kernelArgument) const {
  return kernelArgument ? mapping.lookup(kernelArgument) : Value();
}

Index KernelEmitter::validTokens(Value numValidTokens) {
  if (!numValidTokens)
    return tokens();
  Index valid = loadIndex(operand(numValidTokens), index(0));
  return min(max(valid, 0), tokens());
}

RowRange KernelEmitter::rowsOfCta(int64_t rows) {
  Index begin = cta() * rows;
  return {begin, min(begin + rows, tokens())};
}

//===----------------------------------------------------------------------===//
// Scalars
//===----------------------------------------------------------------------===//

Index KernelEmitter::index(int64_t value) {
  return {b, arith::ConstantIndexOp::create(b, value)};
}

I32 KernelEmitter::i32(int64_t value) {
  return {b, constant(b.getI32Type(), b.getI32IntegerAttr(value))};
}

F32 KernelEmitter::f32(double value) {
  return {b, constant(b.getF32Type(), b.getF32FloatAttr(value))};
}

Flag KernelEmitter::flag(bool value) {
  return {b, arith::ConstantOp::create(b, b.getBoolAttr(value))};
}

//===----------------------------------------------------------------------===//
// Vectors
//===----------------------------------------------------------------------===//

Type KernelEmitter::vectorType(Type element, int64_t lanes) {
  return VectorType::get(lanes, element);
}

Value KernelEmitter::splat(Value scalar, int64_t lanes) {
  return vector::BroadcastOp::create(b, vectorType(scalar.getType(), lanes),
                                     scalar);
}

Value KernelEmitter::constant(Type type, TypedAttr element) {
  if (auto vector = dyn_cast<VectorType>(type))
    return arith::ConstantOp::create(b,
                                     DenseElementsAttr::get(vector, element));
  return arith::ConstantOp::create(b, element);
}

F32 KernelEmitter::splat(F32 scalar, int64_t lanes) {
  return {b, splat(static_cast<Value>(scalar), lanes)};
}

I32 KernelEmitter::splat(I32 scalar, int64_t lanes) {
  return {b, splat(static_cast<Value>(scalar), lanes)};
}

F32 KernelEmitter::splat(double value, int64_t lanes) {
  return {
      b, constant(vectorType(b.getF32Type(), lanes), b.getF32FloatAttr(value))};
}

I32 KernelEmitter::splatI32(int64_t value, int64_t lanes) {
  return {b, constant(vectorType(b.getI32Type(), lanes),
                      b.getI32IntegerAttr(value))};
}

I32 KernelEmitter::laneNumbers(int64_t lanes) {
  SmallVector<int32_t> numbers = llvm::to_vector(llvm::seq<int32_t>(0, lanes));
  auto type = VectorType::get(lanes, b.getI32Type());
  return {b, arith::ConstantOp::create(
                 b, DenseIntElementsAttr::get(type, ArrayRef(numbers)))};
}

Value KernelEmitter::reduce(vector::CombiningKind kind, Value vector) {
  // Emission chose the lanes, so their order is the target's to choose.
  auto flags = kind == vector::CombiningKind::ADD
                   ? arith::FastMathFlags::reassoc
                   : arith::FastMathFlags::none;
  return vector::ReductionOp::create(b, kind, vector, flags);
}

F32 KernelEmitter::sum(F32 vector) {
  return {b, reduce(vector::CombiningKind::ADD, vector)};
}

F32 KernelEmitter::maximum(F32 vector) {
  return {b, reduce(vector::CombiningKind::MAXNUMF, vector)};
}

I32 KernelEmitter::maximum(I32 vector) {
  return {b, reduce(vector::CombiningKind::MAXSI, vector)};
}

I32 KernelEmitter::minimum(I32 vector) {
  return {b, reduce(vector::CombiningKind::MINSI, vector)};
}

Flag KernelEmitter::mask(Index count, int64_t lanes) {
  Value mask = vector::CreateMaskOp::create(b, vectorType(b.getI1Type(), lanes),
                                            static_cast<Value>(count));
  maskCounts[mask] = count;
  return {b, mask};
}

Index KernelEmitter::getCount(Flag mask) const {
  Index count = maskCounts.lookup(mask);
  assert(count && "a mask that KernelEmitter::mask did not make");
  return count;
}

//===----------------------------------------------------------------------===//
// Memory
//===----------------------------------------------------------------------===//

Value moec::castFloat(ImplicitLocOpBuilder &b, Value value, Type element) {
  Type from = getElementTypeOrSelf(value.getType());
  if (from == element)
    return value;
  Type type = element;
  if (auto vector = dyn_cast<VectorType>(value.getType()))
    type = vector.clone(element);
  if (from.getIntOrFloatBitWidth() < element.getIntOrFloatBitWidth())
    return arith::ExtFOp::create(b, type, value);
  return arith::TruncFOp::create(b, type, value);
}

/// Any digit carries into the exponent, and none is left.
F32 moec::roundUpToPowerOfTwo(ImplicitLocOpBuilder &b, Value scale) {
  constexpr int64_t digits = 0x007FFFFF, exponent = 0x7F800000;
  F32 exact(b, scale);
  F32 rounded = F32::fromBits((exact.bits() + digits) & exponent);
  return select(exact.isNumber(), rounded, exact);
}

Type moec::getElementType(Value memref) {
  return cast<MemRefType>(memref.getType()).getElementType();
}

int64_t moec::getColumns(Value memref) {
  return cast<MemRefType>(memref.getType()).getDimSize(1);
}

F32 KernelEmitter::loadF32(Value memref, ValueRange indices) {
  return {b, castFloat(b, memref::LoadOp::create(b, memref, indices),
                       b.getF32Type())};
}

I32 KernelEmitter::loadI32(Value memref, ValueRange indices) {
  Value value = memref::LoadOp::create(b, memref, indices);
  Type type = b.getI32Type();
  if (value.getType().isInteger(8))
    value = arith::ExtUIOp::create(b, type, value);
  else if (value.getType() != type)
    value = arith::ExtSIOp::create(b, type, value);
  return {b, value};
}

Index KernelEmitter::loadIndex(Value memref, ValueRange indices) {
  return loadI32(memref, indices).toIndex();
}

Flag KernelEmitter::loadFlag(Value memref, ValueRange indices) {
  IntegerValue<int8_t> byte(b, memref::LoadOp::create(b, memref, indices));
  return byte != 0;
}

void KernelEmitter::storeF32(Value value, Value memref, ValueRange indices) {
  memref::StoreOp::create(b, castFloat(b, value, getElementType(memref)),
                          memref, indices);
}

void KernelEmitter::storeI32(Value value, Value memref, ValueRange indices) {
  if (Type type = getElementType(memref); type != value.getType())
    value = arith::TruncIOp::create(b, type, value);
  memref::StoreOp::create(b, value, memref, indices);
}

/// The most elements that one masked load or store handles.
static constexpr int64_t kMaxTail = 32;

Value KernelEmitter::getTailScratch() {
  if (!tailScratch) {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(&func.getBody().front());
    tailScratch = scratch({kMaxTail}, b.getF32Type());
  }
  return tailScratch;
}

/// `indices` moved by `offset` along the last dimension.
static SmallVector<Value> moved(ValueRange indices, Index offset) {
  SmallVector<Value> result(indices);
  result.back() = Index(offset.builder(), result.back()) + offset;
  return result;
}

// Masked access to 16-bit elements goes element by element: where a CPU has no
// such instruction, LLVM makes calls of its run-time library out of it. Only
// the last columns of a row take this way.

Value KernelEmitter::loadElements(Value memref, ValueRange indices,
                                  int64_t lanes) {
  auto type = VectorType::get(lanes, getElementType(memref));
  return vector::LoadOp::create(b, type, memref, indices,
                                /*nontemporal=*/false, alignmentOf(type));
}

F32 KernelEmitter::loadVector(Value memref, ValueRange indices, int64_t lanes,
                              Flag mask) {
  if (mask.isNull())
    return {b,
            castFloat(b, loadElements(memref, indices, lanes), b.getF32Type())};
  auto type = VectorType::get(lanes, getElementType(memref));
  if (type.getElementType().isF32()) {
    Value zero = splat(0.0, lanes);
    return {b,
            vector::MaskedLoadOp::create(b, type, memref, indices, mask, zero)};
  }
  Value elements = getTailScratch();
  Index start = index(0);
  storeVector(splat(0.0, lanes), elements, start);
  loop(start, getCount(mask), 1, [&](Index i) {
    storeF32(loadF32(memref, moved(indices, i)), elements, i);
  });
  return loadVector(elements, start, lanes);
}

void KernelEmitter::storeVector(Value vector, Value memref, ValueRange indices,
                                Flag mask) {
  Type element = getElementType(memref);
  if (mask.isNull()) {
    Value rounded = castFloat(b, vector, element);
    vector::StoreOp::create(b, rounded, memref, indices,
                            /*nontemporal=*/false,
                            alignmentOf(cast<VectorType>(rounded.getType())));
    return;
  }
  if (element.isF32()) {
    vector::MaskedStoreOp::create(b, memref, indices, mask, vector);
    return;
  }
  Value elements = getTailScratch();
  Index start = index(0);
  storeVector(vector, elements, start);
  loop(start, getCount(mask), 1, [&](Index i) {
    storeF32(loadF32(elements, i), memref, moved(indices, i));
  });
}

I32 KernelEmitter::loadI32Vector(Value memref, Index index, int64_t lanes) {
  return {b, vector::LoadOp::create(b, VectorType::get(lanes, b.getI32Type()),
                                    memref, ValueRange(index))};
}

void KernelEmitter::storeI32Vector(I32 vector, Value memref, Index index) {
  vector::StoreOp::create(b, vector, memref, ValueRange(index));
}

void KernelEmitter::storeZeros(Value memref, RowRange rows, RowRange columns,
                               int64_t lanes, int64_t multiple) {
  F32 zero = splat(0.0, lanes);
  loop(rows.begin, rows.end, 1, [&](Index row) {
    forColumns(columns.begin, columns.end, lanes, multiple,
               [&](Index column, Flag mask) {
                 storeVector(zero, memref, {row, column}, mask);
               });
  });
}

Value KernelEmitter::scratch(ArrayRef<int64_t> shape, Type elementType) {
  return memref::AllocaOp::create(b, MemRefType::get(shape, elementType),
                                  b.getI64IntegerAttr(64));
}

//===----------------------------------------------------------------------===//
// Structure
//===----------------------------------------------------------------------===//

void KernelEmitter::forLoop(Value lower, Value upper, int64_t step,
                            function_ref<void(Value)> body) {
  forLoop(lower, upper, step, {}, [&](Value iv, ValueRange) {
    body(iv);
    return SmallVector<Value>();
  });
}

SmallVector<Value> KernelEmitter::forLoop(Value lower, Value upper,
                                          int64_t step, ValueRange init,
                                          LoopBody body) {
  Type type = lower.getType();
  Value by = arith::ConstantOp::create(b, b.getIntegerAttr(type, step));
  return forLoop(lower, upper, by, init, body);
}

SmallVector<Value> KernelEmitter::forLoop(Value lower, Value upper, Value step,
                                          ValueRange init, LoopBody body) {
  auto loop = scf::ForOp::create(b, lower, upper, step, init);
  OpBuilder::InsertionGuard guard(b);
  Block *block = loop.getBody();
  // A loop without carried values is born with its terminator.
  if (block->mightHaveTerminator())
    b.setInsertionPoint(block->getTerminator());
  else
    b.setInsertionPointToEnd(block);
  SmallVector<Value> next =
      body(loop.getInductionVar(), loop.getRegionIterArgs());
  if (!init.empty())
    scf::YieldOp::create(b, next);
  return SmallVector<Value>(loop.getResults());
}

void KernelEmitter::ifThen(Value condition, function_ref<void()> then,
                           function_ref<void()> otherwise) {
  auto branch =
      scf::IfOp::create(b, condition, /*withElseRegion=*/bool(otherwise));
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPoint(branch.thenBlock()->getTerminator());
  then();
  if (otherwise) {
    b.setInsertionPoint(branch.elseBlock()->getTerminator());
    otherwise();
  }
}

void KernelEmitter::forColumns(Index begin, Index end, int64_t lanes,
                               int64_t multiple,
                               function_ref<void(Index, Flag)> body) {
  auto whole = [&](Index column) { body(column, Flag()); };
  if (multiple % lanes == 0)
    return loop(begin, end, lanes, whole);
  Index length = end - begin;
  // Signed, which no other remainder of kernels is.
  Index tail(b, arith::RemSIOp::create(b, length, index(lanes)));
  Index full = end - tail;
  loop(begin, full, lanes, whole);
  ifThen(tail > 0, [&] { body(full, mask(tail, lanes)); });
}

/// The type that takes `type`'s place when scalars become vectors of `lanes`.
static Type widened(Type type, int64_t lanes) {
  return lanes ? VectorType::get(lanes, type) : type;
}

FailureOr<Value> KernelEmitter::inlineRegion(Region &region, ValueRange args) {
  if (region.empty())
    return args.front();
  auto vector = dyn_cast<VectorType>(args.front().getType());
  int64_t lanes = vector ? vector.getNumElements() : 0;
  Block &block = region.front();
  if (!region.hasOneBlock() || block.getNumArguments() != args.size()) {
    region.getParentOp()->emitOpError(
        "has a scalar region that does not fit its operands");
    return failure();
  }
  IRMapping map;
  map.map(block.getArguments(), args);
  auto remap = [&](Value value) -> Value {
    if (Value known = map.lookupOrNull(value))
      return known;
    // Constants of the kernel around the region.
    Operation *def = value.getDefiningOp();
    if (!def || !def->hasTrait<OpTrait::ConstantLike>())
      return {};
    // As wide as what this thread has of the arguments.
    Value here = b.clone(*def)->getResult(0);
    if (lanes)
      here =
          vector::BroadcastOp::create(b, widened(here.getType(), lanes), here);
    map.map(value, here);
    return here;
  };
  for (Operation &op : block.without_terminator()) {
    if (op.hasTrait<OpTrait::ConstantLike>()) {
      remap(op.getResult(0));
      continue;
    }
    bool elementwise =
        OpTrait::hasElementwiseMappableTraits(&op) && op.getNumRegions() == 0;
    SmallVector<Value> operands = llvm::map_to_vector(op.getOperands(), remap);
    if (!elementwise || llvm::is_contained(operands, Value())) {
      op.emitOpError("cannot be vectorized: a scalar region holds elementwise "
                     "ops of arith and "
                     "math on its arguments and constants");
      return failure();
    }
    OperationState state(op.getLoc(), op.getName(), operands, /*types=*/{},
                         op.getAttrs());
    state.propertiesAttr = op.getPropertiesAsAttribute();
    for (Type type : op.getResultTypes())
      state.addTypes(widened(type, lanes));
    map.map(op.getResults(), b.create(state)->getResults());
  }
  return remap(block.getTerminator()->getOperand(0));
}
