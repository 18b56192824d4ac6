//===- Gemm.h - the parts of sm90.gemm --------------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_SCHEDULES_SM90GEMM_GEMM_H
#define MOEC_LIB_SCHEDULES_SM90GEMM_GEMM_H

#include "KernelBuilder/Pipeline.h"
#include "TileScheduler.h"

#include <deque>

namespace moec {

struct KernelBody;

/// State that the warpgroups of a CTA share: the layout of shared memory, the
/// pipeline and the tile scheduler.
///
/// A kernel of joined gemms has two of them, the first being `before` of the
/// second. All warps go through the tiles of the first, then through those of
/// the second, with one pipeline and one table. While other CTAs still multiply
/// the last tiles of the first gemm, weights of the second are copied; its rows
/// wait until all those tiles are done. Rows that the consumers of all CTAs
/// quantize first are waited for in the same way.
class Sm90Gemm {
public:
  Sm90Gemm(tile::GemmOp op, AsyncEmitter &emitter, Sm90Gemm *before = nullptr);

  tile::GemmOp op;
  AsyncEmitter &emitter;
  mlir::ImplicitLocOpBuilder &b;
  sm90::GemmShape shape;
  /// Dynamic shared memory.
  mlir::Value shared;
  /// Full stages: copies have arrived. Empty stages: wgmmas have read them.
  Pipeline pipeline;
  Sm90TileScheduler scheduler;
  /// One stage: the sums of the other CTAs of a cluster that splits K, in the
  /// first one. Full: they are there. Empty, in the others: they were read.
  Pipeline shares;

  bool hasBefore() const { return before; }
  /// Tensor map `i` of this gemm.
  mlir::Value tensorMap(int64_t i) { return emitter.tensorMap(firstMap + i); }
  mlir::Value sharedAddress(int64_t offset) {
    return emitter.advance(shared, offset);
  }
  /// Offset of the input rows in a stage, behind the weights.
  int64_t getInputOffset() const { return shape.shared().getWeightBytes(); }

  //===--- Clusters ---===//

  /// The first column, and the address in a stage, of the weights that the CTA
  /// copies of a k tile: all, or its share, which goes to the whole cluster.
  I32 getOwnColumn(const Sm90Tile &tile);
  mlir::Value getOwnWeights(I32 stage);
  /// The number of k tiles that the CTA multiplies of a tile, and the k tile at
  /// each step: all of them, or its share.
  I32 countSteps();
  I32 getKTile(I32 step);
  /// One warp: initializes the barriers of shares. Each consumer of the first
  /// CTA waits for the sums of its threads.
  void initShares(int64_t consumerWarps);
  /// Barrier of all threads of the CTA, or of its cluster.
  void meet();
  /// Sets the form of the kernel, if it is not plain.
  void setForm(const KernelBody &body);

  //===--- Waits for other CTAs and launches ---===//

  /// With ids, the prologue does not wait for the launches before, so that
  /// weights can be copied early; each role waits before it accesses anything
  /// else.
  void waitInRole();
  /// As waitInRole, but for the launches that have made the gemm's rows: that
  /// of adapters may still run behind them. Whole warps.
  void waitForRows();
  /// The same for all consumers.
  void waitForRowsAsConsumers();
  bool awaitsRows() const { return areRowsAwaited; }
  /// Signals to the second gemm, or to the sums behind the last one, that the
  /// CTA's results are stored, and adds the CTA's share of such sums. All
  /// consumers, after their last tile.
  void signal();
  /// All consumers: quantizes the CTA's share of the rows, signals that, and
  /// waits until all CTAs have done so. Does nothing if the kernel does not
  /// begin with a quantization.
  void quantizeRows();
  bool quantizesRows() const { return static_cast<bool>(quantization); }
  /// Waits until all CTAs have signalled the end of the phase before. Whole
  /// warps, before their first rows.
  void awaitBefore();

private:
  /// One thread: polls until all CTAs have signalled the end of the phase
  /// before; with quantized rows, only the CTAs that have any.
  void awaitAll();
  /// Consumers: waits for the results of all CTAs and adds the CTA's share.
  void addSums(tile::GatherReduceOp sums);

  /// One thread: polls until the launch before has signalled that earlier ones
  /// have ended.
  void pollRows();

  Sm90Gemm *before;
  tile::QuantizeOp quantization;
  bool areRowsAwaited;
  int64_t firstMap = 0;
};

/// The gemms of a kernel, in order.
using Sm90Gemms = std::deque<Sm90Gemm>;

/// All threads, ahead of the roles.
void emitSm90Prologue(Sm90Gemm &gemm);
/// The producer warpgroup.
void emitSm90Producer(Sm90Gemms &gemms);
/// One thread of the producer: issues the TMA copy of a k tile's rows, which
/// its stage waits for, with the lowest BLOCK_M, from index `i` on, that holds
/// them.
void loadSm90Rows(Sm90Gemm &gemm, const Sm90Tile &tile, I32 step, I32 stage,
                  size_t i = 0);
/// One warp of the producer: copies boxes of rows that the gemm before has
/// computed, from pipeline state `first` on.
void loadSm90AwaitedRows(Sm90Gemm &gemm, PipelineState first);
/// Warps of the producer that copy scattered rows, and scales, from pipeline
/// state `first` on. Returns the state at the end.
PipelineState emitSm90RowCopies(Sm90Gemm &gemm, PipelineState first);
/// Zeroes the rows of a dense gemm that are not valid.
void storeSm90ZeroRows(Sm90Gemm &gemm);
/// The consumer warpgroups. Fails with a diagnostic on an epilogue that cannot
/// be emitted.
mlir::LogicalResult emitSm90Consumer(Sm90Gemms &gemms);

} // namespace moec

#endif // MOEC_LIB_SCHEDULES_SM90GEMM_GEMM_H
