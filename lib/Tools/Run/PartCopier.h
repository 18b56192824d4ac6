//===- PartCopier.h - values of a checkpoint's tensor -----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A tensor of the layer is filled one matrix after the other: those of experts,
// or its only one. Values go from the mapped file to their place, so that
// nothing of the file is in memory beside them, and a rank that has a part of a
// matrix looks at no more of the file than that takes.
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_TOOLS_RUN_PARTCOPIER_H
#define MOEC_LIB_TOOLS_RUN_PARTCOPIER_H

#include "CheckParts.h"
#include "moec/Import/Shards.h"
#include "llvm/ADT/SmallVector.h"

namespace moec {

/// The matrices of a tensor: rows x columns of elements as they are stored.
struct MatrixShape {
  /// `isStacked`: the first dimension counts experts.
  MatrixShape(llvm::ArrayRef<int64_t> shape, bool isStacked);

  int64_t count = 1, rows = 1, columns = 1;
  /// Of one dimension, whose elements are rows: a bias.
  bool isVector = false;
};

/// A tensor of the layer that is filled.
struct CopyTarget {
  std::string name;
  moert::DType dtype = moert::DType::F32;
  /// On one rank.
  std::vector<int64_t> shape;
  bool isStacked = false;
  /// What this rank has of it; null for all.
  const TensorShard *shard = nullptr;

  /// Its matrices on one rank, and here.
  MatrixShape getWhole() const { return {shape, isStacked}; }
  MatrixShape getLocal() const;
  /// Bytes of one of them here.
  size_t getMatrixBytes() const;
  /// The number on one rank of the matrix that is at a place here.
  int64_t getMatrix(int64_t place) const;
};

/// Copies elements of one tensor of a file into one of the layer's.
class PartCopier {
public:
  PartCopier(const std::string &file, const moert::SafetensorsEntry &entry,
             const CopyTarget &target)
      : file(file), entry(entry), target(target) {}

  /// What the file has under the tensor's own name. `place` is that of a matrix
  /// here, and `matrix` its memory.
  moert::Status copyOwn(int64_t place, uint8_t *matrix);

  /// A part of the matrix, which has a tensor of its own where the part is per
  /// expert.
  moert::Status copyPart(const CheckpointPart &part, int64_t place,
                         uint8_t *matrix);

  /// The only element of the file's tensor, the scale of a product's input.
  moert::Result<float> readInputScale();

private:
  /// Rows of a part that follow each other there, and here at `step` from each
  /// other.
  struct Run {
    int64_t from = 0, to = 0, step = 1, count = 0;
  };
  /// The rows of a part that this rank has.
  llvm::SmallVector<Run, 2> getRuns(const CheckpointPart &part) const;
  /// The first of the columns that this rank has.
  int64_t getFirstColumn() const;

  moert::Status fail(const std::string &what) const;
  moert::Status check(llvm::ArrayRef<int64_t> shape, moert::DType dtype,
                      const std::string &blocks = "") const;
  bool isInBlocks(llvm::ArrayRef<int64_t> shape) const;
  std::vector<int64_t> getExpectedShape(const CheckpointPart &part) const;
  moert::Status checkShape(const CheckpointPart &part) const;
  moert::Status checkScales(const CheckpointPart &part, int64_t first,
                            int64_t count) const;
  moert::Status finish() const;
  /// The part of `entry` that is matrix `number` of it.
  moert::SafetensorsEntry getMatrix(int64_t number, int64_t count) const;

  moert::Status copyBlocks(const CheckpointPart &part, int64_t number,
                           const moert::SafetensorsEntry &from, const Run &run,
                           uint8_t *matrix) const;
  void copyPlain(const CheckpointPart &part, int64_t first, const Run &run,
                 uint8_t *matrix);
  /// Remembers the first of `count` elements that is not finite.
  void look(int64_t from, int64_t count);
  void copyRow(int64_t from, uint8_t *to, int64_t count);
  void copyTransposed(int64_t from, int64_t rowsOfPart, uint8_t *to,
                      int64_t rows, int64_t columns, int64_t stepBytes);
  void copy(int64_t from, uint8_t *to);

  const std::string &file;
  const moert::SafetensorsEntry &entry;
  const CopyTarget &target;
  /// Whether elements that are copied have to be finite.
  bool needsFinite = false;
  /// The first element that is not finite, or -1.
  int64_t nonFinite = -1;
  /// The first element whose value the layer's type does not have, or -1.
  int64_t lossy = -1;
};

} // namespace moec

#endif // MOEC_LIB_TOOLS_RUN_PARTCOPIER_H
