//===- UnpackElements.h - unpacks elements of a file ------------*- C++ -*-===//
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

/// Rows of a byte matrix of the layer that a part of a checkpoint fills.
struct PartRows {
  uint8_t *data = nullptr;
  int64_t rowBytes = 0;
  /// Row i of the part is row `firstRow + i * rowStride` of the matrix.
  int64_t firstRow = 0, rowStride = 1, numRows = 0;

  uint8_t *getRow(int64_t i) const {
    return data + (firstRow + i * rowStride) * rowBytes;
  }
};

/// The window of a part that is copied: as many rows and bytes per row as are
/// filled, from `firstRow` and `firstByte` on, in the layer's layout.
struct PartWindow {
  /// Size of the whole part.
  int64_t numRows = 0, rowBytes = 0;
  int64_t firstRow = 0, firstByte = 0;
};

/// The shape of a packed matrix in the file; the last word of a row may be
/// padded.
std::vector<int64_t> getPackedShape(const ElementPacking &packing,
                                    bool transposed, int64_t rows,
                                    int64_t columns);
moert::DType getPackedType(const ElementPacking &packing);

/// Fills the rows, which have `rowBytes` * 8 / `layerBits` elements, from a
/// window into `words`, which have the shape of getPackedShape().
void unpackElements(const ElementPacking &packing, bool transposed,
                    const uint8_t *words, const PartWindow &window,
                    const PartRows &rows);

/// Fills the rows from GGUF blocks. Each row is a whole number of blocks, but
/// the window may begin and end within one.
void unpackBlocks(const BlockPacking &packing, const uint8_t *blocks,
                  const PartWindow &window, const PartRows &rows);

} // namespace moec

#endif // MOEC_LIB_TOOLS_RUN_UNPACKELEMENTS_H
