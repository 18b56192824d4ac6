//===- TensorEmitter.cpp - emission for tensor memory -----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "TensorEmitter.h"

#include "InlinePtx.h"
#include "Pipeline.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using namespace moec;

/// Address space of tensor memory.
static constexpr unsigned kTensorSpace = 6;

//===----------------------------------------------------------------------===//
// Tensor memory
//===----------------------------------------------------------------------===//

Value TensorEmitter::getTensorPointer(I32 address) {
  auto type = LLVM::LLVMPointerType::get(b.getContext(), kTensorSpace);
  return LLVM::IntToPtrOp::create(b, type, address);
}

void TensorEmitter::takeTensorMemory(Value shared, int64_t columns) {
  NVVM::Tcgen05AllocOp::create(b, shared, i32(columns));
  NVVM::Tcgen05RelinquishAllocPermitOp::create(b);
}

void TensorEmitter::giveTensorMemory(I32 address, int64_t columns) {
  NVVM::Tcgen05DeallocOp::create(b, getTensorPointer(address), i32(columns));
}

void TensorEmitter::fenceTensorBefore() {
  NVVM::Tcgen05FenceOp::create(b, NVVM::Tcgen05FenceKind::BEFORE_THREAD_SYNC);
}

void TensorEmitter::fenceTensorAfter() {
  NVVM::Tcgen05FenceOp::create(b, NVVM::Tcgen05FenceKind::AFTER_THREAD_SYNC);
}

SmallVector<F32> TensorEmitter::loadTensor(I32 address, int64_t count) {
  auto type = VectorType::get(count, b.getI32Type());
  Value loaded = NVVM::Tcgen05LdOp::create(
      b, type, /*pack=*/UnitAttr(),
      NVVM::Tcgen05LdStShapeAttr::get(b.getContext(),
                                      NVVM::Tcgen05LdStShape::SHAPE_32X32B),
      getTensorPointer(address), /*offset=*/Value());
  NVVM::Tcgen05WaitOp::create(b, NVVM::Tcgen05WaitKind::LOAD);
  // The wait has no operands, so that only the tie keeps uses of the words
  // behind it.
  auto words = tieWords(b, elements<Value>(loaded));
  return llvm::map_to_vector(
      words, [&](Value word) { return F32::fromBits({b, word}); });
}

//===----------------------------------------------------------------------===//
// Products
//===----------------------------------------------------------------------===//

I64 TensorEmitter::describe(Value shared, uint64_t kind, int64_t offset) {
  constexpr int64_t addressBits = 0x3FFFF, unit = kDescriptorUnit;
  I32 address(b, LLVM::PtrToIntOp::create(b, b.getI32Type(), shared));
  I32 low = (address & addressBits) / unit + offset / unit;
  return low.toI64() | int64_t(kind);
}

void TensorEmitter::copyScales(I32 address, I64 descriptor) {
  NVVM::Tcgen05CpOp::create(
      b, NVVM::Tcgen05CpShape::SHAPE_32x128b, NVVM::CTAGroupKind::CTA_1,
      NVVM::Tcgen05CpMulticast::WARPX4, NVVM::Tcgen05CpSrcFormatAttr(),
      getTensorPointer(address), descriptor);
}

void TensorEmitter::multiplyScaled(I32 sums, I64 a, I64 c, I32 instruction,
                                   Flag keeps, I32 scaleA, I32 scaleC) {
  multiplyScaledBlocks(b, sums, a, c, instruction, keeps, scaleA, scaleC);
}

void TensorEmitter::arriveWhenDone(const Barrier &barrier) {
  NVVM::Tcgen05CommitOp::create(b, barrier.getAddress(),
                                /*multicastMask=*/Value());
}
