//===- TensorPrefix.cpp - the prefix of a tensor's name -------------------===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "TensorPrefix.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringExtras.h"

using namespace moec;
using llvm::StringRef;

/// Names of the list of layers in a model.
static bool isListOfLayers(StringRef module) {
  constexpr llvm::StringLiteral names[] = {
      "layers", "layer",          "h",   "blocks",
      "block",  "decoder_layers", "blk", "decoder_layer"};
  return llvm::is_contained(names, module);
}

/// Whether the module may contain a decoder's list of layers: the model, a
/// wrapper, or the language model of a multimodal model.
static bool leadsToDecoder(StringRef module) {
  constexpr llvm::StringLiteral names[] = {"_forward_module",
                                           "_fsdp_wrapped_module",
                                           "_orig_mod",
                                           "backbone",
                                           "base_model",
                                           "causal_lm",
                                           "decoder",
                                           "encoder",
                                           "gpt_neox",
                                           "language",
                                           "language_model",
                                           "llm",
                                           "lm",
                                           "model",
                                           "module",
                                           "stages",
                                           "text",
                                           "text_decoder",
                                           "text_model",
                                           "thinker",
                                           "transformer"};
  return llvm::is_contained(names, module);
}

/// Modules other than decoders that may have experts: draft models and
/// multi-token prediction, vision, speech.
static bool isOtherPart(StringRef module) {
  constexpr llvm::StringLiteral names[] = {
      "audio", "code_predictor", "draft",  "eagle",     "medusa", "mtp",
      "nextn", "speculator",     "talker", "token2wav", "vision", "visual"};
  return llvm::any_of(names, [&](StringRef name) {
    StringRef rest = module;
    return rest.consume_front(name) &&
           (rest.empty() || rest.front() == '_' || llvm::isDigit(rest.front()));
  });
}

TensorPrefix::TensorPrefix(StringRef given) : prefix(given) {
  llvm::SmallVector<StringRef> modules;
  given.split(modules, '.', /*MaxSplit=*/-1, /*KeepEmpty=*/false);
  // The index in a list of layers, else the first number.
  size_t numBefore = 0;
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
    if (isListed) {
      numBefore = i - 1;
      break;
    }
  }
  auto cut = [&](StringRef module) {
    return given.take_front(module.end() - given.begin() + 1).str();
  };
  if (layer)
    scope = cut(number);
  int64_t ignored;
  for (auto [i, module] : llvm::enumerate(modules))
    if (isOtherPart(module) || (i < numBefore && !leadsToDecoder(module) &&
                                module.getAsInteger(10, ignored))) {
      otherPart = cut(module);
      break;
    }
}

size_t moec::countCommonModules(StringRef a, StringRef b) {
  size_t count = 0;
  for (size_t i = 0; i < a.size() && i < b.size() && a[i] == b[i]; ++i)
    count += a[i] == '.';
  return count;
}
