//===- ExpertOrders.h - column orders of act-order --------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Column orders of matrices that were quantized with act-order.
//
// With act-order a tensor assigns each column of a matrix to any group of
// scales. The layer's groups are neighbouring columns, so columns are stored
// group by group. For the first gemm the order becomes a tensor of the layer
// (`experts.w13_columns`, `shared_experts.w13_columns`). For the second gemm
// the rows of the first are stored in the same order.
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_TOOLS_RUN_EXPERTORDERS_H
#define MOEC_LIB_TOOLS_RUN_EXPERTORDERS_H

#include "PartCopier.h"
#include "moec/Checkpoint/LocateLayer.h"

namespace moec {

/// The column orders of a layer's routed experts or of its shared one; only
/// those of this rank, if the layer is split.
class ExpertOrders {
public:
  /// `experts` is the prefix of the tensors' names, "experts." or
  /// "shared_experts.". Fails if a tensor holds no valid order, or one that the
  /// layer does not support.
  static moert::Result<ExpertOrders> read(moert::Checkpoint &checkpoint,
                                          const LocatedLayer &layer,
                                          const LayerRequest &request,
                                          llvm::StringRef experts);

  /// Permutes a matrix from the file's order into the layer's; leaves a matrix
  /// of other experts as it is.
  void apply(const CopyTarget &target, int64_t index, uint8_t *matrix) const;

  /// Whether a matrix of expert `index` may be permuted.
  bool has(int64_t index) const { return size_t(index) < orders.size(); }

  /// Whether the order of an expert's second gemm mixes the parts of ranks.
  bool mixesParts(int64_t index) const {
    return has(index) && !orders[size_t(index)].w2.empty();
  }

  /// Writes the index of the input element that each column of an expert's
  /// first gemm multiplies.
  void writeColumns(int64_t index,
                    llvm::MutableArrayRef<int32_t> columns) const;

private:
  /// Element i of the layer is element `order[i]` of the file; empty if both
  /// orders are equal.
  using Order = std::vector<int32_t>;
  struct OrdersOfExpert {
    Order w13, w2;
  };
  /// Rows of the first gemm that share an order: gate, up, or both in sequence.
  struct Plane {
    int64_t firstRow = 0, rowStride = 1, numRows = 0;
  };

  explicit ExpertOrders(llvm::StringRef experts)
      : first((experts + "w13").str()), second((experts + "w2").str()),
        isShared(experts != "experts.") {}

  moert::Status readProduct(moert::Checkpoint &checkpoint,
                            const LocatedLayer &layer,
                            const LayerRequest &request,
                            const std::string &name);
  void findPlanes(const LocatedTensor &w13);
  void orderRows(const Order &order, size_t rowBytes, size_t bytes,
                 uint8_t *matrix) const;

  /// The names of the weights of both gemms.
  std::string first, second;
  bool isShared;
  /// Indexed by the experts of this rank.
  std::vector<OrdersOfExpert> orders;
  llvm::SmallVector<Plane, 2> planes;
  /// Bits of an element of either gemm's weights.
  int64_t elementBits = 8;
};

} // namespace moec

#endif // MOEC_LIB_TOOLS_RUN_EXPERTORDERS_H
