//===- LocateLayer.h - a layer among a checkpoint's tensors -----*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A checkpoint has the tensors of all layers, under names that say where a
// module is in the model: `model.layers.3.mlp.experts.0.up_proj.weight`. The
// table of names (TensorSignature.h) knows the end of such a name. Here the
// beginning is found, by names alone: no file of weights is opened.
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_CHECKPOINT_LOCATELAYER_H
#define MOEC_CHECKPOINT_LOCATELAYER_H

#include "moec/Import/Shards.h"
#include "moec/Import/TensorSignature.h"
#include "moert/Checkpoint.h"

namespace moec {

/// What a rank of several has of a layer (docs/parallel.md).
struct RankRequest {
  std::vector<TensorShard> shards;
  /// Weights that no checkpoint has: which experts the rank has, and which
  /// others have.
  std::vector<NamedTable> tables;
};

/// The layer that is looked for.
struct LayerRequest {
  std::vector<TensorInfo> signature;
  /// Global ids of the experts whose weights the layer has, in their order;
  /// without any, canonical names alone are accepted.
  std::vector<int64_t> expertIds;
  /// Experts of the model: those that are not in `expertIds` are elsewhere.
  int64_t numExperts = 0;
  /// A checkpoint without names of its own has to bring a call's inputs too.
  bool inputsAreRequired = true;
  /// The number of the decoder layer, where it is known. Names without a number
  /// are those of a layer saved by itself.
  std::optional<int64_t> layer;
  /// The description, where there is one: what a GGUF file's metadata say is
  /// compared with it, and messages about unused tensors name its fields.
  std::optional<LayerSpec> spec;
  /// Where a rank is to have its weights alone: everything above is of the
  /// layer on one rank, whose names the checkpoint has.
  std::optional<RankRequest> rank;

  /// The part of a weight that the rank has; null for all of it.
  const TensorShard *findShard(llvm::StringRef tensor) const;
};

/// What a spec asks for, `parallel` aside.
LayerRequest makeRequest(const LayerSpec &spec);
/// What a rank of a spec with `parallel` asks for.
LayerRequest makeRequest(const LayerSpec &spec, int64_t rank);

/// One tensor of the checkpoint.
struct LocatedPart {
  /// Its name in the checkpoint.
  std::string name;
  /// Where its values go, a part of the request's; null for a tensor under its
  /// canonical name, which goes in as it is.
  const CheckpointPart *part = nullptr;
  /// The place in the layer, or among those of the rank, of the expert whose
  /// part it is, where there is one for each.
  int64_t slot = 0;
};

/// What fills a tensor of the layer.
struct LocatedTensor {
  /// Canonical.
  std::string name;
  std::vector<LocatedPart> parts;
};

/// Points into the request.
struct LocatedLayer {
  std::vector<LocatedTensor> tensors;
  /// Names of a checkpoint were found, which never has a call's inputs.
  bool hasCheckpointNames = false;

  /// Null where the checkpoint has none.
  const LocatedTensor *find(llvm::StringRef name) const;
};

/// Finds every weight of the layer, of which a rank gets its experts' alone,
/// and the inputs that are there under their canonical names. A name that looks
/// like one of the layer's but is none is a failure, since its values would be
/// left out in silence. Modules that are no decoder (multi-token prediction,
/// vision, speech) never count.
moert::Result<LocatedLayer> locateLayer(const moert::Checkpoint &checkpoint,
                                        const LayerRequest &request);

} // namespace moec

#endif // MOEC_CHECKPOINT_LOCATELAYER_H
