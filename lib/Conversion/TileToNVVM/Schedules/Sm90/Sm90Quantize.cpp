//===- Sm90Quantize.cpp - quantized results of sm90.contract ----*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// Epilogue that quantizes results. With a given scale, results are quantized at
// once. Otherwise a thread keeps its results, two per register, until the
// largest magnitude of each row is known: a pair is two neighbours of a row
// with rows on M, else of a column. With rows on M in high tiles, four lanes
// share a row. Otherwise each warp writes the maxima over its columns, one
// thread per row computes the scale, and every thread reads the divisors of its
// rows.
//
// Quantized values go through the staging buffer to memory, as 16-bit results
// do, also when they are dequantized to bf16.

#include "../../InlinePtx.h"
#include "../../Quantizer.h"
#include "Sm90Epilogue.h"
#include "moec/Dialect/Moe/QuantLayout.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"

#include <optional>

using namespace mlir;
using namespace moec;
using sm90::Contract;

namespace {

constexpr int64_t kOctet = 8, kPerOctet = 4;
/// The first warp of the consumers.
constexpr int64_t kFirstWarp = Contract::kWarpgroup / 32;

class Sm90Quantize : public Sm90Epilogue {
public:
  Sm90Quantize(Sm90Contract &contract, const ContractPart &part,
               const ContractOperands &operands, const ContractSums &sums)
      : Sm90Epilogue(contract, part, operands, sums), half(*op.getRoundedTo()),
        quantizer(b, half, op.getResultQuantAttr(), /*hasInstructions=*/true),
        octets((isOnM ? shape.getBlockColumns(part.tileHeight) : part.height) /
               kOctet),
        perOctet(fragments.getMatrices()) {}
  LogicalResult emitQuantized();

private:
  LogicalResult emitByGivenScale(Value hasRows);
  /// Rounds quotients by the given scale.
  Value round(Value values) override;

  //===--- Pairs: two 16-bit floats in an i32 ---===//

  Value toPair(Value word) {
    return LLVM::BitcastOp::create(b, VectorType::get(2, half), word);
  }
  Value toWord(Value value) {
    return LLVM::BitcastOp::create(b, b.getI32Type(), value);
  }
  /// One element of a pair, as f32.
  Value get(Value word, int64_t i);
  Value larger(Value x, Value y) {
    return x ? toWord(quantizer.larger(toPair(x), toPair(y))) : y;
  }
  Value &getResults(int64_t block, int64_t octet, int64_t matrix) {
    return results[(block * octets + octet) * perOctet + matrix];
  }
  Value getMagnitudes(int64_t block, int64_t octet, int64_t matrix) {
    constexpr int64_t digits = 0x7FFF7FFF;
    return arith::AndIOp::create(b, getResults(block, octet, matrix),
                                 emitter.i32(digits));
  }

  /// Results as pairs.
  SmallVector<Value> toPairs(Value values);
  void roundResults();
  /// Rows on M: largest magnitudes of the thread's two rows over the consumer's
  /// columns, as a pair.
  Value findLargestOfRows();
  /// Weights on M: largest magnitudes of two rows of each octet over the warp's
  /// columns. Octets are distributed over lanes: lanes of column `c` of the 8
  /// have the `n` octets from `c * n` on; null past the end.
  SmallVector<Value> findLargestOfColumns();
  /// Reduces the magnitudes over all columns, and computes divisors.
  void shareLargest();
  void writeLargest();
  void makeDivisors();
  Value getDivisorAddress(Value row);
  Quantizer::Divisor getDivisor(Value pair, int64_t i);
  /// The divisor for a row's largest magnitude.
  Quantizer::Divisor getDivisor(Value largest) {
    return quantizer.getDivisor(largest);
  }
  /// Quotient of a result by its row's divisor, or by the given scale.
  Value divide(Value value, const Quantizer::Divisor &divisor) {
    return given ? quantizer.divideBy(value, *given)
                 : quantizer.divide(value, divisor);
  }
  /// Stores the scale of a row of the part.
  void storeScale(Value row, Value scale, Value isStored);

  void quantizeRows(ArrayRef<Quantizer::Divisor> divisors);
  void quantizeColumns();
  /// Exchanges quantized values between lanes: from two columns of two rows
  /// each to two neighbouring columns of one row, twice; the first row goes to
  /// lanes of even columns.
  Value pairColumns(Value codes, Value isOdd);
  /// Rows on M: the thread's index in its quad; its first row of the part.
  Value getQuadLane() {
    return emitter.remainder(fragments.getLane(), kPerOctet);
  }
  Value getOwnRow() { return fragments.getRow(/*octet=*/0, /*element=*/0); }

  Type half;
  Quantizer quantizer;
  /// The scale of all results, if given.
  std::optional<Quantizer::GivenScale> given;
  /// Octets of a block, and pairs of each of them.
  int64_t octets, perOctet;
  SmallVector<Value> results;
};

} // namespace

Value Sm90Quantize::get(Value word, int64_t i) {
  if (half.isF16())
    return castFloat(b, vector::ExtractOp::create(b, toPair(word), i),
                     b.getF32Type());
  // bf16 is the upper half of an f32, so that either half takes one
  // instruction.
  constexpr int64_t upper = int32_t(0xFFFF0000);
  Value bits = i ? Value(arith::AndIOp::create(b, word, emitter.i32(upper)))
                 : Value(arith::ShLIOp::create(b, word, emitter.i32(16)));
  return arith::BitcastOp::create(b, b.getF32Type(), bits);
}

//===----------------------------------------------------------------------===//
// Largest magnitudes
//===----------------------------------------------------------------------===//

SmallVector<Value> Sm90Quantize::toPairs(Value values) {
  Value rounded = castFloat(b, values, half);
  int64_t pairs = cast<VectorType>(rounded.getType()).getNumElements() / 2;
  Value words = vector::BitCastOp::create(
      b, VectorType::get(pairs, b.getI32Type()), rounded);
  SmallVector<Value> some;
  for (int64_t i = 0; i < pairs; ++i)
    some.push_back(vector::ExtractOp::create(b, words, i));
  // Opaque, so that LLVM does not round elements one by one where they are read
  // one by one.
  return tieWords(b, some);
}

void Sm90Quantize::roundResults() {
  constexpr int64_t atOnce = 2;
  for (int64_t block = 0; block < shape.getBlocks(part.tileHeight); ++block)
    for (int64_t first = 0; first < octets; first += atOnce)
      llvm::append_range(
          results,
          toPairs(emitRegion(block, first, std::min(atOnce, octets - first))));
}

Value Sm90Quantize::findLargestOfRows() {
  SmallVector<Value, 2> rows(perOctet);
  for (int64_t block = 0; block < shape.getBlocks(part.tileHeight); ++block)
    for (int64_t octet = 0; octet < octets; ++octet)
      for (auto [i, largest] : llvm::enumerate(rows))
        largest = larger(largest, getMagnitudes(block, octet, i));
  // Reduces two neighbours of each row, then the quad's lanes.
  auto pack = [&](int64_t i) {
    SmallVector<Value> pair;
    for (Value row : rows)
      pair.push_back(vector::ExtractOp::create(b, toPair(row), i));
    return toWord(vector::FromElementsOp::create(
        b, VectorType::get(pair.size(), half), pair));
  };
  Value largest = larger(pack(0), pack(1));
  for (int64_t mask = 1; mask < kPerOctet; mask *= 2)
    largest = larger(largest, emitter.shuffleXor(largest, mask));
  return largest;
}

SmallVector<Value> Sm90Quantize::findLargestOfColumns() {
  SmallVector<Value> pairs(llvm::alignTo(octets, kOctet));
  for (int64_t block = 0; block < shape.getBlocks(part.tileHeight); ++block)
    for (int64_t octet = 0; octet < octets; ++octet)
      for (int64_t i = 0; i < perOctet; ++i)
        pairs[octet] = larger(pairs[octet], getMagnitudes(block, octet, i));
  // Each of two lanes hands half of its octets to the other.
  for (int64_t mask = kOctet * kPerOctet / 2; mask >= kPerOctet; mask /= 2) {
    Value isUpper = arith::CmpIOp::create(
        b, arith::CmpIPredicate::ne,
        arith::AndIOp::create(b, fragments.getLane(), emitter.i32(mask)),
        emitter.i32(0));
    size_t kept = pairs.size() / 2;
    for (size_t i = 0; i < kept; ++i) {
      Value low = pairs[i], high = pairs[kept + i];
      Value own = low, other = low;
      if (high) {
        own = arith::SelectOp::create(b, isUpper, high, low);
        other = arith::SelectOp::create(b, isUpper, low, high);
      }
      if (low)
        pairs[i] = larger(own, emitter.shuffleXor(other, mask));
    }
    pairs.truncate(kept);
  }
  return pairs;
}

void Sm90Quantize::writeLargest() {
  constexpr int64_t halfBytes = 2;
  Value table = contract.sharedAddress(shape.getMagnitudeOffset());
  int64_t stride = shape.getMagnitudeStride();
  if (isOnM) {
    Value consumer = getConsumer();
    Value pair = findLargestOfRows();
    // The first two lanes of a quad have a row each.
    Value lane = getQuadLane();
    Value isFirst = contract.isEqual(lane, emitter.i32(0));
    Value upper = arith::ShRUIOp::create(b, pair, emitter.i32(16));
    Value one = arith::SelectOp::create(b, isFirst, pair, upper);
    Value row = contract.addI32(getOwnRow(), emitter.scale(lane, kOctet));
    Value offset = contract.addI32(emitter.scale(consumer, stride),
                                   emitter.scale(row, halfBytes));
    SmallVector<Value> tied = tieWords(b, {one, offset});
    emitter.ifThen(emitter.isLess(lane, emitter.i32(2)), [&] {
      emitter.store(arith::TruncIOp::create(b, b.getI16Type(), tied[0]),
                    emitter.advance(table, tied[1]), halfBytes);
    });
    return;
  }
  SmallVector<Value> pairs = findLargestOfColumns();
  Value warp = emitter.scale(fragments.getWarp(), 1, -kFirstWarp);
  Value octet = emitter.scale(emitter.divide(fragments.getLane(), kPerOctet),
                              int64_t(pairs.size()));
  Value row = contract.addI32(emitter.scale(octet, kOctet),
                              emitter.scale(getQuadLane(), 2));
  Value offset = contract.addI32(emitter.scale(warp, stride),
                                 emitter.scale(row, halfBytes));
  for (auto [i, pair] : llvm::enumerate(pairs))
    if (pair)
      emitter.store(pair,
                    emitter.advance(emitter.advance(table, offset),
                                    int64_t(i) * kOctet * halfBytes),
                    2 * halfBytes);
}

//===----------------------------------------------------------------------===//
// Divisors
//===----------------------------------------------------------------------===//

void Sm90Quantize::storeScale(Value row, Value scale, Value isStored) {
  isStored = arith::AndIOp::create(b, isStored, emitter.isLess(row, tile.rows));
  Value group = emitter.divide(tile.firstColumn, Contract::kQuantizedColumns);
  Value position = emitter.toIndex(contract.addI32(tile.firstRow, row));
  Value to = tieAddress(b, emitter.address(emitter.operand(op.getResultScale()),
                                           {position, emitter.toIndex(group)}));
  emitter.ifThen(isStored, [&] {
    emitter.store(scale, to, Contract::kScaleElementBytes);
  });
}

Value Sm90Quantize::getDivisorAddress(Value row) {
  return emitter.advance(contract.sharedAddress(shape.getDivisorOffset()),
                         emitter.scale(row, Contract::kDivisorBytes));
}

/// One thread per row.
void Sm90Quantize::makeDivisors() {
  constexpr int64_t halfBytes = 2;
  Value number = emitter.scale(fragments.getThread(), 1, -Contract::kWarpgroup);
  Value exists = emitter.isLess(number, emitter.i32(part.height));
  ifAny(exists, [&] {
    Value row = contract.minI32(number, emitter.i32(part.height - 1));
    Value from =
        emitter.advance(contract.sharedAddress(shape.getMagnitudeOffset()),
                        emitter.scale(row, halfBytes));
    Value largest;
    int64_t numParts = isOnM ? Contract::kConsumers : Contract::kConsumerWarps;
    for (int64_t i = 0; i < numParts; ++i) {
      Value own = castFloat(
          b,
          emitter.load(half,
                       emitter.advance(from, i * shape.getMagnitudeStride()),
                       halfBytes),
          b.getF32Type());
      largest = largest ? quantizer.larger(largest, own) : own;
    }
    Quantizer::Divisor divisor = getDivisor(largest);
    Value both = vector::FromElementsOp::create(
        b, VectorType::get(2, b.getF32Type()),
        ValueRange{divisor.factor, divisor.reciprocal});
    emitter.ifThen(exists, [&] {
      emitter.store(both, getDivisorAddress(row), Contract::kDivisorBytes);
    });
    storeScale(row, divisor.scale, exists);
  });
}

void Sm90Quantize::shareLargest() {
  writeLargest();
  // After this barrier all have read the divisors of the tile before, too.
  emitter.consumerBarrier();
  makeDivisors();
  // After this barrier all have read the magnitudes, too.
  emitter.consumerBarrier();
}

/// Loads the divisor of row `i` from the pair at getDivisorAddress.
Quantizer::Divisor Sm90Quantize::getDivisor(Value pair, int64_t i) {
  return {Value(), vector::ExtractOp::create(b, pair, 2 * i),
          vector::ExtractOp::create(b, pair, 2 * i + 1)};
}

//===----------------------------------------------------------------------===//
// Codes
//===----------------------------------------------------------------------===//

void Sm90Quantize::quantizeRows(ArrayRef<Quantizer::Divisor> divisors) {
  Value own = contract.addI32(
      emitter.scale(emitter.divide(fragments.getLane(), kPerOctet),
                    shape.getStagedStride(part.tileHeight)),
      emitter.scale(getQuadLane(), 2));
  Value to = emitter.advance(getBuffer(), own);
  for (int64_t block = 0; block < shape.getBlocks(part.tileHeight); ++block)
    for (int64_t octet = 0; octet < octets; ++octet)
      for (auto [i, divisor] : llvm::enumerate(divisors)) {
        Value pair = getResults(block, octet, i);
        Value codes = quantizer.round(
            {divide(get(pair, 0), divisor), divide(get(pair, 1), divisor)});
        int64_t offset =
            int64_t(i) * kOctet * shape.getStagedStride(part.tileHeight) +
            (block * octets + octet) * kOctet;
        emitter.store(arith::TruncIOp::create(b, b.getI16Type(), codes),
                      emitter.advance(to, offset), /*alignment=*/2);
      }
  storeStaged(getWarpRow(), Contract::kStagedRows,
              [&](Value piece) { return getColumnOfPiece(piece); });
}

Value Sm90Quantize::pairColumns(Value codes, Value isOdd) {
  constexpr int64_t lowBytes = 0x00FF00FF, highBytes = int32_t(0xFF00FF00);
  Value eight = emitter.i32(8);
  Value others = emitter.shuffleXor(codes, kPerOctet);
  Value low = arith::SelectOp::create(
      b, isOdd, arith::ShRUIOp::create(b, others, eight), codes);
  Value high = arith::SelectOp::create(b, isOdd, codes,
                                       arith::ShLIOp::create(b, others, eight));
  return arith::OrIOp::create(
      b, arith::AndIOp::create(b, low, emitter.i32(lowBytes)),
      arith::AndIOp::create(b, high, emitter.i32(highBytes)));
}

void Sm90Quantize::quantizeColumns() {
  // Neighbouring lanes have the same two rows of two columns each: each takes
  // one row.
  Value column = emitter.divide(fragments.getLane(), kPerOctet);
  Value odd = emitter.remainder(column, 2);
  Value isOdd = contract.isEqual(odd, emitter.i32(1));
  Value own = contract.addI32(
      emitter.scale(contract.addI32(emitter.scale(getQuadLane(), 2), odd),
                    shape.getStagedStride(part.tileHeight)),
      contract.addI32(getWarpOffset(), arith::SubIOp::create(b, column, odd)));
  Value to = emitter.advance(getBuffer(), own);
  auto quantize = [&](int64_t octet, int64_t place) {
    auto type = VectorType::get(4, b.getF32Type());
    Quantizer::Divisor divisors[2];
    if (!given) {
      Value pair = emitter.load(
          type,
          emitter.advance(getDivisorAddress(emitter.scale(getQuadLane(), 2)),
                          octet * kOctet * Contract::kDivisorBytes),
          2 * Contract::kDivisorBytes);
      for (int64_t row = 0; row < 2; ++row)
        divisors[row] = getDivisor(pair, row);
    }
    SmallVector<Value> quotients;
    SmallVector<int64_t> columns;
    for (int64_t block = 0; block < shape.getBlocks(part.tileHeight); ++block)
      for (int64_t i = 0; i < perOctet; ++i) {
        columns.push_back(block * shape.getBlockColumns(part.tileHeight) +
                          i * kOctet);
        for (int64_t row = 0; row < 2; ++row)
          quotients.push_back(
              divide(get(getResults(block, octet, i), row), divisors[row]));
      }
    Value codes = pairColumns(quantizer.round(quotients), isOdd);
    for (auto [i, first] : llvm::enumerate(columns)) {
      Value both = arith::ShRUIOp::create(b, codes, emitter.i32(16 * i));
      emitter.store(
          arith::TruncIOp::create(b, b.getI16Type(), both),
          emitter.advance(
              to,
              place * kOctet * shape.getStagedStride(part.tileHeight) + first),
          /*alignment=*/2);
    }
  };
  constexpr int64_t atOnce = Contract::kStagedRows / kOctet;
  for (int64_t first = 0; first < octets; first += atOnce) {
    int64_t count = std::min(atOnce, octets - first);
    auto emitSome = [&] {
      takeBuffer(/*isFirst=*/first == 0);
      for (int64_t i = 0; i < count; ++i)
        quantize(first + i, i);
      storeStaged(emitter.i32(first * kOctet), count * kOctet,
                  [&](Value piece) { return getColumnOfPiece(piece); });
    };
    if (first == 0)
      emitSome();
    else
      emitter.ifThen(emitter.isLess(emitter.i32(first * kOctet), tile.rows),
                     emitSome);
  }
}

Value Sm90Quantize::round(Value values) {
  SmallVector<Value> words = toPairs(values);
  for (Value &word : words)
    word = quantizer.roundToBF16({quantizer.divideBy(get(word, 0), *given),
                                  quantizer.divideBy(get(word, 1), *given)});
  auto count = int64_t(words.size());
  Value all = vector::FromElementsOp::create(
      b, VectorType::get(count, b.getI32Type()), words);
  return vector::BitCastOp::create(
      b, VectorType::get(2 * count, b.getBF16Type()), all);
}

LogicalResult Sm90Quantize::emitByGivenScale(Value hasRows) {
  Value scale = emitter.loadF32(emitter.operand(op.getResultTensorScale()),
                                {emitter.index(0)});
  given = quantizer.takeApart(scale);
  if (!shape.quantizes)
    return emit();
  if (!isOnM) {
    roundResults();
    quantizeColumns();
    return status;
  }
  takeBuffer(/*isFirst=*/true);
  ifAny(hasRows, [&] {
    roundResults();
    quantizeRows(SmallVector<Quantizer::Divisor>(perOctet));
  });
  return status;
}

LogicalResult Sm90Quantize::emitQuantized() {
  Value hasRows = isOnM ? emitter.isLess(getWarpRow(), tile.rows) : Value();
  if (op.getResultTensorScale())
    return emitByGivenScale(hasRows);
  if (shape.splitsRows(part.tileHeight)) {
    takeBuffer(/*isFirst=*/true);
    ifAny(hasRows, [&] {
      roundResults();
      Value largest = findLargestOfRows();
      SmallVector<Quantizer::Divisor, 2> divisors;
      for (int64_t i = 0; i < perOctet; ++i)
        divisors.push_back(getDivisor(get(largest, i)));
      quantizeRows(divisors);
      // The first two lanes of a quad have a row each.
      Value lane = getQuadLane();
      Value scale =
          arith::SelectOp::create(b, contract.isEqual(lane, emitter.i32(0)),
                                  divisors[0].scale, divisors[1].scale);
      storeScale(contract.addI32(getOwnRow(), emitter.scale(lane, kOctet)),
                 scale, emitter.isLess(lane, emitter.i32(2)));
    });
    return status;
  }
  roundResults();
  shareLargest();
  if (!isOnM) {
    quantizeColumns();
    return status;
  }
  ifAny(hasRows, [&] {
    SmallVector<Quantizer::Divisor, 2> divisors;
    auto type = VectorType::get(2, b.getF32Type());
    for (int64_t i = 0; i < perOctet; ++i)
      divisors.push_back(getDivisor(
          emitter.load(type,
                       emitter.advance(getDivisorAddress(getOwnRow()),
                                       i * kOctet * Contract::kDivisorBytes),
                       Contract::kDivisorBytes),
          /*i=*/0));
    quantizeRows(divisors);
  });
  return status;
}

LogicalResult moec::emitSm90Quantized(Sm90Contract &contract,
                                      const ContractPart &part,
                                      const ContractOperands &operands,
                                      const ContractSums &sums) {
  return Sm90Quantize(contract, part, operands, sums).emitQuantized();
}
