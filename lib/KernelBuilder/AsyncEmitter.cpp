//===- AsyncEmitter.cpp - emission for warpgroups ---------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "AsyncEmitter.h"

#include "InlinePtx.h"
#include "Pipeline.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"

using namespace mlir;
using namespace moec;

/// Address space of shared memory of a cluster.
static constexpr unsigned kClusterSpace = 7;

AsyncEmitter::AsyncEmitter(func::FuncOp func, tile::KernelOp kernel,
                           int64_t threads)
    : ThreadEmitter(func, kernel, threads) {
  // A broadcast, because the compiler cannot prove that the value is uniform in
  // a warp.
  warpgroupNumber = {b, broadcast(thread() / kWarpgroup, 0)};
  warpgroupThreadNumber = thread() % kWarpgroup;
  auto arguments = func.getBody().front().getArguments();
  llvm::append_range(tensorMaps,
                     arguments.drop_front(kernel.getArgumentTypes().size()));
}

//===----------------------------------------------------------------------===//
// Warpgroups
//===----------------------------------------------------------------------===//

void AsyncEmitter::decreaseRegisters(int64_t count) {
  NVVM::SetMaxRegisterOp::create(b, count,
                                 NVVM::SetMaxRegisterAction::decrease);
}

void AsyncEmitter::increaseRegisters(int64_t count) {
  NVVM::SetMaxRegisterOp::create(b, count,
                                 NVVM::SetMaxRegisterAction::increase);
}

void AsyncEmitter::warpgroupBarrier() {
  // Barrier 0 is the CTA's.
  barrierOf(warpgroupNumber + 1, kWarpgroup);
}

Operation *AsyncEmitter::consumerBarrier() {
  // The barrier number after those of warpgroups.
  int64_t warpgroups = getNumThreads() / kWarpgroup;
  return NVVM::BarrierOp::create(b, /*res=*/Type(), i32(1 + warpgroups),
                                 i32(getNumThreads() - kWarpgroup),
                                 NVVM::BarrierReductionAttr(), Value());
}

I32 AsyncEmitter::countLanes(Flag flag) { return ballot(flag).popcount(); }

//===----------------------------------------------------------------------===//
// Barriers
//===----------------------------------------------------------------------===//

void AsyncEmitter::fenceBarriers() {
  NVVM::FenceMbarrierInitOp::create(b);
  fenceAsync();
}

void AsyncEmitter::fenceAsync() {
  NVVM::FenceProxyOp::create(
      b, NVVM::ProxyKind::async_shared,
      NVVM::SharedSpaceAttr::get(b.getContext(),
                                 NVVM::SharedSpace::shared_cta));
}

void AsyncEmitter::fenceAsyncGlobal() {
  NVVM::FenceProxyOp::create(b, NVVM::ProxyKind::async_global,
                             NVVM::SharedSpaceAttr());
}

//===----------------------------------------------------------------------===//
// Clusters
//===----------------------------------------------------------------------===//

I32 AsyncEmitter::clusterRank(int64_t ctas) {
  LLVM::ConstantRangeAttr range;
  if (ctas)
    range = LLVM::ConstantRangeAttr::get(b.getContext(), APInt(32, 0),
                                         APInt(32, uint64_t(ctas)));
  return {b, NVVM::ClusterId::create(b, b.getI32Type(), range)};
}

Value AsyncEmitter::mapShared(Value shared, I32 rank) {
  auto type = LLVM::LLVMPointerType::get(b.getContext(), kClusterSpace);
  return NVVM::MapaOp::create(b, type, shared, rank);
}

void AsyncEmitter::clusterArrive() {
  NVVM::ClusterArriveOp::create(b, UnitAttr());
}

void AsyncEmitter::clusterWait() { NVVM::ClusterWaitOp::create(b, UnitAttr()); }

void AsyncEmitter::clusterBarrier() {
  clusterArrive();
  clusterWait();
}

//===----------------------------------------------------------------------===//
// Copies
//===----------------------------------------------------------------------===//

void AsyncEmitter::prefetchTensorMap(int64_t i) {
  prefetch(tensorMaps[i], /*level=*/Attribute());
}

void AsyncEmitter::copyBox(Value shared, Value map, ArrayRef<I32> coordinates,
                           const Barrier &barrier, bool areWeights,
                           int64_t ctas) {
  // A shared::cta address is the CTA's own one in its cluster.
  auto type = LLVM::LLVMPointerType::get(b.getContext(), kClusterSpace);
  Value target = LLVM::AddrSpaceCastOp::create(b, type, shared);
  SmallVector<Value> innermostFirst(llvm::reverse(coordinates));
  Value targets;
  if (ctas > 1)
    targets = arith::ConstantOp::create(
        b, b.getI16IntegerAttr(int16_t((1 << ctas) - 1)));
  auto copy = NVVM::CpAsyncBulkTensorGlobalToSharedClusterOp::create(
      b, target, map, innermostFirst, barrier.getAddress(),
      /*im2colOffsets=*/ValueRange(), targets, /*l2CacheHint=*/Value(),
      NVVM::TMALoadMode::TILE, /*isCTAOnly=*/false, NVVM::CTAGroupKindAttr(),
      /*predicate=*/Value());
  if (areWeights)
    markConstant(copy);
}

//===----------------------------------------------------------------------===//
// Tensor cores
//===----------------------------------------------------------------------===//

// Fields of a descriptor, in units of 16 bytes: the address; the stride between
// groups of 8 rows from bit 32 on. From bit 62 on, 1 is the 128-byte swizzle
// and 2 the 64-byte one; the field at bit 16 is ignored with these, and is 1 by
// convention.

I32 AsyncEmitter::describeTile(Value shared) {
  constexpr int64_t addressBits = 0x3FFFF, convention = 1 << 16;
  I32 address(b, LLVM::PtrToIntOp::create(b, b.getI32Type(), shared));
  return (address & addressBits) / kDescriptorUnit | convention;
}

I64 AsyncEmitter::getDescriptor(I32 tile, int64_t step, int64_t swizzledBytes) {
  constexpr int64_t unit = kDescriptorUnit, rows = 8;
  uint64_t kind = kSwizzleBytes / swizzledBytes;
  uint64_t high = kind << 62 | uint64_t(rows * swizzledBytes / unit) << 32;
  I32 low = tile + step * (kWgmmaBytes / unit);
  return low.toI64() | int64_t(high);
}

void AsyncEmitter::fenceProducts() { NVVM::WgmmaFenceAlignedOp::create(b); }

void AsyncEmitter::commitProducts() {
  NVVM::WgmmaGroupSyncAlignedOp::create(b);
}

void AsyncEmitter::waitProducts(int64_t groups) {
  NVVM::WgmmaWaitGroupSyncOp::create(b, groups);
}

static LLVM::LLVMStructType getSumsType(Type type, int64_t width) {
  return LLVM::LLVMStructType::getLiteral(type.getContext(),
                                          SmallVector<Type>(width / 2, type));
}

static SmallVector<Value> tieMembers(ImplicitLocOpBuilder &b,
                                     ArrayRef<Value> sums) {
  return sums.front().getType().isInteger() ? tieWords(b, sums)
                                            : tieSums(b, sums);
}

Value AsyncEmitter::makeSums(Type type, int64_t width) {
  // Tied, so that no body copies its zeros from the accumulators of another:
  // ptxas serializes the pipeline on such copies (C7511).
  Value zero = arith::ConstantOp::create(b, b.getZeroAttr(type));
  SmallVector<Value> zeros = tieMembers(b, SmallVector<Value>(width / 2, zero));
  Value sums = LLVM::PoisonOp::create(b, getSumsType(type, width));
  for (auto [i, value] : llvm::enumerate(zeros))
    sums = LLVM::InsertValueOp::create(b, sums, value, i);
  return sums;
}

Value AsyncEmitter::makeUnsetSums(int64_t width) {
  return LLVM::PoisonOp::create(b, getSumsType(b.getF32Type(), width));
}

static NVVM::WGMMATypes getProductType(Type element) {
  if (isa<Float8E4M3FNType>(element))
    return NVVM::WGMMATypes::e4m3;
  if (element.isInteger(8))
    return NVVM::WGMMATypes::s8;
  return element.isBF16() ? NVVM::WGMMATypes::bf16 : NVVM::WGMMATypes::f16;
}

Value AsyncEmitter::multiplyAsync(Type element, int64_t width, I32 a, I32 c,
                                  int64_t step, Value sums, bool isFirst) {
  NVVM::WGMMATypes kind = getProductType(element);
  I64 descriptorA = getDescriptor(a, step),
      descriptorC = getDescriptor(c, step);
  return NVVM::WgmmaMmaAsyncOp::create(
      b, sums.getType(), sums, descriptorA, descriptorC,
      NVVM::MMAShapeAttr::get(b.getContext(), kWgmmaRows, width,
                              kWgmmaBytes * 8 /
                                  element.getIntOrFloatBitWidth()),
      kind, kind,
      kind == NVVM::WGMMATypes::s8 ? NVVM::WGMMATypes::s32
                                   : NVVM::WGMMATypes::f32,
      isFirst ? NVVM::WGMMAScaleOut::zero : NVVM::WGMMAScaleOut::one,
      NVVM::WGMMAScaleIn::one, NVVM::WGMMAScaleIn::one, NVVM::MMALayout::row,
      NVVM::MMALayout::col, NVVM::MMAIntOverflowAttr());
}

static SmallVector<Value> getMembers(ImplicitLocOpBuilder &b, Value sums) {
  int64_t size = cast<LLVM::LLVMStructType>(sums.getType()).getBody().size();
  SmallVector<Value> members;
  for (int64_t i = 0; i < size; ++i)
    members.push_back(LLVM::ExtractValueOp::create(b, sums, i));
  return members;
}

Value AsyncEmitter::multiplyAsync(Type element, [[maybe_unused]] int64_t width,
                                  ArrayRef<I32> a, I32 c, int64_t swizzledBytes,
                                  int64_t step, Value sums, I32 keeps) {
  assert(2 * cast<LLVM::LLVMStructType>(sums.getType()).getBody().size() ==
             size_t(width) &&
         "a thread has half as many sums");
  I64 descriptor = getDescriptor(c, step, swizzledBytes);
  return multiplyFragments(b, element, getMembers(b, sums),
                           SmallVector<Value>(a), descriptor, keeps);
}

SmallVector<Value> AsyncEmitter::tieSumsOf(Value sums) {
  return tieMembers(b, getMembers(b, sums));
}

void AsyncEmitter::storeMatrices(Value shared, ArrayRef<I32> matrices,
                                 bool isTransposed) {
  NVVM::StMatrixOp::create(b, shared, SmallVector<Value>(matrices),
                           isTransposed ? NVVM::MMALayout::col
                                        : NVVM::MMALayout::row,
                           NVVM::LdStMatrixShapeAttr::get(b.getContext(), 8, 8),
                           NVVM::LdStMatrixEltType::B16);
}
