//===- Quantize.cpp - quantized results of sm90.gemm ------------*- C++ -*-===//
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

#include "Epilogue.h"
#include "KernelBuilder/InlinePtx.h"
#include "KernelBuilder/Pair.h"
#include "KernelBuilder/Quantizer.h"
#include "moec/Dialect/Moe/QuantLayout.h"

#include <optional>

using namespace mlir;
using namespace moec;

namespace {

constexpr int64_t kOctet = 8, kPerOctet = 4;
/// The first warp of the consumers.
constexpr int64_t kFirstWarp = kWarpgroup / 32;

class Sm90Quantize : public Sm90Epilogue {
public:
  Sm90Quantize(Sm90Gemm &gemm, const Sm90Part &part,
               const Sm90EpilogueOperands &operands, const Sm90Sums &sums)
      : Sm90Epilogue(gemm, part, operands, sums), half(*op.getRoundedTo()),
        quantizer(b, half, op.getResultQuantAttr(), /*hasInstructions=*/true),
        octets(
            (isOnM ? shape.tile().getBlockColumns(part.blockM) : part.maxRows) /
            kOctet),
        perOctet(accumulators.getMatrices()) {}
  LogicalResult emitQuantized();

private:
  LogicalResult emitByGivenScale(Flag hasRows);
  /// Rounds quotients by the given scale.
  Value round(Value values) override;

  //===--- Pairs: two 16-bit floats in an i32 ---===//

  Pair toPair(I32 word) { return Pair::fromBits(word, half); }
  /// One element of a pair, as f32.
  F32 get(I32 word, int64_t i);
  I32 larger(I32 x, I32 y) {
    if (!x)
      return y;
    Pair pair = toPair(x);
    return quantizer.larger(pair, toPair(y)).bits();
  }
  I32 getResults(int64_t block, int64_t octet, int64_t matrix) {
    return results[(block * octets + octet) * perOctet + matrix];
  }
  I32 getMagnitudes(int64_t block, int64_t octet, int64_t matrix) {
    constexpr int64_t digits = 0x7FFF7FFF;
    return getResults(block, octet, matrix) & digits;
  }

  /// Results as pairs.
  SmallVector<I32> toPairs(Value values);
  void roundResults();
  /// Rows on M: largest magnitudes of the thread's two rows over the consumer's
  /// columns, as a pair.
  I32 findLargestOfRows();
  /// Weights on M: largest magnitudes of two rows of each octet over the warp's
  /// columns. Octets are distributed over lanes: lanes of column `c` of the 8
  /// have the `n` octets from `c * n` on; null past the end.
  SmallVector<I32> findLargestOfColumns();
  /// Reduces the magnitudes over all columns, and computes divisors.
  void shareLargest();
  void writeLargest();
  void makeDivisors();
  Value getDivisorAddress(I32 row);
  /// The divisor of row `i` from the vector at getDivisorAddress.
  Quantizer::Divisor getDivisor(Value pair, int64_t i) {
    F32 factor = emitter.element<F32>(pair, 2 * i);
    return {F32(), factor, emitter.element<F32>(pair, 2 * i + 1)};
  }
  /// Quotient of a result by its row's divisor, or by the given scale.
  F32 divide(F32 value, const Quantizer::Divisor &divisor) {
    return given ? quantizer.divideBy(value, *given)
                 : quantizer.divide(value, divisor);
  }
  /// Stores the scale of a row of the part.
  void storeScale(I32 row, F32 scale, Flag isStored);
  void storeHalf(I32 word, Value to) {
    emitter.store(word.lowBits(16), to, kHalfBytes);
  }

  void quantizeRows(ArrayRef<Quantizer::Divisor> divisors);
  void quantizeColumns();
  /// Quantizes an octet of rows, staged as the octet `staged`, to `to`.
  void quantizeOctet(int64_t octet, int64_t staged, Flag isOdd, Value to);
  /// Exchanges quantized values between lanes: from two columns of two rows
  /// each to two neighbouring columns of one row, twice; the first row goes to
  /// lanes of even columns.
  I32 pairColumns(I32 rounded, Flag isOdd);
  /// Rows on M: the thread's index in its quad; its first row of the part.
  I32 getQuadLane() { return accumulators.getLane() % kPerOctet; }
  I32 getOwnRow() { return accumulators.getRow(/*octet=*/0, /*element=*/0); }

  static constexpr int64_t kHalfBytes = 2;

  Type half;
  Quantizer quantizer;
  /// The scale of all results, if given.
  std::optional<Quantizer::GivenScale> given;
  /// Octets of a block, and pairs of each of them.
  int64_t octets, perOctet;
  SmallVector<I32> results;
};

} // namespace

F32 Sm90Quantize::get(I32 word, int64_t i) {
  if (half.isF16())
    return toPair(word).element(i);
  // bf16 is the upper half of an f32, so that either half takes one
  // instruction.
  constexpr int64_t upper = int32_t(0xFFFF0000);
  return F32::fromBits(i ? word & upper : word << 16);
}

//===----------------------------------------------------------------------===//
// Largest magnitudes
//===----------------------------------------------------------------------===//

SmallVector<I32> Sm90Quantize::toPairs(Value values) {
  SmallVector<I32> words = emitter.pairs(castFloat(b, values, half));
  // Opaque, so that LLVM does not round elements one by one where they are read
  // one by one.
  tieValues<I32>(b, words);
  return words;
}

void Sm90Quantize::roundResults() {
  constexpr int64_t atOnce = 2;
  for (int64_t block = 0; block < shape.tile().getBlocks(part.blockM); ++block)
    for (int64_t first = 0; first < octets; first += atOnce)
      llvm::append_range(
          results,
          toPairs(emitRegion(block, first, std::min(atOnce, octets - first))));
}

I32 Sm90Quantize::findLargestOfRows() {
  SmallVector<I32, 2> rows(perOctet);
  for (int64_t block = 0; block < shape.tile().getBlocks(part.blockM); ++block)
    for (int64_t octet = 0; octet < octets; ++octet)
      for (auto [i, largest] : llvm::enumerate(rows))
        largest = larger(largest, getMagnitudes(block, octet, i));
  // Reduces two neighbours of each row, then the quad's lanes.
  auto pack = [&](int64_t i) {
    SmallVector<Value> pair;
    for (I32 row : rows)
      pair.push_back(emitter.element<Value>(toPair(row), i));
    return Pair(b, emitter.makeVector(ArrayRef(pair))).bits();
  };
  I32 first = pack(0);
  I32 largest = larger(first, pack(1));
  for (int64_t mask = 1; mask < kPerOctet; mask *= 2)
    largest = larger(largest, emitter.shuffleXor(largest, mask));
  return largest;
}

SmallVector<I32> Sm90Quantize::findLargestOfColumns() {
  SmallVector<I32> pairs(llvm::alignTo(octets, kOctet));
  for (int64_t block = 0; block < shape.tile().getBlocks(part.blockM); ++block)
    for (int64_t octet = 0; octet < octets; ++octet)
      for (int64_t i = 0; i < perOctet; ++i)
        pairs[octet] = larger(pairs[octet], getMagnitudes(block, octet, i));
  // Each of two lanes hands half of its octets to the other.
  for (int64_t mask = kOctet * kPerOctet / 2; mask >= kPerOctet; mask /= 2) {
    Flag isUpper = (accumulators.getLane() & mask) != 0;
    size_t kept = pairs.size() / 2;
    for (size_t i = 0; i < kept; ++i) {
      I32 low = pairs[i], high = pairs[kept + i];
      I32 own = low, other = low;
      if (high) {
        own = select(isUpper, high, low);
        other = select(isUpper, low, high);
      }
      if (low)
        pairs[i] = larger(own, emitter.shuffleXor(other, mask));
    }
    pairs.truncate(kept);
  }
  return pairs;
}

void Sm90Quantize::writeLargest() {
  Value table = gemm.sharedAddress(shape.shared().getMagnitudeOffset());
  int64_t stride = shape.shared().getMagnitudeStride();
  if (isOnM) {
    I32 consumer = getConsumer();
    I32 pair = findLargestOfRows();
    // The first two lanes of a quad have a row each.
    I32 lane = getQuadLane();
    Flag isFirst = lane == 0;
    I32 one = select(isFirst, pair, pair >> 16);
    I32 row = getOwnRow() + lane * kOctet;
    I32 tied[] = {one, consumer * stride + row * kHalfBytes};
    tieValues<I32>(b, tied);
    emitter.ifThen(
        lane < 2, [&] { storeHalf(tied[0], emitter.advance(table, tied[1])); });
    return;
  }
  SmallVector<I32> pairs = findLargestOfColumns();
  I32 warp = accumulators.getWarp() + -kFirstWarp;
  I32 octet = accumulators.getLane() / kPerOctet * int64_t(pairs.size());
  I32 row = octet * kOctet + getQuadLane() * 2;
  I32 offset = warp * stride + row * kHalfBytes;
  for (auto [i, pair] : llvm::enumerate(pairs))
    if (pair)
      emitter.store(pair,
                    emitter.advance(emitter.advance(table, offset),
                                    int64_t(i) * kOctet * kHalfBytes),
                    2 * kHalfBytes);
}

//===----------------------------------------------------------------------===//
// Divisors
//===----------------------------------------------------------------------===//

void Sm90Quantize::storeScale(I32 row, F32 scale, Flag isStored) {
  isStored = isStored & (row < tile.rows);
  I32 group = tile.firstColumn / sm90::kQuantizedColumns;
  Index position = emitter.toIndex(tile.firstRow + row);
  Value to = tieAddress(b, emitter.address(emitter.operand(op.getResultScale()),
                                           {position, emitter.toIndex(group)}));
  emitter.ifThen(isStored,
                 [&] { emitter.store(scale, to, sm90::kScaleElementBytes); });
}

Value Sm90Quantize::getDivisorAddress(I32 row) {
  return emitter.advance(gemm.sharedAddress(shape.shared().getDivisorOffset()),
                         row * sm90::kDivisorBytes);
}

/// One thread per row.
void Sm90Quantize::makeDivisors() {
  I32 number = accumulators.getThread() + -kWarpgroup;
  Flag exists = number < part.maxRows;
  ifAny(exists, [&] {
    I32 row = min(number, part.maxRows - 1);
    Value from =
        emitter.advance(gemm.sharedAddress(shape.shared().getMagnitudeOffset()),
                        row * kHalfBytes);
    F32 largest;
    int64_t numParts = isOnM ? sm90::kConsumers : sm90::kConsumerWarps;
    for (int64_t i = 0; i < numParts; ++i) {
      Value stored = emitter.load(
          half, emitter.advance(from, i * shape.shared().getMagnitudeStride()),
          kHalfBytes);
      F32 own(b, castFloat(b, stored, b.getF32Type()));
      largest = largest ? quantizer.larger(largest, own) : own;
    }
    Quantizer::Divisor divisor = quantizer.getDivisor(largest);
    Value both = emitter.makeVector<F32>({divisor.factor, divisor.reciprocal});
    emitter.ifThen(exists, [&] {
      emitter.store(both, getDivisorAddress(row), sm90::kDivisorBytes);
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

//===----------------------------------------------------------------------===//
// Quantized values
//===----------------------------------------------------------------------===//

void Sm90Quantize::quantizeRows(ArrayRef<Quantizer::Divisor> divisors) {
  int64_t stride = staging.stride;
  I32 own = accumulators.getLane() / kPerOctet * stride + getQuadLane() * 2;
  Value to = emitter.advance(getBuffer(), own);
  for (int64_t block = 0; block < shape.tile().getBlocks(part.blockM); ++block)
    for (int64_t octet = 0; octet < octets; ++octet)
      for (auto [i, divisor] : llvm::enumerate(divisors)) {
        I32 pair = getResults(block, octet, i);
        F32 first = divide(get(pair, 0), divisor);
        F32 second = divide(get(pair, 1), divisor);
        I32 rounded = quantizer.round({first, second});
        storeHalf(rounded,
                  emitter.advance(to, int64_t(i) * kOctet * stride +
                                          (block * octets + octet) * kOctet));
      }
  storeStaged(getWarpRow(), sm90::kStagedRows,
              [&](I32 chunk) { return getColumnOfChunk(chunk); });
}

I32 Sm90Quantize::pairColumns(I32 rounded, Flag isOdd) {
  constexpr int64_t lowBytes = 0x00FF00FF, highBytes = int32_t(0xFF00FF00);
  I32 others = emitter.shuffleXor(rounded, kPerOctet);
  I32 low = select(isOdd, others >> 8, rounded);
  I32 high = select(isOdd, rounded, others << 8);
  return (low & lowBytes) | (high & highBytes);
}

void Sm90Quantize::quantizeOctet(int64_t octet, int64_t staged, Flag isOdd,
                                 Value to) {
  int64_t blocks = shape.tile().getBlocks(part.blockM);
  Quantizer::Divisor divisors[2];
  if (!given) {
    Value from = emitter.advance(getDivisorAddress(getQuadLane() * 2),
                                 octet * kOctet * sm90::kDivisorBytes);
    Value pair = emitter.loadSingles(from, 4);
    for (int64_t row = 0; row < 2; ++row)
      divisors[row] = getDivisor(pair, row);
  }
  SmallVector<F32> quotients;
  SmallVector<int64_t> columns;
  for (int64_t block = 0; block < blocks; ++block)
    for (int64_t i = 0; i < perOctet; ++i) {
      columns.push_back(block * shape.tile().getBlockColumns(part.blockM) +
                        i * kOctet);
      for (int64_t row = 0; row < 2; ++row)
        quotients.push_back(
            divide(get(getResults(block, octet, i), row), divisors[row]));
    }
  I32 rounded = pairColumns(quantizer.round(quotients), isOdd);
  int64_t offset = staged * kOctet * staging.stride;
  for (auto [i, first] : llvm::enumerate(columns))
    storeHalf(rounded >> 16 * int64_t(i), emitter.advance(to, offset + first));
}

void Sm90Quantize::quantizeColumns() {
  // Neighbouring lanes have the same two rows of two columns each: each takes
  // one row.
  I32 column = accumulators.getLane() / kPerOctet;
  I32 odd = column % 2;
  Flag isOdd = odd == 1;
  I32 row = getQuadLane() * 2 + odd;
  I32 own = row * staging.stride + (getWarpOffset() + (column - odd));
  Value to = emitter.advance(getBuffer(), own);
  constexpr int64_t atOnce = sm90::kStagedRows / kOctet;
  for (int64_t first = 0; first < octets; first += atOnce) {
    int64_t count = std::min(atOnce, octets - first);
    auto emitSome = [&] {
      takeBuffer(/*isFirst=*/first == 0);
      for (int64_t i = 0; i < count; ++i)
        quantizeOctet(first + i, i, isOdd, to);
      storeStaged(emitter.i32(first * kOctet), count * kOctet,
                  [&](I32 chunk) { return getColumnOfChunk(chunk); });
    };
    if (first == 0)
      emitSome();
    else
      emitter.ifThen(emitter.i32(first * kOctet) < tile.rows, emitSome);
  }
}

Value Sm90Quantize::round(Value values) {
  SmallVector<Value> words;
  for (I32 word : toPairs(values)) {
    F32 first = quantizer.divideBy(get(word, 0), *given);
    F32 second = quantizer.divideBy(get(word, 1), *given);
    words.push_back(quantizer.roundToBF16({first, second}));
  }
  auto type = VectorType::get(2 * int64_t(words.size()), b.getBF16Type());
  return vector::BitCastOp::create(b, type,
                                   emitter.makeVector(ArrayRef(words)));
}

LogicalResult Sm90Quantize::emitByGivenScale(Flag hasRows) {
  F32 scale = emitter.loadF32(emitter.operand(op.getResultTensorScale()),
                              {emitter.index(0)});
  given = quantizer.takeApart(scale);
  if (!shape.problem().quantizes)
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
  Flag hasRows;
  if (isOnM)
    hasRows = getWarpRow() < tile.rows;
  if (op.getResultTensorScale())
    return emitByGivenScale(hasRows);
  SmallVector<Quantizer::Divisor, 2> divisors;
  if (shape.tile().splitsRows(part.blockM)) {
    takeBuffer(/*isFirst=*/true);
    ifAny(hasRows, [&] {
      roundResults();
      I32 largest = findLargestOfRows();
      for (int64_t i = 0; i < perOctet; ++i)
        divisors.push_back(quantizer.getDivisor(get(largest, i)));
      quantizeRows(divisors);
      // The first two lanes of a quad have a row each.
      I32 lane = getQuadLane();
      F32 scale = select(lane == 0, divisors[0].scale, divisors[1].scale);
      I32 row = getOwnRow() + lane * kOctet;
      storeScale(row, scale, lane < 2);
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
    for (int64_t i = 0; i < perOctet; ++i) {
      Value from = emitter.advance(getDivisorAddress(getOwnRow()),
                                   i * kOctet * sm90::kDivisorBytes);
      divisors.push_back(getDivisor(emitter.loadSingles(from, 2), /*i=*/0));
    }
    quantizeRows(divisors);
  });
  return status;
}

LogicalResult moec::emitSm90Quantized(Sm90Gemm &gemm, const Sm90Part &part,
                                      const Sm90EpilogueOperands &operands,
                                      const Sm90Sums &sums) {
  return Sm90Quantize(gemm, part, operands, sums).emitQuantized();
}
