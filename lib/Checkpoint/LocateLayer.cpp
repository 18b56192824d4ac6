//===- LocateLayer.cpp - finds a layer's tensors in a checkpoint ----------===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/Checkpoint/LocateLayer.h"

#include "../../runtime/src/support/Text.h"
#include "TensorPrefix.h"
#include "UnusedTensors.h"
#include "moec/Dialect/RowDestinations.h"
#include "moec/Import/GgufMetadata.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSet.h"

#include <set>

using namespace moec;
using llvm::StringRef;
using moert::Result;
using moert::Status;

namespace {

class Locator {
public:
  Locator(const moert::Checkpoint &checkpoint, const LayerRequest &request)
      : checkpoint(checkpoint), request(request) {}

  Result<LocatedLayer> run() {
    std::vector<const TensorInfo *> pending;
    for (const TensorInfo &tensor : request.signature) {
      if (tensor.role == TensorRole::Output)
        continue;
      if (checkpoint.contains(tensor.name)) {
        used.insert(tensor.name);
        found.tensors.push_back({tensor.name, {{tensor.name, nullptr, 0}}});
      } else if (tensor.role == TensorRole::Weight && !isFromIds(tensor)) {
        pending.push_back(&tensor);
      }
    }
    if (Status status = findBlock(pending); !status)
      return status;
    if (Status status = checkMetadata(); !status)
      return status;
    for (const TensorInfo *tensor : pending)
      if (Status status = locate(*tensor); !status)
        return status;
    if (!missing.empty())
      return moert::notFound(checkpoint.path() + ": " + missing +
                             listUnusedInstead());
    if (Status status = checkRest(); !status)
      return status;
    keepOwnExperts();
    return std::move(found);
  }

private:
  /// Tables of replicas, which are computed from expert ids.
  bool isFromIds(const TensorInfo &tensor) const {
    return !request.expertIds.empty() &&
           StringRef(tensor.name).starts_with("replicas.");
  }

  //===--------------------------------------------------------------------===//
  // The block
  //===--------------------------------------------------------------------===//

  /// The expert that represents all of them in a search for names.
  int64_t getFirstExpert() const {
    return request.expertIds.empty() ? 0 : request.expertIds.front();
  }

  /// Likewise, of the experts that have a part.
  int64_t getFirstExpert(const CheckpointPart &part) const {
    return part.onlyExperts.empty() ? getFirstExpert()
                                    : part.onlyExperts.front();
  }

  const std::vector<CheckpointForm> &getForms(const TensorInfo &tensor) const {
    return checkpoint.isGguf() ? tensor.ggufForms : tensor.checkpointForms;
  }

  /// Adds the prefixes of all tensors in `scope` that the part's name could
  /// match.
  void addCandidates(const CheckpointPart &part, const std::string &scope,
                     std::vector<TensorPrefix> &candidates) const {
    std::string own = part.getName(getFirstExpert(part));
    const auto &names = checkpoint.tensors();
    for (auto it = names.lower_bound(scope);
         it != names.end() && StringRef(it->first).starts_with(scope); ++it) {
      StringRef name = it->first;
      if (!name.ends_with(own) || name.size() < scope.size() + own.size() ||
          !part.matches(name, getFirstExpert(part)))
        continue;
      TensorPrefix candidate(name.drop_back(own.size()));
      if (!llvm::is_contained(candidates, candidate))
        candidates.push_back(std::move(candidate));
    }
  }

  /// Finds the module that contains the experts.
  Status findBlock(const std::vector<const TensorInfo *> &pending) {
    if (request.expertIds.empty())
      return Status::ok();
    std::vector<const TensorInfo *> order(pending);
    llvm::stable_sort(order, [](const TensorInfo *a, const TensorInfo *b) {
      return StringRef(a->name).starts_with("experts.") >
             StringRef(b->name).starts_with("experts.");
    });
    for (const TensorInfo *tensor : order) {
      std::vector<TensorPrefix> candidates;
      for (const CheckpointForm &form : getForms(*tensor))
        for (const CheckpointPart &part : form)
          addCandidates(part, /*scope=*/"", candidates);
      if (!candidates.empty())
        return chooseBlock(std::move(candidates));
    }
    return Status::ok();
  }

  Status chooseBlock(std::vector<TensorPrefix> candidates) {
    auto isOther = [](const TensorPrefix &candidate) {
      return !candidate.otherPart.empty();
    };
    if (request.spec && request.spec->mtpIndex)
      if (std::optional<Status> status = choosePredictor(candidates))
        return *status;
    if (llvm::all_of(candidates, isOther))
      return failOtherPart(candidates);
    llvm::erase_if(candidates, isOther);
    if (request.layer) {
      auto isAsked = [&](const TensorPrefix &candidate) {
        return candidate.layer == request.layer;
      };
      // A layer that was saved by itself has no index.
      bool isThere = llvm::any_of(candidates, isAsked);
      std::vector<TensorPrefix> fit;
      for (const TensorPrefix &candidate : candidates)
        if (isThere ? isAsked(candidate) : !candidate.layer)
          fit.push_back(candidate);
      if (fit.empty())
        return moert::notFound(
            checkpoint.path() + ": has no experts of layer " +
            std::to_string(*request.layer) + ", but of " +
            listLayers(candidates) + "; choose one with --layer");
      candidates = std::move(fit);
    }
    block = candidates.front();
    if (candidates.size() == 1)
      return Status::ok();
    if (candidates[0].layer != candidates[1].layer)
      return moert::invalidArgument(checkpoint.path() + ": has experts of " +
                                    listLayers(candidates) +
                                    "; choose one with --layer");
    return failAmbiguous(candidates[0], candidates[1], "the experts");
  }

  /// Chooses the block of a layer of multi-token prediction, if these have
  /// numbers of their own; none if the decoder's layers count on.
  std::optional<Status>
  choosePredictor(llvm::ArrayRef<TensorPrefix> candidates) {
    std::vector<TensorPrefix> own;
    for (const TensorPrefix &candidate : candidates) {
      if (candidate.otherPart.empty() && candidate.layer == request.layer)
        return std::nullopt;
      StringRef part = candidate.otherPart;
      if ((part.contains("mtp") || part.contains("nextn")) &&
          candidate.layer.value_or(0) == *request.spec->mtpIndex)
        own.push_back(candidate);
    }
    if (own.empty())
      return std::nullopt;
    block = own.front();
    return own.size() == 1
               ? Status::ok()
               : failAmbiguous(own[0], own[1], "the layer's experts");
  }

  Status failOtherPart(const std::vector<TensorPrefix> &candidates) const {
    std::set<std::string> parts;
    for (const TensorPrefix &candidate : candidates)
      parts.insert("'" + candidate.otherPart + "'");
    return moert::notFound(
        checkpoint.path() + ": has experts under " + llvm::join(parts, ", ") +
        " alone, which is no decoder: a draft model, multi-token prediction, "
        "vision, speech or another part never stands in for a decoder layer; "
        "give the files of the decoder, or let its names begin with "
        "'model.layers.'");
  }

  Status failAmbiguous(const TensorPrefix &a, const TensorPrefix &b,
                       const std::string &what) const {
    return moert::invalidArgument(
        checkpoint.path() + ": " + what + " could be those of '" +
        moert::printable(a.prefix) + "' or of '" + moert::printable(b.prefix) +
        "'; give a file with the tensors of one");
  }

  static std::string listLayers(const std::vector<TensorPrefix> &candidates) {
    std::set<int64_t> layers;
    for (const TensorPrefix &candidate : candidates)
      if (candidate.layer)
        layers.insert(*candidate.layer);
    constexpr size_t maxListed = 8;
    std::string text = layers.size() == 1 ? "layer " : "layers ";
    size_t i = 0;
    for (int64_t layer : layers) {
      if (i == maxListed)
        return text + ", ... (" + std::to_string(layers.size()) + ")";
      text += (i++ ? ", " : "") + std::to_string(layer);
    }
    return text;
  }

  /// Compares the metadata of a GGUF file with the description.
  Status checkMetadata() const {
    const auto *metadata = checkpoint.ggufMetadata();
    if (!metadata || !request.spec || !block)
      return Status::ok();
    std::optional<std::string> message =
        findContradiction(*request.spec, *metadata, block->layer);
    return message ? moert::invalidArgument(checkpoint.path() + ": " + *message)
                   : Status::ok();
  }

  //===--------------------------------------------------------------------===//
  // Tensors
  //===--------------------------------------------------------------------===//

  /// Prefix of the part's name: that of the experts, else that of the only
  /// module of the layer that has the part, else that of the nearest module.
  Result<std::string> findPrefix(const CheckpointPart &part) const {
    std::string name = part.getName(getFirstExpert(part));
    if (checkpoint.contains(block->prefix + name))
      return block->prefix;
    std::vector<TensorPrefix> candidates;
    addCandidates(part, block->scope, candidates);
    llvm::erase_if(candidates, [&](const TensorPrefix &candidate) {
      return candidate.scope != block->scope;
    });
    if (candidates.empty())
      return block->prefix;
    auto getNearness = [&](const TensorPrefix &candidate) {
      return countCommonModules(candidate.prefix, block->prefix);
    };
    llvm::stable_sort(candidates, [&](const auto &a, const auto &b) {
      return getNearness(a) > getNearness(b);
    });
    if (candidates.size() > 1 &&
        getNearness(candidates[0]) == getNearness(candidates[1]))
      return failAmbiguous(candidates[0], candidates[1], "'" + name + "'");
    return candidates.front().prefix;
  }

  /// A form and what the checkpoint has of it.
  struct Candidate {
    LocatedTensor tensor;
    /// Names that the checkpoint lacks.
    std::vector<std::string> missing;
  };

  Result<Candidate> tryForm(const CheckpointForm &form,
                            const TensorInfo &tensor) const {
    Candidate candidate;
    candidate.tensor.name = tensor.name;
    for (const CheckpointPart &part : form) {
      Result<std::string> prefix = findPrefix(part);
      if (!prefix)
        return prefix.status();
      size_t count = part.isPerExpert() ? request.expertIds.size() : 1;
      for (size_t slot = 0; slot < count; ++slot) {
        if (part.isPerExpert() && !part.isOf(request.expertIds[slot]))
          continue;
        std::string name =
            *prefix +
            part.getName(part.isPerExpert() ? request.expertIds[slot] : 0);
        if (!checkpoint.contains(name)) {
          if (part.isOptional)
            continue;
          if (!llvm::is_contained(candidate.missing, name))
            candidate.missing.push_back(name);
        }
        candidate.tensor.parts.push_back(
            {std::move(name), &part, int64_t(slot)});
      }
    }
    return candidate;
  }

  Status locate(const TensorInfo &tensor) {
    std::string accepted = "'" + tensor.name + "'";
    std::optional<Candidate> best;
    for (const CheckpointForm &form : getForms(tensor)) {
      if (request.expertIds.empty())
        break;
      for (const CheckpointPart &part : form)
        if (!part.isOptional) {
          acceptedNames.insert(part.name);
          accepted += ", '*." + part.name + "'";
        }
      if (!block)
        continue;
      Result<Candidate> candidate = tryForm(form, tensor);
      if (!candidate)
        return candidate.status();
      // The rank may have none of the experts that have a tensor.
      bool isOfOthers =
          !form.empty() && llvm::all_of(form, [&](const CheckpointPart &part) {
            return part.isPerExpert() &&
                   llvm::none_of(request.expertIds, [&](int64_t expert) {
                     return part.isOf(expert);
                   });
          });
      if (candidate->missing.size() == candidate->tensor.parts.size() &&
          !isOfOthers)
        continue;
      if (!best || candidate->missing.size() < best->missing.size())
        best = std::move(*candidate);
    }
    if (!best) {
      fail(tensor,
           "no tensor for '" + tensor.name + "'; accepted names: " + accepted);
      return Status::ok();
    }
    for (const LocatedPart &part : best->tensor.parts)
      used.insert(part.name);
    found.hasCheckpointNames = true;
    found.tensors.push_back(std::move(best->tensor));
    if (!best->missing.empty()) {
      size_t others = best->missing.size() - 1;
      fail(tensor,
           "no tensor '" + best->missing.front() + "'" +
               (others ? " (and " + std::to_string(others) + " more)" : "") +
               " for '" + tensor.name + "'");
    }
    return Status::ok();
  }

  /// Keeps the message about the first missing tensor.
  void fail(const TensorInfo &tensor, std::string message) {
    if (!missing.empty())
      return;
    missing = std::move(message);
    if (!request.spec)
      return;
    const auto &quantization = request.spec->getQuantization(tensor.name);
    std::string decidedBy;
    for (const auto &[weight, stored] : request.spec->stored)
      if (StringRef(tensor.name).starts_with(weight))
        decidedBy = stored.decidedBy;
    if (quantization)
      missing +=
          " (the description's quantization: " + describe(*quantization) +
          (decidedBy.empty() ? "" : ", by " + decidedBy) + ")";
    else if (!decidedBy.empty())
      missing += " (not quantized by " + decidedBy + ")";
  }

  bool isExpertOfLayer(StringRef name) const {
    std::optional<int64_t> layer = TensorPrefix(name).layer;
    return (name.contains("expert") || name.contains("_exps")) &&
           (!request.layer || !layer || layer == request.layer);
  }

  /// Lists unused tensors of the block, for messages about missing ones.
  std::string listUnusedInstead() const {
    BlockNames names{checkpoint, request, block, used};
    std::vector<std::string> unused = findUnused(names, getNamesElsewhere());
    // No name in the checkpoint is known.
    if (!block && !request.expertIds.empty())
      for (const auto &entry : checkpoint.tensors())
        if (isExpertOfLayer(entry.first))
          unused.push_back(entry.first);
    constexpr size_t maxListed = 3;
    std::string text;
    for (size_t i = 0; i < std::min(maxListed, unused.size()); ++i)
      text += (i ? ", '" : "; the file has '") + unused[i] + "'";
    if (unused.size() > maxListed)
      text += " and " + std::to_string(unused.size() - maxListed) + " more";
    if (text.empty())
      return text;
    text += ", which the layer does not take";
    if (hasNameWithoutWeight(unused.front()))
      text += "; without '.weight' the first name is an accepted one";
    return text;
  }

  /// Parameters of all experts have no module of their own, so that their names
  /// do not end with `.weight`.
  bool hasNameWithoutWeight(StringRef name) const {
    if (!name.consume_back(".weight"))
      return false;
    for (; !name.empty(); name = name.split('.').second)
      if (acceptedNames.contains(name))
        return true;
    return false;
  }

  //===--------------------------------------------------------------------===//
  // Checks after locating
  //===--------------------------------------------------------------------===//

  /// Names of the experts that are not in the layer.
  llvm::StringSet<> getNamesElsewhere() const {
    llvm::StringSet<> names;
    if (int64_t(request.expertIds.size()) >= request.numExperts)
      return names;
    std::set<const CheckpointPart *> seen;
    for (const LocatedTensor &tensor : found.tensors)
      for (const LocatedPart &located : tensor.parts) {
        if (!located.part || !located.part->isPerExpert() ||
            !seen.insert(located.part).second)
          continue;
        StringRef prefix = located.name;
        prefix.consume_back(
            located.part->getName(request.expertIds[size_t(located.slot)]));
        for (int64_t id = 0; id < request.numExperts; ++id)
          names.insert(prefix.str() + located.part->getName(id));
      }
    return names;
  }

  Status checkRest() const {
    BlockNames names{checkpoint, request, block, used};
    std::vector<std::string> unused = findUnused(names, getNamesElsewhere());
    if (unused.empty())
      return Status::ok();
    StringRef field = findFieldFor(names, unused.front());
    return moert::invalidArgument(
        checkpoint.path() + ": tensor '" + moert::printable(unused.front()) +
        "' is none of this layer's" +
        (field.empty() ? ""
                       : ", whose description lacks '" + field.str() + "'") +
        "; correct its name or the layer's description, or leave it out "
        "(--signature lists the layer's)");
  }

  /// Removes the experts of other ranks. A maximum over the scales of all
  /// experts stays as it is on each rank.
  void keepOwnExperts() {
    for (LocatedTensor &tensor : found.tensors) {
      const TensorShard *shard = request.findShard(tensor.name);
      if (!shard)
        continue;
      if (shard->isZero)
        tensor.parts.clear();
      if (shard->experts.empty())
        continue;
      std::vector<LocatedPart> own;
      for (LocatedPart &located : tensor.parts) {
        const CheckpointPart *part = located.part;
        if (part && part->isPerExpert() && part->use != PartUse::LargestScale) {
          auto at = llvm::find(shard->experts, located.slot);
          if (at == shard->experts.end())
            continue;
          located.slot = at - shard->experts.begin();
        }
        own.push_back(std::move(located));
      }
      tensor.parts = std::move(own);
    }
  }

  const moert::Checkpoint &checkpoint;
  const LayerRequest &request;
  /// Location of the experts; none if all names are canonical.
  std::optional<TensorPrefix> block;
  llvm::StringSet<> used;
  /// Message about the first missing tensor; empty if none is.
  std::string missing;
  llvm::StringSet<> acceptedNames;
  LocatedLayer found;
};

} // namespace

LayerRequest moec::makeRequest(const LayerSpec &spec) {
  LayerRequest request;
  request.spec = spec;
  request.signature = getTensorSignature(spec);
  // Models store weights of identity experts, which are unused.
  request.numExperts = spec.getNumRouted();
  request.layer = spec.layerIndex;
  if (spec.placement && spec.placement->localExperts) {
    request.expertIds = *spec.placement->localExperts;
  } else {
    request.expertIds = spec.getLogicalIds();
    request.expertIds.resize(size_t(spec.getNumLocalExperts()));
  }
  return request;
}

LayerRequest moec::makeRequest(const LayerSpec &spec, int64_t rank) {
  LayerRequest request = makeRequest(spec.getWhole());
  // The ranks' lists determine the physical experts.
  request.expertIds = spec.getLogicalIds();
  request.rank.emplace();
  request.rank->shards = shardWeights(spec, rank);
  if (spec.parallel->hasWholeExperts())
    request.rank->tables.push_back(
        {"placement.local_ids", getLocalIds(spec, rank)});
  if (hasDestinations(spec))
    request.rank->tables.push_back(
        {kDestinationsTensor.str(), getDestinations(spec, rank)});
  return request;
}

const TensorShard *LayerRequest::findShard(StringRef tensor) const {
  if (!rank)
    return nullptr;
  auto it = llvm::find_if(rank->shards, [&](const TensorShard &shard) {
    return shard.local.name == tensor;
  });
  return it == rank->shards.end() ? nullptr : &*it;
}

const LocatedTensor *LocatedLayer::find(StringRef name) const {
  auto it = llvm::find_if(tensors, [&](const LocatedTensor &tensor) {
    return tensor.name == name;
  });
  return it == tensors.end() ? nullptr : &*it;
}

Result<LocatedLayer> moec::locateLayer(const moert::Checkpoint &checkpoint,
                                       const LayerRequest &request) {
  return Locator(checkpoint, request).run();
}
