//===- OperandDecoder.cpp - elements as they are multiplied -----*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "OperandDecoder.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"

using namespace mlir;
using namespace moec;

/// Elements of a quad; rows of a matrix, and bytes of such a row.
static constexpr int64_t kQuad = 4, kMatrixRows = 8, kMatrixBytes = 16;
/// Bits of unquantized elements for tensor cores.
static constexpr int64_t kPlainBits = 16;

Value OperandDecoder::add(Value x, Value y) {
  return b.createOrFold<arith::AddIOp>(x, y);
}

/// For FMAs, elements are decoded to f16 and then converted to f32.
static Type getPairElement(MLIRContext *context, ComputeType compute) {
  return getType(context,
                 compute == ComputeType::F32 ? ComputeType::F16 : compute);
}

static moe::CodeBook getBook(moe::QuantAttr quant) {
  if (!quant)
    return {};
  return moe::getCodeBook(quant.getStorage()).value_or(moe::CodeBook{});
}

OperandDecoder::OperandDecoder(ThreadEmitter &emitter, moe::QuantAttr quant,
                               ComputeType compute, Float8 floats, Side side,
                               Order order)
    : emitter(emitter), b(emitter.b), elements(getElements(quant)),
      pairs(b, elements, getPairElement(b.getContext(), compute), floats,
            getBook(quant)),
      side(side), order(order) {}

/// For inputs, lanes 0 .. 15 have the first matrices of all rows and the others
/// the second ones; for weights, every 8 lanes have one matrix of 8 rows.
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

/// Four lanes share a row.
std::pair<Value, Value> OperandDecoder::getPiecePlace(Value first) {
  if (!isPlain() && order == Order::Quads)
    return getMatrixPlace(first);
  int64_t bits = isPlain() ? kPlainBits : getElementBits(elements);
  int64_t pieceBytes = (order == Order::Quads ? kQuad : 2 * kQuad) * bits / 8;
  Value lane = emitter.lane();
  Value row = add(first, emitter.divide(lane, kQuad));
  return {row, emitter.scale(emitter.remainder(lane, kQuad), pieceBytes)};
}

SmallVector<Value> OperandDecoder::loadPieces(Value from, int64_t stride) {
  if (order == Order::Octets)
    return loadOctets(from, stride);
  return isPlain() ? loadQuads(from, stride) : emitter.loadMatrices(from);
}

SmallVector<Value> OperandDecoder::loadQuads(Value from, int64_t stride) {
  constexpr int64_t elementBytes = kPlainBits / 8;
  constexpr int64_t halfElements = kDecodedColumns / 2;
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

/// An octet has the elements of both halves.
SmallVector<Value> OperandDecoder::loadOctets(Value from, int64_t stride) {
  int64_t bits = isPlain() ? kPlainBits : getElementBits(elements);
  int64_t words = 2 * kQuad * bits / 32;
  Type type = b.getI32Type();
  if (words > 1)
    type = VectorType::get(words, type);
  SmallVector<Value> ofRows;
  for (int64_t rows = 0; rows < 2; ++rows)
    ofRows.push_back(emitter.load(
        type, emitter.advance(from, rows * kMatrixRows * stride), 4 * words));
  if (side == Side::Input)
    return {ofRows[0], ofRows[1], ofRows[0], ofRows[1]};
  return {ofRows[0], ofRows[0], ofRows[1], ofRows[1]};
}

std::pair<Value, Value> OperandDecoder::decodeQuad(Value quad) {
  if (isPlain())
    return {vector::ExtractOp::create(b, quad, 0),
            vector::ExtractOp::create(b, quad, 1)};
  Value low = pairs.decode(quad, 0);
  return {low, pairs.decode(quad, 1)};
}

std::pair<Value, Value> OperandDecoder::decodeOctet(Value octet, int64_t half) {
  if (!isPlain() && getElementBits(elements) == 4) {
    Value low = pairs.decode(octet, 2 * half);
    return {low, pairs.decode(octet, 2 * half + 1)};
  }
  // Elements 2h and 2h + 1 are paired with 2h + 4 and 2h + 5 instead of with
  // each other.
  auto getPair = [&](int64_t quad) -> Value {
    if (isPlain())
      return vector::ExtractOp::create(b, octet, 2 * quad + half);
    return pairs.decode(vector::ExtractOp::create(b, octet, quad), half);
  };
  Value first = getPair(0), second = getPair(1);
  auto join = [&](int64_t selector) {
    return NVVM::PermuteOp::create(b, b.getI32Type(), first, second,
                                   emitter.i32(selector),
                                   NVVM::PermuteMode::DEFAULT);
  };
  Value even = join(0x5410);
  return {even, join(0x7632)};
}

std::pair<Value, Value> OperandDecoder::decode(Value piece, int64_t half,
                                               ElementFactors factors) {
  auto [low, high] =
      order == Order::Octets ? decodeOctet(piece, half) : decodeQuad(piece);
  low = pairs.adjust(low, factors.factor, factors.offset);
  return {low, pairs.adjust(high, factors.factor, factors.offset)};
}

SmallVector<Value> OperandDecoder::loadFour(Value from,
                                            ElementFactors factors) {
  SmallVector<Value> four;
  if (isPlain()) {
    auto type = VectorType::get(kQuad, b.getF32Type());
    Value values = emitter.load(type, from, kQuad * 4);
    for (int64_t i = 0; i < kQuad; ++i)
      four.push_back(vector::ExtractOp::create(b, values, i));
    return four;
  }
  if (getElementBits(elements) == 4) {
    Value loaded = emitter.load(b.getI16Type(), from, 2);
    four = pairs.decodeFour(arith::ExtUIOp::create(b, b.getI32Type(), loaded));
  } else {
    auto [low, high] = decodeQuad(emitter.load(b.getI32Type(), from, kQuad));
    for (Value pair : {low, high}) {
      auto [first, second] = pairs.split(pair);
      four.append({first, second});
    }
  }
  for (Value &value : four) {
    if (factors.factor)
      value = arith::MulFOp::create(b, value, factors.factor);
    if (factors.offset)
      value = arith::AddFOp::create(b, value, factors.offset);
  }
  return four;
}
