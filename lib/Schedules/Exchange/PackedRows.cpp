//===- PackedRows.cpp - rows of an all-to-all -------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// The schedules gpu.route_rows, gpu.pack_rows and gpu.sum_packed_rows. To
// route, a CTA counts the rows for one destination rank: its warps have equal,
// contiguous ranges of rows, count them, and after a barrier assign positions.
// To pack, a warp copies a row to all its destination ranks in turn. To sum, a
// thread adds a chunk of a row.

#include "KernelBuilder/ThreadEmitter.h"
#include "Schedules/Interface/Emit.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "moec/Schedules/Exchange.h"
#include "moec/Support/GpuInstructions.h"
#include "moert/PackedRows.h"

#include <limits>

using namespace mlir;
using namespace moec;
using moert::PackedRows;

namespace {

/// Base of the three emitters.
class PackedRowsEmitter : public ThreadEmitter {
public:
  explicit PackedRowsEmitter(KernelBody body)
      : ThreadEmitter(body.func, body.kernel, body.threads) {}

  /// The base address of a memref.
  Value beginOf(Value argument) { return baseAddress(operand(argument)); }
  /// `pointer + row * bytes + more`.
  Value at(Value pointer, Index row, int64_t bytes, Index more) {
    return advance(pointer, toI64(row * bytes + more));
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
    auto word = [&](int64_t i) {
      return emitter.toIndex(memref::LoadOp::create(
          emitter.b, emitter.operand(header), ValueRange{emitter.index(i)}));
    };
    own = word(PackedRows::kIndex);
    capacity = word(PackedRows::kCapacity);
    isLimited = emitter.index(0) < capacity;
    mostRows = select(isLimited, capacity, std::numeric_limits<int32_t>::max());
  }

  /// A row at a destination rank.
  struct Route {
    /// Whether the row goes there, and its position among those that do.
    Flag goesThere;
    Index position;
    /// Whether the rank is this one.
    Flag isOwn;
    /// The rank's first packed row.
    Index begin;
  };

  /// Calls `body(route, state)` for each rank in turn.
  template <typename State, typename Body>
  State forRanks(Index row, State state, Body body) {
    struct Carried {
      Index begin;
      State state;
      auto fields() { return std::tie(begin, state); }
    };
    return emitter
        .loop(emitter.index(0), emitter.index(ranks), 1,
              Carried{emitter.index(0), state},
              [&](Index rank, const Carried &carried) {
                Route route;
                route.begin = carried.begin;
                route.isOwn = rank == own;
                route.position =
                    emitter.loadIndex(positions, rank * emitter.tokens() + row);
                route.goesThere = emitter.index(-1) < route.position;
                Index count = emitter.loadIndex(counts, ValueRange{rank});
                Index rows = select(isLimited, capacity, count);
                Index next =
                    carried.begin + select(route.isOwn, emitter.index(0), rows);
                return Carried{next, body(route, carried.state)};
              })
        .state;
  }

  /// The largest number of rows that go to one rank.
  Index findMost() {
    return emitter.loop(
        emitter.index(0), emitter.index(ranks), 1, emitter.index(0),
        [&](Index rank, Index most) {
          return max(most, emitter.loadIndex(counts, ValueRange{rank}));
        });
  }

  /// Whether a block of packed rows has the row.
  Flag isWithin(const Route &route) {
    Flag fits = route.position < mostRows;
    return route.isOwn | fits;
  }
  /// The rank's first row, in this rank's tensor or among the packed rows.
  Index findBlock(const Route &route) {
    return select(route.isOwn, own * emitter.tokens(), route.begin);
  }

  /// This rank; the capacity of a block of packed rows, in rows, or 0 if blocks
  /// are as long as their rows need; whether it limits them.
  Index own, capacity;
  Flag isLimited;

private:
  PackedRowsEmitter &emitter;
  Value positions, counts;
  int64_t ranks;
  /// Rows that fit in a block.
  Index mostRows;
};

/// A row as chunks that are copied whole.
struct RowChunks {
  explicit RowChunks(PackedRowsEmitter &emitter, MemRefType type) {
    constexpr int64_t wordBytes = 4;
    ExchangedPart part = getExchangedPart(plan::CollectiveKind::AllGather,
                                          /*ranks=*/1, type);
    bytes = part.chunkBytes;
    count = part.chunks;
    OpBuilder &b = emitter.b;
    if (bytes <= wordBytes)
      chunk = b.getIntegerType(unsigned(CHAR_BIT * bytes));
    else
      chunk = VectorType::get(bytes / wordBytes, b.getI32Type());
    Type element = type.getElementType();
    elements = VectorType::get(
        bytes * CHAR_BIT / element.getIntOrFloatBitWidth(), element);
  }

  int64_t bytes, count;
  Type chunk;
  VectorType elements;
};

} // namespace

//===----------------------------------------------------------------------===//
// gpu.route_rows
//===----------------------------------------------------------------------===//

namespace {

class RouteRows {
public:
  RouteRows(tile::RouteRowsOp op, KernelBody body)
      : op(op), emitter(body), ids(emitter.operand(op.getIds())),
        destinations(emitter.operand(op.getDestinations())),
        warps(emitter.getNumWarps()) {}

  void emit() {
    Index numRows = emitter.tokens();
    numValid = emitter.validTokens(op.getNumValidTokens());
    // In each iteration a warp takes one row per lane.
    iterations = divideUp(numRows, warps * kWarp);
    Index warp = emitter.toIndex(emitter.warp());
    first = warp * iterations * kWarp + emitter.toIndex(emitter.lane());
    Value sums = emitter.scratch({warps}, emitter.b.getI32Type());
    I32 count = forRows(emitter.i32(0), [&](const Rows &rows, I32 counted) {
      return counted + rows.mask.popcount();
    });
    emitter.ifThen(emitter.toIndex(emitter.lane()) == 0,
                   [&] { emitter.storeI32(count, sums, ValueRange{warp}); });
    emitter.barrier();
    I32 before = sum(sums, warp);
    Value positions = emitter.operand(op.getPositions());
    forRows(before, [&](const Rows &rows, I32 counted) {
      I32 below = (emitter.i32(1) << emitter.lane()) - 1;
      I32 position = counted + (rows.mask & below).popcount();
      emitter.ifThen(rows.row < numRows, [&] {
        emitter.storeI32(select(rows.goesThere, position, -1), positions,
                         ValueRange{emitter.cta() * numRows + rows.row});
      });
      return counted + rows.mask.popcount();
    });
    emitter.ifThen(emitter.toIndex(emitter.thread()) == 0, [&] {
      emitter.storeI32(sum(sums, emitter.index(warps)),
                       emitter.operand(op.getCounts()), {emitter.cta()});
    });
  }

private:
  /// The rows of a warp in an iteration: this lane's one, whether that goes to
  /// the rank, and those of all lanes that do, as bits.
  struct Rows {
    Index row;
    Flag goesThere;
    I32 mask;
  };

  /// The sum of the first `count` elements.
  I32 sum(Value memref, Index count) {
    return emitter.loop(emitter.index(0), count, 1, emitter.i32(0),
                        [&](Index i, I32 total) {
                          return total + emitter.loadI32(memref, ValueRange{i});
                        });
  }

  /// Calls `body(rows, state)` in each iteration.
  template <typename Body>
  I32 forRows(I32 state, Body body) {
    return emitter.loop(emitter.index(0), iterations, 1, state,
                        [&](Index i, I32 state) {
                          Index row = first + i * kWarp;
                          Flag goesThere = find(row);
                          I32 mask = emitter.ballot(goesThere);
                          return body(Rows{row, goesThere, mask}, state);
                        });
  }

  /// Whether the CTA's rank has an expert of the row. All ids are loaded before
  /// the first lookup.
  Flag find(Index row) {
    int64_t topK = cast<MemRefType>(ids.getType()).getDimSize(1);
    int64_t numExperts = cast<MemRefType>(destinations.getType()).getDimSize(0);
    Flag isRow = row < numValid;
    Index there = select(isRow, row, 0);
    SmallVector<Index> experts;
    for (int64_t i = 0; i < topK; ++i)
      experts.push_back(emitter.loadIndex(ids, {there, emitter.index(i)}));
    Flag found = emitter.flag(false);
    for (Index expert : experts) {
      Flag isExpert = expert.isBelow(numExperts);
      Index destination = emitter.loadIndex(
          destinations, ValueRange{select(isExpert, expert, 0)});
      found = found | (isExpert & (destination == emitter.cta()));
    }
    return isRow & found;
  }

  tile::RouteRowsOp op;
  PackedRowsEmitter emitter;
  Value ids, destinations;
  Index numValid;
  /// Iterations of a warp, and the lane's first row.
  Index iterations, first;
  int64_t warps;
};

} // namespace

LogicalResult moec::emitGpuRouteRows(Operation *phase, KernelBody body) {
  RouteRows(cast<tile::RouteRowsOp>(phase), body).emit();
  return success();
}

//===----------------------------------------------------------------------===//
// gpu.pack_rows
//===----------------------------------------------------------------------===//

/// Copies the lane's chunks of a row of `in` to each of its destination ranks.
static void packRow(PackedRowsEmitter &emitter, Routes &routes, Index row,
                    Value in, Value out, Value packed) {
  // Chunks of a lane in registers at once.
  constexpr int64_t mostAtOnce = 8;
  RowChunks chunks(emitter, cast<MemRefType>(in.getType()));
  int64_t rowBytes = chunks.count * chunks.bytes;
  int64_t perLane = llvm::divideCeil(chunks.count, kWarp);
  Value from = emitter.beginOf(in), toOwn = emitter.beginOf(out),
        toOther = emitter.beginOf(packed);
  Index lane = emitter.toIndex(emitter.lane());
  for (int64_t begin = 0; begin < perLane; begin += mostAtOnce) {
    int64_t count = std::min(mostAtOnce, perLane - begin);
    SmallVector<Index> offsets;
    SmallVector<Flag> isThere;
    SmallVector<Value> loaded;
    for (int64_t i = 0; i < count; ++i) {
      Index chunk = lane + (begin + i) * kWarp;
      isThere.push_back(chunk < chunks.count);
      // An absent chunk loads chunk 0 instead and drops it.
      Index loads = select(isThere.back(), chunk, 0);
      offsets.push_back(chunk * chunks.bytes);
      loaded.push_back(emitter.load(
          chunks.chunk, emitter.at(from, row, rowBytes, loads * chunks.bytes),
          chunks.bytes));
    }
    using None = SmallVector<Value>;
    routes.forRanks(row, None(), [&](const Routes::Route &route, const None &) {
      emitter.ifThen(route.goesThere & routes.isWithin(route), [&] {
        Index block = routes.findBlock(route);
        Value base = select(route.isOwn, toOwn, toOther);
        Value to = emitter.at(base, block + route.position, rowBytes,
                              emitter.index(0));
        for (int64_t i = 0; i < count; ++i)
          emitter.ifThen(isThere[i], [&] {
            emitter.store(loaded[i],
                          emitter.advance(to, emitter.toI64(offsets[i])),
                          chunks.bytes);
          });
      });
      return None();
    });
  }
}

LogicalResult moec::emitGpuPackRows(Operation *phase, KernelBody body) {
  auto op = cast<tile::PackRowsOp>(phase);
  PackedRowsEmitter emitter(body);
  Routes routes(emitter, op.getPositions(), op.getCounts(), op.getHeader());
  Index first = emitter.cta() * emitter.getNumWarps();
  Index row = first + emitter.toIndex(emitter.warp());
  emitter.ifThen(row < emitter.tokens(), [&] {
    for (auto [in, out, packed] :
         llvm::zip(op.getIns(), op.getOuts(), op.getPacked()))
      packRow(emitter, routes, row, in, out, packed);
  });
  Flag isFirst =
      (emitter.cta() == 0) & (emitter.toIndex(emitter.thread()) == 0);
  emitter.ifThen(isFirst & routes.isLimited, [&] {
    Index most = routes.findMost();
    emitter.ifThen(routes.capacity < most, [&] {
      memref::StoreOp::create(emitter.b, emitter.toI64(most),
                              emitter.operand(op.getHeader()),
                              ValueRange{emitter.index(PackedRows::kMost)});
    });
  });
  return success();
}

//===----------------------------------------------------------------------===//
// gpu.sum_packed_rows
//===----------------------------------------------------------------------===//

/// The sum of one chunk of a row over the row's destination ranks; `offset` is
/// that of the chunk in a row.
static F32 sumChunk(PackedRowsEmitter &emitter, Routes &routes,
                    tile::SumPackedRowsOp op, const RowChunks &chunks,
                    Index row, Index offset) {
  ImplicitLocOpBuilder &b = emitter.b;
  Value own = emitter.beginOf(op.getInput()),
        others = emitter.beginOf(op.getPacked());
  auto splat = [&](double value) {
    return F32(b, emitter.splat(value, chunks.elements.getNumElements()));
  };
  // The sum starts at -0.0, so that adding the first row leaves it unchanged.
  return routes.forRanks(
      row, splat(-0.0), [&](const Routes::Route &route, F32 sum) {
        Index block = routes.findBlock(route);
        auto load = [&] {
          Value base = select(route.isOwn, own, others);
          Value from = emitter.at(base, block + route.position,
                                  chunks.count * chunks.bytes, offset);
          Value chunk = emitter.load(chunks.chunk, from, chunks.bytes);
          return F32(
              b,
              castFloat(b, LLVM::BitcastOp::create(b, chunks.elements, chunk),
                        b.getF32Type()));
        };
        // A row beyond the capacity is lost: its sum becomes NaN.
        auto drop = [&] {
          return select(route.goesThere, splat(std::nan("")), splat(0.0));
        };
        return sum + emitter.choose(route.goesThere & routes.isWithin(route),
                                    load, drop);
      });
}

LogicalResult moec::emitGpuSumPackedRows(Operation *phase, KernelBody body) {
  auto op = cast<tile::SumPackedRowsOp>(phase);
  PackedRowsEmitter emitter(body);
  ImplicitLocOpBuilder &b = emitter.b;
  Routes routes(emitter, op.getPositions(), op.getCounts(), op.getHeader());
  RowChunks chunks(emitter, cast<MemRefType>(op.getInput().getType()));
  Index first = emitter.cta() * body.threads;
  Index index = first + emitter.toIndex(emitter.thread());
  emitter.ifThen(index < emitter.tokens() * chunks.count, [&] {
    Index row = index / chunks.count;
    Index offset = index % chunks.count * chunks.bytes;
    F32 total = sumChunk(emitter, routes, op, chunks, row, offset);
    Value rounded = LLVM::BitcastOp::create(
        b, chunks.chunk, castFloat(b, total, chunks.elements.getElementType()));
    emitter.store(rounded,
                  emitter.at(emitter.beginOf(op.getResult()), row,
                             chunks.count * chunks.bytes, offset),
                  chunks.bytes);
  });
  return success();
}
