//===- PartIndex.cpp - what one tensor of a checkpoint is -----------------===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/Checkpoint/PartIndex.h"

#include "TensorPrefix.h"
#include "llvm/ADT/STLExtras.h"

using namespace moec;
using llvm::StringRef;

static bool isOfShared(StringRef tensor) {
  return tensor.starts_with("shared_experts.");
}

static bool isOfExperts(StringRef tensor) {
  return tensor.starts_with("experts.") || isOfShared(tensor);
}

/// Whether a part's values come from several tensors of a form.
static bool needsOthers(const CheckpointPart &part) {
  return part.matrix || part.use == PartUse::NestedScales ||
         part.use == PartUse::MiddleValues ||
         part.use == PartUse::LeastValues || part.use == PartUse::LargestScale;
}

PartIndex::PartIndex(const LayerRequest &request) : request(request) {
  for (const TensorInfo &tensor : request.signature)
    for (const CheckpointForm &form : tensor.checkpointForms)
      for (const CheckpointPart &part : form) {
        if (part.use == PartUse::ColumnOrder)
          hasOrders[isOfShared(tensor.name)] = true;
        add(tensor, form, part);
      }
}

void PartIndex::add(const TensorInfo &tensor, const CheckpointForm &form,
                    const CheckpointPart &part) {
  const TensorShard *shard = request.findShard(tensor.name);
  if (request.expertIds.empty() || (shard && shard->isZero))
    return;
  size_t count = part.isPerExpert() ? request.expertIds.size() : 1;
  for (size_t i = 0; i < count; ++i) {
    int64_t expert = part.isPerExpert() ? request.expertIds[i] : 0;
    if (part.isPerExpert() && !part.isOf(expert))
      continue;
    auto slot = int64_t(i);
    if (shard && !shard->experts.empty() && part.isPerExpert() &&
        part.use != PartUse::LargestScale) {
      auto own = llvm::find(shard->experts, slot);
      if (own == shard->experts.end())
        continue;
      slot = own - shard->experts.begin();
    }
    entries[part.getName(expert)].push_back(
        {&tensor, &form, &part, expert, slot});
  }
}

llvm::SmallVector<PartPlace, 2> PartIndex::find(StringRef name) const {
  llvm::SmallVector<PartPlace, 2> places;
  for (const TensorInfo &tensor : request.signature)
    if (tensor.role == TensorRole::Weight && tensor.name == name) {
      PartPlace place;
      place.tensor = &tensor;
      place.located.name = name.str();
      places.push_back(std::move(place));
      return places;
    }
  // The longest name of a part wins: the router of a module of experts is no
  // router of the layer.
  for (size_t begin = 0; begin != StringRef::npos;) {
    auto found = entries.find(name.drop_front(begin));
    if (found != entries.end()) {
      TensorPrefix prefix(name.take_front(begin));
      bool isHere =
          prefix.otherPart.empty() &&
          (!request.layer || !prefix.layer || prefix.layer == request.layer);
      if (isHere)
        for (const Entry &entry : found->second)
          places.push_back({entry.tensor,
                            entry.form,
                            {name.str(), entry.part, entry.slot},
                            entry.expert,
                            prefix.prefix});
      return places;
    }
    size_t dot = name.find('.', begin);
    begin = dot == StringRef::npos ? dot : dot + 1;
  }
  return places;
}

bool PartIndex::concerns(StringRef name) const {
  if (!find(name).empty() || (request.spec && request.spec->mtpIndex))
    return true;
  TensorPrefix prefix(name);
  return prefix.otherPart.empty() && prefix.layer &&
         (!request.layer || prefix.layer == request.layer);
}

bool PartIndex::hasOrder(StringRef tensor) const {
  return isOfExperts(tensor) && hasOrders[isOfShared(tensor)];
}

bool PartIndex::isAlone(llvm::ArrayRef<PartPlace> places) const {
  for (auto [i, place] : llvm::enumerate(places)) {
    if (!place.form)
      continue;
    if (hasOrder(place.tensor->name) || llvm::any_of(*place.form, needsOthers))
      return false;
    for (const PartPlace &other : places.drop_front(i + 1))
      if (other.tensor == place.tensor && other.form != place.form)
        return false;
  }
  return true;
}

/// Adds the tensors of one form for the expert of `like`.
void PartIndex::addForm(const TensorInfo &tensor, const CheckpointForm &form,
                        const PartPlace &like, Contains contains,
                        PartGroup &group) const {
  for (const CheckpointPart &part : form) {
    bool areAll = part.use == PartUse::LargestScale;
    for (int64_t expert : areAll &&part.isPerExpert()
                              ? llvm::ArrayRef(request.expertIds)
                              : llvm::ArrayRef(like.expert)) {
      if (part.isPerExpert() && !part.isOf(expert))
        continue;
      std::string name = like.prefix + part.getName(expert);
      if (!contains(name)) {
        bool isNeeded = !part.isOptional || part.use == PartUse::ColumnOrder;
        if (isNeeded && group.absent.empty())
          group.absent = name;
        continue;
      }
      for (PartPlace &place : find(name))
        if (place.tensor == &tensor && place.form == &form &&
            place.located.part == &part)
          group.places.push_back(std::move(place));
    }
  }
}

PartGroup PartIndex::getGroup(const PartPlace &place, Contains contains) const {
  PartGroup group;
  auto countAbsent = [&](const CheckpointForm &form) {
    return llvm::count_if(form, [&](const CheckpointPart &part) {
      return !part.isOptional && part.isOf(place.expert) &&
             !contains(place.prefix + part.getName(place.expert));
    });
  };
  for (const TensorInfo &tensor : request.signature) {
    bool isOne = &tensor == place.tensor;
    bool isOrdered = hasOrder(place.tensor->name) && isOfExperts(tensor.name) &&
                     isOfShared(tensor.name) == isOfShared(place.tensor->name);
    if (!isOne && !isOrdered)
      continue;
    const CheckpointForm *best = nullptr;
    for (const CheckpointForm &form : tensor.checkpointForms)
      if (!best || countAbsent(form) < countAbsent(*best))
        best = &form;
    if (best)
      addForm(tensor, *best, place, contains, group);
  }
  return group;
}
