//===- PartCopier.h - copies tensors of a checkpoint ------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Copies tensors of a file into a tensor of the layer matrix by matrix: one per
// expert, or the only one. Values are copied straight from the mapped file
// without an intermediate buffer, and a rank reads only its own part of a
// matrix.
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_TOOLS_RUN_PARTCOPIER_H
#define MOEC_LIB_TOOLS_RUN_PARTCOPIER_H

#include "CheckParts.h"
#include "GgmlBlocks.h"
#include "moec/Import/Shards.h"
#include "moert/Device.h"
#include "llvm/ADT/SmallVector.h"

#include <optional>

namespace moec {

/// The matrices of a tensor: rows x columns of stored elements.
struct MatrixShape {
  /// `isStacked`: the first dimension counts experts.
  MatrixShape(llvm::ArrayRef<int64_t> shape, bool isStacked);

  int64_t count = 1, rows = 1, columns = 1;
  /// Whether the tensor has one dimension, whose elements are rows: a bias.
  bool isVector = false;
};

/// The tensor of the layer to fill.
struct CopyTarget {
  std::string name;
  moert::DType dtype = moert::DType::F32;
  /// Shape in the layer on one rank.
  std::vector<int64_t> shape;
  bool isStacked = false;
  /// The part of it on this rank; null for all.
  const TensorShard *shard = nullptr;
  /// Whether values that `dtype` does not have are rounded.
  bool rounds = false;

  /// The matrices of the layer on one rank, and those of this rank.
  MatrixShape getWhole() const { return {shape, isStacked}; }
  MatrixShape getLocal() const;
  /// Bytes of a matrix of this rank.
  size_t getMatrixBytes() const;
  /// The index in the layer on one rank of this rank's matrix `place`.
  int64_t getMatrix(int64_t place) const;
};

/// Copies elements of one tensor of a file into one of the layer's.
class PartCopier {
public:
  PartCopier(const std::string &file, const moert::SafetensorsEntry &entry,
             const CopyTarget &target)
      : file(file), entry(entry), target(target) {}

  /// Copies the file's tensor of the same name. `place` is the index of the
  /// matrix on this rank, and `matrix` its memory.
  moert::Status copyOwn(int64_t place, uint8_t *matrix);

  /// Copies a part of the matrix; the file's tensor is of one expert if the
  /// part is per expert.
  moert::Status copyPart(const CheckpointPart &part, int64_t place,
                         uint8_t *matrix);

  /// Returns the only element of the file's tensor, the scale of a gemm's
  /// input.
  moert::Result<float> readInputScale();

  /// The rows of copyPart(), if a device can copy them as they are: its tensor
  /// has the layer's elements in the order of the layer. `to` is an offset in
  /// the matrix. Otherwise nothing. Null for `part` is copyOwn().
  moert::Result<std::optional<llvm::SmallVector<moert::RowCopy, 2>>>
  getDeviceRows(const CheckpointPart *part, int64_t place);

private:
  /// Consecutive rows of a part in the file, and their rows here, `step` apart.
  struct Run {
    int64_t from = 0, to = 0, step = 1, count = 0;
  };
  llvm::SmallVector<Run, 2> getRuns(const CheckpointPart &part) const;
  int64_t getFirstColumn() const;

  moert::Status fail(const std::string &what) const;
  moert::Status check(llvm::ArrayRef<int64_t> shape, moert::DType dtype,
                      const std::string &blocks = "") const;
  bool isInBlocks(llvm::ArrayRef<int64_t> shape) const;
  int64_t countExperts(const CheckpointPart &part) const;
  int64_t getNumber(const CheckpointPart &part, int64_t place) const;
  std::vector<int64_t> getExpectedShape(const CheckpointPart &part) const;
  moert::Status checkShape(const CheckpointPart &part) const;
  moert::Status checkScales(const CheckpointPart &part, int64_t first,
                            int64_t count) const;
  moert::Status finish() const;
  /// Matrix `number` of the `count` in `entry`.
  moert::SafetensorsEntry getMatrix(int64_t number, int64_t count) const;

  /// Copies the part from a device's tensor, whose matrix is fetched.
  moert::Status copyFetched(const CheckpointPart &part, int64_t place,
                            uint8_t *matrix);
  moert::Status copyBlocks(const CheckpointPart &part, int64_t number,
                           const moert::SafetensorsEntry &from, const Run &run,
                           uint8_t *matrix) const;
  /// Dequantizes ggml's blocks of a matrix that the layer stores in its dtype.
  moert::Status copyDecoded(const CheckpointPart &part, const GgmlBlock &block,
                            int64_t place, uint8_t *matrix);
  /// Whether the file has the matrix in tiles (CheckpointPart::maybeTiled).
  bool isTiled(const CheckpointPart &part) const;
  moert::Status copyTiled(const CheckpointPart &part, int64_t place,
                          uint8_t *matrix);
  /// Whether the file has one scale for all rows of a matrix: gate and up that
  /// were quantized as one.
  bool isOneScale(const CheckpointPart &part) const;
  moert::Status copyOneScale(const CheckpointPart &part, int64_t place,
                             uint8_t *matrix);
  /// The part's matrix in the memory of the host; `bytes` holds it if it is
  /// fetched from a device.
  moert::Result<moert::SafetensorsEntry>
  fetchMatrix(const CheckpointPart &part, int64_t place,
              std::vector<uint8_t> &bytes) const;
  void copyPlain(const CheckpointPart &part, int64_t first, const Run &run,
                 uint8_t *matrix);
  /// Records the first of `count` elements that is not finite.
  void look(int64_t from, int64_t count);
  void copyRow(int64_t from, uint8_t *to, int64_t count);
  void multiplyRow(double factor, uint8_t *row, int64_t count) const;
  void copyTransposed(int64_t from, int64_t rowsOfPart, uint8_t *to,
                      int64_t rows, int64_t columns, int64_t stepBytes);
  void copy(int64_t from, uint8_t *to);

  const std::string &file;
  const moert::SafetensorsEntry &entry;
  const CopyTarget &target;
  /// The use of the part that is copied.
  PartUse use = PartUse::Values;
  /// Whether copied elements must be finite.
  bool needsFinite = false;
  /// The first element that is not finite, or -1.
  int64_t nonFinite = -1;
  /// The first element whose value the layer's type cannot represent, or -1.
  int64_t lossy = -1;
};

} // namespace moec

#endif // MOEC_LIB_TOOLS_RUN_PARTCOPIER_H
