//===- TensorPlace.cpp - what stands before a tensor's name -----*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "TensorPlace.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallVector.h"

using namespace moec;
using llvm::StringRef;

/// What the lists of a model's layers are called.
static bool isListOfLayers(StringRef module) {
  constexpr llvm::StringLiteral names[] = {
      "layers", "layer",          "h",   "blocks",
      "block",  "decoder_layers", "blk", "decoder_layer"};
  return llvm::is_contained(names, module);
}

/// Multi-token prediction, vision, speech: they may have experts too.
static bool isBesideLanguage(StringRef module) {
  constexpr llvm::StringLiteral names[] = {
      "visual",      "vision",      "vision_tower", "vision_model",
      "audio_tower", "audio_model", "talker",       "nextn"};
  return module.starts_with("mtp") || llvm::is_contained(names, module);
}

TensorPlace::TensorPlace(StringRef given) : prefix(given) {
  llvm::SmallVector<StringRef> modules;
  given.split(modules, '.', /*MaxSplit=*/-1, /*KeepEmpty=*/false);
  isBeside = llvm::any_of(modules, isBesideLanguage);
  // The number in a list of layers, else the first one.
  StringRef number;
  for (size_t i = 0; i < modules.size(); ++i) {
    int64_t value;
    if (modules[i].getAsInteger(10, value) || value < 0)
      continue;
    bool isListed = i > 0 && isListOfLayers(modules[i - 1]);
    if (!isListed && layer)
      continue;
    layer = value;
    number = modules[i];
    if (isListed)
      break;
  }
  if (layer)
    scope = given.take_front(number.end() - given.begin() + 1).str();
}

size_t moec::countCommonModules(StringRef a, StringRef b) {
  size_t count = 0;
  for (size_t i = 0; i < a.size() && i < b.size() && a[i] == b[i]; ++i)
    count += a[i] == '.';
  return count;
}
