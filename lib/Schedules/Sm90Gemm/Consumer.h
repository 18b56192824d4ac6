//===- Consumer.h - the consumers of sm90.gemm ------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_SCHEDULES_SM90GEMM_CONSUMER_H
#define MOEC_LIB_SCHEDULES_SM90GEMM_CONSUMER_H

#include "Gemm.h"

namespace moec {

struct Sm90EpilogueOperands;

/// A consumer's part of a tile.
struct Sm90Part {
  /// BLOCK_M of the tile.
  int64_t blockM;
  /// `tile` has the part's own first row and column, and its rows: at most
  /// `maxRows`, perhaps fewer or none.
  Sm90Tile tile;
  int64_t maxRows;
};

/// Accumulators of one tile in the thread's registers, and the pipeline state
/// after it.
struct Sm90Sums {
  PipelineState end;
  /// Per block of the consumer's weights, in the order of wgmma accumulators:
  /// four of every 8 columns of N.
  llvm::SmallVector<llvm::SmallVector<F32>> blocks;
};

/// A consumer warpgroup: multiplies its part of the weights, or of the input
/// rows, with all of the other operand of a tile, at the lowest BLOCK_M that
/// holds the tile's rows, and then runs the epilogue.
class Sm90Consumer {
public:
  explicit Sm90Consumer(Sm90Gemm &gemm);

  /// All tiles, from pipeline state `first` on. Returns the state at the end.
  PipelineState emit(PipelineState first);
  mlir::LogicalResult getStatus() const { return status; }

private:
  /// A tile with the lowest BLOCK_M, from index `i` on, that holds its rows.
  PipelineState emitTile(const Sm90Tile &tile, PipelineState first,
                         size_t i = 0);

  //===--- The hooks ---===//

  /// The consumer's part of a tile with BLOCK_M `blockM`.
  Sm90Part setup(int64_t blockM, const Sm90Tile &tile);
  /// Mainloop: all k tiles from `first` on.
  Sm90Sums compute(int64_t blockM, const Sm90Tile &tile, PipelineState first);
  /// Epilogue.
  void finish(const Sm90Part &part, const Sm90EpilogueOperands &operands,
              const Sm90Sums &sums);

  //===--- Mainloops ---===//

  /// Operands of a k tile, in the form of `describeTile`.
  struct Factors {
    I32 weights, rows;

    auto fields() { return std::tie(weights, rows); }
  };

  /// Accumulates in tensor cores. `Sum`: F32, or I32 for int8.
  template <typename Sum>
  Sm90Sums multiply(int64_t blockM, const Sm90Tile &tile, PipelineState first);
  /// With promotion to f32 per k tile (Promoted.cpp).
  Sm90Sums multiplyPromoted(int64_t blockM, const Sm90Tile &tile,
                            PipelineState first);
  /// For weights that are decoded into registers (Decoded.cpp).
  Sm90Sums multiplyDecoded(int64_t blockM, const Sm90Tile &tile,
                           PipelineState first);
  Sm90Sums multiplyDecodedPromoted(int64_t blockM, const Sm90Tile &tile,
                                   PipelineState first);
  /// For weights from registers and few rows (WarpProducts.cpp).
  Sm90Sums multiplyByWarps(int64_t blockM, const Sm90Tile &tile,
                           PipelineState first);
  /// Adds the sums of a k tile to the f32 accumulators, scaled if there are
  /// scales.
  void promote(int64_t blockM, llvm::MutableArrayRef<F32> sums,
               llvm::ArrayRef<F32> products, llvm::ArrayRef<F32> rowScales,
               llvm::ArrayRef<F32> weightScales);
  /// wgmmas of a k tile and a block.
  int64_t getStepProducts() const;
  /// Operands of a stage, with the first of the consumer's blocks of weights.
  Factors describe(int64_t blockM, I32 stage);
  /// Operands of block `i`: the M side, and the N side.
  std::pair<I32, I32> getSides(int64_t blockM, const Factors &factors,
                               int64_t i);
  /// Releases a stage whose wgmmas are complete.
  void release(I32 stage);
  /// Releases a stage that all lanes of the warp have read.
  void releaseRead(I32 stage);
  /// Runs `body` in all k tiles except the first.
  void ifBehindFirst(Index step, llvm::function_ref<void()> body);
  /// Reduction between two consumers, if they share a block; each gets the sums
  /// of half of the rows (SharedBlock.cpp).
  template <typename Sum>
  void exchange(llvm::SmallVector<llvm::SmallVector<Sum>> &blocks);

  //===--- Shares of K (SplitK.cpp) ---===//

  /// `emit` of CTAs of a cluster that splits K.
  PipelineState emitShares(PipelineState first);
  /// Reduction between these CTAs: the first one gets the sums of all of K.
  template <typename Sum>
  void addShares(llvm::SmallVector<llvm::SmallVector<Sum>> &blocks);
  /// Runs `body` in the CTA that has the sums of all of K.
  void ifComplete(llvm::function_ref<void()> body);

  /// The sums of all blocks, block by block.
  static llvm::SmallVector<llvm::SmallVector<F32>>
  splitBlocks(llvm::ArrayRef<F32> sums, int64_t blocks) {
    llvm::SmallVector<llvm::SmallVector<F32>> split;
    for (size_t size = sums.size() / blocks; !sums.empty();
         sums = sums.drop_front(size))
      split.emplace_back(sums.take_front(size));
    return split;
  }

  Sm90Gemm &gemm;
  AsyncEmitter &emitter;
  mlir::ImplicitLocOpBuilder &b;
  const sm90::GemmShape &shape;
  const Pipeline &pipeline;
  /// The type of weights.
  mlir::Type element;
  /// Index of the consumer.
  I32 consumer;
  /// The parity of the number of tiles before, if CTAs share K.
  I32 shareParity;
  mlir::LogicalResult status = mlir::success();
};

} // namespace moec

#endif // MOEC_LIB_SCHEDULES_SM90GEMM_CONSUMER_H
