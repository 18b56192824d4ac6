//===- MoeExtract.cpp - the command moe-extract -----------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ToolOptions.h"
#include "moec/Checkpoint/LocateLayer.h"
#include "moec/Tools/Tools.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/FormatVariadic.h"

using namespace mlir;
using namespace moec;

namespace cl = llvm::cl;

namespace {

struct Options : ToolOptions {
  Options() : ToolOptions("moe-extract") {}

  cl::opt<std::string> output{
      "o", cl::desc("Output file of the layer's tensors"),
      cl::value_desc("file.safetensors"), cl::cat(category)};
};

/// Copies the layer's tensors, with their names and bytes.
bool extract(const LayerSpec &spec, const Options &options) {
  moert::Result<moert::Checkpoint> checkpoint =
      moert::Checkpoint::open(options.input);
  if (!checkpoint)
    return options.complain(checkpoint.status().message());
  moert::Result<LocatedLayer> layer =
      locateLayer(*checkpoint, makeRequest(spec));
  if (!layer)
    return options.complain(layer.status().message());
  std::vector<moert::SafetensorsTensor> tensors;
  size_t bytes = 0;
  // One tensor of the file may provide several of the layer's.
  llvm::StringSet<> names;
  for (const LocatedTensor &located : layer->tensors)
    for (const LocatedPart &part : located.parts) {
      if (!names.insert(part.name).second)
        continue;
      moert::Result<const moert::SafetensorsEntry *> entry =
          checkpoint->find(part.name);
      if (!entry)
        return options.complain(entry.status().message());
      const moert::SafetensorsEntry &from = **entry;
      tensors.push_back(
          {from.name, from.dtype, from.shape, from.data, from.bytes});
      bytes += from.bytes;
    }
  std::map<std::string, std::string> metadata = {
      {"format", "pt"}, {"model_type", spec.modelType}};
  if (spec.layerIndex)
    metadata["layer"] = std::to_string(*spec.layerIndex);
  if (!options.accept(makeFoldersOf(options.output)))
    return false;
  moert::Status status =
      moert::writeSafetensors(options.output, tensors, metadata);
  if (!status)
    return options.complain(status.message());
  llvm::outs() << llvm::formatv("{0}: {1} tensors, {2:f1} MiB\n",
                                options.output.getValue(), tensors.size(),
                                double(bytes) / (1 << 20));
  return true;
}

} // namespace

int moec::moeExtractMain(int argc, char **argv) {
  Options options;
  if (!options.parse(
          argc, argv,
          "moe-extract: copy the tensors of a Mixture-of-Experts layer out of "
          "a model's folder.\n\n"
          "  moe-extract MODEL-FOLDER --layer=3 -o layer.safetensors\n"
          "  moe-run MODEL-FOLDER/config.json --layer=3 "
          "--inputs=layer.safetensors\n"
          "\nThe file holds the tensors of the router, the experts and the "
          "shared expert, and their scales,\nwith the names and bytes of the "
          "model's files.\n"))
    return 1;
  if (options.output.getNumOccurrences() == 0)
    return options.complain("no output; give -o FILE.safetensors"), 1;
  if (!llvm::sys::fs::is_directory(options.input))
    return options.complain(options.input +
                            " is not a folder; give a model's folder"),
           1;
  if (!options.accept(options.makeOutputCheck().check(
          "-o", options.output, OutputCheck::Kind::Binary)))
    return 1;
  SpecOverrides overrides = options.getOverrides();
  FailureOr<SourceText> text =
      readSource(options.input, overrides, llvm::errs());
  if (failed(text))
    return 1;
  Diagnostics diagnostics(llvm::errs());
  FailureOr<LayerSpec> spec = importJson(*text, overrides, diagnostics);
  return succeeded(spec) && extract(*spec, options) ? 0 : 1;
}
