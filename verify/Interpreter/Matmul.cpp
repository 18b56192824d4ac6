//===- Matmul.cpp - matrix products and row maps ----------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Formulas.h"

#include "moec/Dialect/Moe/CodeBook.h"
#include "moec/Dialect/Moe/PackedValues.h"
#include "moec/Dialect/Moe/QuantLayout.h"

#include "llvm/ADT/APFloat.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

using namespace mlir;
using namespace moert;

namespace moec::interpreter {

/// A dot product with eight independent sums, for instruction-level
/// parallelism.
static float dot(const double *a, const double *b, int64_t size) {
  double sums[8] = {};
  int64_t i = 0;
  for (; i + 8 <= size; i += 8)
    for (int64_t lane = 0; lane < 8; ++lane)
      sums[lane] += a[i + lane] * b[i + lane];
  double sum = 0;
  for (; i < size; ++i)
    sum += a[i] * b[i];
  for (double lane : sums)
    sum += lane;
  return sum;
}

namespace {

/// One gemm, group by group.
class Matmul {
public:
  Matmul(const MatmulArguments &arguments, RegionEvaluator &epilogue)
      : arguments(arguments), epilogue(epilogue),
        sizeK(moe::getRowWidth(arguments.inputQuant, arguments.input.shape[1])),
        weightRows(arguments.weight.shape[arguments.weight.shape.size() - 2]),
        columns(arguments.layout ? weightRows / 2 : weightRows) {}

  Status check() const;
  Status run();

private:
  /// Whether each input row has its own scales; else all share one, or there is
  /// none.
  bool hasScaleOfRow() const {
    return arguments.inputQuant &&
           arguments.inputQuant.getGranularity() != moe::Granularity::Tensor;
  }
  Status runGroup(int64_t group, int64_t begin, int64_t end);
  /// Loads the elements of a row, without subtracting zero points of a tensor.
  void loadRow(const TensorRef &tensor, moe::QuantAttr quant, int64_t row,
               MutableArrayRef<double> values) const;
  bool hasPrepackedLayout() const {
    return arguments.weightQuant &&
           moe::isPrepacked(arguments.weightQuant.getPacking());
  }
  /// Address of the scale of an element in prepacked weights, or of its zero
  /// point or rest.
  const uint8_t *
  getScaleBytes(int64_t group, int64_t weightRow, int64_t element,
                int64_t moe::PrepackedFormat::ScaleAddress::*byte) const;
  /// Loads a row of prepacked weights.
  void loadFragments(int64_t group, int64_t weightRow,
                     MutableArrayRef<double> values) const;
  /// Loads a weight row and subtracts its zero points.
  void loadWeightRow(int64_t group, int64_t weightRow,
                     std::vector<double> &values) const;
  /// The flat index of the scale, and of the zero point, of an element along K.
  int64_t getScaleIndex(int64_t group, int64_t weightRow,
                        int64_t element) const;
  /// The scale of an element along K times the global scale of the row, and its
  /// minimum.
  double getWeightScale(int64_t group, int64_t weightRow,
                        int64_t element) const;
  double getMinimum(int64_t group, int64_t weightRow, int64_t element) const;
  /// The dot product of input row `row` with a loaded weight row; sums of
  /// blocks are scaled.
  float sum(const double *inputs, const std::vector<double> &weights,
            int64_t row, int64_t group, int64_t weightRow) const;
  /// The weight row of gate (0) or up (1) of a pair; without pairs the column.
  int64_t weightRow(int64_t column, int64_t which) const;
  void epilogueArguments(int64_t group, int64_t column, int64_t position);

  const MatmulArguments &arguments;
  RegionEvaluator &epilogue;
  int64_t sizeK;
  int64_t weightRows;
  int64_t columns;
  /// Accumulators, then the values that epilogueArguments() appends.
  std::vector<float> values;
};

} // namespace

Status Matmul::check() const {
  const TensorRef &weight = arguments.weight;
  if (weight.shape.back() != moe::getRowLength(arguments.weightQuant, sizeK))
    return invalidArgument("input " + describe(arguments.input) +
                           " and weight " + describe(weight) +
                           " differ in their last dimension");
  if (arguments.result.rowSize() != columns)
    return invalidArgument("the result " + describe(arguments.result) +
                           " should have " + std::to_string(columns) +
                           " columns");
  size_t perColumn = arguments.layout ? 2 : 1;
  size_t expected = perColumn * (1 + arguments.columnOperands.size()) +
                    arguments.rowOperands.size() +
                    arguments.elementwiseOperands.size() +
                    arguments.matrices.size();
  if (!epilogue.isIdentity() && epilogue.numArguments() != expected)
    return invalidArgument(
        "the epilogue has " + std::to_string(epilogue.numArguments()) +
        " arguments, the operands give " + std::to_string(expected));
  if (arguments.offsets)
    return checkRows("offsets", *arguments.offsets, weight.shape[0] + 1);
  if (hasScaleOfRow())
    if (Status status =
            checkRows("input_scale", *arguments.inputScale, arguments.tokens);
        !status)
      return status;
  for (const auto &operands :
       {arguments.rowOperands, arguments.elementwiseOperands,
        llvm::SmallVector<TensorRef>{arguments.input}})
    for (const TensorRef &operand : operands)
      if (Status status = checkRows("operand", operand, arguments.tokens);
          !status)
        return status;
  return checkRows("result", arguments.result, arguments.tokens);
}

static double decodeE2M1(int64_t code) {
  static constexpr double magnitudes[8] = {0, .5, 1, 1.5, 2, 3, 4, 6};
  return code < 8 ? magnitudes[code] : -magnitudes[code - 8];
}

const uint8_t *
Matmul::getScaleBytes(int64_t group, int64_t weightRow, int64_t element,
                      int64_t moe::PrepackedFormat::ScaleAddress::*byte) const {
  moe::PrepackedFormat format(arguments.weightQuant);
  moe::PrepackedFormat::ScaleAddress place =
      format.getScaleAddress(weightRow, element, weightRows, arguments.layout);
  return arguments.weightScale->as<uint8_t>() +
         (group * weightRows + place.firstRow) * format.getRowBytes(sizeK) +
         place.*byte;
}

void Matmul::loadFragments(int64_t group, int64_t weightRow,
                           MutableArrayRef<double> values) const {
  using moe::PrepackedFormat;
  PrepackedFormat format(arguments.weightQuant);
  const auto *bytes = arguments.weight.as<uint8_t>();
  int64_t rowBytes = moe::getRowBytes(arguments.weightQuant, sizeK);
  int64_t tileRow =
      PrepackedFormat::getTileRow(weightRow, weightRows, arguments.layout);
  for (int64_t i = 0; i < sizeK; ++i) {
    PrepackedFormat::Address place =
        format.getAddress(weightRow, i, weightRows, arguments.layout);
    uint32_t word;
    memcpy(&word,
           bytes + (group * weightRows + place.firstRow) * rowBytes +
               place.word * sizeof(word),
           sizeof(word));
    int64_t code = 0;
    for (int64_t bit : place.bits)
      code = 2 * code + (word >> bit & 1);
    if (format.book) {
      values[i] = (*format.book)[code];
      continue;
    }
    if (format.values.stored == moe::StoredValue::E2M1) {
      values[i] = decodeE2M1(code);
      continue;
    }
    if (format.values.stored == moe::StoredValue::E4M3) {
      values[i] = llvm::APFloat(llvm::APFloat::Float8E4M3FN(),
                                llvm::APInt(/*numBits=*/8,
                                            code ^ format.getInvertedBits()))
                      .convertToDouble();
      continue;
    }
    if (format.values.isSignMagnitude())
      code = moe::fromKept(format.values, code);
    auto zeroPoint = double(format.values.middle);
    if (format.hasZeroPoints) {
      uint16_t bits;
      memcpy(&bits,
             getScaleBytes(group, weightRow, i,
                           &PrepackedFormat::ScaleAddress::zeroPoint),
             sizeof(bits));
      zeroPoint = moe::decodeZeroPoint(format.values, bits, tileRow);
    }
    values[i] = double(code) - zeroPoint;
  }
}

void Matmul::loadRow(const TensorRef &tensor, moe::QuantAttr quant, int64_t row,
                     MutableArrayRef<double> values) const {
  if (!quant || isa<Float8E4M3FNType>(quant.getStorage()))
    return load(tensor, row * sizeK, values);
  bool isSigned = quant.getStorage().isInteger(8) && !quant.getZeroPoint();
  const uint8_t *bytes =
      tensor.as<uint8_t>() + row * moe::getRowBytes(quant, sizeK);
  int64_t mask = (int64_t(1) << moe::getStorageBits(quant)) - 1;
  std::optional<moe::CodeBook> codeBook = moe::getCodeBook(quant.getStorage());
  for (int64_t i = 0; i < sizeK; ++i) {
    moe::ElementOffset place = moe::getElementOffset(quant, i);
    int64_t code = bytes[place.byte] >> place.bit & mask;
    if (isa<Float4E2M1FNType>(quant.getStorage()))
      values[i] = decodeE2M1(code);
    else if (codeBook)
      values[i] = (*codeBook)[code];
    else
      values[i] =
          (isSigned ? int8_t(code) : code) - moe::getImpliedZeroPoint(quant);
  }
}

void Matmul::loadWeightRow(int64_t group, int64_t weightRow,
                           std::vector<double> &values) const {
  values.resize(sizeK);
  if (hasPrepackedLayout())
    return loadFragments(group, weightRow, values);
  loadRow(arguments.weight, arguments.weightQuant,
          group * weightRows + weightRow, values);
  if (arguments.weightZeroPoint && !arguments.weightQuant.getMinimum())
    for (int64_t i = 0; i < sizeK; ++i)
      values[i] -= arguments.weightZeroPoint
                       ->as<uint8_t>()[getScaleIndex(group, weightRow, i)];
}

int64_t Matmul::getScaleIndex(int64_t group, int64_t weightRow,
                              int64_t element) const {
  moe::QuantAttr quant = arguments.weightQuant;
  int64_t rows = moe::getNumScaleRows(quant, weightRows, arguments.layout);
  int64_t row =
      moe::getScaleRow(quant, weightRow, weightRows, arguments.layout);
  return (group * rows + row) * moe::getNumScaleColumns(quant, sizeK) +
         moe::getScaleColumn(quant, element);
}

double Matmul::getWeightScale(int64_t group, int64_t weightRow,
                              int64_t element) const {
  if (hasPrepackedLayout()) {
    using moe::PrepackedFormat;
    PrepackedFormat format(arguments.weightQuant);
    int64_t kept = 0;
    memcpy(&kept,
           getScaleBytes(group, weightRow, element,
                         &PrepackedFormat::ScaleAddress::byte),
           format.scale.bytes);
    int64_t tileRow =
        PrepackedFormat::getTileRow(weightRow, weightRows, arguments.layout);
    return std::ldexp(moe::decodeScale(format.scale, kept),
                      -int(format.values.getExponent(tileRow))) *
           loadAt(*arguments.weightGlobalScale, group * weightRows + weightRow);
  }
  float scale =
      loadAt(*arguments.weightScale, getScaleIndex(group, weightRow, element));
  if (!arguments.weightGlobalScale)
    return scale;
  int64_t perMatrix = moe::getNumSecondScales(arguments.weightQuant, weightRows,
                                              arguments.layout);
  int64_t half = weightRow / (weightRows / perMatrix);
  return scale * loadAt(*arguments.weightGlobalScale, group * perMatrix + half);
}

double Matmul::getMinimum(int64_t group, int64_t weightRow,
                          int64_t element) const {
  if (!hasPrepackedLayout())
    return loadAt(*arguments.weightZeroPoint,
                  getScaleIndex(group, weightRow, element));
  // The rest that the zero point does not cover.
  using moe::PrepackedFormat;
  uint16_t kept;
  memcpy(&kept,
         getScaleBytes(group, weightRow, element,
                       &PrepackedFormat::ScaleAddress::rest),
         sizeof(kept));
  PrepackedFormat format(arguments.weightQuant);
  return -moe::decodeFloat(format.values.decoded, kept) *
         loadAt(*arguments.weightGlobalScale, group * weightRows + weightRow);
}

float Matmul::sum(const double *inputs, const std::vector<double> &weights,
                  int64_t row, int64_t group, int64_t weightRow) const {
  moe::QuantAttr input = arguments.inputQuant, weight = arguments.weightQuant;
  if (!input && !weight)
    return dot(inputs, weights.data(), sizeK);
  int64_t inputColumns = input ? moe::getNumScaleColumns(input, sizeK) : 0;
  int64_t step = moe::getCommonColumns(input, weight);
  if (step == moe::ScaleGroup::kAll)
    step = sizeK;
  double total = 0;
  for (int64_t first = 0; first < sizeK; first += step) {
    int64_t size = std::min(step, sizeK - first);
    double inputScale = 1, weightScale = 1;
    if (input)
      inputScale =
          loadAt(*arguments.inputScale,
                 hasScaleOfRow()
                     ? row * inputColumns + moe::getScaleColumn(input, first)
                     : 0);
    if (weight)
      weightScale = getWeightScale(group, weightRow, first);
    total += dot(inputs + first, weights.data() + first, size) *
             (inputScale * weightScale);
    if (weight && weight.getMinimum())
      total -= std::accumulate(inputs + first, inputs + first + size, 0.0) *
               (inputScale * getMinimum(group, weightRow, first));
  }
  return total;
}

int64_t Matmul::weightRow(int64_t column, int64_t which) const {
  if (!arguments.layout)
    return column;
  switch (arguments.layout.getOrder()) {
  case moe::GateUpOrder::GateUp:
    return which * columns + column;
  case moe::GateUpOrder::UpGate:
    return (1 - which) * columns + column;
  case moe::GateUpOrder::Interleaved:
    return 2 * column + which;
  }
  llvm_unreachable("all orders are listed");
}

void Matmul::epilogueArguments(int64_t group, int64_t column,
                               int64_t position) {
  int64_t chunks = arguments.layout ? 2 : 1;
  values.resize(chunks);
  for (const TensorRef &operand : arguments.rowOperands) {
    float value = loadAt(operand, position);
    // Bytes are booleans.
    values.push_back(operand.dtype == DType::I8 ? float(value != 0) : value);
  }
  for (const TensorRef &operand : arguments.columnOperands)
    for (int64_t which = 0; which < chunks; ++which)
      values.push_back(
          loadAt(operand, group * weightRows + weightRow(column, which)));
  for (const TensorRef &operand : arguments.elementwiseOperands)
    values.push_back(loadAt(operand, position * columns + column));
  for (auto [i, matrix] : llvm::enumerate(arguments.matrices)) {
    int64_t adapter = arguments.adapters->as<int32_t>()[position];
    int64_t rank = matrix.shape[3], width = arguments.shrunk->rowSize();
    std::vector<float> x(rank);
    load(*arguments.shrunk, position * width + int64_t(i) * rank,
         MutableArrayRef<float>(x));
    values.push_back(adapter < 0
                         ? 0.0F
                         : multiplyAdapter(matrix, adapter, group, column, x));
  }
}

Status Matmul::runGroup(int64_t group, int64_t begin, int64_t end) {
  if (begin == end)
    return Status::ok();
  std::vector<double> inputs((end - begin) * sizeK);
  std::vector<int64_t> rows(end - begin);
  for (int64_t p = begin; p < end; ++p) {
    int64_t row = p;
    if (arguments.source)
      row = arguments.source->as<int32_t>()[p];
    if (row < 0 || row >= arguments.input.shape[0])
      return invalidArgument("position " + std::to_string(p) + " reads row " +
                             std::to_string(row) + " of the input " +
                             describe(arguments.input));
    if (hasScaleOfRow() && row >= arguments.inputScale->shape[0])
      return invalidArgument("position " + std::to_string(p) + " reads row " +
                             std::to_string(row) + " of the input's scales " +
                             describe(*arguments.inputScale));
    rows[p - begin] = row;
    loadRow(arguments.input, arguments.inputQuant, row,
            MutableArrayRef<double>(&inputs[(p - begin) * sizeK], sizeK));
  }
  int64_t chunks = arguments.layout ? 2 : 1;
  std::vector<double> weights[2];
  std::vector<float> results((end - begin) * columns);
  for (int64_t column = 0; column < columns; ++column) {
    for (int64_t which = 0; which < chunks; ++which)
      loadWeightRow(group, weightRow(column, which), weights[which]);
    for (int64_t p = begin; p < end; ++p) {
      epilogueArguments(group, column, p);
      for (int64_t which = 0; which < chunks; ++which)
        values[which] = sum(&inputs[(p - begin) * sizeK], weights[which],
                            rows[p - begin], group, weightRow(column, which));
      results[(p - begin) * columns + column] = epilogue.evaluate(values);
    }
  }
  store(arguments.result, begin * columns, results);
  return Status::ok();
}

Status Matmul::run() {
  if (!arguments.offsets) {
    int64_t valid = validTokens(arguments.numValidTokens, arguments.tokens);
    std::vector<float> zeros((arguments.tokens - valid) * columns);
    store(arguments.result, valid * columns, zeros);
    return runGroup(0, 0, valid);
  }
  const int32_t *offsets = arguments.offsets->as<int32_t>();
  int64_t limit = arguments.result.shape[0];
  for (const TensorRef &operand : arguments.rowOperands)
    limit = std::min(limit, operand.shape[0]);
  for (const TensorRef &operand : arguments.elementwiseOperands)
    limit = std::min(limit, operand.shape[0]);
  if (arguments.shrunk)
    limit = std::min(
        {limit, arguments.shrunk->shape[0], arguments.adapters->shape[0]});
  if (arguments.source)
    limit = std::min(limit, arguments.source->shape[0]);
  int64_t numGroups = arguments.weight.shape[0];
  for (int64_t g = 0; g < numGroups; ++g) {
    if (offsets[g] < 0 || offsets[g] > offsets[g + 1] || offsets[g + 1] > limit)
      return invalidArgument("offsets[" + std::to_string(g) + "] and [" +
                             std::to_string(g + 1) + "] are " +
                             std::to_string(offsets[g]) + " and " +
                             std::to_string(offsets[g + 1]) + ", but there " +
                             "are " + std::to_string(limit) + " positions");
    if (!arguments.groupRows.contains(offsets[g + 1] - offsets[g]))
      continue;
    if (Status status = runGroup(g, offsets[g], offsets[g + 1]); !status)
      return status;
  }
  return Status::ok();
}

Status groupedMatmul(const MatmulArguments &arguments,
                     RegionEvaluator &epilogue) {
  Matmul matmul(arguments, epilogue);
  if (Status status = matmul.check(); !status)
    return status;
  return matmul.run();
}

Status rowMap(const RowMapArguments &arguments, RegionEvaluator &body) {
  if (Status status = checkRows("input", arguments.input, arguments.tokens);
      !status)
    return status;
  if (Status status = checkRows("result", arguments.result, arguments.tokens);
      !status)
    return status;
  for (const TensorRef &operand : arguments.rowOperands)
    if (Status status = checkRows("rows", operand, arguments.tokens); !status)
      return status;
  for (const TensorRef &operand : arguments.elementwiseOperands)
    if (Status status = checkRows("elementwise", operand, arguments.tokens);
        !status)
      return status;
  int64_t width = arguments.input.rowSize();
  int64_t valid = validTokens(arguments.numValidTokens, arguments.tokens);
  std::vector<float> row(width), values;
  for (int64_t t = 0; t < arguments.tokens; ++t) {
    if (t >= valid) {
      row.assign(width, 0);
      store(arguments.result, t * width, row);
      continue;
    }
    load(arguments.input, t * width, MutableArrayRef<float>(row));
    for (int64_t c = 0; c < width; ++c) {
      values.assign(1, row[c]);
      for (const TensorRef &operand : arguments.rowOperands)
        values.push_back(loadAt(operand, t * operand.rowSize()));
      for (const TensorRef &operand : arguments.elementwiseOperands)
        values.push_back(loadAt(operand, t * width + c));
      row[c] = body.evaluate(values);
    }
    store(arguments.result, t * width, row);
  }
  return Status::ok();
}

} // namespace moec::interpreter
