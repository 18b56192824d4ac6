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

namespace moec::lora {

/// A product of tensor cores: some tiles of 16 rows by 8 columns. The warps
/// share K in blocks of 32, of which a lane loads 16 bytes of each row, and add
/// their sums in shared memory, in one order for each row.
class SharedProduct {
public:
  /// Rows have `width` elements of the type `element`; there are at most
  /// `tiles` tiles.
  SharedProduct(ThreadEmitter &emitter, mlir::Type element, int64_t width,
                int64_t warps, int64_t tiles)
      : emitter(emitter), b(emitter.b), element(element), width(width),
        warps(warps), tiles(tiles),
        table(emitter.scratch({warps * tiles * kTileSize}, b.getF32Type())) {}

  static constexpr int64_t kBlock = 32, kChunk = 8;
  /// Registers of a thread that let an SM have two CTAs of 8 warps; those of
  /// them that `multiply` may use.
  static constexpr int64_t kRegisters = 128, kLoadRegisters = 112;
  /// Lanes that share a row or a column.
  static constexpr int64_t kLanesOfRow = 4;

  /// Lets ptxas give no thread of the kernel more than kRegisters.
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
  int64_t width, warps, tiles;
  /// Each warp's sums.
  mlir::Value table;
};

} // namespace moec::lora

#endif // MOEC_LIB_SCHEDULES_LORA_PRODUCT_H
