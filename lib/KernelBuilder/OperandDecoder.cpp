//===- OperandDecoder.cpp - elements as they are multiplied -----*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "OperandDecoder.h"

using namespace mlir;
using namespace moec;

/// Elements of a quad; rows of a matrix, and bytes of such a row.
static constexpr int64_t kQuad = 4, kMatrixRows = 8, kMatrixBytes = 16;
/// Bits of unquantized elements for tensor cores.
static constexpr int64_t kPlainBits = 16;

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
OperandDecoder::RowOffset OperandDecoder::getMatrixOffset(I32 first) {
  I32 lane = emitter.lane();
  constexpr int64_t rows = 2 * kMatrixRows;
  if (side == Side::Input)
    return {first + lane % rows, lane / rows * kMatrixBytes};
  I32 half = lane / rows * kMatrixRows;
  I32 matrix = lane / kMatrixRows % 2;
  return {first + (half + lane % kMatrixRows), matrix * kMatrixBytes};
}

/// Four lanes share a row.
OperandDecoder::RowOffset OperandDecoder::getChunkOffset(I32 first) {
  if (!isPlain() && order == Order::Quads)
    return getMatrixOffset(first);
  int64_t bits = isPlain() ? kPlainBits : getElementBits(elements);
  int64_t chunkBytes = (order == Order::Quads ? kQuad : 2 * kQuad) * bits / 8;
  I32 lane = emitter.lane();
  return {first + lane / kQuad, lane % kQuad * chunkBytes};
}

SmallVector<Value> OperandDecoder::loadChunks(Value from, int64_t stride) {
  if (order == Order::Octets)
    return loadOctets(from, stride);
  return isPlain() ? loadQuads(from, stride) : emitter.loadMatrices(from);
}

SmallVector<Value> OperandDecoder::loadQuads(Value from, int64_t stride) {
  constexpr int64_t elementBytes = kPlainBits / 8;
  constexpr int64_t halfElements = kDecodedColumns / 2;
  SmallVector<Value> quads;
  for (int64_t i = 0; i < 4; ++i) {
    int64_t outer = i / 2, inner = i % 2;
    int64_t rows = side == Side::Input ? inner : outer;
    int64_t elements = side == Side::Input ? outer : inner;
    Value at =
        emitter.advance(from, rows * kMatrixRows * stride +
                                  elements * halfElements * elementBytes);
    quads.push_back(emitter.loadWords(at, kQuad * elementBytes / 4));
  }
  return quads;
}

/// An octet has the elements of both halves.
SmallVector<Value> OperandDecoder::loadOctets(Value from, int64_t stride) {
  int64_t bits = isPlain() ? kPlainBits : getElementBits(elements);
  int64_t words = 2 * kQuad * bits / 32;
  I32 low = emitter.loadWords(from, words);
  I32 high =
      emitter.loadWords(emitter.advance(from, kMatrixRows * stride), words);
  if (side == Side::Input)
    return {low, high, low, high};
  return {low, low, high, high};
}

std::pair<I32, I32> OperandDecoder::decodeQuad(I32 quad) {
  auto getPair = [&](int64_t i) {
    return isPlain() ? quad.element(i) : pairs.decode(quad, i);
  };
  I32 low = getPair(0);
  return {low, getPair(1)};
}

std::pair<I32, I32> OperandDecoder::decodeOctet(I32 octet, int64_t half) {
  if (!isPlain() && getElementBits(elements) == 4) {
    I32 low = pairs.decode(octet, 2 * half);
    return {low, pairs.decode(octet, 2 * half + 1)};
  }
  // Elements 2h and 2h + 1 are paired with 2h + 4 and 2h + 5 instead of with
  // each other.
  auto getPair = [&](int64_t quad) {
    return isPlain() ? octet.element(2 * quad + half)
                     : pairs.decode(octet.element(quad), half);
  };
  I32 first = getPair(0), second = getPair(1);
  I32 even = PairDecoder::permute(first, second, 0x5410);
  return {even, PairDecoder::permute(first, second, 0x7632)};
}

std::pair<I32, I32> OperandDecoder::decode(Value chunk, int64_t half,
                                           ElementFactors factors) {
  I32 words(b, chunk);
  auto [low, high] =
      order == Order::Octets ? decodeOctet(words, half) : decodeQuad(words);
  I32 factor(b, factors.factor), offset(b, factors.offset);
  low = pairs.adjust(low, factor, offset);
  return {low, pairs.adjust(high, factor, offset)};
}

SmallVector<F32> OperandDecoder::loadFour(Value from, ElementFactors factors) {
  SmallVector<F32> four;
  if (isPlain()) {
    F32 values = emitter.loadSingles(from, kQuad);
    for (int64_t i = 0; i < kQuad; ++i)
      four.push_back(values.element(i));
    return four;
  }
  if (getElementBits(elements) == 4) {
    four = pairs.decodeFour(emitter.loadBytes(from, kQuad / 2));
  } else {
    auto [low, high] = decodeQuad(emitter.loadWord(from));
    for (I32 pair : {low, high}) {
      auto [first, second] = pairs.split(pair);
      four.append({first, second});
    }
  }
  for (F32 &value : four) {
    if (factors.factor)
      value = value * F32(b, factors.factor);
    if (factors.offset)
      value = value + F32(b, factors.offset);
  }
  return four;
}
