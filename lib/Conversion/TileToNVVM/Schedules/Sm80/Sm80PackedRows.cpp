//===- Sm80PackedRows.cpp - rows of an all-to-all ---------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// The schedules sm80.route_rows, sm80.pack_rows and sm80.sum_packed_rows. To
// route, a CTA counts the rows for one destination rank: its warps have equal,
// contiguous ranges of rows, count them, and after a barrier assign positions.
// To pack, a warp copies a row to all its destination ranks in turn. To sum, a
// thread adds a chunk of a row.

#include "../../Emit.h"
#include "../../ThreadEmitter.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "moec/Analysis/Exchange.h"
#include "moec/Analysis/Sm80.h"
#include "moert/PackedRows.h"

#include <limits>

using namespace mlir;
using namespace moec;
using moert::PackedRows;

namespace {

/// Base of the three emitters; numbers are of type index.
class PackedRowsEmitter : public ThreadEmitter {
public:
  explicit PackedRowsEmitter(KernelBody body)
      : ThreadEmitter(body.func, body.kernel, body.threads) {}

  Value isBelow(Value x, Value end) {
    return arith::CmpIOp::create(b, arith::CmpIPredicate::slt, x, end);
  }
  Value isEqual(Value x, Value y) {
    return arith::CmpIOp::create(b, arith::CmpIPredicate::eq, x, y);
  }
  Value isBoth(Value x, Value y) { return arith::AndIOp::create(b, x, y); }
  Value select(Value condition, Value x, Value y) {
    return arith::SelectOp::create(b, condition, x, y);
  }
  Value countBits(Value word) { return math::CtPopOp::create(b, word); }

  /// The base address of a memref.
  Value beginOf(Value argument) {
    Value memref = operand(argument);
    auto rank = cast<MemRefType>(memref.getType()).getRank();
    return address(memref, SmallVector<Value>(rank, index(0)));
  }
  /// `pointer + row * bytes + more`.
  Value at(Value pointer, Value row, int64_t bytes, Value more) {
    Value offset = add(mul(row, bytes), more);
    return advance(pointer,
                   arith::IndexCastOp::create(b, b.getI64Type(), offset));
  }
};

/// Destination ranks of rows, from the results of tile.route_rows.
class Routes {
public:
  Routes(PackedRowsEmitter &emitter, Value positions, Value counts,
         Value header)
      : emitter(emitter), positions(emitter.operand(positions)),
        counts(emitter.operand(counts)),
        ranks(cast<MemRefType>(counts.getType()).getDimSize(0)) {
    auto word = [&](int64_t i) -> Value {
      Value loaded = memref::LoadOp::create(emitter.b, emitter.operand(header),
                                            ValueRange{emitter.index(i)});
      return arith::IndexCastOp::create(emitter.b, emitter.b.getIndexType(),
                                        loaded);
    };
    own = word(PackedRows::kPlace);
    room = word(PackedRows::kRoom);
    Value none = emitter.index(0);
    hasRoom = emitter.isBelow(none, room);
    // The capacity of a block, in rows.
    most = emitter.select(hasRoom, room,
                          emitter.index(std::numeric_limits<int32_t>::max()));
  }

  /// Calls `body` for each rank in turn, with carried values. The per-rank
  /// fields below are set for it.
  SmallVector<Value>
  forRanks(Value row, ValueRange init,
           llvm::function_ref<SmallVector<Value>(ValueRange)> body) {
    SmallVector<Value> carried{emitter.index(0)};
    llvm::append_range(carried, init);
    SmallVector<Value> last = emitter.forLoop(
        emitter.index(0), emitter.index(ranks), 1, carried,
        [&](Value rank, ValueRange values) {
          begin = values.front();
          isOwn = emitter.isEqual(rank, own);
          position = emitter.loadIndex(
              positions, emitter.add(emitter.mul(rank, emitter.tokens()), row));
          goesThere = emitter.isBelow(emitter.index(-1), position);
          Value rows = emitter.select(
              hasRoom, room, emitter.loadIndex(counts, ValueRange{rank}));
          SmallVector<Value> next{emitter.add(
              begin, emitter.select(isOwn, emitter.index(0), rows))};
          llvm::append_range(next, body(values.drop_front()));
          return next;
        });
    return SmallVector<Value>(ArrayRef(last).drop_front());
  }

  /// The largest number of rows that go to one rank.
  Value findMost() {
    return emitter
        .forLoop(
            emitter.index(0), emitter.index(ranks), 1, {emitter.index(0)},
            [&](Value rank, ValueRange largest) {
              return SmallVector<Value>{emitter.max(
                  largest[0], emitter.loadIndex(counts, ValueRange{rank}))};
            })
        .front();
  }

  /// For all ranks.
  Value own, room, hasRoom, most;
  /// For the current rank: whether the row goes there, and its position among
  /// those that do; whether the rank is this one; the address of its packed
  /// rows.
  Value goesThere, position, isOwn, begin;

private:
  PackedRowsEmitter &emitter;
  Value positions, counts;
  int64_t ranks;
};

/// A row as chunks that are copied whole.
struct RowPieces {
  explicit RowPieces(PackedRowsEmitter &emitter, MemRefType type) {
    constexpr int64_t wordBytes = 4;
    ExchangedPart part = getExchangedPart(plan::CollectiveKind::AllGather,
                                          /*ranks=*/1, type);
    bytes = part.pieceBytes;
    count = part.pieces;
    OpBuilder &b = emitter.b;
    if (bytes <= wordBytes)
      piece = b.getIntegerType(unsigned(CHAR_BIT * bytes));
    else
      piece = VectorType::get(bytes / wordBytes, b.getI32Type());
    Type element = type.getElementType();
    terms = VectorType::get(bytes * CHAR_BIT / element.getIntOrFloatBitWidth(),
                            element);
  }

  int64_t bytes, count;
  Type piece;
  VectorType terms;
};

} // namespace

//===----------------------------------------------------------------------===//
// sm80.route_rows
//===----------------------------------------------------------------------===//

namespace {

class RouteRows {
public:
  RouteRows(tile::RouteRowsOp op, KernelBody body)
      : op(op), emitter(body), b(emitter.b), ids(emitter.operand(op.getIds())),
        owners(emitter.operand(op.getOwners())),
        positions(emitter.operand(op.getPositions())),
        warps(emitter.getNumWarps()) {}

  void emit() {
    Value rows = emitter.tokens();
    numValid = emitter.validTokens(op.getNumValidTokens());
    // In each iteration a warp takes one row per lane.
    int64_t rowsOfTurn = warps * sm80::kWarp;
    turns = arith::DivUIOp::create(b, emitter.add(rows, rowsOfTurn - 1),
                                   emitter.index(rowsOfTurn));
    Value warp = emitter.toIndex(emitter.warp());
    first = emitter.add(emitter.mul(emitter.mul(warp, turns), sm80::kWarp),
                        emitter.toIndex(emitter.lane()));
    Value sums = emitter.scratch({warps}, b.getI32Type());
    Value count = forTurns(
        emitter.i32(0), [&](Value, Value, Value bits, Value counted) -> Value {
          return arith::AddIOp::create(b, counted, emitter.countBits(bits));
        });
    Value isFirst =
        emitter.isEqual(emitter.toIndex(emitter.lane()), emitter.index(0));
    emitter.ifThen(isFirst,
                   [&] { emitter.storeI32(count, sums, ValueRange{warp}); });
    emitter.barrier();
    Value before = sum(sums, emitter.index(0), warp);
    forTurns(
        before,
        [&](Value row, Value goesThere, Value bits, Value counted) -> Value {
          Value one = emitter.i32(1);
          Value below = arith::SubIOp::create(
              b, arith::ShLIOp::create(b, one, emitter.lane()), one);
          Value position = arith::AddIOp::create(
              b, counted,
              emitter.countBits(arith::AndIOp::create(b, bits, below)));
          emitter.ifThen(emitter.isBelow(row, rows), [&] {
            emitter.storeI32(
                emitter.select(goesThere, position, emitter.i32(-1)), positions,
                ValueRange{emitter.add(emitter.mul(emitter.cta(), rows), row)});
          });
          return arith::AddIOp::create(b, counted, emitter.countBits(bits));
        });
    emitter.ifThen(
        emitter.isEqual(emitter.toIndex(emitter.thread()), emitter.index(0)),
        [&] {
          emitter.storeI32(sum(sums, emitter.index(0), emitter.index(warps)),
                           emitter.operand(op.getCounts()), {emitter.cta()});
        });
  }

private:
  Value sum(Value sums, Value begin, Value end) {
    return emitter
        .forLoop(begin, end, 1, {emitter.i32(0)},
                 [&](Value i, ValueRange total) {
                   return SmallVector<Value>{arith::AddIOp::create(
                       b, total[0], emitter.loadI32(sums, ValueRange{i}))};
                 })
        .front();
  }

  /// Calls `body` in each iteration with the lane's row, whether it goes to the
  /// rank, the warp's rows that do (as bits), and the carried value.
  Value forTurns(Value init,
                 llvm::function_ref<Value(Value, Value, Value, Value)> body) {
    return emitter
        .forLoop(emitter.index(0), turns, 1, {init},
                 [&](Value turn, ValueRange carried) {
                   Value row =
                       emitter.add(first, emitter.mul(turn, sm80::kWarp));
                   Value goesThere = find(row);
                   return SmallVector<Value>{body(
                       row, goesThere, emitter.ballot(goesThere), carried[0])};
                 })
        .front();
  }

  /// Whether the CTA's rank has an expert of the row. All ids are loaded before
  /// the first lookup.
  Value find(Value row) {
    int64_t topK = cast<MemRefType>(ids.getType()).getDimSize(1);
    Value numExperts =
        emitter.index(cast<MemRefType>(owners.getType()).getDimSize(0));
    Value isRow = emitter.isBelow(row, numValid);
    Value there = emitter.select(isRow, row, emitter.index(0));
    SmallVector<Value> experts;
    for (int64_t i = 0; i < topK; ++i)
      experts.push_back(emitter.loadIndex(ids, {there, emitter.index(i)}));
    Value found = arith::ConstantOp::create(b, b.getBoolAttr(false));
    for (Value expert : experts) {
      Value isExpert = arith::CmpIOp::create(b, arith::CmpIPredicate::ult,
                                             expert, numExperts);
      Value owner = emitter.loadIndex(
          owners,
          ValueRange{emitter.select(isExpert, expert, emitter.index(0))});
      found = arith::OrIOp::create(
          b, found,
          emitter.isBoth(isExpert, emitter.isEqual(owner, emitter.cta())));
    }
    return emitter.isBoth(isRow, found);
  }

  tile::RouteRowsOp op;
  PackedRowsEmitter emitter;
  ImplicitLocOpBuilder &b;
  Value ids, owners, positions, numValid, turns, first;
  int64_t warps;
};

} // namespace

LogicalResult moec::emitSm80RouteRows(Operation *phase, KernelBody body) {
  RouteRows(cast<tile::RouteRowsOp>(phase), body).emit();
  return success();
}

//===----------------------------------------------------------------------===//
// sm80.pack_rows
//===----------------------------------------------------------------------===//

/// Copies the lane's chunks of a row of `in` to each of its destination ranks.
static void packRow(PackedRowsEmitter &emitter, Routes &routes, Value row,
                    Value in, Value out, Value packed) {
  // Chunks of a lane in registers at once.
  constexpr int64_t mostAtOnce = 8;
  ImplicitLocOpBuilder &b = emitter.b;
  RowPieces pieces(emitter, cast<MemRefType>(in.getType()));
  int64_t rowBytes = pieces.count * pieces.bytes;
  int64_t perLane = llvm::divideCeil(pieces.count, sm80::kWarp);
  Value from = emitter.beginOf(in), toOwn = emitter.beginOf(out),
        toOther = emitter.beginOf(packed);
  Value lane = emitter.toIndex(emitter.lane());
  for (int64_t begin = 0; begin < perLane; begin += mostAtOnce) {
    int64_t count = std::min(mostAtOnce, perLane - begin);
    SmallVector<Value> offsets, isThere, loaded;
    for (int64_t i = 0; i < count; ++i) {
      Value piece = emitter.add(lane, (begin + i) * sm80::kWarp);
      isThere.push_back(emitter.isBelow(piece, emitter.index(pieces.count)));
      // An absent chunk loads chunk 0 instead and drops it.
      Value loads = emitter.select(isThere.back(), piece, emitter.index(0));
      offsets.push_back(emitter.mul(piece, pieces.bytes));
      loaded.push_back(emitter.load(
          pieces.piece,
          emitter.at(from, row, rowBytes, emitter.mul(loads, pieces.bytes)),
          pieces.bytes));
    }
    routes.forRanks(row, {}, [&](ValueRange) {
      Value hasRoom = emitter.isBelow(routes.position, routes.most);
      Value isStored = emitter.isBoth(
          routes.goesThere, arith::OrIOp::create(b, routes.isOwn, hasRoom));
      emitter.ifThen(isStored, [&] {
        Value block = emitter.select(routes.isOwn,
                                     emitter.mul(routes.own, emitter.tokens()),
                                     routes.begin);
        Value to = emitter.at(emitter.select(routes.isOwn, toOwn, toOther),
                              emitter.add(block, routes.position), rowBytes,
                              emitter.index(0));
        for (int64_t i = 0; i < count; ++i)
          emitter.ifThen(isThere[i], [&] {
            emitter.store(loaded[i],
                          emitter.at(to, offsets[i], 1, emitter.index(0)),
                          pieces.bytes);
          });
      });
      return SmallVector<Value>();
    });
  }
}

LogicalResult moec::emitSm80PackRows(Operation *phase, KernelBody body) {
  auto op = cast<tile::PackRowsOp>(phase);
  PackedRowsEmitter emitter(body);
  ImplicitLocOpBuilder &b = emitter.b;
  Routes routes(emitter, op.getPositions(), op.getCounts(), op.getHeader());
  Value row = emitter.add(emitter.mul(emitter.cta(), emitter.getNumWarps()),
                          emitter.toIndex(emitter.warp()));
  emitter.ifThen(emitter.isBelow(row, emitter.tokens()), [&] {
    for (auto [in, out, packed] :
         llvm::zip(op.getIns(), op.getOuts(), op.getPacked()))
      packRow(emitter, routes, row, in, out, packed);
  });
  Value isFirst = emitter.isBoth(
      emitter.isEqual(emitter.cta(), emitter.index(0)),
      emitter.isEqual(emitter.toIndex(emitter.thread()), emitter.index(0)));
  emitter.ifThen(emitter.isBoth(isFirst, routes.hasRoom), [&] {
    Value most = routes.findMost();
    emitter.ifThen(emitter.isBelow(routes.room, most), [&] {
      memref::StoreOp::create(
          b, arith::IndexCastOp::create(b, b.getI64Type(), most),
          emitter.operand(op.getHeader()),
          ValueRange{emitter.index(PackedRows::kMost)});
    });
  });
  return success();
}

//===----------------------------------------------------------------------===//
// sm80.sum_packed_rows
//===----------------------------------------------------------------------===//

LogicalResult moec::emitSm80SumPackedRows(Operation *phase, KernelBody body) {
  auto op = cast<tile::SumPackedRowsOp>(phase);
  PackedRowsEmitter emitter(body);
  ImplicitLocOpBuilder &b = emitter.b;
  Routes routes(emitter, op.getPositions(), op.getCounts(), op.getHeader());
  RowPieces pieces(emitter, cast<MemRefType>(op.getInput().getType()));
  int64_t rowBytes = pieces.count * pieces.bytes;
  Value number = emitter.add(emitter.mul(emitter.cta(), body.threads),
                             emitter.toIndex(emitter.thread()));
  Value perRow = emitter.index(pieces.count);
  emitter.ifThen(
      emitter.isBelow(number, emitter.mul(emitter.tokens(), perRow)), [&] {
        Value row = arith::DivUIOp::create(b, number, perRow);
        Value offset = emitter.mul(arith::RemUIOp::create(b, number, perRow),
                                   pieces.bytes);
        Value mine = emitter.beginOf(op.getInput()),
              others = emitter.beginOf(op.getPacked());
        auto sums = cast<VectorType>(pieces.terms.clone(b.getF32Type()));
        auto splat = [&](float value) -> Value {
          return arith::ConstantOp::create(b,
                                           DenseElementsAttr::get(sums, value));
        };
        // The sum starts at -0.0, so that adding the first row leaves it
        // unchanged.
        Value total =
            routes
                .forRanks(
                    row, {splat(-0.0F)},
                    [&](ValueRange sum) {
                      Value hasRoom = arith::OrIOp::create(
                          b, routes.isOwn,
                          emitter.isBelow(routes.position, routes.most));
                      Value block = emitter.select(
                          routes.isOwn,
                          emitter.mul(routes.own, emitter.tokens()),
                          routes.begin);
                      auto loadPart = [&] {
                        Value from = emitter.at(
                            emitter.select(routes.isOwn, mine, others),
                            emitter.add(block, routes.position), rowBytes,
                            offset);
                        Value piece =
                            emitter.load(pieces.piece, from, pieces.bytes);
                        return SmallVector<Value>{castFloat(
                            b, LLVM::BitcastOp::create(b, pieces.terms, piece),
                            b.getF32Type())};
                      };
                      auto lost = [&] {
                        return SmallVector<Value>{
                            emitter.select(routes.goesThere,
                                           splat(std::nanf("")), splat(0.0F))};
                      };
                      Value part =
                          emitter
                              .choose(emitter.isBoth(routes.goesThere, hasRoom),
                                      sums, loadPart, lost)
                              .front();
                      return SmallVector<Value>{
                          arith::AddFOp::create(b, sum[0], part)};
                    })
                .front();
        Value rounded = LLVM::BitcastOp::create(
            b, pieces.piece,
            castFloat(b, total, pieces.terms.getElementType()));
        emitter.store(
            rounded,
            emitter.at(emitter.beginOf(op.getResult()), row, rowBytes, offset),
            pieces.bytes);
      });
  return success();
}
