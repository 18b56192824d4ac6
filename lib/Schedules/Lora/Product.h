//===- Product.h - products that the warps of a CTA share -------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_SCHEDULES_LORA_PRODUCT_H
#define MOEC_LIB_SCHEDULES_LORA_PRODUCT_H

#include "KernelBuilder/ThreadEmitter.h"
#include "Schedules/Interface/Emit.h"
#include "moec/Schedules/PtxasLimits.h"
#include "llvm/Support/MathExtras.h"

namespace moec::lora {

/// A product of tensor cores: some tiles of 16 rows by 8 columns. The warps
/// share K in blocks of 32, of which a lane loads 16 bytes of each row, and add
/// their sums in shared memory, in one order for each row.
class SharedProduct {
public:
  /// Rows have `width` elements of the type `element`; there are at most
  /// `tiles` tiles, and the kernel keeps up to `kept` registers through a
  /// product.
  SharedProduct(ThreadEmitter &emitter, mlir::Type element, int64_t width,
                int64_t warps, int64_t tiles, int64_t kept = 0)
      : emitter(emitter), b(emitter.b), element(element), width(width),
        warps(warps), tiles(tiles), kept(kept),
        table(emitter.scratch({warps * tiles * kTileSize}, b.getF32Type())) {}

  static constexpr int64_t kBlock = 32, kChunk = 8;
  /// Lanes that share a row or a column.
  static constexpr int64_t kLanesOfRow = 4;

  /// Blocks whose loads a warp has in flight at once, for tiles of rows and of
  /// columns; loads leave room for sums, addresses and what a kernel keeps.
  static int64_t getBlocksAtOnce(int64_t width, int64_t warps, int64_t rows,
                                 int64_t columns, int64_t kept = 0) {
    constexpr int64_t words = 4, wordsOfAddress = 2;
    int64_t loads = 2 * rows + columns;
    int64_t others = words * rows * columns + wordsOfAddress * loads + kept;
    if (width % (kBlock * warps))
      others += ptxas::kAdapterTailRegisters;
    int64_t most = std::max<int64_t>(
        1, (ptxas::kAdapterLoadRegisters - others) / (words * loads));
    int64_t blocks = llvm::divideCeil(width, kBlock * warps);
    return llvm::divideCeil(blocks, llvm::divideCeil(blocks, most));
  }
  /// Times that a warp waits for such loads.
  static int64_t countWaits(int64_t width, int64_t warps, int64_t rows,
                            int64_t columns, int64_t kept = 0) {
    return llvm::divideCeil(llvm::divideCeil(width, kBlock * warps),
                            getBlocksAtOnce(width, warps, rows, columns, kept));
  }

  /// Lets ptxas give no thread of the kernel more than
  /// ptxas::kAdapterRegisters.
  static void limitRegisters(const KernelBody &body);
  /// Multiplies the lane's rows `lane / 4` and the one 8 below it, of each tile
  /// of rows, by column `lane / 4` of each tile of columns, all given by
  /// address. Tiles of one height are neighbours in the result.
  mlir::SmallVector<mlir::Value> multiply(mlir::ArrayRef<mlir::Value> rows,
                                          mlir::ArrayRef<mlir::Value> columns);
  /// Puts the warp's sums where `get` finds them: all threads.
  void exchange(mlir::ArrayRef<mlir::Value> sums);
  /// The product of a row and a column, the sum over all warps; of one tile of
  /// rows.
  F32 get(I32 row, I32 column);
  /// The four products of a lane of a tile, `32 * tile + lane`: columns
  /// `lane % 4 * 2` and the next one, of row `lane / 4` and of the one 8 below.
  mlir::SmallVector<F32> getOfLane(I32 number);

private:
  mlir::SmallVector<mlir::Value>
  multiplyBlocks(mlir::SmallVector<mlir::Value> sums,
                 mlir::ArrayRef<mlir::Value> rows,
                 mlir::ArrayRef<mlir::Value> columns, I32 from, int64_t count);
  I32 firstOfLane();
  mlir::Value loadChunk(mlir::Value row, I32 from, int64_t offset);

  /// Sums of a warp's 16 x 8 results.
  static constexpr int64_t kTileSize = 16 * 8;

  ThreadEmitter &emitter;
  mlir::ImplicitLocOpBuilder &b;
  mlir::Type element;
  int64_t width, warps, tiles, kept;
  /// Each warp's sums.
  mlir::Value table;
};

} // namespace moec::lora

#endif // MOEC_LIB_SCHEDULES_LORA_PRODUCT_H
