//===- Gemm.cpp - the schedule cpu.gemm -------------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// The CPU gemm. A CTA owns an N tile of result columns of one group,
// or of one block of rows of a dense gemm. Each `n` weight rows of the N tile
// are loaded from memory once and stay in the nearest cache while blocks of `m`
// input rows are multiplied with them in registers. The dot products go to a
// scratch buffer of at most `rows` rows, over which the epilogue then runs in
// vectors of columns.
//
// Quantized operands are processed in blocks along K, both decoded to f32
// first. Each block's sums, times their scales, are added to the scratch
// buffer.

#include "AmxTiles.h"
#include "GemmTile.h"
#include "Instructions.h"
#include "KernelBuilder/AdapterUpdates.h"
#include "KernelBuilder/GemmOperands.h"
#include "ScaledBlocks.h"
#include "Shape.h"

#include "llvm/Support/MathExtras.h"

#include <numeric>

using namespace mlir;
using namespace moec;

/// Limit of a CTA's buffers on its thread's stack.
static constexpr int64_t kMaxScratchBytes = 64 * 1024;
/// Rows of a group between two epilogues, if the config does not say.
static constexpr int64_t kGroupRows = 64;

namespace {

/// The sizes of a gemm, from its types and config.
struct Shape {
  int64_t columns, lanes, m, n, nTile, rows;
  /// 2 for gate and up, else 1.
  int64_t weightsPerColumn;
  /// Elements along K per iteration of the innermost loop.
  int64_t unrolledK;
  cpu::InstructionK instruction;
  /// Whether AMX tiles multiply, and whether FMAs multiply decoded blocks.
  bool usesTiles, decodes;

  int64_t getNTiles() const { return llvm::divideCeil(columns, nTile); }
  /// A divisor of the number of columns of every N tile.
  int64_t getNTileDivisor() const { return std::gcd(nTile, columns % nTile); }
  /// Columns of the scratch buffer, rounded up to whole vectors.
  int64_t getScratchColumns() const { return llvm::alignTo(nTile, lanes); }
};

FailureOr<Shape> getShape(tile::GemmOp op) {
  auto config = requireConfig<tile::CpuGemmAttr>(op, op.getConfigAttr());
  if (failed(config) || failed(requireLanes(op, config->getLanes())) ||
      failed(requirePositive(op, "register_rows", config->getRegisterRows())) ||
      failed(requirePositive(op, "register_columns",
                             config->getRegisterColumns())) ||
      failed(
          requirePositive(op, "columns_per_cta", config->getColumnsPerCta())))
    return failure();
  if (!op.getOffsets() &&
      failed(requirePositive(op, "rows_per_cta", config->getRowsPerCta())))
    return failure();
  auto weight = cast<MemRefType>(op.getWeight().getType());
  Shape shape;
  shape.columns = cast<MemRefType>(op.getResult().getType()).getDimSize(1);
  shape.weightsPerColumn = op.getLayout() ? 2 : 1;
  shape.lanes = config->getLanes();
  shape.m = config->getRegisterRows();
  shape.n = config->getRegisterColumns();
  shape.nTile = config->getColumnsPerCta();
  Type element = weight.getElementType();
  shape.decodes = cpu::decodesForFmas(op, *config);
  if (shape.decodes)
    element = Float32Type::get(op.getContext());
  shape.usesTiles = cpu::usesTiles(*config);
  shape.instruction = cpu::InstructionK(cpu::getInstructionK(*config));
  shape.unrolledK = llvm::alignTo(std::max<int64_t>(config->getBlockK(), 1),
                                  GemmTile::getStep(element, shape.lanes));
  int64_t rowBytes = shape.weightsPerColumn * shape.getScratchColumns() * 4;
  shape.rows =
      config->getRowsPerCta()
          ? config->getRowsPerCta()
          : std::clamp<int64_t>(kMaxScratchBytes / rowBytes, 1, kGroupRows);
  if (shape.usesTiles && !config->getRowsPerCta())
    shape.rows = std::min(shape.rows / cpu::kTileSize * cpu::kTileSize,
                          cpu::getMaxTileRows(op));

  if (shape.usesTiles)
    if (std::string reason = cpu::whyNotTiles(op, *config); !reason.empty())
      return op.emitOpError("has a config with ") << reason;
  auto refuse = [&]() { return op.emitOpError("has a config that "); };
  int64_t decoded = cpu::getDecodedColumns(op);
  if (shape.decodes && decoded % shape.unrolledK != 0)
    return refuse()
           << "takes " << shape.unrolledK
           << " elements of K at a time; change step to a divisor of the "
           << decoded << " that are dequantized at once";
  if (shape.weightsPerColumn * shape.n % 4 != 0)
    return refuse() << "takes " << shape.weightsPerColumn * shape.n
                    << " weight rows at a time, which must be a multiple of 4; "
                       "change register_columns";
  if (shape.nTile % shape.n != 0)
    return refuse() << "has columns_per_cta = " << shape.nTile
                    << ", which is not a multiple of register_columns = "
                    << shape.n;
  if (shape.rows * rowBytes > kMaxScratchBytes)
    return refuse() << "needs " << shape.rows * rowBytes
                    << " bytes of accumulators, more than " << kMaxScratchBytes
                    << "; reduce rows_per_cta or columns_per_cta";
  return shape;
}

/// The work of one CTA.
class Gemm {
public:
  Gemm(tile::GemmOp op, KernelEmitter &emitter, Shape shape)
      : op(op), emitter(emitter), b(emitter.b), shape(shape),
        input(emitter.operand(op.getInput())),
        weight(emitter.operand(op.getWeight())),
        source(emitter.operand(op.getSource())),
        result(emitter.operand(op.getResult())) {
    ScaledBlocks::Sizes sizes{shape.rows, shape.nTile, shape.weightsPerColumn,
                              shape.lanes, shape.decodes};
    if (op.getWeightQuant() && !shape.decodes)
      scales.emplace(emitter, op, sizes);
    if (shape.usesTiles) {
      tiles.emplace(emitter, input, weight, shape.rows, shape.unrolledK);
      return;
    }
    if (shape.decodes) {
      blocks.emplace(emitter, op, sizes);
      input = blocks->getInput();
      weight = blocks->getWeight();
    }
    vectors.emplace(emitter, input, weight, shape.lanes, shape.unrolledK,
                    shape.instruction);
  }

  LogicalResult emit();

private:
  void emitGrouped(Index group);
  void emitDense(Index block);
  /// Multiplies at most `shape.rows` rows from `firstRow` on, which must be
  /// below `end`.
  void emitRows(Index firstRow, Index count);
  void clearSums(Index count);
  Index getInputRow(Index position);
  void emitColumns(Index firstRow, Index count, Index column);
  SmallVector<AmxTiles::Indices> getTileRows(Index column);
  int64_t getTileStride();
  void storeTileSums(F32 values, int64_t i, Index row, Index column);
  void emitRow(Index inputRow, Index column);
  void emitTiles(Index count, Index column);
  void emitTile(Index firstRow, Index row, int64_t rows, Index column);
  void storeSums(F32 quad, Index row, int64_t weightRow, Index column);
  void emitEpilogue(Index firstRow, Index count);
  Value loadUpdates(int64_t number, Index row, Index column);
  SmallVector<Value> loadColumnOperand(Value operand, Index column, Flag mask);

  GemmTile::Indices getLeading(Index last);

  tile::GemmOp op;
  KernelEmitter &emitter;
  ImplicitLocOpBuilder &b;
  Shape shape;
  Value input, weight, source, result;
  /// Set for scales inside the loop (block fp8), and for those of whole rows
  /// that are multiplied as they are stored.
  std::optional<ScaledBlocks> blocks, scales;
  /// One of both multiplies.
  std::optional<GemmTile> vectors;
  std::optional<AmxTiles> tiles;
  /// `weightsPerColumn x rows x columns` of f32.
  Value sums;
  /// The update of a vector of columns by adapters; null without them.
  Value updates;
  /// Null for a dense gemm.
  Index group;
  RowRange nTile;
  LogicalResult status = success();
};

LogicalResult Gemm::emit() {
  sums = emitter.scratch(
      {shape.weightsPerColumn, shape.rows, shape.getScratchColumns()},
      b.getF32Type());
  if (op.getShrunk())
    updates = emitter.scratch({shape.lanes}, b.getF32Type());
  Index major = emitter.cta() / shape.getNTiles();
  Index minor = emitter.cta() % shape.getNTiles();
  nTile.begin = minor * shape.nTile;
  nTile.end = min(nTile.begin + shape.nTile, shape.columns);
  if (op.getOffsets())
    emitGrouped(major);
  else
    emitDense(major);
  if (tiles)
    tiles->release();
  return status;
}

void Gemm::emitGrouped(Index major) {
  group = major;
  Value offsets = emitter.operand(op.getOffsets());
  Index begin = emitter.loadIndex(offsets, major);
  Index end = emitter.loadIndex(offsets, major + 1);
  emitter.loop(begin, end, shape.rows,
               [&](Index row) { emitRows(row, min(end - row, shape.rows)); });
}

void Gemm::emitDense(Index block) {
  Index begin = block * shape.rows;
  Index end = min(begin + shape.rows, emitter.tokens());
  Index valid = emitter.validTokens(op.getNumValidTokens());
  emitRows(begin, max(min(end, valid) - begin, 0));
  if (op.getNumValidTokens())
    emitter.storeZeros(result, {max(begin, valid), end}, nTile, shape.lanes,
                       shape.getNTileDivisor());
}

void Gemm::emitRows(Index firstRow, Index count) {
  auto getRow = [&](Index row) { return getInputRow(firstRow + row); };
  auto forColumns = [&](function_ref<void(Index)> body) {
    emitter.loop(nTile.begin, nTile.end, shape.n, body);
  };
  auto emitAll = [&] {
    forColumns([&](Index column) { emitColumns(firstRow, count, column); });
  };
  if (scales)
    scales->loadScales(group, count, nTile, getRow);
  if (blocks) {
    clearSums(count);
    blocks->forBlocks(group, count, nTile, getRow, emitAll);
  } else if (tiles) {
    emitter.ifThen(
        count == 1,
        [&] {
          tiles->configure(1);
          Index row = getRow(emitter.index(0));
          forColumns([&](Index column) { emitRow(row, column); });
        },
        [&] {
          tiles->configure(cpu::kTileSize);
          tiles->packRows(count, getRow);
          forColumns([&](Index column) { emitTiles(count, column); });
        });
  } else {
    emitAll();
  }
  emitEpilogue(firstRow, count);
}

void Gemm::clearSums(Index count) {
  F32 zero = emitter.splat(0.0, shape.lanes);
  for (int64_t projection = 0; projection < shape.weightsPerColumn;
       ++projection)
    emitter.loop(emitter.index(0), count, 1, [&](Index row) {
      for (int64_t column = 0; column < shape.getScratchColumns();
           column += shape.lanes)
        emitter.storeVector(
            zero, sums,
            {emitter.index(projection), row, emitter.index(column)});
    });
}

//===----------------------------------------------------------------------===//
// Dot products
//===----------------------------------------------------------------------===//

GemmTile::Indices Gemm::getLeading(Index last) {
  if (group)
    return {group, last};
  return {last};
}

Index Gemm::getInputRow(Index position) {
  return source ? emitter.loadIndex(source, position) : position;
}

/// Multiplies all rows with `n` columns: blocks of `m` rows, then the
/// remainder.
void Gemm::emitColumns(Index firstRow, Index count, Index column) {
  Index left = count % shape.m;
  Index blocks = count - left;
  emitter.loop(emitter.index(0), blocks, shape.m,
               [&](Index row) { emitTile(firstRow, row, shape.m, column); });
  if (shape.m == 1)
    return;
  auto cases = llvm::to_vector(llvm::seq<int64_t>(1, shape.m));
  auto choice =
      scf::IndexSwitchOp::create(b, TypeRange(), left, cases, cases.size());
  OpBuilder::InsertionGuard guard(b);
  for (auto [rows, region] : llvm::zip(cases, choice.getCaseRegions())) {
    b.createBlock(&region);
    emitTile(firstRow, blocks, rows, column);
    scf::YieldOp::create(b);
  }
  b.createBlock(&choice.getDefaultRegion());
  scf::YieldOp::create(b);
}

/// The first of each 16 weight rows of `n` columns.
SmallVector<AmxTiles::Indices> Gemm::getTileRows(Index column) {
  SmallVector<AmxTiles::Indices> rows;
  for (int64_t projection = 0; projection < shape.weightsPerColumn;
       ++projection)
    for (int64_t i = 0; i < shape.n; i += cpu::kTileSize)
      rows.push_back(
          getLeading(getWeightRow(emitter, op, projection, column + i)));
  return rows;
}

int64_t Gemm::getTileStride() {
  return op.getLayout() &&
                 op.getLayoutAttr().getOrder() == moe::GateUpOrder::Interleaved
             ? 2
             : 1;
}

/// Stores 16 sums of weight tile i of `n` columns.
void Gemm::storeTileSums(F32 values, int64_t i, Index row, Index column) {
  int64_t perProjection = shape.n / cpu::kTileSize;
  int64_t projection = i / perProjection;
  Index at = column - nTile.begin + i % perProjection * cpu::kTileSize;
  if (scales)
    values = values * scales->getFactors(row, projection, at, cpu::kTileSize);
  emitter.storeVector(values, sums, {emitter.index(projection), row, at});
}

/// Multiplies one row with `n` columns by AMX.
void Gemm::emitRow(Index inputRow, Index column) {
  tiles->multiplyRow(inputRow, getTileRows(column), getTileStride(),
                     [&](int64_t i, int64_t, int64_t, F32 values) {
                       storeTileSums(values, i, emitter.index(0), column);
                     });
}

/// Multiplies all rows with `n` columns by AMX: pairs of tiles of input rows,
/// then the remaining one.
void Gemm::emitTiles(Index count, Index column) {
  auto emitPart = [&](Index row, int64_t numInputTiles) {
    tiles->multiply(
        row / cpu::kTileSize, numInputTiles, getTileRows(column),
        getTileStride(), [&](int64_t i, int64_t j, int64_t r, F32 values) {
          storeTileSums(values, i, row + (j * cpu::kTileSize + r), column);
        });
  };
  emitter.loop(emitter.index(0), count, shape.m, [&](Index row) {
    if (shape.m == cpu::kTileSize)
      return emitPart(row, 1);
    Flag isOne = count - row <= cpu::kTileSize;
    emitter.ifThen(isOne, [&] { emitPart(row, 1); }, [&] { emitPart(row, 2); });
  });
}

void Gemm::emitTile(Index firstRow, Index row, int64_t rows, Index column) {
  SmallVector<GemmTile::Indices> inputRows, weightRows, nextRows;
  for (int64_t i = 0; i < rows; ++i) {
    Index here = row + i;
    inputRows.push_back({blocks ? here : getInputRow(firstRow + here)});
  }
  Index offset = column - nTile.begin;
  // Columns past the end are clamped to the last one; their sums are not used.
  Index last = emitter.index(shape.columns - 1);
  for (int64_t projection = 0; projection < shape.weightsPerColumn;
       ++projection)
    for (int64_t j = 0; j < shape.n; ++j) {
      if (blocks) {
        weightRows.push_back({blocks->getWeightRow(projection, offset + j)});
        continue;
      }
      Index here = column + j;
      if (shape.columns % shape.n != 0)
        here = min(here, last);
      weightRows.push_back(
          getLeading(getWeightRow(emitter, op, projection, here)));
      Index next = min(column + (shape.n + j), last);
      nextRows.push_back(
          getLeading(getWeightRow(emitter, op, projection, next)));
    }
  SmallVector<F32> quads = vectors->emit(inputRows, weightRows, nextRows);
  int64_t quadsPerRow = weightRows.size() / 4;
  for (auto [i, quad] : llvm::enumerate(quads))
    storeSums(quad, row + i / quadsPerRow, 4 * (i % quadsPerRow), offset);
}

/// Stores (with blocks: scales and adds) the sums of the tile's weight rows
/// from `weightRow` on: the `n` columns of projection 0, then of projection 1.
void Gemm::storeSums(F32 quad, Index row, int64_t weightRow, Index column) {
  for (int64_t done = 0; done < 4;) {
    int64_t projection = (weightRow + done) / shape.n;
    int64_t first = (weightRow + done) % shape.n;
    int64_t length = std::min<int64_t>(4 - done, shape.n - first);
    Value run = quad;
    if (length < 4)
      run = vector::ExtractStridedSliceOp::create(
          b, quad, ArrayRef<int64_t>{done}, ArrayRef<int64_t>{length},
          ArrayRef<int64_t>{1});
    Index at = column + first;
    SmallVector<Value> indices = {emitter.index(projection), row, at};
    if (blocks)
      run = vector::FMAOp::create(
          b, run, blocks->getFactors(row, projection, at, length),
          emitter.loadVector(sums, indices, length));
    else if (scales)
      run = F32(b, run) * scales->getFactors(row, projection, at, length);
    emitter.storeVector(run, sums, indices);
    done += length;
  }
}

//===----------------------------------------------------------------------===//
// Epilogue
//===----------------------------------------------------------------------===//

/// The values of a column operand: one, or two for gate and up.
SmallVector<Value> Gemm::loadColumnOperand(Value operand, Index column,
                                           Flag mask) {
  int64_t lanes = shape.lanes;
  auto load = [&](Index at, int64_t width, Flag mask) {
    return emitter.loadVector(operand, getLeading(at), width, mask);
  };
  if (shape.weightsPerColumn == 1)
    return {load(column, lanes, mask)};
  if (op.getLayoutAttr().getOrder() != moe::GateUpOrder::Interleaved)
    return {load(getWeightRow(emitter, op, 0, column), lanes, mask),
            load(getWeightRow(emitter, op, 1, column), lanes, mask)};
  if (!mask.isNull())
    mask = emitter.mask((nTile.end - column) * 2, 2 * lanes);
  Value pairs = load(column * 2, 2 * lanes, mask);
  SmallVector<int64_t> even, odd;
  for (int64_t i = 0; i < lanes; ++i) {
    even.push_back(2 * i);
    odd.push_back(2 * i + 1);
  }
  return {vector::ShuffleOp::create(b, pairs, pairs, even),
          vector::ShuffleOp::create(b, pairs, pairs, odd)};
}

/// The update of `lanes` columns by matrix `number` of the adapters; columns
/// past the last one repeat it.
Value Gemm::loadUpdates(int64_t number, Index row, Index column) {
  emitter.loop(emitter.index(0), emitter.index(shape.lanes), 1,
               [&](Index lane) {
                 Index own = min(column + lane, shape.columns - 1);
                 emitter.storeF32(
                     loadAdapterUpdate(emitter, op, number, group, row, own),
                     updates, lane);
               });
  return emitter.loadVector(updates, emitter.index(0), shape.lanes);
}

void Gemm::emitEpilogue(Index firstRow, Index count) {
  int64_t lanes = shape.lanes;
  emitter.loop(emitter.index(0), count, 1, [&](Index row) {
    Index position = firstRow + row;
    SmallVector<Value> rowValues;
    for (Value operand : op.getRowOperands())
      rowValues.push_back(
          emitter.splat(loadRowOperand(emitter, operand, position), lanes));
    auto emitVector = [&](Index column, Flag mask) {
      Index offset = column - nTile.begin;
      SmallVector<Value> args;
      for (int64_t projection = 0; projection < shape.weightsPerColumn;
           ++projection)
        args.push_back(emitter.loadVector(
            sums, {emitter.index(projection), row, offset}, lanes));
      llvm::append_range(args, rowValues);
      for (Value operand : op.getColumnOperands())
        llvm::append_range(
            args, loadColumnOperand(emitter.operand(operand), column, mask));
      for (Value operand : op.getElementwiseOperands())
        args.push_back(emitter.loadVector(emitter.operand(operand),
                                          {position, column}, lanes, mask));
      for (size_t i = 0; i < op.getMatrices().size(); ++i)
        args.push_back(loadUpdates(int64_t(i), position, column));
      FailureOr<Value> value = emitter.inlineRegion(op.getEpilogue(), args);
      if (failed(value))
        status = failure();
      else
        emitter.storeVector(*value, result, {position, column}, mask);
    };
    emitter.forColumns(nTile.begin, nTile.end, lanes, shape.getNTileDivisor(),
                       emitVector);
  });
}

} // namespace

LogicalResult moec::emitGemm(tile::GemmOp op, KernelEmitter &emitter) {
  FailureOr<Shape> shape = getShape(op);
  if (failed(shape))
    return failure();
  return Gemm(op, emitter, *shape).emit();
}
