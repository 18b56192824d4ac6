//===- WarpEmitter.cpp - vectors spread over a warp -------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "WarpEmitter.h"

#include "moec/Support/GpuInstructions.h"

#include <numeric>

using namespace mlir;
using namespace moec;

WarpEmitter::WarpEmitter(func::FuncOp func, tile::KernelOp kernel,
                         int64_t threads)
    : ThreadEmitter(func, kernel, threads) {
  ctaIndex = ctaIndex * getNumWarps() + toIndex(warp());
}

int64_t WarpEmitter::getShare(Value vector) {
  auto type = dyn_cast<VectorType>(vector.getType());
  return type ? type.getNumElements() : 1;
}

Value WarpEmitter::part(Value vector, int64_t i) {
  if (!isa<VectorType>(vector.getType()))
    return vector;
  return vector::ExtractOp::create(b, vector, i);
}

Value WarpEmitter::join(ArrayRef<Value> parts) {
  if (parts.size() == 1)
    return parts.front();
  auto type = VectorType::get(parts.size(), parts.front().getType());
  return vector::FromElementsOp::create(b, type, parts);
}

SmallVector<Value> WarpEmitter::at(ValueRange indices, int64_t share,
                                   int64_t i) {
  SmallVector<Value> result(indices);
  result.back() = Index(b, result.back()) + toIndex(lane() * share + i);
  return result;
}

void WarpEmitter::ordered(Value memref, function_ref<void()> write) {
  if (!isShared(memref))
    return write();
  warpBarrier();
  write();
  warpBarrier();
}

void WarpEmitter::ifFirstLane(function_ref<void()> body) {
  ifThen(lane() < 1, body);
}

//===----------------------------------------------------------------------===//
// Vectors
//===----------------------------------------------------------------------===//

Type WarpEmitter::vectorType(Type element, int64_t lanes) {
  return lanes == kWarp ? element : VectorType::get(lanes / kWarp, element);
}

Value WarpEmitter::splat(Value scalar, int64_t lanes) {
  return lanes == kWarp ? scalar : KernelEmitter::splat(scalar, lanes);
}

I32 WarpEmitter::laneNumbers(int64_t lanes) {
  SmallVector<Value> numbers;
  int64_t share = lanes / kWarp;
  for (int64_t i = 0; i < share; ++i)
    numbers.push_back(lane() * share + i);
  return {b, join(numbers)};
}

Flag WarpEmitter::mask(Index count, int64_t lanes) {
  I32 numbers = laneNumbers(lanes);
  return numbers < splat(count.toI32(), lanes);
}

Value WarpEmitter::reduce(vector::CombiningKind kind, Value vector) {
  Value value = vector;
  if (isa<VectorType>(vector.getType()))
    value = vector::ReductionOp::create(b, kind, vector);
  if (kind == vector::CombiningKind::MAXSI)
    return warpMax(value);
  if (kind == vector::CombiningKind::MINSI)
    return warpMin(value);
  // Every lane adds the same pairs, so that all results are bitwise equal.
  for (int64_t distance = kWarp / 2; distance > 0; distance /= 2) {
    Value other = shuffleXor(value, distance);
    value = vector::makeArithReduction(b, b.getLoc(), kind, value, other);
  }
  return value;
}

//===----------------------------------------------------------------------===//
// Memory
//===----------------------------------------------------------------------===//

void WarpEmitter::storeF32(Value value, Value memref, ValueRange indices) {
  ordered(memref, [&] {
    ifFirstLane([&] { KernelEmitter::storeF32(value, memref, indices); });
  });
}

void WarpEmitter::storeI32(Value value, Value memref, ValueRange indices) {
  ordered(memref, [&] {
    ifFirstLane([&] { KernelEmitter::storeI32(value, memref, indices); });
  });
}

F32 WarpEmitter::loadVector(Value memref, ValueRange indices, int64_t lanes,
                            Flag mask) {
  SmallVector<Value> parts;
  int64_t share = lanes / kWarp;
  for (int64_t i = 0; i < share; ++i) {
    SmallVector<Value> here = at(indices, share, i);
    auto load = [&] { return loadF32(memref, here); };
    if (mask.isNull())
      parts.push_back(load());
    else
      parts.push_back(
          choose(Flag(b, part(mask, i)), load, [&] { return f32(0.0); }));
  }
  return {b, join(parts)};
}

void WarpEmitter::storeVector(Value vector, Value memref, ValueRange indices,
                              Flag mask) {
  int64_t share = getShare(vector);
  ordered(memref, [&] {
    for (int64_t i = 0; i < share; ++i) {
      auto write = [&] {
        KernelEmitter::storeF32(part(vector, i), memref, at(indices, share, i));
      };
      if (mask.isNull())
        write();
      else
        ifThen(part(mask, i), write);
    }
  });
}

I32 WarpEmitter::loadI32Vector(Value memref, Index index, int64_t lanes) {
  SmallVector<Value> parts;
  int64_t share = lanes / kWarp;
  for (int64_t i = 0; i < share; ++i)
    parts.push_back(loadI32(memref, at({index}, share, i)));
  return {b, join(parts)};
}

void WarpEmitter::storeI32Vector(I32 vector, Value memref, Index index) {
  int64_t share = getShare(vector);
  ordered(memref, [&] {
    for (int64_t i = 0; i < share; ++i)
      KernelEmitter::storeI32(part(vector, i), memref, at({index}, share, i));
  });
}

Value WarpEmitter::scratch(ArrayRef<int64_t> shape, Type elementType) {
  int64_t bytes = std::accumulate(shape.begin(), shape.end(), int64_t(1),
                                  std::multiplies<>()) *
                  elementType.getIntOrFloatBitWidth() / 8;
  Value all = ThreadEmitter::scratch(bytes * getNumWarps(), b.getI8Type());
  auto space = cast<MemRefType>(all.getType()).getMemorySpace();
  auto type =
      MemRefType::get(shape, elementType, MemRefLayoutAttrInterface(), space);
  return memref::ViewOp::create(b, type, all, toIndex(warp()) * bytes,
                                ValueRange());
}
