//===- Contract.cpp - the schedule cpu.contract -----------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// The CPU gemm. A CTA owns a panel (N tile) of result columns of one group, or
// of one block of rows of a dense gemm. Each `n` weight rows of the panel are
// loaded from memory once and stay in the nearest cache while blocks of `m`
// input rows are multiplied with them in registers. The dot products go to a
// scratch buffer of at most `rows` rows, over which the epilogue then runs in
// vectors of columns.
//
// Quantized operands are processed in blocks along K, both decoded to f32
// first. Each block's sums, times their scales, are added to the scratch
// buffer.

#include "../Emission/ContractOperands.h"
#include "ContractTile.h"
#include "ScaledBlocks.h"
#include "moec/Analysis/Cpu.h"

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
  int64_t columns, lanes, m, n, panel, rows;
  /// 2 for gate and up, else 1.
  int64_t weightsPerColumn;
  /// Elements along K per iteration of the innermost loop.
  int64_t turn;

  int64_t getPanels() const { return llvm::divideCeil(columns, panel); }
  /// A divisor of the number of columns of every panel.
  int64_t getPanelDivisor() const { return std::gcd(panel, columns % panel); }
  /// Columns of the scratch buffer, rounded up to whole vectors.
  int64_t getScratchColumns() const { return llvm::alignTo(panel, lanes); }
};

FailureOr<Shape> getShape(tile::ContractOp op) {
  auto config = requireConfig<tile::CpuContractAttr>(op, op.getConfigAttr());
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
  shape.panel = config->getColumnsPerCta();
  Type element = weight.getElementType();
  if (cpu::decodesOperands(op))
    element = Float32Type::get(op.getContext());
  shape.turn = llvm::alignTo(std::max<int64_t>(config->getStep(), 1),
                             ContractTile::getStep(element, shape.lanes));
  int64_t rowBytes = shape.weightsPerColumn * shape.getScratchColumns() * 4;
  shape.rows =
      config->getRowsPerCta()
          ? config->getRowsPerCta()
          : std::clamp<int64_t>(kMaxScratchBytes / rowBytes, 1, kGroupRows);

  auto refuse = [&]() { return op.emitOpError("has a config that "); };
  int64_t decoded = cpu::getDecodedColumns(op);
  if (cpu::decodesOperands(op) && decoded % shape.turn != 0)
    return refuse()
           << "takes " << shape.turn
           << " contracted elements at a time; change step so that they "
              "divide the "
           << decoded << " that are decoded at once";
  if (shape.weightsPerColumn * shape.n % 4 != 0)
    return refuse() << "takes " << shape.weightsPerColumn * shape.n
                    << " weight rows at a time; change register_columns so "
                       "that they are a "
                       "multiple of 4";
  if (shape.panel % shape.n != 0)
    return refuse() << "has columns_per_cta = " << shape.panel
                    << ", which is no multiple of register_columns = "
                    << shape.n;
  if (shape.rows * rowBytes > kMaxScratchBytes)
    return refuse() << "asks for " << shape.rows * rowBytes
                    << " bytes of accumulators, and " << kMaxScratchBytes
                    << " is the bound; lower rows_per_cta or columns_per_cta";
  return shape;
}

/// The work of one CTA.
class Contract {
public:
  Contract(tile::ContractOp op, KernelEmitter &emitter, Shape shape)
      : op(op), emitter(emitter), b(emitter.b), shape(shape),
        input(emitter.operand(op.getInput())),
        weight(emitter.operand(op.getWeight())),
        source(emitter.operand(op.getSource())),
        result(emitter.operand(op.getResult())) {
    if (cpu::decodesOperands(op)) {
      blocks.emplace(emitter, op,
                     ScaledBlocks::Sizes{shape.rows, shape.panel,
                                         shape.weightsPerColumn, shape.lanes});
      input = blocks->getInput();
      weight = blocks->getWeight();
    }
    tile.emplace(emitter, input, weight, shape.lanes, shape.turn);
  }

  LogicalResult emit();

private:
  void emitGrouped(Index group);
  void emitDense(Index block);
  /// Multiplies at most `shape.rows` rows from `firstRow` on, which must be
  /// below `end`.
  void emitRows(Value firstRow, Value count);
  void clearSums(Value count);
  Value getInputRow(Value position);
  void emitColumns(Value firstRow, Value count, Value column);
  void emitTile(Value firstRow, Value row, int64_t rows, Value column);
  void storeSums(Value quad, Value row, int64_t weightRow, Value column);
  void emitEpilogue(Value firstRow, Value count);
  SmallVector<Value> loadColumnOperand(Value operand, Value column, Value mask);

  ContractTile::Index getLeading(Value last);

  tile::ContractOp op;
  KernelEmitter &emitter;
  ImplicitLocOpBuilder &b;
  Shape shape;
  Value input, weight, source, result;
  /// Set for scales inside the loop (block fp8).
  std::optional<ScaledBlocks> blocks;
  std::optional<ContractTile> tile;
  /// `weightsPerColumn x rows x columns` of f32.
  Value sums;
  /// Null for a dense gemm.
  Value group;
  RowRange panel;
  LogicalResult status = success();
};

LogicalResult Contract::emit() {
  sums = emitter.scratch(
      {shape.weightsPerColumn, shape.rows, shape.getScratchColumns()},
      b.getF32Type());
  Index major = emitter.cta() / shape.getPanels();
  Index minor = emitter.cta() % shape.getPanels();
  panel.begin = minor * shape.panel;
  panel.end = min(panel.begin + shape.panel, shape.columns);
  if (op.getOffsets())
    emitGrouped(major);
  else
    emitDense(major);
  return status;
}

void Contract::emitGrouped(Index major) {
  group = major;
  Value offsets = emitter.operand(op.getOffsets());
  Index begin = emitter.loadIndex(offsets, major);
  Index end = emitter.loadIndex(offsets, major + 1);
  emitter.loop(begin, end, shape.rows,
               [&](Index row) { emitRows(row, min(end - row, shape.rows)); });
}

void Contract::emitDense(Index block) {
  Index begin = block * shape.rows;
  Index end = min(begin + shape.rows, emitter.tokens());
  Index valid = emitter.validTokens(op.getNumValidTokens());
  emitRows(begin, max(min(end, valid) - begin, 0));
  if (op.getNumValidTokens())
    emitter.storeZeros(result, {max(begin, valid), end}, panel, shape.lanes,
                       shape.getPanelDivisor());
}

void Contract::emitRows(Value firstRow, Value count) {
  auto emitAll = [&] {
    emitter.forLoop(panel.begin, panel.end, shape.n, [&](Value column) {
      emitColumns(firstRow, count, column);
    });
  };
  if (blocks) {
    clearSums(count);
    auto getRow = [&](Value row) {
      return getInputRow(emitter.add(firstRow, row));
    };
    blocks->forBlocks(group, count, panel, getRow, emitAll);
  } else {
    emitAll();
  }
  emitEpilogue(firstRow, count);
}

void Contract::clearSums(Value count) {
  Value zero = emitter.splat(0.0, shape.lanes);
  for (int64_t projection = 0; projection < shape.weightsPerColumn;
       ++projection)
    emitter.forLoop(emitter.index(0), count, 1, [&](Value row) {
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

ContractTile::Index Contract::getLeading(Value last) {
  if (group)
    return {group, last};
  return {last};
}

Value Contract::getInputRow(Value position) {
  return source ? emitter.loadIndex(source, position) : position;
}

/// Multiplies all rows with `n` columns: blocks of `m` rows, then the
/// remainder.
void Contract::emitColumns(Value firstRow, Value count, Value column) {
  Value left = arith::RemUIOp::create(b, count, emitter.index(shape.m));
  Value blocks = arith::SubIOp::create(b, count, left);
  emitter.forLoop(emitter.index(0), blocks, shape.m,
                  [&](Value row) { emitTile(firstRow, row, shape.m, column); });
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

void Contract::emitTile(Value firstRow, Value row, int64_t rows, Value column) {
  SmallVector<ContractTile::Index> inputRows, weightRows, nextRows;
  for (int64_t i = 0; i < rows; ++i) {
    Value here = emitter.add(row, i);
    inputRows.push_back(
        {blocks ? here : getInputRow(emitter.add(firstRow, here))});
  }
  Value offset = arith::SubIOp::create(b, column, panel.begin);
  // Columns past the end are clamped to the last one; their sums are not used.
  Value last = emitter.index(shape.columns - 1);
  for (int64_t projection = 0; projection < shape.weightsPerColumn;
       ++projection)
    for (int64_t j = 0; j < shape.n; ++j) {
      if (blocks) {
        weightRows.push_back(
            {blocks->getWeightRow(projection, emitter.add(offset, j))});
        continue;
      }
      Value here = emitter.add(column, j);
      if (shape.columns % shape.n != 0)
        here = emitter.min(here, last);
      weightRows.push_back(
          getLeading(getWeightRow(emitter, op, projection, here)));
      Value next = emitter.min(emitter.add(column, shape.n + j), last);
      nextRows.push_back(
          getLeading(getWeightRow(emitter, op, projection, next)));
    }
  SmallVector<Value> quads = tile->emit(inputRows, weightRows, nextRows);
  int64_t quadsPerRow = weightRows.size() / 4;
  for (auto [i, quad] : llvm::enumerate(quads))
    storeSums(quad, emitter.add(row, i / quadsPerRow), 4 * (i % quadsPerRow),
              offset);
}

/// Stores (with blocks: scales and adds) the sums of the tile's weight rows
/// from `weightRow` on: the `n` columns of projection 0, then of projection 1.
void Contract::storeSums(Value quad, Value row, int64_t weightRow,
                         Value column) {
  for (int64_t done = 0; done < 4;) {
    int64_t projection = (weightRow + done) / shape.n;
    int64_t first = (weightRow + done) % shape.n;
    int64_t length = std::min<int64_t>(4 - done, shape.n - first);
    Value run = quad;
    if (length < 4)
      run = vector::ExtractStridedSliceOp::create(
          b, quad, ArrayRef<int64_t>{done}, ArrayRef<int64_t>{length},
          ArrayRef<int64_t>{1});
    Value at = emitter.add(column, first);
    SmallVector<Value> indices = {emitter.index(projection), row, at};
    if (blocks)
      run = vector::FMAOp::create(
          b, run, blocks->getFactors(row, projection, at, length),
          emitter.loadVector(sums, indices, length));
    emitter.storeVector(run, sums, indices);
    done += length;
  }
}

//===----------------------------------------------------------------------===//
// Epilogue
//===----------------------------------------------------------------------===//

/// The values of a column operand: one, or two for gate and up.
SmallVector<Value> Contract::loadColumnOperand(Value operand, Value column,
                                               Value mask) {
  int64_t lanes = shape.lanes;
  auto load = [&](Value at, int64_t width, Value mask) {
    return emitter.loadVector(operand, getLeading(at), width, mask);
  };
  if (shape.weightsPerColumn == 1)
    return {load(column, lanes, mask)};
  if (op.getLayoutAttr().getOrder() != moe::GateUpOrder::Interleaved)
    return {load(getWeightRow(emitter, op, 0, column), lanes, mask),
            load(getWeightRow(emitter, op, 1, column), lanes, mask)};
  if (mask) {
    Value left = arith::SubIOp::create(b, panel.end, column);
    mask = emitter.mask(emitter.mul(left, 2), 2 * lanes);
  }
  Value pairs = load(emitter.mul(column, 2), 2 * lanes, mask);
  SmallVector<int64_t> even, odd;
  for (int64_t i = 0; i < lanes; ++i) {
    even.push_back(2 * i);
    odd.push_back(2 * i + 1);
  }
  return {vector::ShuffleOp::create(b, pairs, pairs, even),
          vector::ShuffleOp::create(b, pairs, pairs, odd)};
}

void Contract::emitEpilogue(Value firstRow, Value count) {
  int64_t lanes = shape.lanes;
  Value zero = emitter.index(0);
  emitter.forLoop(zero, count, 1, [&](Value row) {
    Value position = emitter.add(firstRow, row);
    SmallVector<Value> rowValues;
    for (Value operand : op.getRowOperands())
      rowValues.push_back(
          emitter.splat(loadRowOperand(emitter, operand, position), lanes));
    auto emitVector = [&](Value column, Value mask) {
      Value offset = arith::SubIOp::create(b, column, panel.begin);
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
      FailureOr<Value> value = emitter.inlineRegion(op.getEpilogue(), args);
      if (failed(value))
        status = failure();
      else
        emitter.storeVector(*value, result, {position, column}, mask);
    };
    emitter.forColumns(panel.begin, panel.end, lanes, shape.getPanelDivisor(),
                       emitVector);
  });
}

} // namespace

LogicalResult moec::emitContract(tile::ContractOp op, KernelEmitter &emitter) {
  FailureOr<Shape> shape = getShape(op);
  if (failed(shape))
    return failure();
  return Contract(op, emitter, *shape).emit();
}
