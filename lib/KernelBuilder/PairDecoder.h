//===- PairDecoder.h - stored elements as 16 bits, by two -------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// Decoder of a word of stored elements to words of two bf16 or f16 each. Exact:
// the fields of a float are moved into those of the wider one, integers into
// the digits of a power of two. Entries of a code book are looked up, rounded.

#ifndef MOEC_LIB_KERNELBUILDER_PAIRDECODER_H
#define MOEC_LIB_KERNELBUILDER_PAIRDECODER_H

#include "Float8.h"
#include "Pair.h"
#include "moec/Dialect/Moe/CodeBook.h"
#include "moec/Schedules/ProductTypes.h"

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
  I32 decode(I32 word, int64_t number);

  /// `pair * factor + offset`, exact if the result has few enough digits; null
  /// for 1 and 0. Factor and offset are pairs as well.
  I32 adjust(I32 pair, I32 factor, I32 offset);

  /// A pair of one value, which the element type represents exactly.
  I32 makePair(F32 value);
  /// Four 4-bit elements, the first in the lowest bits of a word.
  llvm::SmallVector<F32> decodeFour(I32 word);

  /// Both elements of a pair.
  std::pair<F32, F32> split(I32 pair);

  /// prmt: selects bytes of two words by the nibbles of the selector.
  static I32 permute(I32 first, I32 second, I32 selector);
  static I32 permute(I32 first, I32 second, int64_t selector) {
    return permute(first, second, first.like(selector));
  }

private:
  Pair toPair(I32 word) { return Pair::fromBits(word, element); }
  I32 decodeE2M1(I32 word, int64_t number);
  I32 decodeInt4(I32 word, int64_t number);
  I32 decodeInt8(I32 word, int64_t number);
  I32 decodeByBook(I32 word, int64_t number);
  /// Byte `byte` of the `table` entries for each of a word's four lowest 4-bit
  /// values.
  I32 lookUp(I32 word, llvm::ArrayRef<uint32_t> table, int64_t byte);

  mlir::ImplicitLocOpBuilder &b;
  Elements elements;
  mlir::Type element;
  Float8 floats;
  moe::CodeBook book;
};

} // namespace moec

#endif // MOEC_LIB_KERNELBUILDER_PAIRDECODER_H
