//===- DecodeCodes.cpp - codes that no storage type has -------------------===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Sources: Quantizer.dequantize and BitPack of hqq, integrations/bitnet.py and
// integrations/gemma_quant.py of Transformers, _dequantize_weight of aqlm,
// pack_int4_in_uint8 and SVDQuantLinear of ModelOpt, GGUFLinear of GPTQModel.
//
//===----------------------------------------------------------------------===//

#include "DecodeMatrix.h"

#include "GgmlBlocks.h"
#include "llvm/ADT/Twine.h"
#include "llvm/Support/MathExtras.h"

#include <algorithm>

using namespace moec;
using llvm::Twine;
using moert::Result;
using moert::Status;

namespace {

constexpr FileType kBytes[] = {FileType::U8, FileType::I8};

/// HQQ numbers the elements of the matrix row by row and lays them out in a
/// rectangle whose rows (axis 1) or columns (axis 0) are groups. The rectangle
/// is cut into slices of rows, which share bytes, the first slice in the
/// highest bits; of 3 bits, ten slices share 32 bits.
Status decodeHqq(const ModuleMatrix &matrix,
                 llvm::MutableArrayRef<float> values) {
  auto count = int64_t(values.size()), bits = matrix.stored.storedBits;
  constexpr int64_t three = 3, ofThree = 10;
  auto codes =
      matrix.find(".W_q", {FileType::U8, FileType::I8, FileType::I32,
                           FileType::F16, FileType::BF16, FileType::F32});
  if (!codes)
    return codes.status();
  auto scales = matrix.findNumbers(".scale");
  if (!scales)
    return scales.status();
  auto zeros = matrix.findNumbers(".zero", scales->shape);
  if (!zeros)
    return zeros.status();
  int64_t groups = scales->count();
  if (scales->shape.size() != 2 || groups == 0 || count % groups != 0 ||
      (scales->shape[0] != 1 && scales->shape[1] != 1))
    return scales->fail("does not have a column or a row of the scales of " +
                        Twine(count) + " elements");
  bool areRows = scales->shape[1] == 1;
  int64_t width = areRows ? count / groups : groups;
  int64_t unitBytes = bits == three ? 4 : 1;
  int64_t slices = bits == three ? ofThree : 8 / bits;
  int64_t units = int64_t(codes->bytes) / unitBytes;
  int64_t height = llvm::divideCeil(uint64_t(count / width), uint64_t(slices));
  if (units != height * width)
    return codes->fail("has " + Twine(codes->bytes) + " bytes, expected " +
                       Twine(height * width * unitBytes) + " of " +
                       Twine(count) + " elements of " + Twine(bits) +
                       " bits in groups of " + Twine(count / groups));
  // Codes may be viewed as floats, which are bytes here.
  ModuleTensor packed = *codes;
  packed.dtype = unitBytes == 1 ? FileType::U8 : FileType::I32;
  for (int64_t i = 0; i < count; ++i) {
    int64_t row = i / width, slice = row / height;
    uint32_t unit = packed.getBits(row % height * width + i % width);
    int64_t shift = bits * (slices - 1 - slice);
    uint32_t code = unit >> shift & ((1U << bits) - 1);
    int64_t group = areRows ? row : i % width;
    values[size_t(i)] = (float(code) - zeros->get(group)) * scales->get(group);
  }
  return Status::ok();
}

/// Integers of 2, 4 or 8 bits in bytes along K, the first one in the lowest
/// bits; 2 and 4 bits begin at 0. A scale for each row.
Status decodeGemma(const ModuleMatrix &matrix,
                   llvm::MutableArrayRef<float> values) {
  int64_t bits = matrix.stored.storedBits, perByte = 8 / bits;
  int64_t bytesOfRow = (matrix.columns + perByte - 1) / perByte;
  auto codes = matrix.find(".weight", kBytes, {matrix.rows, bytesOfRow});
  if (!codes)
    return codes.status();
  auto scales = matrix.findNumbers(".weight_scale", {matrix.rows, 1});
  if (!scales)
    return scales.status();
  int middle = bits == 8 ? 0 : 1 << (bits - 1);
  for (int64_t row = 0; row < matrix.rows; ++row)
    for (int64_t k = 0; k < matrix.columns; ++k) {
      uint32_t byte = codes->getByte(row * bytesOfRow + k / perByte);
      uint32_t code = byte >> (k % perByte * bits) & ((1U << bits) - 1);
      int value = bits == 8 ? int(int8_t(code)) : int(code) - middle;
      values[size_t(row * matrix.columns + k)] =
          float(value) * scales->get(row);
    }
  return Status::ok();
}

/// Four rows share bytes, those of the first quarter of the matrix in the
/// lowest bits; codes are -1, 0 and 1, plus 1.
Status decodeBitNet(const ModuleMatrix &matrix,
                    llvm::MutableArrayRef<float> values) {
  constexpr int64_t together = 4;
  int64_t rows = matrix.rows, columns = matrix.columns;
  bool multiplies = matrix.stored.packing == Packing::AutoBitNet;
  auto codes = matrix.find(
      ".weight", {FileType::U8, FileType::F16, FileType::BF16, FileType::F32});
  if (!codes)
    return codes.status();
  bool isPacked = codes->dtype == FileType::U8;
  int64_t expected = isPacked ? rows / together : rows;
  if ((isPacked && rows % together != 0) ||
      codes->count() != expected * columns || (!isPacked && !multiplies))
    return codes->fail("has " + Twine(codes->count()) + " elements, expected " +
                       Twine(rows / together) + " x " + Twine(columns) +
                       " bytes, of four rows each");
  auto scale = matrix.findNumbers(".weight_scale", {1});
  if (!scale)
    return scale.status();
  float factor = scale->get(0);
  for (int64_t i = 0; i < rows * columns; ++i) {
    int64_t row = i / columns;
    float value =
        isPacked
            ? float(codes->getByte(row % expected * columns + i % columns) >>
                        (row / expected * 2) &
                    3) -
                  1
            : codes->get(i);
    values[size_t(i)] = multiplies ? value * factor : value / factor;
  }
  return Status::ok();
}

/// A block of a matrix is the sum of a vector of each code book, times the
/// scale of its rows.
Status decodeAqlm(const ModuleMatrix &matrix,
                  llvm::MutableArrayRef<float> values) {
  auto books = matrix.findNumbers(".codebooks");
  if (!books)
    return books.status();
  constexpr size_t numDimensions = 4;
  if (books->shape.size() != numDimensions)
    return books->fail("has " + Twine(books->shape.size()) +
                       " dimensions, expected 4: books, vectors, rows and "
                       "columns of a vector");
  int64_t numBooks = books->shape[0], numVectors = books->shape[1],
          height = books->shape[2], width = books->shape[3];
  if (numVectors < 1 || !llvm::isPowerOf2_64(uint64_t(numVectors)))
    return books->fail("has books of " + Twine(numVectors) +
                       " vectors, expected a power of two, since codes are "
                       "bits");
  if (height < 1 || width < 1 || matrix.rows % height != 0 ||
      matrix.columns % width != 0)
    return books->fail("has vectors of " + Twine(height) + " x " +
                       Twine(width) + ", which do not divide a matrix of " +
                       Twine(matrix.rows) + " x " + Twine(matrix.columns));
  int64_t blocks = matrix.columns / width;
  auto codes = matrix.find(".codes",
                           {FileType::I8, FileType::U8, FileType::I16,
                            FileType::U16, FileType::I32, FileType::I64},
                           {matrix.rows / height, blocks, numBooks});
  if (!codes)
    return codes.status();
  auto scales = matrix.findNumbers(".scales", {matrix.rows / height, 1, 1, 1});
  if (!scales)
    return scales.status();
  for (int64_t code = 0; code < codes->count(); ++code) {
    int64_t book = code % numBooks, block = code / numBooks;
    // Codes are bits of a signed type.
    uint32_t vector = codes->getBits(code) & uint32_t(numVectors - 1);
    int64_t row = block / blocks * height, column = block % blocks * width;
    for (int64_t i = 0; i < height * width; ++i)
      values[size_t((row + i / width) * matrix.columns + column + i % width)] +=
          books->get((book * numVectors + vector) * height * width + i);
  }
  for (int64_t i = 0; i < matrix.rows * matrix.columns; ++i)
    values[size_t(i)] *= scales->get(i / matrix.columns / height);
  return Status::ok();
}

/// Multiplies columns by the factors of the input that the module has.
Status multiplyColumns(const ModuleMatrix &matrix,
                       llvm::MutableArrayRef<float> values) {
  if (!matrix.has(".pre_quant_scale"))
    return Status::ok();
  auto factors = matrix.findNumbers(".pre_quant_scale", {matrix.columns});
  if (!factors)
    return factors.status();
  for (int64_t i = 0; i < matrix.rows * matrix.columns; ++i)
    values[size_t(i)] *= factors->get(i % matrix.columns);
  return Status::ok();
}

/// Signed codes; a byte has those of two rows. Scales of groups along K, which
/// may be e4m3 with a factor.
Status decodeModelOptAwq(const ModuleMatrix &matrix,
                         llvm::MutableArrayRef<float> values) {
  int64_t rows = matrix.rows, columns = matrix.columns;
  if (Status status = matrix.checkMultiple(2, 1); !status)
    return status;
  auto codes = matrix.find(".weight", kBytes, {rows / 2, columns});
  if (!codes)
    return codes.status();
  auto scales = matrix.find(".weight_scale", {FileType::F32, FileType::BF16,
                                              FileType::F16, FileType::F8E4M3});
  if (!scales)
    return scales.status();
  int64_t groups = scales->count() / rows;
  if (groups == 0 || scales->count() != groups * rows || columns % groups != 0)
    return scales->fail("has " + Twine(scales->count()) +
                        " elements, expected those of groups of " +
                        Twine(rows) + " rows of " + Twine(columns));
  float factor = 1;
  if (matrix.has(".weight_scale_2")) {
    auto whole = matrix.findNumbers(".weight_scale_2", {1});
    if (!whole)
      return whole.status();
    factor = whole->get(0);
  }
  for (int64_t i = 0; i < rows * columns; ++i) {
    int64_t row = i / columns, k = i % columns;
    uint32_t byte = codes->getByte(row / 2 * columns + k);
    uint32_t code = byte >> (row % 2 * 4) & 15;
    values[size_t(i)] =
        float(int(code ^ 8) - 8) *
        (scales->get(row * groups + k / (columns / groups)) * factor);
  }
  return multiplyColumns(matrix, values);
}

/// nvfp4, and a product of two matrices of low rank that is added; both read
/// the input times its factors.
Status decodeModelOptSvd(const ModuleMatrix &matrix,
                         llvm::MutableArrayRef<float> values) {
  constexpr int64_t group = 16;
  constexpr float sizes[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  int64_t rows = matrix.rows, columns = matrix.columns;
  if (Status status = matrix.checkMultiple(1, group); !status)
    return status;
  auto codes = matrix.find(".weight", kBytes, {rows, columns / 2});
  if (!codes)
    return codes.status();
  auto scales =
      matrix.find(".weight_scale", {FileType::F8E4M3}, {rows, columns / group});
  if (!scales)
    return scales.status();
  auto whole = matrix.findNumbers(".weight_scale_2", {1});
  if (!whole)
    return whole.status();
  for (int64_t i = 0; i < rows * columns; ++i) {
    uint32_t code = codes->getByte(i / 2) >> (i % 2 * 4) & 15;
    float size = sizes[code & 7];
    values[size_t(i)] =
        (code & 8 ? -size : size) * (scales->get(i / group) * whole->get(0));
  }
  if (matrix.has(".svdquant_lora_a")) {
    auto a = matrix.findNumbers(".svdquant_lora_a");
    if (!a)
      return a.status();
    int64_t rank = a->count() / columns;
    if (a->count() != rank * columns)
      return a->fail("has " + Twine(a->count()) +
                     " elements, expected rows of " + Twine(columns));
    auto b = matrix.findNumbers(".svdquant_lora_b", {rows, rank});
    if (!b)
      return b.status();
    for (int64_t i = 0; i < rows * columns; ++i)
      for (int64_t r = 0; r < rank; ++r)
        values[size_t(i)] +=
            b->get(i / columns * rank + r) * a->get(r * columns + i % columns);
  }
  return multiplyColumns(matrix, values);
}

/// Rows of ggml's blocks; the last block of a row may be padded.
Status decodeGgmlBlocks(const ModuleMatrix &matrix,
                        llvm::MutableArrayRef<float> values) {
  const GgmlBlock &block = *findGgmlBlock(matrix.stored.storedBlocks);
  int64_t blocks =
      llvm::divideCeil(uint64_t(matrix.columns), uint64_t(block.elements));
  auto bytes =
      matrix.find(".qweight", kBytes, {matrix.rows, blocks * block.bytes});
  if (!bytes)
    return bytes.status();
  std::vector<float> row(size_t(blocks * block.elements));
  for (int64_t r = 0; r < matrix.rows; ++r) {
    for (int64_t i = 0; i < blocks; ++i)
      block.decode(bytes->data + (r * blocks + i) * block.bytes,
                   row.data() + i * block.elements);
    std::copy_n(row.begin(), matrix.columns,
                values.begin() + r * matrix.columns);
  }
  return Status::ok();
}

} // namespace

Decoder moec::findCodeDecoder(Packing packing) {
  switch (packing) {
  case Packing::Hqq:
    return decodeHqq;
  case Packing::Gemma:
    return decodeGemma;
  case Packing::BitNet:
  case Packing::AutoBitNet:
    return decodeBitNet;
  case Packing::Aqlm:
    return decodeAqlm;
  case Packing::ModelOptAwq:
    return decodeModelOptAwq;
  case Packing::ModelOptSvd:
    return decodeModelOptSvd;
  case Packing::GgmlBlocks:
    return decodeGgmlBlocks;
  default:
    return nullptr;
  }
}
