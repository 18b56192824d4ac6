//===- PairDecoder.h - stored elements as 16 bits, by two -------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// A word of stored elements becomes words of two bf16 or f16 each, exactly:
// fields of a float are moved into those of the wider one, integers into the
// digits of a power of two. Numbers of a code book are looked up, rounded.

#ifndef MOEC_LIB_CONVERSION_TILETONVVM_PAIRDECODER_H
#define MOEC_LIB_CONVERSION_TILETONVVM_PAIRDECODER_H

#include "Float8.h"
#include "moec/Analysis/ProductTypes.h"
#include "moec/Dialect/Moe/CodeBook.h"

namespace moec {

class PairDecoder {
public:
  /// `element` is bf16 or f16; `book` has the numbers of `Elements::CodeBook`.
  PairDecoder(mlir::ImplicitLocOpBuilder &b, Elements elements,
              mlir::Type element, Float8 floats, moe::CodeBook book = {})
      : b(b), elements(elements), element(element), floats(floats), book(book) {
  }

  /// Pair `number` of a word (i32): of 4 bytes its elements 2n and 2n + 1; of 8
  /// halves of bytes its elements n and n + 4, which become halves of a word
  /// without being moved. Integers come less `getOffset(elements)`.
  mlir::Value decode(mlir::Value word, int64_t number);

  /// `pair * factor + offset`, exact where the result has so few digits; null
  /// for 1 and 0. Factor and offset are pairs as well.
  mlir::Value adjust(mlir::Value pair, mlir::Value factor, mlir::Value offset);

  /// A pair of one value; f32, which the element type has exactly.
  mlir::Value makePair(mlir::Value value);
  /// Four elements of half a byte, the first in the lowest bits of a word, as
  /// f32 has them.
  llvm::SmallVector<mlir::Value> decodeFour(mlir::Value word);

  /// The two of a pair as f32.
  std::pair<mlir::Value, mlir::Value> split(mlir::Value pair);

private:
  mlir::VectorType getPairType() const {
    return mlir::VectorType::get(2, element);
  }
  mlir::Value splat(double value);
  mlir::Value multiplyAdd(mlir::Value pair, mlir::Value factor,
                          mlir::Value offset);
  mlir::Value toPair(mlir::Value word);
  mlir::Value toWord(mlir::Value pair);
  mlir::Value decodeE2M1(mlir::Value word, int64_t number);
  mlir::Value decodeInt4(mlir::Value word, int64_t number);
  mlir::Value decodeInt8(mlir::Value word, int64_t number);
  mlir::Value decodeByBook(mlir::Value word, int64_t number);
  /// Bytes of two words, of which a nibble of the selector each names one.
  mlir::Value permute(mlir::Value first, mlir::Value second,
                      mlir::Value selector);
  mlir::Value permute(mlir::Value first, mlir::Value second, int64_t selector);
  /// Byte `byte` of what `table` has for each of a word's four lowest codes.
  mlir::Value lookUp(mlir::Value codes, llvm::ArrayRef<uint32_t> table,
                     int64_t byte);

  mlir::ImplicitLocOpBuilder &b;
  Elements elements;
  mlir::Type element;
  Float8 floats;
  moe::CodeBook book;
};

} // namespace moec

#endif // MOEC_LIB_CONVERSION_TILETONVVM_PAIRDECODER_H
