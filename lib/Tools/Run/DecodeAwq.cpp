//===- DecodeAwq.cpp - 4-bit integers in orders of kernels ----------------===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Sources: WQLinear_GEMV, WQLinear_GEMVFast and WQLinear_Marlin of AutoAWQ,
// WQLinear of llm-awq, MarlinQuantLinear of AutoGPTQ.
//
//===----------------------------------------------------------------------===//

#include "DecodeMatrix.h"

#include "llvm/ADT/Twine.h"

#include <vector>

using namespace moec;
using moert::Result;
using moert::Status;

namespace {

constexpr int64_t kNibblesOfWord = 8;

/// The configuration's size of groups; a row without one.
int64_t getGroupSize(const ModuleMatrix &matrix) {
  int64_t size = matrix.stored.quantization.blockColumns;
  return size ? size : matrix.columns;
}

/// Number of groups in a row, or 0 if a group is cut.
Result<int64_t> countGroups(const ModuleMatrix &matrix,
                            const ModuleTensor &scales) {
  int64_t size = getGroupSize(matrix);
  if (matrix.columns % size != 0)
    return scales.fail("is of groups of " + llvm::Twine(size) +
                       ", but rows have " + llvm::Twine(matrix.columns) +
                       " elements; a row has whole groups");
  return matrix.columns / size;
}

/// Words along K, the first element in the lowest bits. Scales and zeros of a
/// row are padded.
Status decodeGemv(const ModuleMatrix &matrix,
                  llvm::MutableArrayRef<float> values) {
  int64_t rows = matrix.rows, columns = matrix.columns;
  if (Status status = matrix.checkMultiple(1, kNibblesOfWord); !status)
    return status;
  auto words = matrix.find(".qweight", {FileType::I32},
                           {rows, columns / kNibblesOfWord});
  if (!words)
    return words.status();
  auto scales = matrix.findNumbers(".scales");
  if (!scales)
    return scales.status();
  Result<int64_t> groups = countGroups(matrix, *scales);
  if (!groups)
    return groups.status();
  int64_t padded = scales->count() / rows;
  if (scales->count() % rows != 0 || padded < *groups ||
      padded % kNibblesOfWord != 0)
    return scales->fail("has " + llvm::Twine(scales->count()) +
                        " elements, expected " + llvm::Twine(rows) +
                        " rows of at least " + llvm::Twine(*groups) +
                        ", a multiple of 8");
  auto zeros =
      matrix.find(".qzeros", {FileType::I32}, {rows, padded / kNibblesOfWord});
  if (!zeros)
    return zeros.status();
  int64_t size = getGroupSize(matrix);
  auto getNibbleAt = [](const ModuleTensor &tensor, int64_t i) {
    return int(tensor.getBits(i / kNibblesOfWord) >> (i % kNibblesOfWord * 4) &
               15);
  };
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t k = 0; k < columns; ++k) {
      int64_t group = row * padded + k / size;
      values[size_t(row * columns + k)] =
          float(getNibbleAt(*words, row * columns + k) -
                getNibbleAt(*zeros, group)) *
          scales->get(group);
    }
  return Status::ok();
}

/// Position in a row of the stored element `i` of 32: pairs of four runs of 8
/// elements follow one another, and of each 8 so ordered, even ones come first.
int64_t getPlaceOfFast(int64_t i) {
  int64_t inEight = i % 8, run = i / 8;
  int64_t ordered = inEight < 4 ? inEight * 2 : (inEight - 4) * 2 + 1;
  int64_t at = run * 8 + ordered;
  return at / 2 % 4 * 8 + at / 8 * 2 + at % 2;
}

/// 16 bits have four elements of a row. Four rows have 64 columns each in
/// turn.
Status decodeGemvFast(const ModuleMatrix &matrix,
                      llvm::MutableArrayRef<float> values) {
  constexpr int64_t rowsTogether = 4, stride = 64, run = 32, perUnit = 4;
  int64_t rows = matrix.rows, columns = matrix.columns;
  if (Status status = matrix.checkMultiple(rowsTogether, stride); !status)
    return status;
  auto units =
      matrix.find(".qweight", {FileType::I16}, {rows / rowsTogether, columns});
  if (!units)
    return units.status();
  bool isOther =
      matrix.stored.packing == Packing::LlmAwq && matrix.has(".scaled_zeros");
  auto scales = matrix.findNumbers(".scales");
  if (!scales)
    return scales.status();
  auto least =
      matrix.findNumbers(isOther ? ".scaled_zeros" : ".qzeros", scales->shape);
  if (!least)
    return least.status();
  Result<int64_t> groups = countGroups(matrix, *scales);
  if (!groups)
    return groups.status();
  if (scales->shape.size() != 2 || scales->shape[1] != rows ||
      scales->shape[0] < *groups)
    return scales->fail("has " + llvm::Twine(scales->count()) +
                        " elements, expected at least " + llvm::Twine(*groups) +
                        " rows of " + llvm::Twine(rows));
  int64_t size = getGroupSize(matrix);
  for (int64_t first = 0; first < rows; first += rowsTogether)
    for (int64_t i = 0; i < rowsTogether * columns; ++i) {
      uint32_t unit = units->getBits((first * columns + i) / perUnit);
      int64_t inBlock = i % (rowsTogether * stride);
      int64_t row = first + inBlock / stride, at = inBlock % stride;
      int64_t k = i / (rowsTogether * stride) * stride + at / run * run +
                  getPlaceOfFast(at % run);
      int64_t group = k / size * rows + row;
      values[size_t(row * columns + k)] =
          float(unit >> (i % perUnit * 4) & 15) * scales->get(group) +
          least->get(group);
    }
  return Status::ok();
}

/// Column of the stored scale `i` of Marlin in its run of 64 (of groups) or of
/// 32 (of rows).
int64_t getScaleColumn(int64_t i, bool isGrouped) {
  if (isGrouped)
    return i % 8 * 8 + i / 8;
  constexpr int64_t offsets[] = {0, 1, 8, 9, 16, 17, 24, 25};
  return i / 8 * 2 + offsets[i % 8];
}

/// Tiles of 16 x 16 elements of the transposed matrix. Four tiles are 128 words
/// in the order in which a warp's threads multiply them.
Status decodeMarlin(const ModuleMatrix &matrix,
                    llvm::MutableArrayRef<float> values) {
  constexpr int64_t tile = 16, tilesTogether = 4, middle = 8;
  int64_t rows = matrix.rows, columns = matrix.columns;
  bool isGptq = matrix.stored.packing == Packing::GptqMarlin;
  if (Status status = matrix.checkMultiple(tile * tilesTogether, tile); !status)
    return status;
  auto words = matrix.find(isGptq ? ".B" : ".qweight", {FileType::I32},
                           {columns / tile, rows * tile / kNibblesOfWord});
  if (!words)
    return words.status();
  auto scales = matrix.findNumbers(isGptq ? ".s" : ".scales");
  if (!scales)
    return scales.status();
  Result<int64_t> groups = countGroups(matrix, *scales);
  if (!groups)
    return groups.status();
  if (scales->count() != *groups * rows)
    return scales->fail("has " + llvm::Twine(scales->count()) +
                        " elements, expected " + llvm::Twine(*groups) +
                        " rows of " + llvm::Twine(rows));
  int64_t size = getGroupSize(matrix);
  bool isGrouped = size != columns;
  int64_t run = isGrouped ? 64 : 32;
  std::vector<float> inOrder(size_t(scales->count()));
  for (int64_t i = 0; i < scales->count(); ++i)
    inOrder[size_t(i / run * run + getScaleColumn(i % run, isGrouped))] =
        scales->get(i);
  int64_t ofTiles = tile * tile * tilesTogether;
  for (int64_t i = 0; i < rows * columns; ++i) {
    // Each 8 elements of a word: even ones first, then odd ones.
    int64_t place = i % kNibblesOfWord;
    int64_t inWord = place < 4 ? place * 2 : (place - 4) * 2 + 1;
    int64_t at = i % ofTiles / kNibblesOfWord * kNibblesOfWord + inWord;
    // A thread has 8 elements of each of four tiles.
    int64_t thread = at / 32, ofTile = at % 32 / 8, element = at % 8;
    constexpr int64_t offsets[] = {0, 1, 8, 9};
    int64_t k = thread % 4 * 2 + offsets[element % 4];
    int64_t n = thread / 4 + element / 4 * 8;
    int64_t tiles = i / ofTiles, tilesOfRow = rows / (tile * tilesTogether);
    int64_t row = (tiles % tilesOfRow * tilesTogether + ofTile) * tile + n;
    int64_t column = tiles / tilesOfRow * tile + k;
    uint32_t word = words->getBits(i / kNibblesOfWord);
    int code = int(word >> (place * 4) & 15) - int(middle);
    values[size_t(row * columns + column)] =
        float(code) * inOrder[size_t(column / size * rows + row)];
  }
  return Status::ok();
}

} // namespace

Decoder moec::findAwqDecoder(Packing packing) {
  switch (packing) {
  case Packing::AwqGemv:
    return decodeGemv;
  case Packing::AwqGemvFast:
  case Packing::LlmAwq:
    return decodeGemvFast;
  case Packing::AwqMarlin:
  case Packing::GptqMarlin:
    return decodeMarlin;
  default:
    return nullptr;
  }
}
