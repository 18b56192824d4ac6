//===- Measure.cpp - bytes of a model's files, for C ------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Jit/CApi.h"
#include "moec/Checkpoint/LocateLayer.h"
#include "moec/Import/Import.h"
#include "moert/Checkpoint.h"

#include <set>

using namespace moec;
using namespace moec::capi;
using moert::Result;
using moert::Status;

namespace {

/// Bytes of the layers with experts, and of all tensors.
struct WeightBytes {
  int64_t ofLayers = 0, ofAll = 0;
};

} // namespace

/// Names of the checkpoint's tensors that a decoder layer has.
static Result<std::set<std::string>>
findNames(const SourceText &text, SpecOverrides overrides, int64_t layer,
          const moert::Checkpoint &checkpoint) {
  std::string messages;
  llvm::raw_string_ostream os(messages);
  Diagnostics diagnostics(os);
  overrides.layer = layer;
  mlir::FailureOr<LayerSpec> spec = importJson(text, overrides, diagnostics);
  if (failed(spec))
    return moert::invalidArgument(llvm::StringRef(messages).rtrim().str());
  LayerRequest request = makeRequest(*spec);
  Result<LocatedLayer> located = locateLayer(checkpoint, request);
  if (!located)
    return located.status();
  std::set<std::string> names;
  for (const LocatedTensor &tensor : located->tensors)
    for (const LocatedPart &part : tensor.parts)
      if (checkpoint.contains(part.name))
        names.insert(part.name);
  return names;
}

static Result<WeightBytes> measure(const char *call,
                                   const moejit_source &source) {
  SpecOverrides overrides;
  Result<SourceText> text = readText(call, source, overrides);
  if (!text)
    return text.status();
  std::string messages;
  llvm::raw_string_ostream os(messages);
  Diagnostics diagnostics(os);
  mlir::FailureOr<std::vector<DecoderLayer>> layers =
      getDecoderLayers(*text, overrides, diagnostics);
  if (failed(layers))
    return moert::invalidArgument(llvm::StringRef(messages).rtrim().str());
  Result<moert::Checkpoint> checkpoint = moert::Checkpoint::open(source.path);
  if (!checkpoint)
    return checkpoint.status();
  WeightBytes bytes;
  auto count = [&](const std::string &name) -> Result<int64_t> {
    Result<const moert::SafetensorsEntry *> entry = checkpoint->locate(name);
    if (!entry)
      return entry.status();
    return int64_t((*entry)->bytes);
  };
  for (const auto &tensor : checkpoint->tensors()) {
    Result<int64_t> size = count(tensor.first);
    if (!size)
      return size.status();
    bytes.ofAll += *size;
  }
  for (const DecoderLayer &layer : *layers) {
    if (!layer.hasExperts)
      continue;
    Result<std::set<std::string>> names =
        findNames(*text, overrides, layer.index, *checkpoint);
    if (!names)
      return names.status();
    for (const std::string &name : *names)
      bytes.ofLayers += *count(name);
  }
  return bytes;
}

moert_status *moejit_measure_weights(const moejit_source *source,
                                     int64_t *layer_bytes, int64_t *all_bytes) {
  MOEJIT_NEEDED(layer_bytes);
  MOEJIT_NEEDED(all_bytes);
  *layer_bytes = *all_bytes = 0;
  MOEJIT_NEEDED(source);
  moert::FloatState state;
  Result<WeightBytes> bytes = measure(__func__, *source);
  if (!bytes)
    return answer(bytes.status());
  *layer_bytes = bytes->ofLayers;
  *all_bytes = bytes->ofAll;
  return nullptr;
}
