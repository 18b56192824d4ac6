//===- UnpackElements.h - elements out of a file's words --------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_TOOLS_RUN_UNPACKELEMENTS_H
#define MOEC_LIB_TOOLS_RUN_UNPACKELEMENTS_H

#include "moec/Import/TensorSignature.h"
#include "moert/DType.h"

namespace moec {

/// Rows of a matrix of bytes in the layer that a part of a checkpoint fills.
struct PartRows {
  /// The matrix.
  uint8_t *data = nullptr;
  int64_t rowBytes = 0;
  /// Row i of the part is row `firstRow + i * rowStride` here.
  int64_t firstRow = 0, rowStride = 1, numRows = 0;

  uint8_t *getRow(int64_t i) const {
    return data + (firstRow + i * rowStride) * rowBytes;
  }
};

/// What is taken of a part: as many rows and bytes of a row as are filled, from
/// `firstRow` and `firstByte` on, counted as they lie in the layer.
struct PartWindow {
  /// Those of the whole part.
  int64_t numRows = 0, rowBytes = 0;
  int64_t firstRow = 0, firstByte = 0;
};

/// The shape in the file of a packed matrix; of a row that is no multiple of a
/// word the last word is padded.
std::vector<int64_t> getPackedShape(const ElementPacking &packing,
                                    bool transposed, int64_t rows,
                                    int64_t columns);
/// The type of its words.
moert::DType getPackedType(const ElementPacking &packing);

/// Fills the rows, which have `rowBytes` * 8 / `layerBits` elements, from a
/// window into `words` of the shape above.
void unpackElements(const ElementPacking &packing, bool transposed,
                    const uint8_t *words, const PartWindow &window,
                    const PartRows &rows);

/// The same from blocks of a GGUF file, whole ones of each row, of which the
/// window may cut the first and the last.
void unpackBlocks(const BlockPacking &packing, const uint8_t *blocks,
                  const PartWindow &window, const PartRows &rows);

} // namespace moec

#endif // MOEC_LIB_TOOLS_RUN_UNPACKELEMENTS_H
