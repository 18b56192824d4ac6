//===- Sm80ExchangeCodes.cpp - codes that an exchange makes -----*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// Rows that are gathered need not be quantized before: a thread loads what a
// piece of codes is made of, the lanes that have a group find its largest
// magnitude by shuffles, and its scale and the codes are made as sm80.quantize
// makes them. The first of these lanes stores the scale. Whoever has no piece
// takes part in shuffles, among lanes that have none either: a group is there
// as a whole or not at all.

#include "../../Quantizer.h"
#include "Sm80Exchange.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "moec/Dialect/RowCodes.h"

using namespace mlir;
using namespace moec;

int64_t Sm80Exchange::countLoadsOfCodes() {
  auto uncoded = cast<MemRefType>(op.getUncoded().getType());
  return uncoded.getElementTypeBitWidth() / CHAR_BIT;
}

int64_t Sm80Exchange::countLanesOfGroup() {
  auto type = [&](int64_t pair) {
    return cast<MemRefType>(op.getIns()[size_t(pair)].getType());
  };
  // A code is a byte.
  return *RowCodes::getGroup(type(op.getCoded()->front()),
                             type(op.getCoded()->back())) /
         parts[size_t(op.getCoded()->front())].pieceBytes;
}

/// Scales lie one behind the other, as groups of codes do.
void Sm80Exchange::addScales(MutableArrayRef<Round> rounds) {
  const Round &codes = rounds[size_t(op.getCoded()->front())];
  Round &scales = rounds[size_t(op.getCoded()->back())];
  Value lanes = number(countLanesOfGroup());
  Value isFirst = isEqual(arith::RemUIOp::create(b, lane, lanes), number(0));
  for (auto [piece, isThere] : llvm::zip(codes.numbers, codes.isThere)) {
    Value group = arith::DivUIOp::create(b, piece, lanes);
    scales.numbers.push_back(group);
    scales.offsets.push_back(mul(group, scales.part->pieceBytes));
    scales.isThere.push_back(arith::AndIOp::create(b, isThere, isFirst));
  }
}

void Sm80Exchange::pushCodes(Value turn, ArrayRef<Value> rows,
                             ValueRange owners) {
  auto element = cast<MemRefType>(op.getUncoded().getType()).getElementType();
  Quantizer quantizer(b, element, op.getQuantAttr(), convertsFloat8);
  Moved codes{size_t(op.getCoded()->front()), {}};
  Moved scales{size_t(op.getCoded()->back()), {}};
  auto perPiece = size_t(countLoadsOfCodes());
  for (; !rows.empty(); rows = rows.drop_front(perPiece)) {
    SmallVector<Value> values;
    for (Value words : rows.take_front(perPiece)) {
      int64_t bits = cast<VectorType>(words.getType()).getNumElements() *
                     kWordBytes * CHAR_BIT;
      auto type =
          VectorType::get(bits / element.getIntOrFloatBitWidth(), element);
      values.push_back(castFloat(b, LLVM::BitcastOp::create(b, type, words),
                                 b.getF32Type()));
    }
    Value largest = quantizer.findLargest(values);
    for (int64_t mask = 1; mask < countLanesOfGroup(); mask *= 2)
      largest = quantizer.larger(largest, emitter.shuffleXor(largest, mask));
    Quantizer::Divisor divisor = quantizer.getDivisor(largest);
    SmallVector<Value> words;
    for (Value numbers : values) {
      Value made = quantizer.encode(numbers, divisor);
      int64_t count = cast<VectorType>(made.getType()).getNumElements();
      for (int64_t i = 0; i < count; ++i)
        words.push_back(vector::ExtractOp::create(b, made, i));
    }
    codes.pieces.push_back(vector::FromElementsOp::create(
        b, VectorType::get(int64_t(words.size()), b.getI32Type()), words));
    scales.pieces.push_back(
        LLVM::BitcastOp::create(b, b.getI32Type(), divisor.scale));
  }
  pushPieces(turn, {codes, scales}, owners);
}
