//===- Sm80Exchange.cpp - the schedule sm80.exchange ------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// Pieces of a part are dealt out to the threads of all CTAs, alike on all
// ranks, so that a thread takes what the same thread of another rank pushed. In
// a turn of the loop a CTA pushes a round of pieces, then takes those of the
// round before. Flags are set for the CTA behind a barrier, by the second warp,
// which waits until what was pushed is there; the others go on meanwhile. Each
// warp looks for flags by itself. If one gives up, all leave the loop in the
// turn behind, at whose barrier they know.
//
// What a rank need not have is not pushed to it. A gather takes it all the
// same, whatever is there; a sum loads it and adds +0.0.

#include "Sm80Exchange.h"

#include "../../InlinePtx.h"

#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "moec/Analysis/Exchange.h"
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

void Sm80Exchange::readHeader() {
  for (Value heap : op.getHeaps())
    heaps.push_back(emitter.address(emitter.operand(heap), {emitter.index(0)}));
  numRows = toNumber(emitter.tokens());
  cta = toNumber(emitter.cta());
  thread = widen(emitter.thread());
  lane = widen(emitter.lane());
  own = loadWord(wordAt(heaps[0], PeerHeap::kIndex));
  limit = loadWord(wordAt(heaps[0], PeerHeap::kLimit));
  placeBytes = loadWord(wordAt(heaps[0], PeerHeap::kPlaceBytes));
  epoch = loadWord(wordAt(heaps[0], PeerHeap::kEpochs, cta));
  aborted = loadStrong(wordAt(heaps[0], PeerHeap::kAbort),
                       LLVM::AtomicOrdering::monotonic);
  lanes = mul(widen(NVVM::GridDimXOp::create(b, b.getI32Type())), threads);
  first = add(mul(cta, threads), thread);
}

void Sm80Exchange::useHeader() {
  SmallVector<Value *> words{&own, &limit, &placeBytes, &epoch, &aborted};
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
      getExchangedPart(op.getKind(), ranks, cast<MemRefType>(in.getType()));
  auto address = [&](Value memref) {
    auto rank = cast<MemRefType>(memref.getType()).getRank();
    return emitter.address(emitter.operand(memref),
                           SmallVector<Value>(rank, emitter.index(0)));
  };
  part.in = address(in);
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
  part.begin = begin;
  part.atOnce = shape.pieces;
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
}

/// `turn` is how many rounds were before, times the threads of all CTAs.
SmallVector<Sm80Exchange::Round, 0> Sm80Exchange::getRounds(Value turn) {
  SmallVector<Round, 0> rounds;
  for (const Part &part : parts) {
    Round &round = rounds.emplace_back();
    round.part = &part;
    Value piece = add(mul(turn, part.atOnce), first);
    for (int64_t i = 0; i < part.atOnce; ++i) {
      if (i > 0)
        piece = add(piece, lanes);
      round.numbers.push_back(piece);
      round.isThere.push_back(isLess(piece, part.count));
      round.offsets.push_back(mul(piece, part.pieceBytes));
    }
  }
  return rounds;
}

/// Values that are there before this point: what only some threads store LLVM
/// would load where they do, one behind the other.
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

/// As many at once as have room in registers: all of them are asked for before
/// the first is used.
void Sm80Exchange::run(ArrayRef<Load> loads) {
  constexpr int64_t mostWords = 64;
  while (!loads.empty()) {
    size_t count = 0;
    int64_t words = 0;
    while (count < loads.size()) {
      const Part &part = *loads[count].round->part;
      words += part.atOnce * llvm::divideCeil(part.pieceBytes, kWordBytes);
      if (count > 0 && words > mostWords)
        break;
      ++count;
    }
    SmallVector<Pieces> loaded;
    for (const Load &load : loads.take_front(count)) {
      const Part &part = *load.round->part;
      Pieces &pieces = loaded.emplace_back();
      // Whose piece is not there loads the header's constants: what another
      // thread moves may be on the way.
      for (auto [offset, isThere] :
           llvm::zip(load.round->offsets, load.round->isThere)) {
        Value address = arith::SelectOp::create(
            b, isThere, emitter.advance(load.from, offset), heaps[0]);
        pieces.push_back(emitter.load(part.piece, address, part.pieceBytes));
      }
    }
    tie(loaded);
    if (awaitsHeader)
      useHeader();
    awaitsHeader = false;
    // Behind the loads, so that both are waited for at once.
    SmallVector<Question> questions;
    for (const Load &load : loads.take_front(count))
      if (load.ids)
        questions.push_back(
            {load.round->part, load.round->numbers, load.ids, load.firstRow});
    SmallVector<Pieces> answers = findOwners(questions);
    const Pieces *answer = answers.begin();
    for (auto [load, pieces] : llvm::zip(loads.take_front(count), loaded))
      load.use(pieces, load.ids ? *answer++ : Pieces());
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

Sm80Exchange Sm80Exchange::forTurn() const {
  Sm80Exchange turn = *this;
  for (Value &heap : turn.heaps)
    heap = tieAddress(b, heap);
  turn.numRows = tieNumbers(b, numRows).front();
  turn.makeParts();
  return turn;
}

void Sm80Exchange::push(Value turn) {
  isPush = true;
  awaitsHeader = op.getKind() != plan::CollectiveKind::ReduceScatter;
  if (!awaitsHeader)
    useHeader();
  auto rounds = getRounds(turn);
  SmallVector<Load> loads;
  for (const Round &round : rounds) {
    const Part &part = *round.part;
    // Addresses are computed where they are used.
    auto getTarget = [this, &part](int64_t distance) {
      return Target{getStaged(part, heaps[distance], own),
                    getPlace(number(distance))};
    };
    if (op.getKind() == plan::CollectiveKind::ReduceScatter) {
      // Of each other rank's rows what this one owns.
      for (int64_t distance = 1; distance < ranks; ++distance) {
        Value place = getPlace(number(distance));
        loads.push_back(makeLoad(
            round, emitter.advance(part.in, mul(place, part.bytes)),
            [this, &round, getTarget, distance](Pieces pieces, Pieces owners) {
              Target target = getTarget(distance);
              target.place = own;
              store(round, pieces, target, owners);
            },
            allIds, mul(place, numRows)));
      }
      continue;
    }
    loads.push_back(makeLoad(
        round, part.in,
        [this, &round, getTarget](Pieces pieces, Pieces owners) {
          SmallVector<Target> targets;
          for (int64_t distance = 1; distance < ranks; ++distance)
            targets.push_back(getTarget(distance));
          const Part &part = *round.part;
          if (!sums)
            targets.push_back(
                {emitter.advance(part.out, mul(own, part.bytes))});
          store(round, pieces, targets, owners);
        },
        ownIds, number(0)));
  }
  run(loads);
}

void Sm80Exchange::take(Value turn) {
  auto rounds = getRounds(turn);
  SmallVector<Load> loads;
  for (int64_t distance = 1; distance < ranks; ++distance) {
    Value place = getPlace(number(distance));
    for (const Round &round : rounds) {
      const Part &part = *round.part;
      loads.push_back({&round, getStaged(part, heaps[0], place),
                       [&, place](Pieces pieces, Pieces) {
                         Value to =
                             emitter.advance(part.out, mul(place, part.bytes));
                         store(round, pieces, Target{to});
                       }});
    }
  }
  run(loads);
}

void Sm80Exchange::sum(Value turn) {
  SmallVector<Round, 0> rounds = getRounds(turn);
  SmallVector<Pieces> sums(rounds.size()), allOwners(rounds.size());
  SmallVector<Load> loads;
  for (auto [round, total, owners] : llvm::zip(rounds, sums, allOwners)) {
    const Part &part = *round.part;
    Value mine = part.in;
    if (op.getKind() == plan::CollectiveKind::ReduceScatter)
      mine = emitter.advance(mine, mul(own, part.bytes));
    for (int64_t rank = 0; rank < ranks; ++rank) {
      Value place = number(rank);
      Value from = arith::SelectOp::create(b, isEqual(place, own), mine,
                                           getStaged(part, heaps[0], place));
      auto addTo = [&, place, &total = total, &owners = owners](Pieces pieces,
                                                                Pieces found) {
        // Asked for with the first rank's pieces.
        if (!found.empty())
          owners = found;
        for (auto [i, owner] : llvm::enumerate(owners))
          pieces[i] = getPartOf(pieces[i], owner, place);
        for (auto [i, piece] : llvm::enumerate(pieces)) {
          Value term = castFloat(
              b, LLVM::BitcastOp::create(b, part.terms, piece), b.getF32Type());
          if (total.size() == i)
            total.push_back(term);
          else
            total[i] = arith::AddFOp::create(b, total[i], term);
        }
      };
      loads.push_back(makeLoad(round, from, addTo, rank == 0 ? ownIds : Value(),
                               number(0)));
    }
  }
  run(loads);
  for (auto [round, total] : llvm::zip(rounds, sums)) {
    const Part &part = *round.part;
    for (Value &value : total)
      value = LLVM::BitcastOp::create(
          b, part.piece, castFloat(b, value, part.terms.getElementType()));
    store(round, total, Target{part.out});
  }
}

void Sm80Exchange::countExchange() {
  Value next = add(epoch, number(1));
  Value grid = widen(NVVM::GridDimXOp::create(b, b.getI32Type()));
  Value isFirst = isEqual(thread, number(0));
  emitter.ifThen(isFirst, [&] {
    emitter.store(next, wordAt(heaps[0], PeerHeap::kEpochs, cta), kFlagBytes);
  });
  // The first CTA counts for those that the launch does not have.
  Value isOther = arith::AndIOp::create(
      b, isEqual(cta, number(0)),
      arith::AndIOp::create(b, isLess(add(grid, number(-1)), thread),
                            isLess(thread, number(PeerHeap::kMaxCtas))));
  emitter.ifThen(isOther, [&] {
    emitter.store(next, wordAt(heaps[0], PeerHeap::kEpochs, thread),
                  kFlagBytes);
  });
}

void Sm80Exchange::emit() {
  hasFailed = emitter.scratch({2}, b.getI32Type());
  readHeader();
  makeParts();
  readOwners();
  // Seen by all behind the barrier of the first round.
  emitter.ifThen(isEqual(thread, number(0)), [&] {
    for (int64_t i : {0, 1})
      emitter.storeI32(emitter.i32(0), hasFailed, emitter.index(i));
  });
  // The most pieces of a thread number, as if each had one in a round.
  Value most = number(0);
  for (const Part &part : parts)
    most = arith::MaxSIOp::create(
        b, most,
        arith::DivUIOp::create(b, add(part.count, number(part.atOnce - 1)),
                               number(part.atOnce)));
  // The last turn takes what the turn before pushed.
  Value end = add(most, lanes);

  // The number of the turn, times `lanes`; the rounds before it; whether all
  // ranks have come so far.
  SmallVector<Type> types{b.getI64Type(), b.getI64Type(), b.getI1Type()};
  SmallVector<Location> locs(types.size(), b.getLoc());
  Value isTrue = arith::ConstantOp::create(b, b.getBoolAttr(true));
  SmallVector<Value> inits{number(0), number(0), isTrue};
  auto loop = scf::WhileOp::create(b, types, inits);
  {
    OpBuilder::InsertionGuard guard(b);
    Block *before = b.createBlock(&loop.getBefore(), {}, types, locs);
    Value goesOn = arith::AndIOp::create(b, isLess(before->getArgument(0), end),
                                         before->getArgument(2));
    scf::ConditionOp::create(b, goesOn, before->getArguments());
    Block *after = b.createBlock(&loop.getAfter(), {}, types, locs);
    Value base = after->getArgument(0), rounds = after->getArgument(1);
    Value next = add(rounds, number(1));
    auto word = [&](Value turn) -> Value {
      return arith::IndexCastOp::create(
          b, b.getIndexType(), arith::AndIOp::create(b, turn, number(1)));
    };
    Value pushes = isLess(base, most);
    emitter.ifThen(pushes, [&] { forTurn().push(base); });
    renewMemory(b, heaps);
    emitter.barrier();
    Sm80Exchange here = forTurn();
    here.useHeader();
    // Written in the turn before, and in none but every second one.
    Value isAlive = arith::AndIOp::create(
        b, here.mayPush,
        isEqual(widen(emitter.loadI32(hasFailed, ValueRange{word(next)})),
                number(0)));
    emitter.ifThen(arith::AndIOp::create(b, pushes, here.mayPush),
                   [&] { here.raiseFlags(next); });
    Value takes = arith::AndIOp::create(b, isAlive, isLess(number(0), base));
    emitter.ifThen(takes, [&] {
      emitter.ifThen(
          here.awaitFlags(rounds),
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
    scf::YieldOp::create(b, ValueRange{add(base, lanes), next, isAlive});
  }
  emitter.ifThen(loop.getResult(2), [&] { countExchange(); });
}

LogicalResult moec::emitSm80Exchange(Operation *phase, KernelBody body) {
  ThreadEmitter emitter(body.func, body.kernel, body.threads);
  Sm80Exchange(cast<tile::ExchangeOp>(phase), body, emitter).emit();
  return success();
}
