//===- Sm80Exchange.cpp - the schedule sm80.exchange ------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// All-gather and sums over peer heaps. Pieces (16-byte chunks) are dealt out to
// the threads of all CTAs, alike on all ranks, so that a thread takes what the
// same thread of another rank pushed. In one iteration of the loop a CTA pushes
// a round of pieces, then takes the round before. After a barrier the second
// warp waits until the pushes are visible and sets the CTA's flags; the other
// warps continue. Each warp polls flags by itself. If one gives up, all leave
// the loop in the next iteration, after its barrier.
//
// The pushed data is in memory already, or the threads compute it: sums in
// Sm80ExchangeSums.cpp, quantized values in Sm80ExchangeCodes.cpp. Rows that a
// rank does not need are not pushed to it. A gather takes the stale bytes
// there; a sum loads them and adds +0.0 instead.

#include "Sm80Exchange.h"

#include "../../InlinePtx.h"

#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "moec/Analysis/Exchange.h"
#include "moec/Analysis/Sm80.h"
#include "moert/PeerHeap.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace moec;
using Part = Sm80ExchangePart;
using moert::PeerHeap;

Value Sm80Exchange::getPlace(Value distance) {
  Value sum = add(own, distance), all = number(ranks);
  return arith::SelectOp::create(b, isLess(sum, all), sum,
                                 arith::SubIOp::create(b, sum, all));
}

SmallVector<Value> Sm80Exchange::forRanks(
    int64_t first,
    llvm::function_ref<SmallVector<Value>(ArrayRef<Value>, ValueRange)> body) {
  // The ranks that fit in registers beside the loop's own values. Quantized
  // values and scales have separate addresses.
  constexpr int64_t mostInLoop = 2;
  int64_t mostUnrolled = op.getCoded() ? 2 : 4;
  int64_t atOnce = ranks <= mostUnrolled ? mostUnrolled : mostInLoop;
  int64_t count = ranks - first;
  // The peeled first call takes the remainder.
  int64_t ahead = count % atOnce == 0 ? atOnce : count % atOnce;
  SmallVector<Value> numbers;
  for (int64_t i = 0; i < ahead; ++i)
    numbers.push_back(number(first + i));
  SmallVector<Value> carried = body(numbers, {});
  if (ahead == count)
    return carried;
  return emitter.forLoop(emitter.index(first + ahead), emitter.index(ranks),
                         atOnce, carried, [&](Value begin, ValueRange carried) {
                           SmallVector<Value> numbers;
                           for (int64_t i = 0; i < atOnce; ++i)
                             numbers.push_back(add(toNumber(begin), number(i)));
                           return body(numbers, carried);
                         });
}

void Sm80Exchange::forRanks(int64_t first,
                            llvm::function_ref<void(ArrayRef<Value>)> body) {
  forRanks(first, [&](ArrayRef<Value> numbers, ValueRange) {
    body(numbers);
    return SmallVector<Value>();
  });
}

//===----------------------------------------------------------------------===//
// Heaps
//===----------------------------------------------------------------------===//

/// Threads read the table after a barrier.
void Sm80Exchange::makeHeapTable() {
  heapTable = emitter.scratch({ranks}, b.getI64Type());
  emitter.ifThen(isEqual(thread, number(0)), [&] {
    for (auto [i, memref] : llvm::enumerate(op.getHeaps())) {
      Value address =
          emitter.address(emitter.operand(memref), {emitter.index(0)});
      memref::StoreOp::create(
          b, LLVM::PtrToIntOp::create(b, b.getI64Type(), address), heapTable,
          ValueRange{emitter.index(int64_t(i))});
    }
  });
}

Value Sm80Exchange::heapAt(Value distance) {
  Value index = arith::IndexCastOp::create(b, b.getIndexType(), distance);
  Value address = memref::LoadOp::create(b, heapTable, ValueRange{index});
  return LLVM::IntToPtrOp::create(b, heap.getType(), address);
}

void Sm80Exchange::readHeader() {
  heap = emitter.address(emitter.operand(op.getHeaps()[0]), {emitter.index(0)});
  told = toNumber(emitter.tokens());
  useTold();
  if (op.getFirstColumn()) {
    int64_t bytes =
        getElementTypeOrSelf(op.getIns().front()).getIntOrFloatBitWidth() /
        CHAR_BIT;
    skippedBytes = mul(emitter.operand(op.getFirstColumn()), bytes);
  }
  cta = toNumber(emitter.cta());
  thread = widen(emitter.thread());
  lane = widen(emitter.lane());
  own = loadWord(wordAt(heap, PeerHeap::kIndex));
  placeBytes = loadWord(wordAt(heap, PeerHeap::kPlaceBytes));
  epoch = loadWord(wordAt(heap, PeerHeap::kEpochs, cta));
  aborted = loadStrong(wordAt(heap, PeerHeap::kAbort),
                       LLVM::AtomicOrdering::monotonic);
  lanes = mul(widen(NVVM::GridDimXOp::create(b, b.getI32Type())), threads);
  first = add(mul(cta, threads), thread);
}

/// Decodes the row count, and for a gather which pairs have been copied
/// already.
void Sm80Exchange::useTold() {
  numRows = sums ? told
                 : arith::AndIOp::create(
                       b, told, number((int64_t(1) << PeerHeap::kRowBits) - 1));
}

void Sm80Exchange::useHeader() {
  SmallVector<Value *> words{&own, &placeBytes, &epoch, &aborted};
  SmallVector<Value> tied = tieNumbers(
      b, llvm::map_to_vector(words, [](Value *word) { return *word; }));
  for (auto [word, value] : llvm::zip(words, tied))
    *word = value;
  Value isOdd = arith::AndIOp::create(b, epoch, number(1));
  begin = add(number(PeerHeap::kPlaces), mul(isOdd, placeBytes));
  done = arith::ShLIOp::create(b, epoch, number(PeerHeap::kRoundBits));
  mayPush = isEqual(aborted, number(0));
}

//===----------------------------------------------------------------------===//
// Pieces
//===----------------------------------------------------------------------===//

Part Sm80Exchange::makePart(size_t index, Value begin) {
  Part part;
  Value in = op.getIns()[index], out = op.getOuts()[index];
  ExchangedPart shape =
      getExchangedPart(op.getKind(), ranks, op.getMovedType(index));
  if (areScales(index)) {
    // Each is stored by the thread that has made it.
    shape.pieces *= shape.pieceBytes / kWordBytes;
    shape.pieceBytes = kWordBytes;
  }
  auto address = [&](Value memref) {
    auto rank = cast<MemRefType>(memref.getType()).getRank();
    Value begin = emitter.address(emitter.operand(memref),
                                  SmallVector<Value>(rank, emitter.index(0)));
    return skippedBytes ? emitter.advance(begin, skippedBytes) : begin;
  };
  part.in = address(areCodes(index) ? op.getUncoded() : in);
  part.out = address(out);
  part.pieceBytes = shape.pieceBytes;
  Type element = getElementTypeOrSelf(in.getType());
  part.terms = VectorType::get(
      shape.pieceBytes * CHAR_BIT / element.getIntOrFloatBitWidth(), element);
  if (shape.pieceBytes <= kWordBytes)
    part.piece = b.getIntegerType(CHAR_BIT * shape.pieceBytes);
  else
    part.piece = VectorType::get(shape.pieceBytes / kWordBytes, b.getI32Type());
  part.count = number(shape.pieces);
  if (shape.perToken)
    part.count = mul(numRows, part.count);
  part.bytes = mul(part.count, shape.pieceBytes);
  if (!sums && index < size_t(PeerHeap::kMaxCopied)) {
    Value bit = number(int64_t(1) << (PeerHeap::kRowBits + int64_t(index)));
    part.count = arith::SelectOp::create(
        b, isEqual(arith::AndIOp::create(b, told, bit), number(0)), part.count,
        number(0));
  }
  part.begin = begin;
  part.atOnce = shape.pieces;
  if (op.getRows()) {
    part.rowPieces = shape.pieces;
    part.rowBytes = shape.pieces * shape.pieceBytes;
    auto type = cast<MemRefType>(in.getType());
    part.tensorRowBytes =
        type.getDimSize(1) * type.getElementTypeBitWidth() / CHAR_BIT;
  }
  if (isMovedForOwners(op, int64_t(index)))
    part.ownedPieces = shape.pieces;
  Value mask = number(-PeerHeap::kAlignment);
  part.pitch = arith::AndIOp::create(
      b, add(part.bytes, number(PeerHeap::kAlignment - 1)), mask);
  return part;
}

void Sm80Exchange::makeParts() {
  parts.clear();
  Value begin = number(0);
  int64_t most = 1;
  for (size_t i = 0; i < op.getIns().size(); ++i) {
    parts.push_back(makePart(i, begin));
    begin = add(begin, mul(parts.back().pitch, ranks));
    most = std::max(most, parts.back().atOnce);
  }
  for (Part &part : parts)
    part.atOnce = std::max<int64_t>(
        1, llvm::divideCeil(part.atOnce * config.getPieces(), most));
  // Its pieces of a round are of one row.
  for (Part &part : parts)
    if (part.rowPieces > 0) {
      part.atOnce = config.getPieces();
      part.rowWarps = countWarpsOfRow(part.rowPieces, part.atOnce);
    }
  if (op.getCoded())
    dealOutCodes();
}

void Sm80Exchange::addPieces(Round &round, Value turn) {
  const Part &part = *round.part;
  Value piece = add(mul(turn, part.atOnce), first);
  for (int64_t i = 0; i < part.atOnce; ++i) {
    if (i > 0)
      piece = add(piece, lanes);
    round.numbers.push_back(piece);
    round.isThere.push_back(isLess(piece, part.count));
  }
}

/// A warp's pieces are consecutive in a row.
void Sm80Exchange::addPiecesOfRow(Round &round, Value turn) {
  const Part &part = *round.part;
  int64_t warps = part.rowWarps;
  Value warp = arith::ShRUIOp::create(b, add(turn, first),
                                      number(llvm::Log2_64(sm80::kWarp)));
  round.row = arith::DivUIOp::create(b, warp, number(warps));
  round.hasRow = isLess(round.row, numRows);
  Value ofRow = arith::SubIOp::create(b, warp, mul(round.row, warps));
  Value column = add(mul(ofRow, sm80::kWarp * part.atOnce), lane);
  Value piece = add(mul(round.row, part.rowPieces), column);
  for (int64_t i = 0; i < part.atOnce; ++i) {
    Value distance = number(i * sm80::kWarp);
    round.numbers.push_back(add(piece, distance));
    round.isThere.push_back(arith::AndIOp::create(
        b, round.hasRow, isBelow(add(column, distance), part.rowPieces)));
  }
}

/// `turn` is the number of earlier rounds times the threads of all CTAs.
SmallVector<Sm80Exchange::Round, 0> Sm80Exchange::getRounds(Value turn) {
  SmallVector<Round, 0> rounds;
  for (auto [pair, part] : llvm::enumerate(parts)) {
    Round &round = rounds.emplace_back();
    round.part = &part;
    if (areScales(pair))
      continue;
    if (part.rowPieces > 0)
      addPiecesOfRow(round, turn);
    else
      addPieces(round, turn);
    Value first = mul(round.numbers.front(), part.pieceBytes);
    for (auto [i, piece] : llvm::enumerate(round.numbers))
      // Chunks of a row are at constant distances.
      round.offsets.push_back(
          round.row
              ? add(first, number(int64_t(i) * sm80::kWarp * part.pieceBytes))
              : mul(piece, part.pieceBytes));
  }
  if (op.getCoded())
    addScales(rounds);
  return rounds;
}

/// Makes all `loaded` values available here. Otherwise LLVM sinks the loads
/// into the branches of the threads that store them, one after another.
void Sm80Exchange::tie(MutableArrayRef<Pieces> loaded) {
  Type word = b.getI32Type();
  SmallVector<Value> words;
  auto forPieces = [&](llvm::function_ref<void(Value &, int64_t)> body) {
    for (Pieces &pieces : loaded)
      for (Value &piece : pieces) {
        auto vector = dyn_cast<VectorType>(piece.getType());
        if (getElementTypeOrSelf(piece) == word)
          body(piece, vector ? vector.getNumElements() : 0);
      }
  };
  forPieces([&](Value &piece, int64_t count) {
    if (count == 0)
      words.push_back(piece);
    for (int64_t i = 0; i < count; ++i)
      words.push_back(LLVM::ExtractElementOp::create(b, piece, emitter.i32(i)));
  });
  if (words.empty())
    return;
  SmallVector<Value> tied = tieWords(b, words);
  const Value *next = tied.begin();
  forPieces([&](Value &piece, int64_t count) {
    if (count == 0)
      piece = *next++;
    for (int64_t i = 0; i < count; ++i)
      piece = LLVM::InsertElementOp::create(b, piece, *next++, emitter.i32(i));
  });
}

/// Issues as many loads as fit in registers before it uses the first result.
void Sm80Exchange::run(ArrayRef<Load> loads) {
  constexpr int64_t mostWords = 64;
  while (!loads.empty()) {
    size_t count = 0;
    int64_t words = 0;
    while (count < loads.size()) {
      const Part &part = *loads[count].round->part;
      words += part.atOnce * loads[count].perPiece *
               llvm::divideCeil(part.pieceBytes, kWordBytes);
      if (count > 0 && words > mostWords)
        break;
      ++count;
    }
    SmallVector<Pieces> loaded;
    for (const Load &load : loads.take_front(count)) {
      const Part &part = *load.round->part;
      Pieces &pieces = loaded.emplace_back();
      // Absent pieces load the header's constants: the data at their own offset
      // may be in transit to another thread.
      for (auto [offset, isThere] :
           llvm::zip(load.round->offsets, load.round->isThere)) {
        Value from = emitter.advance(
            load.from, load.perPiece > 1 ? mul(offset, load.perPiece) : offset);
        for (int64_t i = 0; i < load.perPiece; ++i) {
          Value address = arith::SelectOp::create(
              b, isThere,
              i > 0 ? emitter.advance(from, i * part.pieceBytes) : from, heap);
          pieces.push_back(emitter.load(part.piece, address, part.pieceBytes));
        }
      }
    }
    tie(loaded);
    if (awaitsHeader)
      useHeader();
    awaitsHeader = false;
    // Issued after the loads, so that both latencies overlap.
    SmallVector<Question> questions;
    for (const Load &load : loads.take_front(count))
      if (load.ids)
        questions.push_back(
            {load.round->part, getAsked(*load.round), load.ids, load.firstRow});
    SmallVector<Pieces> answers = findOwners(questions);
    const Pieces *answer = answers.begin();
    for (auto [load, pieces] : llvm::zip(loads.take_front(count), loaded))
      load.use(pieces, load.ids ? spread(*load.round, *answer++) : Pieces());
    loads = loads.drop_front(count);
  }
}

Sm80Exchange::Load Sm80Exchange::makeLoad(const Round &round, Value from,
                                          decltype(Load::use) use, Value ids,
                                          Value firstRow) {
  Load load{&round, from, std::move(use)};
  if (round.part->ownedPieces > 0) {
    load.ids = ids;
    load.firstRow = firstRow;
  }
  return load;
}

void Sm80Exchange::store(const Round &round, ValueRange pieces,
                         ArrayRef<Target> targets, ValueRange owners) {
  int64_t bytes = round.part->pieceBytes;
  for (size_t i = 0; i < pieces.size(); ++i) {
    Value piece = pieces[i], offset = round.offsets[i];
    Value isStored = round.isThere[i];
    if (isPush)
      isStored = arith::AndIOp::create(b, isStored, mayPush);
    auto storeTo = [&](const Target &target) {
      emitter.store(piece, emitter.advance(target.address, offset), bytes);
    };
    auto isForAll = [&](const Target &target) {
      return owners.empty() || !target.place;
    };
    if (llvm::any_of(targets, isForAll))
      emitter.ifThen(isStored, [&] {
        for (const Target &target : llvm::make_filter_range(targets, isForAll))
          storeTo(target);
      });
    for (const Target &target : targets)
      if (!isForAll(target))
        emitter.ifThen(arith::AndIOp::create(b, isStored,
                                             isOwner(owners[i], target.place)),
                       [&] { storeTo(target); });
  }
}

Sm80Exchange::Target Sm80Exchange::getTarget(const Part &part, Value distance) {
  Value there = heapAt(distance);
  if (!op.getToResults())
    return {getStaged(part, there, own), getPlace(distance)};
  // The offset in the heap is the same as on this rank.
  auto number = [&](Value address) {
    return LLVM::PtrToIntOp::create(b, b.getI64Type(), address);
  };
  Value toResult = arith::SubIOp::create(b, number(part.out), number(heap));
  return {emitter.advance(there, add(toResult, mul(own, part.bytes))),
          getPlace(distance)};
}

Sm80Exchange Sm80Exchange::withNewParts() const {
  Sm80Exchange here = *this;
  here.told = tieNumbers(b, told).front();
  here.useTold();
  here.makeParts();
  return here;
}

Sm80Exchange Sm80Exchange::forTurn() const {
  Sm80Exchange turn = withNewParts();
  turn.heap = tieAddress(b, heap);
  return turn;
}

/// Sends to each other rank the summands of its rows that have this rank as a
/// destination.
void Sm80Exchange::pushOwned(ArrayRef<Round> rounds) {
  forRanks(1, [&](ArrayRef<Value> distances) {
    SmallVector<Load> loads;
    for (const Round &round : rounds)
      for (Value distance : distances) {
        const Part &part = *round.part;
        Value place = getPlace(distance);
        loads.push_back(makeLoad(
            round, emitter.advance(part.in, mul(place, part.bytes)),
            [this, &round, distance](const Pieces &pieces,
                                     const Pieces &owners) {
              Target target = getTarget(*round.part, distance);
              target.place = own;
              store(round, pieces, target, owners);
            },
            allIds, mul(place, numRows)));
      }
    run(loads);
  });
}

void Sm80Exchange::push(Value turn) {
  isPush = true;
  awaitsHeader = op.getKind() != plan::CollectiveKind::ReduceScatter;
  if (!awaitsHeader)
    useHeader();
  if (op.getRows())
    return pushSums(turn);
  auto rounds = getRounds(turn);
  if (!awaitsHeader)
    return pushOwned(rounds);
  SmallVector<Load> loads;
  for (auto [i, round] : llvm::enumerate(rounds)) {
    if (areScales(i))
      continue;
    loads.push_back(makeLoad(
        round, round.part->in,
        [this, turn, i = i, &round](Pieces pieces, Pieces owners) {
          if (areCodes(i))
            pushCodes(round, turn, pieces, owners);
          else
            pushPieces(turn, Moved{i, pieces}, owners);
        },
        ownIds, number(0)));
    if (areCodes(i))
      loads.back().perPiece = countLoadsOfCodes();
  }
  run(loads);
}

void Sm80Exchange::pushPieces(Value turn, ArrayRef<Moved> moved,
                              ValueRange owners) {
  // Addresses are computed at their uses.
  forRanks(1, [&](ArrayRef<Value> distances) {
    Sm80Exchange here = withNewParts();
    auto rounds = here.getRounds(tieNumbers(b, turn).front());
    for (const Moved &each : moved)
      here.store(rounds[each.pair], each.pieces,
                 llvm::map_to_vector(distances,
                                     [&](Value distance) {
                                       return here.getTarget(
                                           *rounds[each.pair].part, distance);
                                     }),
                 owners);
  });
  if (sums)
    return;
  Sm80Exchange here = withNewParts();
  auto rounds = here.getRounds(turn);
  for (const Moved &each : moved) {
    const Part &part = *rounds[each.pair].part;
    here.store(rounds[each.pair], each.pieces,
               Target{emitter.advance(part.out, mul(own, part.bytes))});
  }
}

void Sm80Exchange::take(Value turn) {
  forRanks(1, [&](ArrayRef<Value> distances) {
    Sm80Exchange here = forTurn();
    auto rounds = here.getRounds(tieNumbers(b, turn).front());
    SmallVector<Load> loads;
    for (Value distance : distances) {
      Value place = getPlace(distance);
      for (const Round &round : rounds) {
        const Part &part = *round.part;
        loads.push_back({&round, here.getStaged(part, here.heap, place),
                         [&, place](const Pieces &pieces, const Pieces &) {
                           Value to = emitter.advance(part.out,
                                                      mul(place, part.bytes));
                           here.store(round, pieces, Target{to});
                         }});
      }
    }
    here.run(loads);
  });
}

void Sm80Exchange::sum(Value turn) {
  SmallVector<Round, 0> rounds = getRounds(turn);
  SmallVector<Pieces> allOwners(rounds.size());
  SmallVector<Value> totals =
      forRanks(0, [&](ArrayRef<Value> places, ValueRange carried) {
        bool isFirst = carried.empty();
        SmallVector<Pieces> sums(rounds.size());
        for (auto [round, total] : llvm::zip(rounds, sums)) {
          if (isFirst)
            continue;
          total.assign(carried.begin(), carried.begin() + round.part->atOnce);
          carried = carried.drop_front(total.size());
        }
        SmallVector<Load> loads;
        for (auto [round, total, owners] : llvm::zip(rounds, sums, allOwners)) {
          const Part &part = *round.part;
          for (auto [i, place] : llvm::enumerate(places)) {
            // Issued with the first rank's pieces.
            Value ids = isFirst && i == 0 ? ownIds : Value();
            auto addTo = [&, place = place, &total = total, &owners = owners](
                             Pieces pieces, const Pieces &found) {
              if (!found.empty())
                owners = found;
              for (auto [i, owner] : llvm::enumerate(owners))
                pieces[i] = getPartOf(pieces[i], owner, place);
              for (auto [i, piece] : llvm::enumerate(pieces)) {
                Value term =
                    castFloat(b, LLVM::BitcastOp::create(b, part.terms, piece),
                              b.getF32Type());
                if (total.size() == i)
                  total.push_back(term);
                else
                  total[i] = arith::AddFOp::create(b, total[i], term);
              }
            };
            loads.push_back(
                makeLoad(round, getSource(part, place), addTo, ids, number(0)));
          }
        }
        run(loads);
        SmallVector<Value> all;
        for (const Pieces &total : sums)
          llvm::append_range(all, total);
        return all;
      });
  ArrayRef<Value> rest = totals;
  for (const Round &round : rounds) {
    const Part &part = *round.part;
    Pieces rounded;
    for (Value value : rest.take_front(size_t(part.atOnce)))
      rounded.push_back(LLVM::BitcastOp::create(
          b, part.piece, castFloat(b, value, part.terms.getElementType())));
    rest = rest.drop_front(rounded.size());
    Value out = part.out;
    if (part.tensorRowBytes != part.rowBytes)
      out = emitter.advance(out, getGap(round));
    store(round, rounded, Target{out});
  }
}

/// The address of the summands of the rank at `place` for this rank's rows.
Value Sm80Exchange::getSource(const Part &part, Value place) {
  Value staged = getStaged(part, heap, place);
  // Sums that the kernel makes pass through the heap on this rank too.
  if (op.getRows())
    return staged;
  Value mine = part.in;
  if (op.getKind() == plan::CollectiveKind::ReduceScatter)
    mine = emitter.advance(mine, mul(own, part.bytes));
  return arith::SelectOp::create(b, isEqual(place, own), mine, staged);
}

void Sm80Exchange::countExchange() {
  Value next = add(epoch, number(1));
  Value grid = widen(NVVM::GridDimXOp::create(b, b.getI32Type()));
  Value isFirst = isEqual(thread, number(0));
  emitter.ifThen(isFirst, [&] {
    emitter.store(next, wordAt(heap, PeerHeap::kEpochs, cta), kFlagBytes);
  });
  // CTA 0 also advances the epochs of CTAs that this launch does not have.
  Value isOther = arith::AndIOp::create(
      b, isEqual(cta, number(0)),
      arith::AndIOp::create(b, isLess(add(grid, number(-1)), thread),
                            isLess(thread, number(PeerHeap::kMaxCtas))));
  emitter.ifThen(isOther, [&] {
    emitter.store(next, wordAt(heap, PeerHeap::kEpochs, thread), kFlagBytes);
  });
}

Value Sm80Exchange::pushAndTake(Value most) {
  emitter.ifThen(isEqual(thread, number(0)), [&] {
    for (int64_t i : {0, 1})
      emitter.storeI32(emitter.i32(0), hasFailed, emitter.index(i));
  });
  // Makes the heap table visible.
  emitter.barrier();
  // Carried: the number of earlier rounds, and whether all ranks have arrived
  // so far. The last iteration only takes the previous round. Pieces are
  // recomputed in each iteration to save registers.
  SmallVector<Type> types{b.getI32Type(), b.getI1Type()};
  SmallVector<Location> locs(types.size(), b.getLoc());
  Value isTrue = arith::ConstantOp::create(b, b.getBoolAttr(true));
  SmallVector<Value> inits{emitter.i32(0), isTrue};
  auto loop = scf::WhileOp::create(b, types, inits);
  OpBuilder::InsertionGuard guard(b);
  Block *before = b.createBlock(&loop.getBefore(), {}, types, locs);
  Value former = add(widen(before->getArgument(0)), number(-1));
  Value goesOn = arith::AndIOp::create(b, isLess(mul(former, lanes), most),
                                       before->getArgument(1));
  scf::ConditionOp::create(b, goesOn, before->getArguments());
  Block *after = b.createBlock(&loop.getAfter(), {}, types, locs);
  Value turn = tieWords(b, after->getArgument(0)).front();
  Value rounds = widen(turn), next = add(rounds, number(1));
  Value base = mul(rounds, lanes);
  auto word = [&](Value turn) -> Value {
    return arith::IndexCastOp::create(
        b, b.getIndexType(), arith::AndIOp::create(b, turn, number(1)));
  };
  Value pushes = isLess(base, most);
  emitter.ifThen(pushes, [&] { forTurn().push(base); });
  renewMemory(b, heap);
  emitter.barrier();
  Sm80Exchange here = forTurn();
  here.useHeader();
  // Written in the previous iteration; each word is written in every second one
  // only.
  Value isAlive = arith::AndIOp::create(
      b, here.mayPush,
      isEqual(widen(emitter.loadI32(hasFailed, ValueRange{word(next)})),
              number(0)));
  emitter.ifThen(arith::AndIOp::create(b, pushes, here.mayPush),
                 [&] { here.raiseFlags(next); });
  Value takes = arith::AndIOp::create(b, isAlive, isLess(number(0), rounds));
  emitter.ifThen(takes, [&] {
    Value haveCome = here.awaitFlags(rounds);
    // Lanes take the data after all of them have seen their flags.
    emitter.warpBarrier();
    renewMemory(b, heap);
    emitter.ifThen(
        haveCome,
        [&] {
          Value before = arith::SubIOp::create(b, base, lanes);
          if (sums)
            here.forTurn().sum(before);
          else
            here.forTurn().take(before);
        },
        [&] {
          emitter.addAtomically(emitter.i32(1), hasFailed, word(rounds));
        });
  });
  scf::YieldOp::create(
      b, ValueRange{arith::AddIOp::create(b, turn, emitter.i32(1)), isAlive});
  return loop.getResult(1);
}

Value Sm80Exchange::pushToResults(Value most) {
  // Makes the heap table visible.
  emitter.barrier();
  Value rounds =
      arith::DivUIOp::create(b, add(most, add(lanes, number(-1))), lanes);
  emitter.forLoop(emitter.index(0), emitter.toIndex(rounds), 1, {},
                  [&](Value turn, ValueRange) {
                    Value rounds = tieNumbers(b, toNumber(turn)).front();
                    forTurn().push(mul(rounds, lanes));
                    return SmallVector<Value>();
                  });
  renewMemory(b, heap);
  emitter.barrier();
  Sm80Exchange here = forTurn();
  here.useHeader();
  // The threads that set flags also wait.
  Value waits = arith::AndIOp::create(b, here.mayPush,
                                      isBelow(thread, PeerHeap::kMaxCtas));
  return emitter
      .choose(
          waits, b.getI1Type(),
          [&] {
            here.raiseFlags(number(1));
            return SmallVector<Value>{here.awaitFlags(number(1))};
          },
          [&] {
            return SmallVector<Value>{
                arith::ConstantOp::create(b, b.getBoolAttr(false))};
          })
      .front();
}

void Sm80Exchange::emit() {
  if (!op.getToResults())
    hasFailed = emitter.scratch({2}, b.getI32Type());
  readHeader();
  makeHeapTable();
  makeParts();
  readOwners();
  readSums();
  readCodes();
  // The largest number of pieces per thread number, as if each thread had one
  // piece in a round. At least 1: flags are set after a round.
  Value most = number(1);
  for (const Part &part : parts) {
    Value pieces = part.rowPieces > 0
                       ? mul(numRows, sm80::kWarp * part.rowWarps)
                       : arith::DivUIOp::create(
                             b, add(part.count, number(part.atOnce - 1)),
                             number(part.atOnce));
    most = arith::MaxSIOp::create(b, most, pieces);
  }
  Value haveCome = op.getToResults() ? pushToResults(most) : pushAndTake(most);
  emitter.ifThen(haveCome, [&] { countExchange(); });
}

LogicalResult moec::emitSm80Exchange(Operation *phase, KernelBody body) {
  ThreadEmitter emitter(body.func, body.kernel, body.threads);
  Sm80Exchange(cast<tile::ExchangeOp>(phase), body, emitter).emit();
  return success();
}
