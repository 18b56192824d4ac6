//===- Sm80ExchangeCodes.cpp - codes that an exchange makes -----*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// Quantizes the rows of a gather on the fly. A thread loads the inputs of a
// piece of quantized values; the lanes of a scale group find its largest
// magnitude by shuffles, then compute its scale and values as sm80.quantize
// does. The first of these lanes stores the scale. Lanes without a piece
// shuffle only with other such lanes: a group exists as a whole or not at all.
//
// With one scale per row, all pieces of a warp in a round belong to one row,
// and all warps of a row to one CTA, so the row stays in registers. Its largest
// magnitude is found by shuffles, then in shared memory with a named barrier
// per row. Lanes past the row's end contribute nothing.

#include "Sm80Exchange.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "moec/Analysis/Exchange.h"
#include "moec/Analysis/Sm80.h"
#include "moec/Dialect/RowCodes.h"
#include "llvm/Support/MathExtras.h"

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
  // A quantized value is one byte.
  return *RowCodes::getGroup(type(op.getCoded()->front()),
                             type(op.getCoded()->back())) /
         parts[size_t(op.getCoded()->front())].pieceBytes;
}

void Sm80Exchange::readCodes() {
  if (hasCodesOfRows(op) && parts[size_t(op.getCoded()->front())].rowWarps > 1)
    largestOfWarps = emitter.scratch({emitter.getNumWarps()}, b.getF32Type());
}

void Sm80Exchange::dealOutCodes() {
  Sm80ExchangePart &codes = parts[size_t(op.getCoded()->front())];
  Sm80ExchangePart &scales = parts[size_t(op.getCoded()->back())];
  if (hasCodesOfRows(op)) {
    ExchangedPart shape = getExchangedPart(
        op.getKind(), ranks, op.getMovedType(size_t(op.getCoded()->front())));
    codes.rowPieces = shape.pieces;
    codes.rowWarps = countWarpsOfCodes(shape.pieces, config.getPieces());
    codes.atOnce = llvm::divideCeil(shape.pieces, sm80::kWarp * codes.rowWarps);
    scales.atOnce = 1;
    return;
  }
  // One scale per piece of quantized values.
  scales.atOnce = codes.atOnce;
}

/// Scales are contiguous, in the order of groups and rows.
void Sm80Exchange::addScales(MutableArrayRef<Round> rounds) {
  const Round &codes = rounds[size_t(op.getCoded()->front())];
  Round &scales = rounds[size_t(op.getCoded()->back())];
  auto addScale = [&](Value number, Value isThere) {
    scales.numbers.push_back(number);
    scales.offsets.push_back(mul(number, scales.part->pieceBytes));
    scales.isThere.push_back(isThere);
  };
  if (codes.row) {
    // The thread with the row's first piece stores the scale.
    Value isFirst =
        isEqual(codes.numbers.front(), mul(codes.row, codes.part->rowPieces));
    addScale(codes.row, arith::AndIOp::create(b, codes.hasRow, isFirst));
    return;
  }
  Value lanes = number(countLanesOfGroup());
  Value isFirst = isEqual(arith::RemUIOp::create(b, lane, lanes), number(0));
  for (auto [piece, isThere] : llvm::zip(codes.numbers, codes.isThere))
    addScale(arith::DivUIOp::create(b, piece, lanes),
             arith::AndIOp::create(b, isThere, isFirst));
}

Sm80Exchange::Pieces Sm80Exchange::getValues(ArrayRef<Value> rows,
                                             size_t piece) {
  auto element = cast<MemRefType>(op.getUncoded().getType()).getElementType();
  auto perPiece = size_t(countLoadsOfCodes());
  Pieces values;
  for (Value words : rows.slice(piece * perPiece, perPiece)) {
    int64_t bits = cast<VectorType>(words.getType()).getNumElements() *
                   kWordBytes * CHAR_BIT;
    auto type =
        VectorType::get(bits / element.getIntOrFloatBitWidth(), element);
    values.push_back(LLVM::BitcastOp::create(b, type, words));
  }
  return values;
}

Value Sm80Exchange::makePieceOfCodes(Quantizer &quantizer,
                                     ArrayRef<Value> numbers,
                                     const Quantizer::Divisor &divisor) {
  SmallVector<Value> words;
  for (Value some : numbers) {
    Value made = quantizer.encode(some, divisor);
    int64_t count = cast<VectorType>(made.getType()).getNumElements();
    for (int64_t i = 0; i < count; ++i)
      words.push_back(vector::ExtractOp::create(b, made, i));
  }
  return vector::FromElementsOp::create(
      b, VectorType::get(int64_t(words.size()), b.getI32Type()), words);
}

Value Sm80Exchange::shareInRow(Quantizer &quantizer, Value largest,
                               int64_t warps) {
  for (int64_t mask = 1; mask < sm80::kWarp; mask *= 2)
    largest = quantizer.larger(largest, emitter.shuffleXor(largest, mask));
  if (warps == 1)
    return largest;
  Value ofCta = emitter.divide(emitter.warp(), warps);
  // Barrier 0 is the CTA's own.
  auto barrier = [&] {
    emitter.barrierOf(emitter.scale(ofCta, 1, 1), warps * sm80::kWarp);
  };
  // All warps have read the maxima of the previous row.
  barrier();
  emitter.ifThen(isEqual(lane, number(0)), [&] {
    emitter.storeF32(largest, largestOfWarps, emitter.toIndex(emitter.warp()));
  });
  barrier();
  for (int64_t warp = 0; warp < warps; ++warp) {
    Value other = emitter.loadF32(
        largestOfWarps, emitter.toIndex(emitter.scale(ofCta, warps, warp)));
    largest = warp > 0 ? quantizer.larger(largest, other) : other;
  }
  return largest;
}

Value Sm80Exchange::findLargestOfRow(Quantizer &quantizer, const Round &round,
                                     ArrayRef<Value> rows) {
  const Sm80ExchangePart &part = *round.part;
  // Compare as 16-bit values: otherwise the thread's part of the row would stay
  // in registers as f32 until it is quantized.
  Value largest;
  for (auto [i, isThere] : llvm::enumerate(round.isThere)) {
    Value ofPiece;
    for (Value values : getValues(rows, i)) {
      Value magnitudes = math::AbsFOp::create(b, values);
      ofPiece = ofPiece ? quantizer.larger(ofPiece, magnitudes) : magnitudes;
    }
    // Loads past the row's end returned other data.
    if (part.rowPieces % (sm80::kWarp * part.rowWarps * part.atOnce) != 0)
      ofPiece = arith::SelectOp::create(
          b, isThere, ofPiece,
          arith::ConstantOp::create(b, b.getZeroAttr(ofPiece.getType())));
    largest = largest ? quantizer.larger(largest, ofPiece) : ofPiece;
  }
  largest = quantizer.findLargest(castFloat(b, largest, b.getF32Type()));
  return shareInRow(quantizer, largest, part.rowWarps);
}

void Sm80Exchange::pushCodes(const Round &round, Value turn,
                             ArrayRef<Value> rows, ValueRange owners) {
  auto element = cast<MemRefType>(op.getUncoded().getType()).getElementType();
  Quantizer quantizer(b, element, op.getQuantAttr(), convertsFloat8);
  Moved codes{size_t(op.getCoded()->front()), {}};
  Moved scales{size_t(op.getCoded()->back()), {}};
  Quantizer::Divisor divisor;
  auto useLargest = [&](Value largest) {
    divisor = quantizer.getDivisor(largest);
    scales.pieces.push_back(
        LLVM::BitcastOp::create(b, b.getI32Type(), divisor.scale));
  };
  if (round.row)
    useLargest(findLargestOfRow(quantizer, round, rows));
  for (size_t piece = 0; piece < round.numbers.size(); ++piece) {
    Pieces numbers;
    for (Value values : getValues(rows, piece))
      numbers.push_back(castFloat(b, values, b.getF32Type()));
    if (!round.row) {
      Value largest = quantizer.findLargest(numbers);
      for (int64_t mask = 1; mask < countLanesOfGroup(); mask *= 2)
        largest = quantizer.larger(largest, emitter.shuffleXor(largest, mask));
      useLargest(largest);
    }
    codes.pieces.push_back(makePieceOfCodes(quantizer, numbers, divisor));
  }
  pushPieces(turn, {codes, scales}, owners);
}
