//===- OperandDecoder.cpp - elements as they are multiplied -----*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "OperandDecoder.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"

using namespace mlir;
using namespace moec;

/// Elements of a quad; rows of a matrix, and bytes of such a row.
static constexpr int64_t kQuad = 4, kMatrixRows = 8, kMatrixBytes = 16;

Value OperandDecoder::add(Value x, Value y) {
  return b.createOrFold<arith::AddIOp>(x, y);
}

OperandDecoder::OperandDecoder(ThreadEmitter &emitter, Type storage,
                               ComputeType compute, Float8 floats, Side side)
    : emitter(emitter), b(emitter.b), storage(storage),
      compute(getType(b.getContext(), compute)), floats(floats), side(side) {}

/// Of an input, lanes 0 .. 15 have the first matrices of all rows and the
/// others the second ones. Of a weight, every 8 lanes have one matrix of 8
/// rows.
std::pair<Value, Value> OperandDecoder::getMatrixPlace(Value first) {
  Value lane = emitter.lane();
  constexpr int64_t rows = 2 * kMatrixRows;
  if (side == Side::Input) {
    Value row = add(first, emitter.remainder(lane, rows));
    return {row, emitter.scale(emitter.divide(lane, rows), kMatrixBytes)};
  }
  Value half = emitter.scale(emitter.divide(lane, rows), kMatrixRows);
  Value row = add(first, add(half, emitter.remainder(lane, kMatrixRows)));
  Value part = emitter.remainder(emitter.divide(lane, kMatrixRows), 2);
  return {row, emitter.scale(part, kMatrixBytes)};
}

std::pair<Value, Value> OperandDecoder::getQuadPlace(Value first) {
  if (!isPlain())
    return getMatrixPlace(first);
  constexpr int64_t quadBytes = kQuad * 2;
  Value lane = emitter.lane();
  Value row = add(first, emitter.divide(lane, kQuad));
  return {row, emitter.scale(emitter.remainder(lane, kQuad), quadBytes)};
}

SmallVector<Value> OperandDecoder::loadQuads(Value from, int64_t stride) {
  if (!isPlain())
    return emitter.loadMatrices(from);
  constexpr int64_t elementBytes = 2, halfElements = kDecodedColumns / 2;
  auto type = VectorType::get(2, b.getI32Type());
  SmallVector<Value> quads;
  for (int64_t i = 0; i < 4; ++i) {
    int64_t outer = i / 2, inner = i % 2;
    int64_t rows = side == Side::Input ? inner : outer;
    int64_t elements = side == Side::Input ? outer : inner;
    quads.push_back(emitter.load(
        type,
        emitter.advance(from, rows * kMatrixRows * stride +
                                  elements * halfElements * elementBytes),
        kQuad * elementBytes));
  }
  return quads;
}

std::pair<Value, Value> OperandDecoder::decode(Value quad) {
  if (isPlain())
    return {vector::ExtractOp::create(b, quad, 0),
            vector::ExtractOp::create(b, quad, 1)};
  return compute.isBF16() ? floats.extendToBF16(quad) : floats.extend(quad);
}

SmallVector<Value> OperandDecoder::loadFour(Value from) {
  SmallVector<Value> four;
  if (isPlain()) {
    auto type = VectorType::get(kQuad, b.getF32Type());
    Value values = emitter.load(type, from, kQuad * 4);
    for (int64_t i = 0; i < kQuad; ++i)
      four.push_back(vector::ExtractOp::create(b, values, i));
    return four;
  }
  auto [low, high] = floats.extend(emitter.load(b.getI32Type(), from, kQuad));
  auto halves = VectorType::get(2, b.getF16Type());
  for (Value word : {low, high}) {
    Value pair = LLVM::BitcastOp::create(b, halves, word);
    for (int64_t i = 0; i < 2; ++i)
      four.push_back(
          castFloat(b, vector::ExtractOp::create(b, pair, i), b.getF32Type()));
  }
  return four;
}
