//===- AdapterFragments.cpp - LoRA updates of fragments ---------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// Fragments of wgmma are those of mma m16n8k16, which multiplies the shrunk
// rows of a warp by one adapter's matrix at a time; sums of rows with other
// adapters are dropped. A shrunk f32 is the sum of two 16-bit numbers.

#include "AdapterFragments.h"

#include "KernelBuilder/AdapterUpdates.h"
#include "Schedules/Sm90Gemm/Cost.h"

using namespace mlir;
using namespace moec;

namespace {

class Updates {
public:
  Updates(Sm90Gemm &gemm, const Sm90Part &part, int64_t number, int64_t block,
          int64_t first, int64_t octets);

  SmallVector<SmallVector<F32>> compute();

private:
  /// Two neighbours of K in each half of 16, as pairs of 16-bit elements.
  using Halves = SmallVector<Value, 2>;
  struct State {
    /// The adapter of each row that is left, else -1.
    SmallVector<I32> adapters;
    /// Four for each octet.
    SmallVector<Value> sums;
    auto fields() { return std::tie(adapters, sums); }
  };

  I32 findNext(State &state);
  /// Numbers of a row, rounded, and the rests.
  std::pair<Halves, Halves> loadRow(Index row, Index k);
  Halves loadColumn(Index column, Index adapter, Index k);
  SmallVector<Value> multiply(SmallVector<Value> sums, I32 current, Index k);
  /// Adapters of the rows of the lane's sums.
  SmallVector<I32> spread(ArrayRef<I32> adapters);

  Sm90Gemm &gemm;
  AsyncEmitter &emitter;
  ImplicitLocOpBuilder &b;
  tile::GemmOp op;
  Value matrix, shrunk;
  int64_t number, octets, rank;
  /// Elements of a fragment.
  int64_t size;
  bool isOnM;
  Index group, lanePair;
  /// Of this lane: two rows and a column per octet with rows on M, else a row
  /// per octet and one or two columns.
  SmallVector<Index> rows, columns;
};

Updates::Updates(Sm90Gemm &gemm, const Sm90Part &part, int64_t number,
                 int64_t block, int64_t first, int64_t octets)
    : gemm(gemm), emitter(gemm.emitter), b(gemm.b), op(gemm.op),
      matrix(emitter.operand(op.getMatrices()[number])),
      shrunk(emitter.operand(op.getShrunk())), number(number), octets(octets),
      rank(cast<MemRefType>(matrix.getType()).getDimSize(3)) {
  constexpr int64_t octet = 8, lanesOfRow = 4;
  Sm90AccumulatorLayout accumulators(gemm, part);
  size = accumulators.getSize();
  isOnM = !gemm.shape.tile().swapsAB(part.blockM);
  group = emitter.toIndex(part.tile.group);
  I32 lane = accumulators.getLane();
  lanePair = emitter.toIndex(lane % lanesOfRow * 2);
  for (int64_t i = first; i < first + octets; ++i) {
    I32 along = lane / lanesOfRow + i * octet;
    if (isOnM)
      columns.push_back(accumulators.getSafeColumnAlong(block, along));
    else
      rows.push_back(accumulators.getSafePositionOf(along));
  }
  for (int64_t element = 0; element < size; element += 2)
    if (isOnM)
      rows.push_back(accumulators.getSafePosition(first, element));
    else
      columns.push_back(accumulators.getSafeColumn(block, first, element));
}

I32 Updates::findNext(State &state) {
  I32 most = state.adapters.front();
  for (I32 adapter : ArrayRef(state.adapters).drop_front())
    most = max(most, adapter);
  return emitter.warpMax(most);
}

std::pair<Updates::Halves, Updates::Halves> Updates::loadRow(Index row,
                                                             Index k) {
  constexpr int64_t half = 8;
  Type element = getElementType(matrix);
  std::pair<Halves, Halves> made;
  for (int64_t first : {int64_t(0), half}) {
    if (first >= rank) {
      made.first.push_back(emitter.i32(0));
      made.second.push_back(emitter.i32(0));
      continue;
    }
    F32 values = emitter.loadVector(
        shrunk, {row, k + lanePair + (number * rank + first)}, 2);
    Value rounded = castFloat(b, values, element);
    F32 rest = values - F32(b, castFloat(b, rounded, b.getF32Type()));
    made.first.push_back(emitter.pairs(rounded).front());
    made.second.push_back(emitter.pairs(castFloat(b, rest, element)).front());
  }
  return made;
}

Updates::Halves Updates::loadColumn(Index column, Index adapter, Index k) {
  constexpr int64_t half = 8;
  Halves made;
  for (int64_t first : {int64_t(0), half})
    made.push_back(
        first < rank
            ? emitter
                  .pairs(emitter.loadElements(
                      matrix, {adapter, group, column, k + lanePair + first},
                      2))
                  .front()
            : emitter.i32(0));
  return made;
}

/// Adds the products of 16 of the rank from k on.
SmallVector<Value> Updates::multiply(SmallVector<Value> sums, I32 current,
                                     Index k) {
  Type element = getElementType(matrix);
  Index adapter = emitter.toIndex(current);
  Value zero = emitter.i32(0);
  SmallVector<std::pair<Halves, Halves>> x;
  for (Index row : rows)
    x.push_back(loadRow(row, k));
  SmallVector<Halves> weights;
  for (Index column : columns)
    weights.push_back(loadColumn(column, adapter, k));
  for (bool isRest : {false, true})
    for (int64_t octet = 0; octet < octets; ++octet) {
      auto getRow = [&](size_t row) {
        return isRest ? x[row].second : x[row].first;
      };
      auto getWide = [&](const Halves &first, const Halves &second) {
        return SmallVector<Value>{first[0], second[0], first[1], second[1]};
      };
      SmallVector<Value> a;
      Halves w;
      if (isOnM) {
        a = getWide(getRow(0), getRow(1));
        w = weights[octet];
      } else {
        Halves none(2, zero);
        a = getWide(weights[0], weights.size() > 1 ? weights[1] : none);
        w = getRow(size_t(octet));
      }
      SmallVector<Value> own(ArrayRef(sums).slice(4 * octet, 4));
      SmallVector<Value> made = emitter.multiply(element, a, w, own);
      llvm::copy(made, sums.begin() + 4 * octet);
    }
  return sums;
}

SmallVector<I32> Updates::spread(ArrayRef<I32> adapters) {
  if (isOnM)
    return SmallVector<I32>(adapters);
  // A lane has loaded one row of each octet, and has sums of two neighbours.
  constexpr int64_t lanesOfRow = 4;
  SmallVector<I32> made;
  for (I32 adapter : adapters)
    for (int64_t neighbour : {0, 1})
      made.push_back(emitter.getFromLane(
          adapter, (lanePair.toI32() + neighbour) * lanesOfRow));
  return made;
}

SmallVector<SmallVector<F32>> Updates::compute() {
  constexpr int64_t step = 16, mostUnrolled = 4;
  State state;
  for (Index row : rows)
    state.adapters.push_back(emitter.loadI32(emitter.operand(op.getAdapters()),
                                             {row, emitter.index(0)}));
  SmallVector<I32> ofSums = spread(state.adapters);
  state.sums.assign(4 * octets, emitter.f32(0.0));
  state = emitter.whileLoop(
      state, [&](State &state) { return findNext(state) >= 0; },
      [&](State state) {
        I32 current = findNext(state);
        SmallVector<Value> sums(4 * octets, emitter.f32(0.0));
        if (rank <= mostUnrolled * step)
          for (int64_t k = 0; k < rank; k += step)
            sums = multiply(sums, current, emitter.index(k));
        else
          sums = emitter.loop(emitter.index(0), emitter.index(rank), step, sums,
                              [&](Index k, SmallVector<Value> sums) {
                                return multiply(sums, current, k);
                              });
        for (auto [i, sum] : llvm::enumerate(state.sums)) {
          size_t row = isOnM ? i % 4 / 2 : i / 4 * 2 + i % 2;
          sum = select(ofSums[row] == current, sums[i], sum);
        }
        for (I32 &adapter : state.adapters)
          adapter = select(adapter == current, adapter.like(-1), adapter);
        return state;
      });
  SmallVector<SmallVector<F32>> updates;
  for (int64_t octet = 0; octet < octets; ++octet) {
    auto &own = updates.emplace_back();
    for (int64_t element = 0; element < size; ++element)
      own.push_back({b, state.sums[4 * octet + element]});
  }
  return updates;
}

} // namespace

SmallVector<SmallVector<F32>>
moec::computeSm90Updates(Sm90Gemm &gemm, const Sm90Part &part, int64_t number,
                         int64_t block, int64_t first, int64_t octets) {
  if (sm90::hasAdapterFragments(gemm.op))
    return Updates(gemm, part, number, block, first, octets).compute();
  Sm90AccumulatorLayout accumulators(gemm, part);
  SmallVector<SmallVector<F32>> updates;
  for (int64_t octet = first; octet < first + octets; ++octet) {
    auto &own = updates.emplace_back();
    for (int64_t element = 0; element < accumulators.getSize(); ++element)
      own.push_back(loadAdapterUpdate(
          gemm.emitter, gemm.op, number, gemm.emitter.toIndex(part.tile.group),
          accumulators.getSafePosition(octet, element),
          accumulators.getSafeColumn(block, octet, element)));
  }
  return updates;
}
