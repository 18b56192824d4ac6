//===- Quantizer.cpp - rows that are quantized ------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// The lanes of a scale group find its largest magnitude by shuffles, then
// compute its scale and values as gpu.quantize does. The first of these lanes
// stores the scale. Lanes without a chunk shuffle only with other such lanes: a
// group exists as a whole or not at all.
//
// With one scale per row, all chunks of a warp in a round belong to one row,
// and all warps of a row to one CTA, so the row stays in registers. Its largest
// magnitude is found by shuffles, then in shared memory with a named barrier
// per row. Lanes past the row's end contribute nothing.

#include "Quantizer.h"

#include "moec/Schedules/Exchange.h"
#include "moec/Support/GpuInstructions.h"

using namespace mlir;
using namespace moec;

RowQuantizer::RowQuantizer(tile::ExchangeOp op, ThreadEmitter &emitter,
                           ExchangeParts &parts, I64 lane, bool hasInstructions)
    : emitter(emitter), b(emitter.b), lane(lane),
      rowType(cast<MemRefType>(op.getUnquantized().getType())),
      quantizer(b, rowType.getElementType(), op.getQuantAttr(),
                hasInstructions) {
  const ExchangePart &values = parts.get()[size_t(op.getQuantized()->front())];
  if (!hasRowScales(op))
    groupLanes = parts.countLanesOfGroup();
  else if (values.rowWarps > 1)
    warpMaxima = emitter.scratch({emitter.getNumWarps()}, b.getF32Type());
}

int64_t RowQuantizer::countLoads() const {
  // A quantized value is one byte.
  return rowType.getElementTypeBitWidth() / CHAR_BIT;
}

SmallVector<Value> RowQuantizer::getInputs(ArrayRef<Value> loaded,
                                           size_t chunk) {
  auto perChunk = size_t(countLoads());
  SmallVector<Value> inputs;
  for (Value words : loaded.slice(chunk * perChunk, perChunk)) {
    auto type = cast<VectorType>(words.getType());
    int64_t bits = type.getNumElements() * type.getElementTypeBitWidth();
    inputs.push_back(LLVM::BitcastOp::create(
        b,
        VectorType::get(bits / rowType.getElementTypeBitWidth(),
                        rowType.getElementType()),
        words));
  }
  return inputs;
}

Value RowQuantizer::encode(ArrayRef<F32> inputs,
                           const Quantizer::Divisor &divisor) {
  SmallVector<I32> words;
  for (F32 some : inputs)
    words.append(emitter.elements<I32>(quantizer.encode(some, divisor)));
  return emitter.makeVector(ArrayRef(words));
}

F32 RowQuantizer::findLargestOfLanes(F32 largest, int64_t lanes) {
  for (int64_t mask = 1; mask < lanes; mask *= 2) {
    F32 other = emitter.shuffleXor(largest, mask);
    largest = quantizer.larger(largest, other);
  }
  return largest;
}

F32 RowQuantizer::findLargestOfWarps(F32 largest, int64_t warps) {
  I32 rowOfCta = emitter.warp() / warps;
  // Barrier 0 is the CTA's own.
  auto barrier = [&] { emitter.barrierOf(rowOfCta + 1, warps * kWarp); };
  // All warps have read the maxima of the previous row.
  barrier();
  emitter.ifThen(lane == 0, [&] {
    emitter.storeF32(largest, warpMaxima, emitter.toIndex(emitter.warp()));
  });
  barrier();
  for (int64_t warp = 0; warp < warps; ++warp) {
    F32 other =
        emitter.loadF32(warpMaxima, emitter.toIndex(rowOfCta * warps + warp));
    largest = warp > 0 ? quantizer.larger(largest, other) : other;
  }
  return largest;
}

F32 RowQuantizer::findLargestOfRow(const ThreadChunks &chunks,
                                   ArrayRef<Value> loaded) {
  const ExchangePart &part = *chunks.part;
  // Compare as 16-bit values: otherwise the thread's part of the row would stay
  // in registers as f32 until it is quantized.
  Value largest;
  for (auto [i, isThere] : llvm::enumerate(chunks.isThere)) {
    Value ofChunk;
    for (Value inputs : getInputs(loaded, i)) {
      Value magnitudes = math::AbsFOp::create(b, inputs);
      ofChunk = ofChunk ? quantizer.larger(ofChunk, magnitudes) : magnitudes;
    }
    // Loads past the row's end returned other data.
    if (part.rowChunks % (kWarp * part.rowWarps * part.atOnce) != 0) {
      Value zeros = emitter.constant(ofChunk.getType(),
                                     b.getZeroAttr(rowType.getElementType()));
      ofChunk = select(isThere, ofChunk, zeros);
    }
    largest = largest ? quantizer.larger(largest, ofChunk) : ofChunk;
  }
  F32 magnitudes(b, castFloat(b, largest, b.getF32Type()));
  F32 ofThread = quantizer.findLargest(magnitudes);
  F32 ofWarp = findLargestOfLanes(ofThread, kWarp);
  return part.rowWarps == 1 ? ofWarp
                            : findLargestOfWarps(ofWarp, part.rowWarps);
}

RowQuantizer::Quantized RowQuantizer::quantize(const ThreadChunks &chunks,
                                               ArrayRef<Value> loaded) {
  Quantized result;
  Quantizer::Divisor divisor;
  auto setScale = [&](F32 largest) {
    divisor = quantizer.getDivisor(largest);
    result.scales.push_back(divisor.scale.bits());
  };
  if (chunks.row)
    setScale(findLargestOfRow(chunks, loaded));
  for (size_t chunk = 0; chunk < chunks.indices.size(); ++chunk) {
    SmallVector<F32> inputs;
    for (Value values : getInputs(loaded, chunk))
      inputs.emplace_back(b, castFloat(b, values, b.getF32Type()));
    if (!chunks.row)
      setScale(findLargestOfLanes(quantizer.findLargest(inputs), groupLanes));
    result.values.push_back(encode(inputs, divisor));
  }
  return result;
}
