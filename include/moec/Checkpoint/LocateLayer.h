//===- LocateLayer.h - finds a layer's tensors in a checkpoint --*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A checkpoint holds the tensors of all layers under names with the path of a
// module in the model: `model.layers.3.mlp.experts.0.up_proj.weight`. The table
// of names (TensorSignature.h) has the end of such a name; this code finds the
// prefix, by names alone. No file of weights is opened.
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_CHECKPOINT_LOCATELAYER_H
#define MOEC_CHECKPOINT_LOCATELAYER_H

#include "moec/Import/Shards.h"
#include "moec/Import/TensorSignature.h"
#include "moert/Checkpoint.h"

namespace moec {

/// The part of a layer that one of several ranks holds (docs/use/parallel.md).
struct RankRequest {
  std::vector<TensorShard> shards;
  /// Weights that are in no checkpoint: the experts of this rank and of the
  /// others.
  std::vector<NamedTable> tables;
};

/// The layer to find.
struct LayerRequest {
  std::vector<TensorInfo> signature;
  /// Global ids of the layer's local experts, in order. If empty, only
  /// canonical names are accepted.
  std::vector<int64_t> expertIds;
  /// Number of experts in the model; ids not in `expertIds` are ignored.
  int64_t numExperts = 0;
  /// With canonical names the checkpoint must also contain a call's inputs.
  bool inputsAreRequired = true;
  /// Index of the decoder layer, if known. Names without an index belong to a
  /// layer saved by itself.
  std::optional<int64_t> layer;
  /// The description, if there is one. GGUF metadata is compared with it, and
  /// messages about unused tensors name its fields.
  std::optional<LayerSpec> spec;
  /// Set to load the weights of one rank. The fields above, and the
  /// checkpoint's names, then describe the whole layer.
  std::optional<RankRequest> rank;

  /// The rank's shard of a weight; null for all of it.
  const TensorShard *findShard(llvm::StringRef tensor) const;
};

/// The request for a spec, ignoring `parallel`.
LayerRequest makeRequest(const LayerSpec &spec);
/// The request of one rank of a spec with `parallel`.
LayerRequest makeRequest(const LayerSpec &spec, int64_t rank);

/// One tensor of the checkpoint.
struct LocatedPart {
  /// Name in the checkpoint.
  std::string name;
  /// Destination of its values, in the request. Null for a tensor with its
  /// canonical name, which is copied as it is.
  const CheckpointPart *part = nullptr;
  /// Index of its expert in the layer or on the rank, if there is one tensor
  /// per expert.
  int64_t slot = 0;
};

/// The checkpoint tensors that fill a tensor of the layer.
struct LocatedTensor {
  /// Canonical name.
  std::string name;
  std::vector<LocatedPart> parts;
};

/// Result of `locateLayer`; points into the request.
struct LocatedLayer {
  std::vector<LocatedTensor> tensors;
  /// The checkpoint uses its own names and therefore has no inputs of a call.
  bool hasCheckpointNames = false;

  /// Null if the checkpoint does not have it.
  const LocatedTensor *find(llvm::StringRef name) const;
};

/// Finds all weights of the layer (of a rank only those of its experts), and
/// the inputs that are stored under canonical names. A name that resembles a
/// layer tensor but matches none is an error, since its values would be
/// silently dropped. Modules other than decoders (multi-token prediction,
/// vision, speech) never match.
moert::Result<LocatedLayer> locateLayer(const moert::Checkpoint &checkpoint,
                                        const LayerRequest &request);

} // namespace moec

#endif // MOEC_CHECKPOINT_LOCATELAYER_H
