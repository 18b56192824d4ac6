//===- Family.cpp - parsing and lookup of families ------------------------===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Table.h"

#include "llvm/ADT/STLExtras.h"

using namespace llvm;

namespace moec {

Key::Key(const char *text) {
  StringRef rest = text;
  if (size_t equals = rest.find('='); equals != StringRef::npos) {
    fallback = rest.substr(equals + 1);
    rest = rest.take_front(equals);
  }
  takesNull = rest.consume_back("?");
  auto [alternatives, index] = rest.split('@');
  unsigned number = 0;
  if (index == "layer")
    perLayer = true;
  else if (!index.empty() && !index.getAsInteger(10, number))
    element = number;
  alternatives.split(names, '|');
}

SmallVector<StringRef> Family::getModelTypes() const {
  SmallVector<StringRef> types;
  modelTypes.split(types, ' ', /*MaxSplit=*/-1, /*KeepEmpty=*/false);
  return types;
}

bool Family::has(StringRef modelType) const {
  return is_contained(getModelTypes(), modelType);
}

SmallVector<const Key *> Family::getKeys() const {
  SmallVector<const Key *> keys;
  for (const Key *key : {&hiddenSize,
                         &numLayers,
                         &numExperts,
                         &topK,
                         &intermediateSize,
                         &sameAsIntermediate,
                         &widthOtherwise,
                         &activation.key,
                         &limit,
                         &alpha,
                         &gateSoftcap,
                         &upSoftcap,
                         &logitsIf,
                         &score.key,
                         &gateBias.key,
                         &selectionBias.key,
                         &softcap,
                         &logitScale,
                         &numGroups,
                         &topkGroups,
                         &capacity,
                         &groupsIf,
                         &weight.key,
                         &renormalize.key,
                         &scale,
                         &hashLayers,
                         &hashVocabulary,
                         &zeroExperts,
                         &emptyExperts,
                         &emptyKind,
                         &latentSize,
                         &normLatentIn.epsilon,
                         &normLatentIn.enabled,
                         &normExpert.epsilon,
                         &normExpert.enabled,
                         &normLatentOut.epsilon,
                         &normLatentOut.enabled,
                         &alwaysChosen,
                         &numBanks,
                         &layersPerBank,
                         &firstBank,
                         &adjugateSharing,
                         &adjugateWidth,
                         &inputFactorUnless[0],
                         &inputFactorUnless[1],
                         &hasGateHidden,
                         &layerObjects,
                         &numShared,
                         &sharedWidth,
                         &sharedLimit,
                         &combination})
    if (*key)
      keys.push_back(key);
  for (const LayerRule &rule : layers)
    for (const Key *key : {&rule.key, &rule.second})
      if (*key)
        keys.push_back(key);
  return keys;
}

ArrayRef<Family> getFamilies() {
  static const std::vector<Family> families = [] {
    std::vector<Family> all;
    addSoftmaxFamilies(all);
    addSigmoidFamilies(all);
    addOtherFamilies(all);
    addPublishedFamilies(all);
    addUncommonFamilies(all);
    addRefusedFamilies(all);
    return all;
  }();
  return families;
}

const Family *findFamily(StringRef modelType) {
  auto families = getFamilies();
  const auto *found = llvm::find_if(
      families, [&](const Family &family) { return family.has(modelType); });
  return found == families.end() ? nullptr : found;
}

} // namespace moec
