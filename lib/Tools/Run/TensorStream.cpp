//===- TensorStream.cpp - weights that come one by one ----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "TensorStream.h"

#include "../../../runtime/src/support/Text.h"
#include "moert/Device.h"
#include "llvm/ADT/STLExtras.h"

#include <cstring>

using namespace moec;
using llvm::ArrayRef;
using llvm::StringRef;
using moert::Result;
using moert::SafetensorsEntry;
using moert::Status;

using Places = llvm::SmallVector<PartPlace, 2>;

/// The places by tensor of the layer.
static std::map<const TensorInfo *, Places>
sortPlaces(ArrayRef<PartPlace> places) {
  std::map<const TensorInfo *, Places> sorted;
  for (const PartPlace &place : places)
    sorted[place.tensor].push_back(place);
  return sorted;
}

static LocatedLayer makeLayer(ArrayRef<PartPlace> places) {
  LocatedLayer layer;
  layer.hasCheckpointNames = true;
  for (const PartPlace &place : places) {
    auto known = llvm::find_if(layer.tensors, [&](const LocatedTensor &one) {
      return one.name == place.tensor->name;
    });
    if (known == layer.tensors.end()) {
      layer.tensors.push_back({place.tensor->name, {}});
      known = std::prev(layer.tensors.end());
    }
    known->parts.push_back(place.located);
  }
  return layer;
}

static PrefixMap getPrefixes(const LocatedLayer &layer,
                             const LayerRequest &request) {
  PrefixMap prefixes;
  for (const LocatedTensor &tensor : layer.tensors)
    for (const LocatedPart &located : tensor.parts) {
      if (!located.part || prefixes.count(tensor.name))
        continue;
      for (int64_t expert : request.expertIds) {
        StringRef prefix = located.name;
        if (located.part->matches(prefix, expert) &&
            prefix.consume_back(located.part->getName(expert))) {
          prefixes[tensor.name] = prefix.str();
          break;
        }
      }
    }
  return prefixes;
}

Result<PrefixMap> moec::findPrefixes(const moert::Checkpoint &checkpoint,
                                     const LayerRequest &request) {
  Result<LocatedLayer> layer = locateLayer(checkpoint, request);
  if (!layer)
    return layer.status();
  return getPrefixes(*layer, request);
}

/// Whether the shape of a parameter does not tell its order.
static bool isSquare(const PartPlace &place) {
  const CheckpointPart *part = place.located.part;
  return part && part->maybeTransposed &&
         part->numRows == place.tensor->shape.back();
}

static int64_t countElements(const PartPlace &place) {
  const CheckpointPart *part = place.located.part;
  if (part && isBeside(part->use))
    return 0;
  ArrayRef<int64_t> shape = place.tensor->shape;
  bool isStacked =
      shape.size() > 1 && StringRef(place.tensor->name).starts_with("experts.");
  int64_t count = isStacked ? shape.front() : 1;
  MatrixShape matrix(shape, isStacked);
  if (part && part->numExperts)
    count = part->numExperts;
  return !part ? matrix.rows * matrix.columns * count
               : part->numRows * part->countColumns(matrix.columns) *
                     (part->isPerExpert() ? 1 : count);
}

//===----------------------------------------------------------------------===//
// Streams
//===----------------------------------------------------------------------===//

size_t TensorStream::getKeptBytes() const {
  size_t bytes = 0;
  for (const auto &[name, tensor] : given)
    bytes += tensor.bytes.size();
  return bytes;
}

bool TensorStream::isPlacedAtOnce(ArrayRef<PartPlace> places) const {
  // Which block is meant is known at the end only.
  bool isKnown = !request.spec || !request.spec->mtpIndex;
  return isKnown && index.isAlone(places) && !isSquare(places.front()) &&
         StringRef(places.front().tensor->name).starts_with("experts.");
}

Status TensorStream::checkPrefix(ArrayRef<PartPlace> places) {
  for (const PartPlace &place : places) {
    if (!place.form || !StringRef(place.tensor->name).starts_with("experts."))
      continue;
    if (!prefix)
      prefix = place.prefix;
    if (*prefix != place.prefix)
      return moert::invalidArgument(
          source + ": has experts under '" + moert::printable(*prefix) +
          "' and '" + moert::printable(place.prefix) +
          "'; give the tensors of one, or choose the decoder layer");
  }
  return Status::ok();
}

Status TensorStream::place(ArrayRef<PartPlace> places,
                           std::vector<SafetensorsEntry> entries) {
  Result<moert::Checkpoint> checkpoint =
      moert::Checkpoint::fromTensors(std::move(entries), source);
  if (!checkpoint)
    return checkpoint.status();
  if (Status status =
          loadParts(tensors, *checkpoint, request, makeLayer(places), memory);
      !status)
    return status;
  for (const PartPlace &place : places)
    placed[{place.tensor->name, place.located.name, place.located.slot}] =
        place.located.part;
  return Status::ok();
}

Status TensorStream::placeGroup(const PartPlace &one) {
  PartGroup group = getGroup(one);
  if (!group.absent.empty())
    return Status::ok();
  std::map<std::string, SafetensorsEntry> entries;
  for (const PartPlace &place : group.places) {
    const SafetensorsEntry &entry = given[place.located.name].entry;
    // The group was placed before this optional tensor came.
    if (!entry.data)
      return Status::ok();
    entries[place.located.name] = entry;
  }
  std::vector<SafetensorsEntry> list;
  for (auto &[name, entry] : entries)
    list.push_back(std::move(entry));
  return place(group.places, std::move(list));
}

/// Frees the bytes of tensors that have been placed everywhere.
void TensorStream::release() {
  for (auto &[name, tensor] : given) {
    if (tensor.bytes.empty())
      continue;
    bool isNeeded = false;
    for (const auto &[info, places] : sortPlaces(index.find(name)))
      isNeeded |= llvm::none_of(places, [&](const PartPlace &place) {
        return placed.count({info->name, name, place.located.slot});
      });
    if (isNeeded)
      continue;
    tensor.entry.data = nullptr;
    tensor.bytes = {};
  }
}

Status TensorStream::add(const SafetensorsEntry &entry) {
  if (given.count(entry.name))
    return moert::invalidArgument(source + ": tensor '" +
                                  moert::printable(entry.name) +
                                  "' is given twice");
  Places places = index.find(entry.name);
  if (Status status = checkPrefix(places); !status)
    return status;
  std::vector<PartPlace> atOnce;
  bool isKept = false;
  for (const auto &[info, ofTensor] : sortPlaces(places)) {
    if (isPlacedAtOnce(ofTensor))
      llvm::append_range(atOnce, ofTensor);
    else
      isKept = true;
  }
  if (!atOnce.empty())
    if (Status status = place(atOnce, {entry}); !status)
      return status;
  Given &taken = given[entry.name];
  taken.entry = entry;
  taken.entry.data = nullptr;
  taken.entry.device = nullptr;
  if (isKept) {
    Status status = keep(entry);
    if (status)
      status = placeGroups(places);
    if (!status) {
      given.erase(entry.name);
      return status;
    }
    release();
  }
  for (const PartPlace &place : places)
    elements[place.tensor->name] += countElements(place);
  return Status::ok();
}

Status TensorStream::keep(const SafetensorsEntry &entry) {
  Given &taken = given[entry.name];
  taken.bytes.resize(std::max<size_t>(entry.bytes, 1));
  taken.entry.data = taken.bytes.data();
  if (entry.device)
    return entry.device->copyOut(taken.bytes.data(), entry.data, entry.bytes)
        .withContext("tensor '" + entry.name + "'");
  std::memcpy(taken.bytes.data(), entry.data, entry.bytes);
  return Status::ok();
}

Status TensorStream::placeGroups(ArrayRef<PartPlace> places) {
  if (request.spec && request.spec->mtpIndex)
    return Status::ok();
  for (const auto &[info, ofTensor] : sortPlaces(places)) {
    bool isGroup = StringRef(info->name).starts_with("experts.") &&
                   ofTensor.size() == 1 && !index.isAlone(ofTensor);
    if (isGroup)
      if (Status status = placeGroup(ofTensor.front()); !status)
        return status;
  }
  return Status::ok();
}

bool TensorStream::isFull() const {
  for (const TensorInfo &tensor : request.signature) {
    bool isStored =
        tensor.role == TensorRole::Weight &&
        (request.expertIds.empty() ||
         llvm::any_of(tensor.checkpointForms, [](const CheckpointForm &form) {
           return llvm::any_of(form,
                               [](auto &part) { return !isBeside(part.use); });
         }));
    if (!isStored)
      continue;
    const TensorShard *shard = request.findShard(tensor.name);
    if (shard && shard->isZero)
      continue;
    auto found = elements.find(tensor.name);
    int64_t matrices = 1, ofMatrix = 1;
    bool isStacked = tensor.shape.size() > 1 &&
                     StringRef(tensor.name).starts_with("experts.");
    MatrixShape shape(tensor.shape, isStacked);
    ofMatrix = shape.rows * shape.columns;
    // The loader sets the biases of experts that every token has.
    if (request.spec && tensor.name == "gate.selection_bias")
      ofMatrix -= request.spec->numAlwaysChosen;
    if (isStacked)
      matrices = shard && !shard->experts.empty()
                     ? int64_t(shard->experts.size())
                     : shape.count;
    if (isStacked && request.spec)
      matrices -= llvm::count_if(request.expertIds, [&](int64_t expert) {
        return request.spec->holdsZeros(tensor.name, expert);
      });
    if (matrices == 0)
      continue;
    if (found == elements.end() || found->second < matrices * ofMatrix)
      return false;
  }
  // An order of columns is optional, but never comes after its columns' use.
  return llvm::all_of(given, [&](const auto &tensor) {
    Places places = index.find(tensor.first);
    return tensor.second.bytes.empty() || index.isAlone(places) ||
           getGroup(places.front()).absent.empty();
  });
}

PartGroup TensorStream::getGroup(const PartPlace &place) const {
  return index.getGroup(
      place, [&](StringRef name) { return given.count(name.str()) > 0; });
}

Status TensorStream::finish(PrefixMap &prefixes) {
  std::vector<SafetensorsEntry> entries;
  for (const auto &[name, tensor] : given)
    entries.push_back(tensor.entry);
  Result<moert::Checkpoint> checkpoint =
      moert::Checkpoint::fromTensors(std::move(entries), source);
  if (!checkpoint)
    return checkpoint.status();
  Result<LocatedLayer> layer = locateLayer(*checkpoint, request);
  if (!layer)
    return layer.status();
  prefixes = getPrefixes(*layer, request);
  for (LocatedTensor &tensor : layer->tensors) {
    std::vector<LocatedPart> rest;
    for (LocatedPart &located : tensor.parts) {
      auto found = placed.find({tensor.name, located.name, located.slot});
      if (found == placed.end())
        rest.push_back(std::move(located));
      else if (found->second != located.part)
        return moert::invalidArgument(
            source + ": tensor '" + moert::printable(located.name) +
            "' could be two parts of '" + tensor.name +
            "'; give all tensors in one mapping");
    }
    tensor.parts = std::move(rest);
  }
  if (Status status =
          loadParts(tensors, *checkpoint, request, std::move(*layer), memory);
      !status)
    return status;
  return loadTables(tensors, request, memory);
}

//===----------------------------------------------------------------------===//
// Updates of some tensors
//===----------------------------------------------------------------------===//

namespace {

/// The places of a tensor under the prefixes that the layer was loaded with.
Places findPlaces(const PartIndex &index, const PrefixMap &prefixes,
                  StringRef name) {
  Places places = index.find(name);
  llvm::erase_if(places, [&](const PartPlace &place) {
    auto known = prefixes.find(place.tensor->name);
    return place.form && known != prefixes.end() &&
           known->second != place.prefix;
  });
  return places;
}

/// Whether an unknown name is that of one of the layer's experts.
bool isOfExperts(const PrefixMap &prefixes, StringRef name) {
  auto known = prefixes.find("experts.w13");
  return known != prefixes.end() && name.consume_front(known->second) &&
         name.starts_with("experts.");
}

} // namespace

Status moec::loadSome(std::vector<HostTensor> &tensors,
                      moert::Checkpoint &checkpoint,
                      const LayerRequest &request, const PrefixMap &prefixes,
                      TensorMemory &memory) {
  PartIndex index(request);
  auto fail = [&](const std::string &name, const std::string &what) {
    return moert::invalidArgument(checkpoint.path() + ": tensor '" +
                                  moert::printable(name) + "' " + what);
  };
  std::map<std::tuple<std::string, const CheckpointPart *, int64_t>, PartPlace>
      chosen;
  std::vector<PartPlace> squares;
  bool isTold = false;
  for (const auto &entry : checkpoint.tensors()) {
    const std::string &name = entry.first;
    Places places = findPlaces(index, prefixes, name);
    // Experts of other ranks have no place either.
    if (places.empty() && !request.rank && isOfExperts(prefixes, name))
      return fail(name, "is none of this layer's experts'; correct its name, "
                        "or leave it out");
    for (const auto &[info, ofTensor] : sortPlaces(places)) {
      // Nothing is read of it.
      if (llvm::all_of(ofTensor, [](const PartPlace &place) {
            const CheckpointPart *part = place.located.part;
            return part && part->isOptional && part->use == PartUse::Unused;
          }))
        continue;
      PartGroup group;
      group.places.assign(ofTensor.begin(), ofTensor.end());
      if (!index.isAlone(ofTensor))
        group = index.getGroup(ofTensor.front(), [&](StringRef other) {
          return checkpoint.contains(other.str());
        });
      if (!group.absent.empty())
        return fail(name, "has a meaning only together with '" +
                              moert::printable(group.absent) +
                              "'; give both in one call");
      if (llvm::none_of(group.places, [&](const PartPlace &place) {
            return place.located.name == name;
          }))
        return fail(name, "does not belong to the same form of '" + info->name +
                              "' as the others of the call");
      for (PartPlace &place : group.places) {
        if (isSquare(place))
          squares.push_back(place);
        else
          isTold |= place.located.part && place.located.part->maybeTransposed;
        auto key = std::make_tuple(place.tensor->name, place.located.part,
                                   place.located.slot);
        auto [known, isNew] = chosen.try_emplace(key, place);
        if (!isNew && known->second.located.name != place.located.name)
          return fail(name, "and '" +
                                moert::printable(known->second.located.name) +
                                "' are the same part of '" +
                                place.tensor->name + "'; give one");
      }
    }
  }
  if (!squares.empty() && !isTold)
    return fail(squares.front().located.name,
                "is square, so its shape does not tell the order of its "
                "dimensions; give the experts' other tensor in the same call");
  std::vector<PartPlace> places;
  for (const auto &[key, place] : chosen)
    places.push_back(place);
  return loadParts(tensors, checkpoint, request, makeLayer(places), memory);
}
