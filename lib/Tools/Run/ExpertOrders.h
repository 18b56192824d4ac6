//===- ExpertOrders.h - orders of columns in checkpoints --------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// With act-order any column of a matrix may be in any group of scales, and a
// tensor says which. The layer has groups of neighbours: columns are stored
// group by group. Those of the first product then have an order of their own,
// which is a tensor of the layer (`experts.w13_columns`,
// `shared_experts.w13_columns`); those of the second one are met by the rows of
// the first, which are stored in the same order.
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_TOOLS_RUN_EXPERTORDERS_H
#define MOEC_LIB_TOOLS_RUN_EXPERTORDERS_H

#include "PartCopier.h"
#include "moec/Checkpoint/LocateLayer.h"

namespace moec {

/// The orders of experts that tokens choose, or of the shared one: of a layer,
/// or of what a rank has of it.
class ExpertOrders {
public:
  /// `experts` is what names of their tensors begin with, "experts." or
  /// "shared_experts.". Fails where a tensor says no order, or one that the
  /// layer cannot have.
  static moert::Result<ExpertOrders> read(moert::Checkpoint &checkpoint,
                                          const LocatedLayer &layer,
                                          const LayerRequest &request,
                                          llvm::StringRef experts);

  /// Puts a matrix that is as the file has it in the layer's order; one of
  /// other experts stays as it is.
  void apply(const CopyTarget &target, int64_t place, uint8_t *matrix) const;

  /// Which element of its input each column of an expert's first product
  /// multiplies.
  void writeColumns(int64_t place,
                    llvm::MutableArrayRef<int32_t> columns) const;

private:
  /// Element i of the layer is element `order[i]` of the file; empty for that
  /// of the file.
  using Order = std::vector<int32_t>;
  struct OrdersOfExpert {
    Order w13, w2;
  };
  /// Rows of the first product that come as one: gate, up, or both, one behind
  /// the other.
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
  std::string getSplitMessage() const;
  void findPlanes(const LocatedTensor &w13);
  void orderRows(const Order &order, size_t rowBytes, size_t bytes,
                 uint8_t *matrix) const;

  /// The weights of the two products.
  std::string first, second;
  bool isShared;
  /// By their places here.
  std::vector<OrdersOfExpert> orders;
  llvm::SmallVector<Plane, 2> planes;
  /// Bits of an element of either product.
  int64_t elementBits = 8;
};

} // namespace moec

#endif // MOEC_LIB_TOOLS_RUN_EXPERTORDERS_H
