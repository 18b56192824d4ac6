//===- PartCopier.cpp - copies tensors of a checkpoint ----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "PartCopier.h"

#include "../../../runtime/src/support/Text.h"
#include "ConvertElements.h"
#include "FindNonFinite.h"
#include "llvm/Support/MathExtras.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <numeric>

using namespace moec;
using moert::SafetensorsEntry;
using moert::Status;

static int64_t multiply(llvm::ArrayRef<int64_t> sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), int64_t(1),
                         std::multiplies<>());
}

static int64_t getBytes(moert::DType dtype, int64_t elements) {
  return elements * moert::dtypeBits(dtype) / 8;
}

//===----------------------------------------------------------------------===//
// Matrices
//===----------------------------------------------------------------------===//

MatrixShape::MatrixShape(llvm::ArrayRef<int64_t> shape, bool isStacked) {
  if (isStacked) {
    count = shape.front();
    shape = shape.drop_front();
  }
  isVector = shape.size() <= 1;
  if (!isVector) {
    columns = shape.back();
    shape = shape.drop_back();
  }
  rows = multiply(shape);
}

MatrixShape CopyTarget::getLocal() const {
  return {shard ? shard->local.shape : shape, isStacked};
}

size_t CopyTarget::getMatrixBytes() const {
  MatrixShape local = getLocal();
  return size_t(getBytes(dtype, local.rows * local.columns));
}

int64_t CopyTarget::getMatrix(int64_t place) const {
  return shard && !shard->experts.empty() ? shard->experts[size_t(place)]
                                          : place;
}

int64_t PartCopier::getFirstColumn() const {
  const TensorShard *shard = target.shard;
  bool hasColumns = shard && !target.getWhole().isVector &&
                    shard->dimension + 1 == int64_t(target.shape.size());
  return hasColumns ? shard->first : 0;
}

llvm::SmallVector<PartCopier::Run, 2>
PartCopier::getRuns(const CheckpointPart &part) const {
  int64_t step = part.rowStride;
  const TensorShard *shard = target.shard;
  int64_t rowsAt = target.isStacked ? 1 : 0;
  if (!shard || shard->dimension != rowsAt)
    return {{0, part.firstRow, step, part.numRows}};
  int64_t rowsOfRun = target.getWhole().rows / shard->numRuns;
  int64_t share = shard->count;
  llvm::SmallVector<Run, 2> runs;
  for (int64_t i = 0; i < shard->numRuns; ++i) {
    // The range of this rank's rows of the tensor, and the part's rows in it.
    int64_t first = i * rowsOfRun + shard->first;
    auto countBefore = [&](int64_t row) {
      int64_t count = llvm::divideCeil(
          uint64_t(std::max<int64_t>(row - part.firstRow, 0)), uint64_t(step));
      return std::min(count, part.numRows);
    };
    int64_t from = countBefore(first);
    int64_t count = countBefore(first + share) - from;
    if (count > 0)
      runs.push_back(
          {from, i * share + part.firstRow + from * step - first, step, count});
  }
  return runs;
}

//===----------------------------------------------------------------------===//
// Checks of the file's tensors
//===----------------------------------------------------------------------===//

Status PartCopier::fail(const std::string &what) const {
  return moert::invalidArgument(file + ": tensor '" +
                                moert::printable(entry.name) + "': " + what);
}

/// `blocks` is ggml's name of the block format; empty for plain elements.
Status PartCopier::check(llvm::ArrayRef<int64_t> shape, moert::DType dtype,
                         const std::string &blocks) const {
  if (entry.blockType != blocks)
    return fail("is of " +
                (entry.blockType.empty() ? moert::dtypeName(entry.dtype)
                                         : entry.blockType) +
                ", expected " +
                (blocks.empty() ? moert::dtypeName(dtype) : blocks) +
                ", as the layer's quantization requires");
  if (!canConvert(entry.dtype, dtype))
    return fail(std::string("dtype is ") + moert::dtypeName(entry.dtype) +
                ", expected " + moert::dtypeName(dtype));
  if (!isSameShape(entry.shape, shape) && !isInBlocks(shape))
    return fail("shape is " + printShape(entry.shape) + ", expected " +
                printShape(shape));
  return Status::ok();
}

/// Whether the file has an additional dimension for the groups of a row, as
/// mxfp4 does with blocks of 16 bytes.
bool PartCopier::isInBlocks(llvm::ArrayRef<int64_t> shape) const {
  llvm::ArrayRef<int64_t> found = entry.shape;
  if (target.dtype != moert::DType::I8 || found.size() != shape.size() + 1)
    return false;
  int64_t block = found.back();
  found = found.drop_back();
  return block > 0 && found.drop_back() == shape.drop_back() &&
         shape.back() % block == 0 && found.back() == shape.back() / block;
}

/// The matrices in a tensor of all experts, or of a range of them.
int64_t PartCopier::countExperts(const CheckpointPart &part) const {
  int64_t count = part.numExperts ? part.numExperts : target.getWhole().count;
  return count / part.expertsPerTensor;
}

/// The matrix of `place` in such a tensor.
int64_t PartCopier::getNumber(const CheckpointPart &part, int64_t place) const {
  return (target.getMatrix(place) - part.firstExpert) / part.expertsPerTensor;
}

std::vector<int64_t>
PartCopier::getExpectedShape(const CheckpointPart &part) const {
  MatrixShape whole = target.getWhole();
  std::vector<int64_t> expected = {part.numRows};
  if (part.blocks)
    expected.push_back(getBytes(target.dtype, whole.columns) /
                       part.blocks.count * part.blocks.bytes);
  else if (part.packing)
    expected = getPackedShape(part.packing, part.transposed, part.numRows,
                              whole.columns * 8 / part.packing.layerBits);
  else if (!whole.isVector)
    expected.insert(part.transposed ? expected.begin() : expected.end(),
                    part.countColumns(whole.columns));
  if (part.numPieces > 1)
    expected.insert(expected.begin(), part.numPieces);
  if (part.isFlat)
    expected = {multiply(expected)};
  if (part.isSplat)
    expected = {1};
  bool hasAll = target.isStacked && !part.isPerExpert();
  if (hasAll && part.flattened)
    expected.front() *= countExperts(part);
  else if (hasAll)
    expected.insert(expected.begin(), countExperts(part));
  return expected;
}

Status PartCopier::checkShape(const CheckpointPart &part) const {
  moert::DType dtype = part.blocks    ? moert::DType::U8
                       : part.packing ? getPackedType(part.packing)
                                      : target.dtype;
  // Words are bits.
  if (part.packing && dtype == moert::DType::I32 &&
      entry.dtype == moert::DType::U32)
    dtype = entry.dtype;
  return check(getExpectedShape(part), dtype, part.blocks.type);
}

/// The accepted sign of scales; nothing if the part does not hold scales.
static std::optional<ScaleSign> getScaleSign(PartUse use) {
  switch (use) {
  case PartUse::Scales:
  case PartUse::ScalesOf127:
    return ScaleSign::NotNegative;
  case PartUse::InverseScales:
  case PartUse::LargestScale:
    return ScaleSign::Positive;
  case PartUse::AnyScales:
  case PartUse::NestedScales:
  case PartUse::MiddleValues:
  case PartUse::LeastValues:
    return ScaleSign::Any;
  default:
    return std::nullopt;
  }
}

/// Checks `count` elements of the file from `first` on, if the part holds
/// scales. Scales in U8 have the target's type.
Status PartCopier::checkScales(const CheckpointPart &part, int64_t first,
                               int64_t count) const {
  std::optional<ScaleSign> sign = getScaleSign(part.use);
  if (!sign)
    return Status::ok();
  bool areBytes = entry.dtype == moert::DType::U8;
  SafetensorsEntry scales = entry;
  scales.data += getBytes(entry.dtype, first);
  scales.bytes = size_t(getBytes(entry.dtype, count));
  std::string what = moec::checkScales(
      scales, areBytes ? target.dtype : entry.dtype, *sign, first);
  return what.empty() ? Status::ok() : fail(what);
}

Status PartCopier::finish() const {
  size_t size = size_t(moert::dtypeBits(entry.dtype)) / 8;
  if (nonFinite >= 0)
    return fail(
        "has a weight of " +
        showElement(entry.data + size_t(nonFinite) * size, entry.dtype) +
        " (element " + std::to_string(nonFinite) + "); weights are finite");
  if (lossy < 0)
    return Status::ok();
  return moert::invalidArgument(
      file + ": tensor '" + moert::printable(entry.name) + "': is " +
      moert::dtypeName(entry.dtype) + " and the layer's '" + target.name +
      "' " + moert::dtypeName(target.dtype) + ", which has no value " +
      showElement(entry.data + size_t(lossy) * size, entry.dtype) +
      " (element " + std::to_string(lossy) +
      "); round weights by --round-weights, or compile the layer in " +
      moert::dtypeName(entry.dtype) + " (the configuration's torch_dtype)");
}

//===----------------------------------------------------------------------===//
// Elements
//===----------------------------------------------------------------------===//

void PartCopier::look(int64_t from, int64_t count) {
  if (!needsFinite || nonFinite >= 0)
    return;
  int64_t found = findNonFinite(entry.data + getBytes(entry.dtype, from),
                                entry.dtype, count);
  if (found >= 0)
    nonFinite = from + found;
}

void PartCopier::copyRow(int64_t from, uint8_t *to, int64_t count) {
  if (entry.dtype != target.dtype || use == PartUse::Remainders) {
    look(from, count);
    for (int64_t i = 0; i < count; ++i)
      copy(from + i, to + getBytes(target.dtype, i));
    return;
  }
  // Small blocks stay in the cache between the scan and the copy.
  constexpr int64_t chunk = 1 << 14;
  for (int64_t begin = 0; begin < count; begin += chunk) {
    int64_t size = std::min(chunk, count - begin);
    look(from + begin, size);
    std::memcpy(to + getBytes(target.dtype, begin),
                entry.data + getBytes(entry.dtype, from + begin),
                size_t(getBytes(entry.dtype, size)));
  }
}

/// Row r of the destination begins at `to + r * stepBytes` and is a column of
/// the source, which has `rowsOfPart` columns. Copies square tiles, because
/// either the reads or the writes are strided.
void PartCopier::copyTransposed(int64_t from, int64_t rowsOfPart, uint8_t *to,
                                int64_t rows, int64_t columns,
                                int64_t stepBytes) {
  constexpr int64_t side = 32;
  int64_t bytes = getBytes(target.dtype, 1);
  for (int64_t c = 0; c < columns; ++c)
    look(from + c * rowsOfPart, rows);
  for (int64_t row = 0; row < rows; row += side)
    for (int64_t column = 0; column < columns; column += side)
      for (int64_t r = row; r < std::min(row + side, rows); ++r)
        for (int64_t c = column; c < std::min(column + side, columns); ++c)
          copy(from + c * rowsOfPart + r, to + r * stepBytes + c * bytes);
}

void PartCopier::copy(int64_t from, uint8_t *to) {
  size_t size = size_t(moert::dtypeBits(entry.dtype)) / 8;
  const uint8_t *source = entry.data + size_t(from) * size;
  if (use == PartUse::RoundedValues || use == PartUse::Remainders) {
    if (!convertSplit(source, entry.dtype, to, target.dtype,
                      use == PartUse::Remainders) &&
        lossy < 0)
      lossy = from;
    return;
  }
  if (entry.dtype == target.dtype)
    std::memcpy(to, source, size);
  else if (!convertElement(source, entry.dtype, to, target.dtype) &&
           !(target.rounds &&
             roundElement(source, entry.dtype, to, target.dtype)) &&
           lossy < 0)
    lossy = from;
}

void PartCopier::multiplyRow(double factor, uint8_t *row, int64_t count) const {
  for (int64_t i = 0; i < count; ++i) {
    uint8_t *element = row + getBytes(target.dtype, i);
    float value = 0;
    auto *bytes = reinterpret_cast<uint8_t *>(&value);
    convertElement(element, target.dtype, bytes, moert::DType::F32);
    value = float(double(value) * factor);
    convertSplit(bytes, moert::DType::F32, element, target.dtype,
                 /*remainder=*/false);
  }
}

//===----------------------------------------------------------------------===//
// Parts
//===----------------------------------------------------------------------===//

Status PartCopier::copyOwn(int64_t place, uint8_t *matrix) {
  if (Status status = check(target.shape, target.dtype); !status)
    return status;
  MatrixShape whole = target.getWhole();
  CheckpointPart all;
  all.numRows = whole.rows;
  int64_t first = target.getMatrix(place) * whole.rows * whole.columns;
  for (const Run &run : getRuns(all))
    copyPlain(all, first, run, matrix);
  return finish();
}

moert::Result<float> PartCopier::readInputScale() {
  CheckpointPart part;
  part.use = PartUse::LargestScale;
  if (Status status = check({1}, target.dtype); !status)
    return status;
  if (Status status = checkScales(part, 0, 1); !status)
    return status;
  float scale = 0;
  copy(0, reinterpret_cast<uint8_t *>(&scale));
  if (Status status = finish(); !status)
    return status;
  return scale;
}

void PartCopier::copyPlain(const CheckpointPart &part, int64_t first,
                           const Run &run, uint8_t *matrix) {
  int64_t columns = part.countColumns(target.getWhole().columns);
  int64_t rowBytes = getBytes(target.dtype, target.getLocal().columns);
  // The part's columns among those of this rank.
  int64_t firstHere = getFirstColumn();
  int64_t begin = std::max(firstHere, part.firstColumn);
  int64_t end = std::min(firstHere + target.getLocal().columns,
                         part.firstColumn + columns);
  if (begin >= end)
    return;
  int64_t count = end - begin, column = begin - part.firstColumn;
  uint8_t *to =
      matrix + run.to * rowBytes + getBytes(target.dtype, begin - firstHere);
  int64_t stepBytes = run.step * rowBytes;
  if (part.transposed) {
    copyTransposed(first + column * part.numRows + run.from, part.numRows, to,
                   run.count, count, stepBytes);
  } else if (stepBytes == getBytes(target.dtype, columns) && count == columns) {
    copyRow(first + run.from * columns, to, run.count * columns);
  } else {
    for (int64_t row = 0; row < run.count; ++row)
      copyRow(first + (run.from + row) * columns + column, to + row * stepBytes,
              count);
  }
  for (int64_t row = 0; part.factor != 1 && row < run.count; ++row)
    multiplyRow(part.factor, to + row * stepBytes, count);
  // The file has reciprocals in f32, or 127 times the scale.
  bool isInverse = part.use == PartUse::InverseScales;
  constexpr float largest = 127;
  if (isInverse || part.use == PartUse::ScalesOf127)
    for (int64_t row = 0; row < run.count; ++row) {
      auto *values = reinterpret_cast<float *>(to + row * stepBytes);
      for (int64_t i = 0; i < count; ++i)
        values[i] = isInverse ? 1.0F / values[i] : values[i] / largest;
    }
}

Status PartCopier::copyBlocks(const CheckpointPart &part, int64_t number,
                              const SafetensorsEntry &from, const Run &run,
                              uint8_t *matrix) const {
  int64_t rowBytes = getBytes(target.dtype, target.getLocal().columns);
  PartRows rows = {matrix, rowBytes, run.to, run.step, run.count};
  PartWindow window = {part.numRows,
                       getBytes(target.dtype, target.getWhole().columns),
                       run.from, getBytes(target.dtype, getFirstColumn())};
  if (part.packing) {
    unpackElements(part.packing, part.transposed, from.data, window, rows);
    return Status::ok();
  }
  unpackBlocks(part.blocks, from.data, window, rows);
  std::optional<ScaleSign> sign = getScaleSign(part.use);
  for (int64_t row = 0; sign && row < run.count; ++row) {
    SafetensorsEntry scales = entry;
    scales.data = rows.getRow(row);
    scales.bytes = size_t(rowBytes);
    std::string what = moec::checkScales(scales, target.dtype, *sign);
    if (!what.empty())
      return fail(what + " (row " + std::to_string(run.from + row) +
                  " of matrix " + std::to_string(number) + ")");
  }
  return Status::ok();
}

SafetensorsEntry PartCopier::getMatrix(int64_t number, int64_t count) const {
  SafetensorsEntry one = entry;
  one.bytes = entry.bytes / size_t(count);
  one.data = entry.data + size_t(number) * one.bytes;
  return one;
}

moert::Result<SafetensorsEntry>
PartCopier::fetchMatrix(const CheckpointPart &part, int64_t place,
                        std::vector<uint8_t> &bytes) const {
  bool hasAll = target.isStacked && !part.isPerExpert();
  SafetensorsEntry from = getMatrix(hasAll ? getNumber(part, place) : 0,
                                    hasAll ? countExperts(part) : 1);
  if (!from.device)
    return from;
  bytes.resize(from.bytes);
  if (Status status =
          from.device->copyOut(bytes.data(), from.data, bytes.size());
      !status)
    return status.withContext("tensor '" + moert::printable(entry.name) + "'");
  from.data = bytes.data();
  from.device = nullptr;
  return from;
}

/// The part for values of one expert.
static CheckpointPart makePartOfOne(CheckpointPart part) {
  part.name = "{e}";
  part.flattened = false;
  return part;
}

Status PartCopier::copyFetched(const CheckpointPart &part, int64_t place,
                               uint8_t *matrix) {
  std::vector<uint8_t> bytes;
  moert::Result<SafetensorsEntry> from = fetchMatrix(part, place, bytes);
  if (!from)
    return from.status();
  bool hasAll = target.isStacked && !part.isPerExpert();
  CheckpointPart one = hasAll ? makePartOfOne(part) : part;
  from->shape = getExpectedShape(one);
  return PartCopier(file, *from, target).copyPart(one, place, matrix);
}

moert::Result<std::optional<llvm::SmallVector<moert::RowCopy, 2>>>
PartCopier::getDeviceRows(const CheckpointPart *part, int64_t place) {
  using Rows = std::optional<llvm::SmallVector<moert::RowCopy, 2>>;
  CheckpointPart all;
  all.numRows = target.getWhole().rows;
  const CheckpointPart &given = part ? *part : all;
  bool isSame =
      entry.dtype == target.dtype || (entry.dtype == moert::DType::U8 &&
                                      canConvert(entry.dtype, target.dtype));
  if (!entry.device || !isSame || given.use != PartUse::Values ||
      given.isSplat || given.packing || given.blocks || given.transposed ||
      given.matrix || given.numColumns || given.factor != 1 ||
      given.numPieces != 1)
    return Rows();
  if (Status status =
          part ? checkShape(given) : check(target.shape, target.dtype);
      !status)
    return status;
  MatrixShape whole = target.getWhole();
  int64_t columns = whole.columns, count = target.getLocal().columns;
  int64_t number = part && part->isPerExpert() ? 0 : getNumber(given, place);
  int64_t first = number * given.numRows * columns + getFirstColumn();
  llvm::SmallVector<moert::RowCopy, 2> rows;
  for (const Run &run : getRuns(given)) {
    moert::RowCopy copy;
    copy.to = reinterpret_cast<void *>(getBytes(target.dtype, run.to * count));
    copy.from = entry.data + getBytes(entry.dtype, first + run.from * columns);
    copy.toStride = size_t(getBytes(target.dtype, run.step * count));
    copy.fromStride = size_t(getBytes(entry.dtype, columns));
    copy.rowBytes = size_t(getBytes(entry.dtype, count));
    copy.rows = size_t(run.count);
    rows.push_back(copy);
  }
  return Rows(std::move(rows));
}

Status PartCopier::copyDecoded(const CheckpointPart &part,
                               const GgmlBlock &block, int64_t place,
                               uint8_t *matrix) {
  MatrixShape whole = target.getWhole();
  std::vector<int64_t> shape = getExpectedShape(part);
  if (shape.back() % block.elements != 0)
    return fail("has rows of " + entry.blockType + ", expected " +
                std::to_string(shape.back()) +
                " elements in a row, which are "
                "no multiple of " +
                std::to_string(block.elements));
  shape.back() = shape.back() / block.elements * block.bytes;
  if (Status status = check(shape, moert::DType::U8, entry.blockType); !status)
    return status;
  bool hasAll = target.isStacked && !part.isPerExpert();
  SafetensorsEntry from = getMatrix(hasAll ? getNumber(part, place) : 0,
                                    hasAll ? countExperts(part) : 1);
  int64_t columns = part.countColumns(whole.columns);
  std::vector<float> values(size_t(part.numRows * columns));
  for (size_t i = 0; i < from.bytes / size_t(block.bytes); ++i)
    block.decode(from.data + i * size_t(block.bytes),
                 values.data() + i * size_t(block.elements));
  SafetensorsEntry plain = {entry.name,
                            moert::DType::F32,
                            {part.numRows, columns},
                            reinterpret_cast<const uint8_t *>(values.data()),
                            values.size() * sizeof(float),
                            /*blockType=*/""};
  CheckpointPart one = makePartOfOne(part);
  one.use = PartUse::RoundedValues;
  return PartCopier(file, plain, target).copyPart(one, place, matrix);
}

/// Tiles of 128 rows x 4 columns, row by row of tiles. A tile has its rows r,
/// r + 32, r + 64 and r + 96 behind each other. The last tiles are padded.
constexpr int64_t kTileRows = 128, kTileColumns = 4, kTileGroup = 32,
                  kTileGroups = kTileRows / kTileGroup;

static int64_t countTiles(int64_t size, int64_t ofTile) {
  return int64_t(llvm::divideCeil(uint64_t(size), uint64_t(ofTile)));
}

bool PartCopier::isTiled(const CheckpointPart &part) const {
  if (!part.maybeTiled || part.transposed ||
      isSameShape(entry.shape, getExpectedShape(part)))
    return false;
  std::vector<int64_t> shape = {
      countTiles(part.numRows, kTileRows) * kTileGroup,
      countTiles(target.getWhole().columns, kTileColumns) * kTileColumns *
          kTileGroups};
  if (target.isStacked && !part.isPerExpert())
    shape.insert(shape.begin(), countExperts(part));
  return isSameShape(entry.shape, shape);
}

Status PartCopier::copyTiled(const CheckpointPart &part, int64_t place,
                             uint8_t *matrix) {
  std::vector<uint8_t> bytes;
  moert::Result<SafetensorsEntry> from = fetchMatrix(part, place, bytes);
  if (!from)
    return from.status();
  auto size = size_t(getBytes(entry.dtype, 1));
  int64_t columns = target.getWhole().columns;
  int64_t tilesOfRow = countTiles(columns, kTileColumns);
  std::vector<uint8_t> values(size_t(part.numRows * columns) * size);
  for (int64_t row = 0; row < part.numRows; ++row)
    for (int64_t column = 0; column < columns; ++column) {
      int64_t tile = row / kTileRows * tilesOfRow + column / kTileColumns;
      int64_t at = tile * kTileRows + row % kTileGroup * kTileGroups +
                   row % kTileRows / kTileGroup;
      std::memcpy(values.data() + size_t(row * columns + column) * size,
                  from->data +
                      size_t(at * kTileColumns + column % kTileColumns) * size,
                  size);
    }
  SafetensorsEntry plain = {
      entry.name,      entry.dtype,   {part.numRows, columns},
      values.data(),   values.size(),
      /*blockType=*/""};
  return PartCopier(file, plain, target)
      .copyPart(makePartOfOne(part), place, matrix);
}

bool PartCopier::isOneScale(const CheckpointPart &part) const {
  bool hasAll = target.isStacked && !part.isPerExpert();
  MatrixShape whole = target.getWhole();
  return getScaleSign(part.use) && (whole.isVector || whole.columns == 1) &&
         part.numRows > 1 &&
         multiply(entry.shape) == (hasAll ? countExperts(part) : 1);
}

Status PartCopier::copyOneScale(const CheckpointPart &part, int64_t place,
                                uint8_t *matrix) {
  std::vector<uint8_t> bytes, values;
  moert::Result<SafetensorsEntry> from = fetchMatrix(part, place, bytes);
  if (!from)
    return from.status();
  for (int64_t row = 0; row < part.numRows; ++row)
    values.insert(values.end(), from->data, from->data + from->bytes);
  SafetensorsEntry repeated = {entry.name,    entry.dtype,   {part.numRows},
                               values.data(), values.size(), /*blockType=*/""};
  return PartCopier(file, repeated, target)
      .copyPart(makePartOfOne(part), place, matrix);
}

Status PartCopier::copyPart(const CheckpointPart &part, int64_t place,
                            uint8_t *matrix) {
  MatrixShape whole = target.getWhole();
  if (isBeside(part.use)) {
    bool isOfElements = part.use == PartUse::Shape ||
                        part.use == PartUse::GroupOfColumn ||
                        part.use == PartUse::NF4State;
    int64_t columns = isOfElements ? whole.columns * 8 / part.packing.layerBits
                                   : whole.columns;
    std::string what = checkBeside(part, entry, part.numRows, columns);
    return what.empty() ? Status::ok() : fail(what);
  }
  bool isFloat = target.dtype == moert::DType::F32 ||
                 target.dtype == moert::DType::BF16 ||
                 target.dtype == moert::DType::F16;
  if (part.use == PartUse::Values && isFloat && !part.blocks)
    if (!entry.blockType.empty()) {
      const GgmlBlock *block = findGgmlBlock(entry.blockType);
      return block ? copyDecoded(part, *block, place, matrix)
                   : fail("has elements of " + entry.blockType +
                          ", expected floats or blocks of ggml");
    }
  // Bytes that stand for scales of another type are powers of two.
  if (part.use == PartUse::Scales && isFloat &&
      entry.dtype == moert::DType::U8 && !part.blocks) {
    SafetensorsEntry powers = entry;
    powers.dtype = moert::DType::F8E8M0;
    return PartCopier(file, powers, target).copyPart(part, place, matrix);
  }
  // Bytes of a type that the configuration says.
  if (entry.dtype == moert::DType::U8 && target.dtype == moert::DType::F8E4M3 &&
      !part.blocks) {
    SafetensorsEntry floats = entry;
    floats.dtype = target.dtype;
    return PartCopier(file, floats, target).copyPart(part, place, matrix);
  }
  if (isTiled(part))
    return copyTiled(part, place, matrix);
  if (isOneScale(part))
    return copyOneScale(part, place, matrix);
  if (Status status = checkShape(part); !status)
    return status;
  if (entry.device)
    return copyFetched(part, place, matrix);
  bool hasAll = target.isStacked && !part.isPerExpert();
  int64_t number = hasAll ? getNumber(part, place) : 0;
  use = part.use;
  if (part.isSplat) {
    for (int64_t row = 0; row < part.numRows; ++row)
      copy(0, matrix + getBytes(target.dtype, part.firstRow + row));
    return finish();
  }
  if (part.blocks || part.packing) {
    SafetensorsEntry from = getMatrix(number, hasAll ? countExperts(part) : 1);
    for (const Run &run : getRuns(part))
      if (Status status = copyBlocks(part, number, from, run, matrix); !status)
        return status;
    return Status::ok();
  }
  int64_t count = part.numRows * part.countColumns(whole.columns);
  int64_t first = (number * part.numPieces + part.piece) * count;
  if (Status status = checkScales(part, first, count); !status)
    return status;
  needsFinite = use == PartUse::Values || use == PartUse::RoundedValues;
  for (const Run &run : getRuns(part))
    copyPlain(part, first, run, matrix);
  return finish();
}
