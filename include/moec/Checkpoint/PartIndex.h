//===- PartIndex.h - what one tensor of a checkpoint is ---------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// locateLayer() finds a layer in all names of a checkpoint. The index does the
// converse for one name, since tensors of a stream arrive one by one. Both use
// the table of names of TensorSignature.h.
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_CHECKPOINT_PARTINDEX_H
#define MOEC_CHECKPOINT_PARTINDEX_H

#include "moec/Checkpoint/LocateLayer.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringMap.h"

namespace moec {

/// A place of a checkpoint's tensor in the layer.
struct PartPlace {
  /// The layer's tensor.
  const TensorInfo *tensor = nullptr;
  /// The form that has the part; null for a tensor with its canonical name.
  const CheckpointForm *form = nullptr;
  LocatedPart located;
  /// The expert in names; meaningless unless there is one tensor per expert.
  int64_t expert = 0;
  /// The name before that of the part: "model.layers.3.mlp.".
  std::string prefix;
};

/// Tensors that can only be placed together.
struct PartGroup {
  std::vector<PartPlace> places;
  /// A name of the group that is absent; empty if all are there.
  std::string absent;
};

class PartIndex {
public:
  using Contains = llvm::function_ref<bool(llvm::StringRef)>;

  /// `request` outlives the index.
  explicit PartIndex(const LayerRequest &request);

  /// The places of a tensor in the layer; none for a tensor of another layer,
  /// of another rank or of no decoder. Two places in one tensor of the layer
  /// are alternatives.
  llvm::SmallVector<PartPlace, 2> find(llvm::StringRef name) const;

  /// Whether a tensor of this name may be one of the layer: by its place, or
  /// because it is in the same decoder layer and may be misspelled.
  bool concerns(llvm::StringRef name) const;

  /// Whether a tensor is placed without knowing others: its values neither
  /// depend on other tensors nor on an order of columns, and the name has no
  /// alternative places.
  bool isAlone(llvm::ArrayRef<PartPlace> places) const;

  /// The tensors that are placed together with a tensor that is not alone.
  /// `contains` tells which names there are.
  PartGroup getGroup(const PartPlace &place, Contains contains) const;

private:
  struct Entry {
    const TensorInfo *tensor;
    const CheckpointForm *form;
    const CheckpointPart *part;
    int64_t expert, slot;
  };

  void add(const TensorInfo &tensor, const CheckpointForm &form,
           const CheckpointPart &part);
  bool hasOrder(llvm::StringRef tensor) const;
  void addForm(const TensorInfo &tensor, const CheckpointForm &form,
               const PartPlace &like, Contains contains,
               PartGroup &group) const;

  const LayerRequest &request;
  /// By the part's name for an expert.
  llvm::StringMap<llvm::SmallVector<Entry, 2>> entries;
  /// Whether columns may have an order, of routed and of shared experts.
  bool hasOrders[2] = {false, false};
};

} // namespace moec

#endif // MOEC_CHECKPOINT_PARTINDEX_H
