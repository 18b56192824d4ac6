//===- TensorScale.cpp - the schedule gpu.tensor_scale ----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// One CTA reads all rows as one list, in adjacent vectors of `vector_width`,
// several of which are loaded before the first is used. The largest magnitude
// is reduced by shuffles and shared memory.

#include "KernelBuilder/Quantizer.h"
#include "KernelBuilder/ThreadEmitter.h"
#include "Schedules/Interface/Emit.h"
#include "moec/Dialect/Moe/QuantLayout.h"
#include "moec/Schedules/Schedules.h"
#include "moec/Support/GpuInstructions.h"

using namespace mlir;
using namespace moec;

namespace {

class GpuTensorScale {
public:
  GpuTensorScale(tile::TensorScaleOp op, ThreadEmitter &emitter,
                 bool convertsFloat8)
      : op(op), emitter(emitter), b(emitter.b),
        lanes(cast<tile::GpuTensorScaleAttr>(op.getConfigAttr())
                  .getVectorWidth()),
        input(emitter.operand(op.getInput())),
        isPadding(emitter.operand(op.getIsPadding())),
        quantizer(b, getElementType(input), op.getQuant(), convertsFloat8),
        warpMaxima(emitter.scratch({emitter.getNumWarps()}, b.getF32Type())) {}

  void emit();

private:
  /// Vectors of a thread in flight.
  static constexpr int64_t kAtOnce = 8;

  Index countElements();
  F32 findLargest(Index elements);
  /// The larger magnitude; values that are not finite are ignored.
  F32 addFinite(F32 largest, F32 value);

  tile::TensorScaleOp op;
  ThreadEmitter &emitter;
  ImplicitLocOpBuilder &b;
  int64_t lanes;
  Value input, isPadding;
  Quantizer quantizer;
  /// Per-warp largest magnitudes in shared memory.
  Value warpMaxima;
};

Index GpuTensorScale::countElements() {
  Index rows = emitter.validTokens(op.getNumValidTokens());
  if (Value offsets = emitter.operand(op.getOffsets())) {
    int64_t groups = cast<MemRefType>(offsets.getType()).getDimSize(0) - 1;
    rows = emitter.loadIndex(offsets, emitter.index(groups));
  }
  return rows * getColumns(input);
}

F32 GpuTensorScale::addFinite(F32 largest, F32 value) {
  constexpr int64_t magnitudeBits = 0x7FFFFFFF, lastFinite = 0x7F7FFFFF;
  I32 bits = value.bits() & magnitudeBits;
  // Compared as integers: LLVM would narrow a float comparison to the original
  // 16 bits.
  Flag isFinite = bits <= lastFinite;
  return quantizer.larger(largest, select(isFinite, F32::fromBits(bits), 0));
}

F32 GpuTensorScale::findLargest(Index elements) {
  int64_t threads = emitter.getNumWarps() * kWarp;
  Index first = emitter.toIndex(emitter.thread()) * lanes;
  // There may be no element; vectors past the last one load the first.
  return emitter.loop(first, elements, kAtOnce * threads * lanes,
                      emitter.f32(0), [&](Index element, F32 largest) {
                        SmallVector<F32> vectors;
                        SmallVector<Flag> skipped;
                        for (int64_t i = 0; i < kAtOnce; ++i) {
                          Index at = element + i * threads * lanes;
                          Flag isInside = at < elements;
                          at = select(isInside, at, 0);
                          vectors.push_back(emitter.loadVector(
                              input, {emitter.index(0), at}, lanes));
                          // A vector never spans two rows.
                          if (isPadding)
                            skipped.push_back(emitter.loadFlag(
                                isPadding, at / getColumns(input)));
                        }
                        for (auto [number, vector] : llvm::enumerate(vectors)) {
                          F32 before = largest;
                          for (int64_t i = 0; i < lanes; ++i)
                            largest = addFinite(largest, vector.element(i));
                          if (isPadding)
                            largest = select(skipped[number], before, largest);
                        }
                        return largest;
                      });
}

void GpuTensorScale::emit() {
  F32 largest = findLargest(countElements());
  for (int64_t mask = 1; mask < kWarp; mask *= 2)
    largest = quantizer.larger(largest, emitter.shuffleXor(largest, mask));
  emitter.ifThen(emitter.lane() == 0, [&] {
    emitter.storeF32(largest, warpMaxima, emitter.toIndex(emitter.warp()));
  });
  emitter.barrier();
  emitter.ifThen(emitter.thread() == 0, [&] {
    F32 all = emitter.f32(0);
    for (int64_t warp = 0; warp < emitter.getNumWarps(); ++warp)
      all = quantizer.larger(all,
                             emitter.loadF32(warpMaxima, emitter.index(warp)));
    Quantizer::Divisor divisor = quantizer.getDivisor(all);
    emitter.storeF32(divisor.scale, emitter.operand(op.getScale()),
                     emitter.index(0));
  });
}

} // namespace

LogicalResult moec::emitGpuTensorScale(Operation *phase, KernelBody body) {
  ThreadEmitter emitter(body.func, body.kernel, body.threads);
  GpuTensorScale(cast<tile::TensorScaleOp>(phase), emitter,
                 body.target.convertsFloat8())
      .emit();
  return success();
}
