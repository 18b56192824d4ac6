//===- Round.cpp - one round of an exchange ---------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Round.h"

#include "KernelBuilder/InlinePtx.h"

using namespace mlir;
using namespace moec;
using plan::CollectiveKind;

ExchangeRound::ExchangeRound(tile::ExchangeOp op, ThreadEmitter &emitter,
                             bool convertsFloat8)
    : parts(op, emitter), thread(emitter), heap(op, emitter, thread), op(op),
      emitter(emitter), b(emitter.b) {
  parts.setThread(thread);
  heap.storeTable();
  parts.make();
  if (op.getDestinations())
    destinationRanks.emplace(op, emitter, thread.lane, parts.numRows());
  if (op.getRows())
    rowSums.emplace(op, emitter, parts, thread.lane);
  if (op.getQuantized())
    rowQuantizer.emplace(op, emitter, parts, thread.lane, convertsFloat8);
}

ExchangeRound ExchangeRound::withNewParts() const {
  ExchangeRound here = *this;
  here.parts.renew();
  return here;
}

ExchangeRound ExchangeRound::renewed() const {
  ExchangeRound here = withNewParts();
  here.heap.renewAddress();
  return here;
}

//===----------------------------------------------------------------------===//
// Loads
//===----------------------------------------------------------------------===//

ExchangeRound::Load ExchangeRound::makeLoad(const ThreadChunks &chunks,
                                            Value from, decltype(Load::use) use,
                                            Value ids, I64 firstRow) {
  Load load{&chunks, from, std::move(use)};
  if (chunks.part->routedRowChunks > 0) {
    load.ids = ids;
    load.firstRow = firstRow;
  }
  return load;
}

DestinationRanks::Query ExchangeRound::makeQuery(const ThreadChunks &chunks,
                                                 Value ids, I64 firstRow) {
  ArrayRef<I64> indices = chunks.indices;
  return {chunks.part->routedRowChunks,
          chunks.row ? indices.take_front() : indices, ids, firstRow};
}

ExchangeRound::Masks ExchangeRound::spread(const ThreadChunks &chunks,
                                           Masks found) {
  found.resize(chunks.indices.size(), found.front());
  return found;
}

/// Absent chunks load the header's constants: the data at their own offset may
/// be in transit to another thread.
ExchangeRound::Chunks ExchangeRound::issue(const Load &load) {
  const ExchangePart &part = *load.chunks->part;
  Chunks loaded;
  for (auto [offset, isThere] :
       llvm::zip(load.chunks->offsets, load.chunks->isThere)) {
    Value from = emitter.advance(load.from, offset * load.perChunk);
    for (int64_t i = 0; i < load.perChunk; ++i) {
      Value address = select(
          isThere, i > 0 ? emitter.advance(from, i * part.chunkBytes) : from,
          heap.address());
      loaded.push_back(emitter.load(part.chunk, address, part.chunkBytes));
    }
  }
  return loaded;
}

void ExchangeRound::run(ArrayRef<Load> loads) {
  constexpr int64_t mostWords = 64;
  while (!loads.empty()) {
    size_t count = 0;
    int64_t words = 0;
    while (count < loads.size()) {
      const ExchangePart &part = *loads[count].chunks->part;
      words += part.atOnce * loads[count].perChunk * countWords(part);
      if (count > 0 && words > mostWords)
        break;
      ++count;
    }
    SmallVector<Chunks> loaded;
    for (const Load &load : loads.take_front(count))
      loaded.push_back(issue(load));
    tieChunks(emitter, loaded);
    if (awaitsHeader)
      heap.awaitHeader();
    awaitsHeader = false;
    // Issued after the loads, so that both latencies overlap.
    SmallVector<DestinationRanks::Query> queries;
    for (const Load &load : loads.take_front(count))
      if (load.ids)
        queries.push_back(makeQuery(*load.chunks, load.ids, load.firstRow));
    SmallVector<Masks> found;
    if (!queries.empty())
      found = destinationRanks->find(queries, heap.address(), parts.numRows());
    const Masks *masks = found.begin();
    for (auto [load, chunks] : llvm::zip(loads.take_front(count), loaded))
      load.use(chunks, load.ids ? spread(*load.chunks, *masks++) : Masks());
    loads = loads.drop_front(count);
  }
}

//===----------------------------------------------------------------------===//
// Stores
//===----------------------------------------------------------------------===//

ExchangeRound::Target ExchangeRound::getTarget(const ExchangePart &part,
                                               I64 distance) {
  Value there = heap.addressAt(distance);
  if (!op.getToResults())
    return {getReceived(part, there, heap.ownRank()), heap.rankAt(distance)};
  // The offset in the heap is the same as on this rank.
  auto number = [&](Value address) {
    return I64(b, LLVM::PtrToIntOp::create(b, b.getI64Type(), address));
  };
  I64 out = number(part.out), base = number(heap.address());
  Value address =
      emitter.advance(there, out - base + heap.ownRank() * part.bytes);
  return {address, heap.rankAt(distance)};
}

ExchangeRound::Target
ExchangeRound::getTargetOfSummands(const ExchangePart &part, I64 distance) {
  Target target = getTarget(part, distance);
  target.rank = heap.ownRank();
  return target;
}

void ExchangeRound::store(const ThreadChunks &chunks, ValueRange values,
                          ArrayRef<Target> targets,
                          ArrayRef<I32> destinations) {
  for (size_t i = 0; i < values.size(); ++i) {
    Value value = values[i];
    I64 offset = chunks.offsets[i];
    Flag isStored = chunks.isThere[i];
    if (isPush)
      isStored = isStored & heap.isAlive();
    auto storeTo = [&](const Target &target) {
      emitter.store(value, emitter.advance(target.address, offset),
                    chunks.part->chunkBytes);
    };
    auto isForAll = [&](const Target &target) {
      return destinations.empty() || !target.rank;
    };
    if (llvm::any_of(targets, isForAll))
      emitter.ifThen(isStored, [&] {
        for (const Target &target : llvm::make_filter_range(targets, isForAll))
          storeTo(target);
      });
    for (const Target &target : targets)
      if (!isForAll(target)) {
        Flag isNeeded = destinationRanks->has(destinations[i], target.rank);
        emitter.ifThen(isStored & isNeeded, [&] { storeTo(target); });
      }
  }
}

//===----------------------------------------------------------------------===//
// Pushes
//===----------------------------------------------------------------------===//

void ExchangeRound::push(I64 base) {
  isPush = true;
  // Addresses of a reduce-scatter's loads depend on the header.
  awaitsHeader = op.getKind() != CollectiveKind::ReduceScatter;
  if (!awaitsHeader)
    heap.awaitHeader();
  if (rowSums)
    return awaitsHeader ? pushSumsToAll(base) : pushSumsByRank(base);
  auto all = parts.getChunks(base);
  if (!awaitsHeader)
    return pushSummands(all);
  Value ids = destinationRanks ? destinationRanks->ownIds() : Value();
  SmallVector<Load> loads;
  for (auto [pair, chunks] : llvm::enumerate(all)) {
    if (hasScales(op, pair))
      continue;
    auto pushLoaded = [this, base, pair = pair, &chunks = chunks](
                          const Chunks &loaded, const Masks &destinations) {
      if (!isQuantized(op, pair))
        return pushToAll(base, Moved{pair, loaded}, destinations);
      RowQuantizer::Quantized made = rowQuantizer->quantize(chunks, loaded);
      auto scalePair = size_t(op.getQuantized()->back());
      pushToAll(base, {{pair, made.values}, {scalePair, made.scales}},
                destinations);
    };
    loads.push_back(
        makeLoad(chunks, chunks.part->in, pushLoaded, ids, emitter.i64(0)));
    if (isQuantized(op, pair))
      loads.back().perChunk = rowQuantizer->countLoads();
  }
  run(loads);
}

void ExchangeRound::pushToAll(I64 base, ArrayRef<Moved> moved,
                              ArrayRef<I32> destinations) {
  // Addresses are computed at their uses.
  heap.forRanks(1, [&](ArrayRef<I64> distances) {
    ExchangeRound here = withNewParts();
    auto all = here.parts.getChunks(tieNumber(base));
    for (const Moved &each : moved) {
      const ThreadChunks &chunks = all[each.pair];
      auto targets = llvm::map_to_vector(distances, [&](I64 distance) {
        return here.getTarget(*chunks.part, distance);
      });
      here.store(chunks, each.values, targets, destinations);
    }
  });
  if (op.getKind() != CollectiveKind::AllGather)
    return;
  ExchangeRound here = withNewParts();
  auto all = here.parts.getChunks(base);
  for (const Moved &each : moved) {
    const ExchangePart &part = *all[each.pair].part;
    Value to = emitter.advance(part.out, heap.ownRank() * part.bytes);
    here.store(all[each.pair], each.values, Target{to});
  }
}

void ExchangeRound::pushSummands(ArrayRef<ThreadChunks> all) {
  Value ids = destinationRanks ? destinationRanks->allIds() : Value();
  heap.forRanks(1, [&](ArrayRef<I64> distances) {
    SmallVector<Load> loads;
    for (const ThreadChunks &chunks : all)
      for (I64 distance : distances) {
        const ExchangePart &part = *chunks.part;
        I64 rank = heap.rankAt(distance);
        Value from = emitter.advance(part.in, rank * part.bytes);
        auto pushLoaded = [this, &chunks, distance](const Chunks &loaded,
                                                    const Masks &destinations) {
          store(chunks, loaded, getTargetOfSummands(*chunks.part, distance),
                destinations);
        };
        loads.push_back(
            makeLoad(chunks, from, pushLoaded, ids, rank * parts.numRows()));
      }
    run(loads);
  });
}

void ExchangeRound::pushSumsToAll(I64 base) {
  auto all = parts.getChunks(base);
  const ThreadChunks &chunks = all.front();
  I64 firstRow = emitter.i64(0);
  I32 position = rowSums->loadPosition(chunks, firstRow, heap.address());
  Chunks sums = rowSums->make(chunks, firstRow, position, heap.address());
  heap.awaitHeader();
  heap.forRanks(0, [&](ArrayRef<I64> distances) {
    // Computed again for the stores, so as not to occupy registers during the
    // sums.
    ExchangeRound here = withNewParts();
    auto again = here.parts.getChunks(tieNumber(base));
    auto targets = llvm::map_to_vector(distances, [&](I64 distance) {
      return here.getTargetOfSummands(*again.front().part, distance);
    });
    here.store(again.front(), sums, targets);
  });
}

/// A rank's own rows come last, after those that other ranks wait for, and pass
/// through its own heap.
void ExchangeRound::pushSumsByRank(I64 base) {
  auto all = parts.getChunks(base);
  const ThreadChunks &chunks = all.front();
  auto ranks = int64_t(op.getHeaps().size());
  // A distance of `ranks` is this rank itself.
  auto getFirstRow = [&](I64 distance) {
    return heap.rankAt(distance) * parts.numRows();
  };
  auto loadPosition = [&](I64 distance) {
    return rowSums->loadPosition(chunks, getFirstRow(distance), heap.address());
  };
  emitter.loop(
      emitter.index(1), emitter.index(ranks + 1), 1,
      loadPosition(emitter.i64(1)), [&](Index index, I32 position) {
        // Prefetch the next rank's positions while this one's rows are added.
        I64 distance = emitter.toI64(index);
        I32 nextPosition = loadPosition(min(distance + 1, ranks));
        Chunks sums = rowSums->make(chunks, getFirstRow(distance), position,
                                    heap.address());
        distance = tieNumber(distance);
        Flag isOther = distance < ranks;
        ExchangeRound here = withNewParts();
        auto again = here.parts.getChunks(tieNumber(base));
        const ThreadChunks &there = again.front();
        Masks destinations;
        if (there.part->routedRowChunks > 0) {
          // This rank's own rows need no lookup of destination ranks.
          here.destinationRanks->findOnlyIf(isOther);
          auto query = makeQuery(there, destinationRanks->allIds(),
                                 getFirstRow(distance));
          destinations = spread(
              there, here.destinationRanks
                         ->find(query, heap.address(), here.parts.numRows())
                         .front());
        }
        I64 to = select(isOther, distance, 0);
        here.store(there, sums, here.getTargetOfSummands(*there.part, to),
                   destinations);
        return nextPosition;
      });
}

//===----------------------------------------------------------------------===//
// Received data
//===----------------------------------------------------------------------===//

Value ExchangeRound::getReceived(const ExchangePart &part, Value heapAddress,
                                 I64 rank) {
  I64 ofPart = heap.bufferOffset() + part.begin;
  return emitter.advance(heapAddress, ofPart + rank * part.rankStride);
}

void ExchangeRound::take(I64 base) {
  heap.forRanks(1, [&](ArrayRef<I64> distances) {
    ExchangeRound here = renewed();
    auto all = here.parts.getChunks(tieNumber(base));
    SmallVector<Load> loads;
    for (I64 distance : distances) {
      I64 rank = heap.rankAt(distance);
      for (const ThreadChunks &chunks : all) {
        const ExchangePart &part = *chunks.part;
        auto takeLoaded = [&here, &part, &chunks, rank](const Chunks &loaded,
                                                        const Masks &) {
          Value to = here.emitter.advance(part.out, rank * part.bytes);
          here.store(chunks, loaded, Target{to});
        };
        Value from = here.getReceived(part, here.heap.address(), rank);
        loads.push_back({&chunks, from, takeLoaded});
      }
    }
    here.run(loads);
  });
}

Value ExchangeRound::getSummands(const ExchangePart &part, I64 rank) {
  Value received = getReceived(part, heap.address(), rank);
  // Sums that the kernel makes pass through the heap on this rank too.
  if (rowSums)
    return received;
  Value own = part.in;
  if (op.getKind() == CollectiveKind::ReduceScatter)
    own = emitter.advance(own, heap.ownRank() * part.bytes);
  return select(rank == heap.ownRank(), own, received);
}

Value ExchangeRound::keepSummand(Value chunk, I32 destinations, I64 rank) {
  Flag isDestination = destinationRanks->has(destinations, rank);
  Flag isThere = isDestination | (rank == heap.ownRank());
  Value zeros = emitter.constant(chunk.getType(),
                                 b.getZeroAttr(getElementTypeOrSelf(chunk)));
  return select(isThere, chunk, zeros);
}

void ExchangeRound::sum(I64 base) {
  auto all = parts.getChunks(base);
  using Sums = SmallVector<F32>;
  SmallVector<Masks> allDestinations(all.size());
  auto addRanks = [&](ArrayRef<I64> ranks, SmallVector<Sums> totals) {
    bool isFirst = totals.front().empty();
    SmallVector<Load> loads;
    for (auto [chunks, total, masks] :
         llvm::zip(all, totals, allDestinations)) {
      const ExchangePart &part = *chunks.part;
      for (auto [i, rank] : llvm::enumerate(ranks)) {
        auto addLoaded = [this, &part, &total = total, &masks = masks,
                          rank = rank](Chunks loaded, const Masks &found) {
          if (!found.empty())
            masks = found;
          for (auto [i, mask] : llvm::enumerate(masks))
            loaded[i] = keepSummand(loaded[i], mask, rank);
          for (auto [i, chunk] : llvm::enumerate(loaded)) {
            F32 term = part.toF32(b, chunk);
            if (total.size() == i)
              total.push_back(term);
            else
              total[i] = total[i] + term;
          }
        };
        // Issued with the first rank's chunks.
        Value ids = isFirst && i == 0 && destinationRanks
                        ? destinationRanks->ownIds()
                        : Value();
        loads.push_back(makeLoad(chunks, getSummands(part, rank), addLoaded,
                                 ids, emitter.i64(0)));
      }
    }
    run(loads);
    return totals;
  };
  SmallVector<Sums> totals =
      heap.forRanks(0, SmallVector<Sums>(all.size()), addRanks);
  for (auto [chunks, total] : llvm::zip(all, totals)) {
    const ExchangePart &part = *chunks.part;
    Chunks rounded;
    for (F32 sum : total)
      rounded.push_back(part.fromF32(b, sum));
    Value out = part.out;
    if (part.tensorRowBytes != part.rowBytes)
      out = emitter.advance(out, chunks.tensorGap());
    store(chunks, rounded, Target{out});
  }
}
