//===- PairDecoder.h - stored elements as 16 bits, by two -------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// Decoder of a word of stored elements to words of two bf16 or f16 each. Exact:
// the fields of a float are moved into those of the wider one, integers into
// the digits of a power of two. Entries of a code book are looked up, rounded.

#ifndef MOEC_LIB_CONVERSION_TILETONVVM_PAIRDECODER_H
#define MOEC_LIB_CONVERSION_TILETONVVM_PAIRDECODER_H

#include "Float8.h"
#include "moec/Analysis/ProductTypes.h"
#include "moec/Dialect/Moe/CodeBook.h"

namespace moec {

class PairDecoder {
public:
  /// `element` is bf16 or f16; `book` has the entries for `Elements::CodeBook`.
  PairDecoder(mlir::ImplicitLocOpBuilder &b, Elements elements,
              mlir::Type element, Float8 floats, moe::CodeBook book = {})
      : b(b), elements(elements), element(element), floats(floats), book(book) {
  }

  /// Pair `number` of a word (i32): elements 2n and 2n + 1 of 4 bytes; elements
  /// n and n + 4 of 8 nibbles, which need no shift within a half word.
  /// `getOffset(elements)` is subtracted from integers.
  mlir::Value decode(mlir::Value word, int64_t number);

  /// `pair * factor + offset`, exact if the result has few enough digits; null
  /// for 1 and 0. Factor and offset are pairs as well.
  mlir::Value adjust(mlir::Value pair, mlir::Value factor, mlir::Value offset);

  /// A pair of one f32 value, which the element type represents exactly.
  mlir::Value makePair(mlir::Value value);
  /// Four 4-bit elements, the first in the lowest bits of a word, as f32.
  llvm::SmallVector<mlir::Value> decodeFour(mlir::Value word);

  /// Both elements of a pair as f32.
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
  /// prmt: selects bytes of two words by the nibbles of the selector.
  mlir::Value permute(mlir::Value first, mlir::Value second,
                      mlir::Value selector);
  mlir::Value permute(mlir::Value first, mlir::Value second, int64_t selector);
  /// Byte `byte` of the `table` entries for each of a word's four lowest 4-bit
  /// values.
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
