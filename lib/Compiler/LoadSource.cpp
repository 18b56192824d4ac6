//===- LoadSource.cpp - reads the description of a layer --------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "mlir/Parser/Parser.h"
#include "moec/Compiler/Compiler.h"
#include "moec/Compiler/SourceFile.h"
#include "moec/Import/BuildLayer.h"
#include "moert/Checkpoint.h"
#include "llvm/ADT/APFloat.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/bit.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/SourceMgr.h"

#include <cstring>

using namespace mlir;
using namespace moec;

bool moec::isJson(const SourceText &text) {
  return text.getName().ends_with(".json") ||
         text.getText().ltrim().starts_with("{");
}

/// Finds the config.json of a folder, or the only GGUF file.
static FailureOr<std::string> findConfig(StringRef folder,
                                         llvm::raw_ostream &os) {
  llvm::SmallString<256> path(folder);
  llvm::sys::path::append(path, "config.json");
  if (llvm::sys::fs::exists(path))
    return path.str().str();
  moert::Result<std::string> gguf = moert::Checkpoint::findGguf(folder.str());
  if (gguf && !gguf->empty())
    return std::move(*gguf);
  if (!gguf) {
    llvm::StringRef message = gguf.status().message();
    message.consume_front((folder + ": ").str());
    os << folder << ": error: " << message << "\n";
    return failure();
  }
  os << folder
     << ": error: the folder has no config.json; give a model's folder, its "
        "config.json, a GGUF file, a spec (.json) or IR (.mlir)\n";
  return failure();
}

/// Reads the hf_quant_config.json beside a config.json, if there is one.
static LogicalResult readQuantConfig(StringRef path, SpecOverrides &overrides,
                                     Diagnostics &diagnostics) {
  llvm::SmallString<256> beside(path);
  llvm::sys::path::remove_filename(beside);
  llvm::sys::path::append(beside, "hf_quant_config.json");
  if (llvm::sys::path::filename(path) == "hf_quant_config.json" ||
      !llvm::sys::fs::exists(beside))
    return success();
  FailureOr<SourceText> text =
      readTextFile(beside, json::kMaxBytes, diagnostics);
  if (failed(text))
    return failure();
  overrides.quantConfig = std::move(*text);
  return success();
}

/// Opens the checkpoint beside a config.json. A description alone is complete,
/// so a checkpoint that cannot be opened is left to its reader.
static void openCheckpoint(StringRef path, SpecOverrides &overrides) {
  if (overrides.tensors || llvm::sys::path::filename(path) != "config.json")
    return;
  llvm::SmallString<256> folder(path);
  llvm::sys::path::remove_filename(folder);
  overrides.tensors =
      getStoredTensors(folder.empty() ? "." : folder.str().str());
}

static std::optional<DType> getDType(moert::DType dtype) {
  switch (dtype) {
  case moert::DType::F32:
    return DType::F32;
  case moert::DType::BF16:
    return DType::BF16;
  case moert::DType::F16:
    return DType::F16;
  default:
    return std::nullopt;
  }
}

std::shared_ptr<const StoredTensors>
moec::getStoredTensors(const std::string &path) {
  moert::Result<moert::Checkpoint> opened = moert::Checkpoint::open(path);
  if (!opened)
    return nullptr;
  auto checkpoint = std::make_shared<moert::Checkpoint>(std::move(*opened));
  auto tensors = std::make_shared<StoredTensors>();
  for (const auto &entry : checkpoint->tensors())
    tensors->names.push_back(entry.first);
  tensors->findDType = [checkpoint](StringRef name) -> std::optional<DType> {
    auto entry = checkpoint->find(name.str());
    return entry ? getDType((*entry)->dtype) : std::nullopt;
  };
  return tensors;
}

/// Whether each f32 of a tensor is a value of a dtype.
static bool isExact(const moert::SafetensorsEntry &entry, DType dtype) {
  if (entry.dtype != moert::DType::F32 || dtype == DType::F32)
    return true;
  for (size_t at = 0; at < entry.bytes; at += sizeof(float)) {
    uint32_t bits;
    std::memcpy(&bits, entry.data + at, sizeof(bits));
    bool isInexact = (bits & 0xffff) != 0;
    if (dtype == DType::F16)
      llvm::APFloat(llvm::bit_cast<float>(bits))
          .convert(llvm::APFloat::IEEEhalf(),
                   llvm::APFloat::rmNearestTiesToEven, &isInexact);
    if (isInexact)
      return false;
  }
  return true;
}

/// Opens a GGUF file, or all of a split model. Prints errors.
static std::shared_ptr<const GgufModel> openGguf(const std::string &path,
                                                 llvm::raw_ostream &os) {
  moert::Result<moert::Checkpoint> opened = moert::Checkpoint::open(path);
  if (!opened) {
    llvm::StringRef message = opened.status().message();
    message.consume_front(path + ": ");
    os << path << ": error: " << message << "\n";
    return nullptr;
  }
  auto checkpoint = std::make_shared<moert::Checkpoint>(std::move(*opened));
  auto model = std::make_shared<GgufModel>();
  model->metadata = *checkpoint->ggufMetadata();
  for (const auto &[name, file] : checkpoint->tensors()) {
    const moert::SafetensorsEntry &entry = **checkpoint->find(name);
    bool isBlocks = !entry.blockType.empty();
    model->tensors[name] = {entry.blockType,
                            isBlocks ? std::nullopt : getDType(entry.dtype),
                            entry.shape};
  }
  model->isExact = [checkpoint](StringRef name, DType dtype) {
    return isExact(**checkpoint->find(name.str()), dtype);
  };
  return model;
}

FailureOr<SourceText> moec::readSource(StringRef path, SpecOverrides &overrides,
                                       llvm::raw_ostream &os) {
  std::string file = path.str();
  if (path != "-" && llvm::sys::fs::is_directory(path)) {
    FailureOr<std::string> config = findConfig(path, os);
    if (failed(config))
      return failure();
    file = std::move(*config);
  }
  Diagnostics diagnostics(os);
  if (StringRef(file).ends_with(".gguf")) {
    overrides.gguf = openGguf(file, os);
    if (!overrides.gguf)
      return failure();
    return writeModelConfig(*overrides.gguf, file, diagnostics);
  }
  bool isJsonFile = StringRef(file).ends_with(".json");
  if (!isJsonFile && !StringRef(file).ends_with(".mlir") && file != "-") {
    os << file
       << ": error: unknown kind of file; expected a model's folder or its "
          "config.json, a GGUF file, a spec (.json), IR (.mlir), or - for JSON "
          "or IR from standard input\n";
    return failure();
  }
  FailureOr<SourceText> text = readTextFile(
      file, isJsonFile ? json::kMaxBytes : kMaxIRBytes, diagnostics);
  if (failed(text))
    return failure();
  // Empty IR files are reported by later checks.
  if (!StringRef(file).ends_with(".mlir") && text->getText().trim().empty()) {
    os << text->getName()
       << ": error: is empty; expected a description in JSON or IR\n";
    return failure();
  }
  if (isJsonFile && failed(readQuantConfig(file, overrides, diagnostics)))
    return failure();
  openCheckpoint(file, overrides);
  return text;
}

/// The decoder layers with experts; 0 for a description of a single layer.
static int64_t countLayers(const SourceText &text,
                           const SpecOverrides &overrides) {
  std::string ignored;
  llvm::raw_string_ostream os(ignored);
  Diagnostics diagnostics(os);
  FailureOr<std::vector<DecoderLayer>> layers =
      getDecoderLayers(text, overrides, diagnostics);
  if (failed(layers))
    return 0;
  return llvm::count_if(*layers,
                        [](const DecoderLayer &l) { return l.hasExperts; });
}

static FailureOr<Source> parseJson(MLIRContext &context, const SourceText &text,
                                   const SpecOverrides &overrides,
                                   llvm::raw_ostream &os) {
  Diagnostics diagnostics(os);
  FailureOr<LayerSpec> spec = importJson(text, overrides, diagnostics);
  if (failed(spec))
    return failure();
  for (const std::string &remark : spec->remarks)
    os << text.getName() << ": remark: " << remark << "\n";
  Source source;
  source.module = buildLayer(context, *spec);
  if (!source.module)
    return failure();
  source.spec = std::move(*spec);
  source.numLayers = countLayers(text, overrides);
  return source;
}

static FailureOr<Source> parseIR(MLIRContext &context, const SourceText &text,
                                 llvm::SourceMgr &texts,
                                 llvm::raw_ostream &os) {
  // MLIR parses the first of several buffers.
  assert(texts.getNumBuffers() == 0 && "one file of IR per run");
  texts.AddNewSourceBuffer(
      llvm::MemoryBuffer::getMemBufferCopy(text.getText(), text.getName()),
      llvm::SMLoc());
  if (failed(checkIRText(*texts.getMemoryBuffer(texts.getMainFileID()), os)))
    return failure();
  Source source;
  source.module = parseSourceFile<ModuleOp>(texts, ParserConfig(&context));
  if (!source.module)
    return failure();
  return source;
}

/// The options of overrides that are given, or an empty text.
static std::string listGiven(const SpecOverrides &overrides) {
  llvm::SmallVector<StringRef> given;
  auto add = [&](bool isGiven, StringRef option) {
    if (isGiven)
      given.push_back(option);
  };
  add(overrides.numExperts.has_value(), "--num-experts");
  add(overrides.maxTokens.has_value(), "--max-tokens");
  add(overrides.entry.has_value(), "--entry");
  add(overrides.numValidTokens.has_value(), "--valid-tokens");
  add(overrides.layer.has_value(), "--layer");
  add(!overrides.part.empty(), "--part");
  add(overrides.parallel.has_value(), "--parallel");
  add(overrides.batchInvariant, "--batch-invariant");
  add(overrides.roundWeights, "--round-weights");
  add(!overrides.ignoredFields.empty(), "--ignore-field");
  return llvm::join(given, ", ");
}

FailureOr<Source> moec::parseSource(MLIRContext &context,
                                    const SourceText &text,
                                    const SpecOverrides &overrides,
                                    llvm::SourceMgr &texts,
                                    llvm::raw_ostream &os) {
  if (isJson(text))
    return parseJson(context, text, overrides, os);
  if (std::string given = listGiven(overrides); !given.empty()) {
    os << text.getName() << ": error: " << given
       << ": only a description in JSON takes this; change the IR instead\n";
    return failure();
  }
  return parseIR(context, text, texts, os);
}

FailureOr<Source> moec::loadSource(MLIRContext &context, StringRef path,
                                   const SpecOverrides &overrides,
                                   llvm::SourceMgr &texts) {
  SpecOverrides all = overrides;
  FailureOr<SourceText> text = readSource(path, all, llvm::errs());
  if (failed(text))
    return failure();
  return parseSource(context, *text, all, texts, llvm::errs());
}
