//===- ParseModelConfig.cpp - importer for a model's config.json ----------===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The part that all families share: lookup of the family and of the object with
// its keys, the decoder layer, dtype, quantization, and the refusal of unread
// keys.
//
//===----------------------------------------------------------------------===//

#include "Internal.h"

#include "Families/DecoderLayers.h"
#include "Families/ReadFamily.h"
#include "GgufLayer.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/ScopeExit.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/Path.h"

using namespace llvm;

namespace moec {

std::optional<DType> parseModelDType(StringRef name) {
  name.consume_front("torch.");
  if (name == "bfloat16" || name == "bf16")
    return DType::BF16;
  if (name == "float16" || name == "half" || name == "fp16")
    return DType::F16;
  if (name == "float32" || name == "float" || name == "fp32")
    return DType::F32;
  return std::nullopt;
}

namespace {

constexpr StringLiteral kDTypeFields[] = {"torch_dtype", "dtype"};

/// The field `torch_dtype`, or `dtype` in newer files; none if absent.
std::optional<DType> readDType(FieldReader &config) {
  std::optional<DType> result;
  for (StringRef name : kDTypeFields) {
    const json::Value *value = config.get(name);
    if (!value)
      continue;
    std::optional<DType> dtype;
    if (value->kind == json::Value::Kind::String)
      dtype = parseModelDType(value->text);
    if (!dtype)
      config.reportWrong(name, *value,
                         listChoices({"bfloat16", "float16", "float32"}));
    else if (result && result != dtype)
      config.error(name, config.show(name) + " and " +
                             config.show("torch_dtype") +
                             " name different types");
    if (dtype)
      result = dtype;
  }
  return result;
}

/// A symbol name for the layer, from the file name. A checkpoint's own
/// config.json is named after its `model_type`.
std::string nameLayer(StringRef fileName, StringRef modelType) {
  std::string name = sys::path::stem(fileName).str();
  constexpr size_t maxLength = 200;
  if (name.empty() || name == "config" || name == "<stdin>" ||
      name.size() > maxLength)
    return modelType.str();
  for (char &c : name)
    if (!isAlnum(c) && c != '_' && c != '.' && c != '-')
      c = '_';
  return name;
}

/// The known `model_type` that is one typo away, or empty.
StringRef findClosest(StringRef name) {
  StringRef closest;
  unsigned distance = 3;
  for (StringRef known : getKnownModelTypes()) {
    unsigned d = name.edit_distance(known, /*AllowReplacements=*/true,
                                    /*MaxEditDistance=*/distance);
    if (d < distance && d < known.size() / 2) {
      distance = d;
      closest = known;
    }
  }
  return closest;
}

/// The family of a config.json.
const Family *readFamilyName(FieldReader &config) {
  if (!config.has("model_type")) {
    config.error("model_type",
                 "neither a spec ('moec_spec' is missing) nor a model's "
                 "configuration ('model_type' is missing); write one of the "
                 "two (docs/use/layers.md, docs/generated/models.md)");
    return nullptr;
  }
  std::optional<StringRef> modelType = config.getString("model_type");
  if (!modelType)
    return nullptr;
  const Family *family = findFamily(*modelType);
  std::string shown = describeValue(*config.get("model_type"));
  if (family && family->refusal.empty())
    return family;
  if (family) {
    config.error("model_type", "the layers of model_type " + shown +
                                   " cannot be compiled: " + family->refusal);
    return nullptr;
  }
  std::string message = "unknown model_type " + shown;
  if (StringRef closest = findClosest(*modelType); !closest.empty())
    message += "; did you mean \"" + closest.str() + "\"?";
  else
    message +=
        "; docs/generated/models.md and moe-compile --list-models have those "
        "that are known. Any layer can be written as a spec "
        "(docs/use/layers.md)";
  config.error("model_type", message);
  return nullptr;
}

/// The objects of a config.json with keys of a family.
class ModelConfig {
public:
  ModelConfig(ImportContext &context, const json::Value &document)
      : context(context),
        outer(context, document, /*path=*/"", FieldReader::Null::IsAbsent) {}

  /// Finds the family and the object with its keys.
  bool open(StringRef part) {
    return open() && (part.empty() || choosePart(part));
  }

  const Family &getFamily() const { return *family; }
  /// The family entry for the keys of the enclosing object.
  const Family &getOuterFamily() const { return wrapper ? *wrapper : *family; }
  FieldReader &getConfig() { return inner ? *inner : outer; }
  /// The enclosing object, or null.
  FieldReader *getOuter() { return inner ? &outer : nullptr; }
  StringRef getModelType() const { return modelType; }

private:
  bool open() {
    family = readFamilyName(outer);
    if (!family || !enter())
      return false;
    while (family->namedWithin) {
      if (!wrapper)
        wrapper = family;
      if (!inner->has("model_type")) {
        inner->reportMissing("model_type", "the name of the family that the "
                                           "layers are of");
        return false;
      }
      family = readFamilyName(*inner);
      if (!family || !enter())
        return false;
    }
    return true;
  }

  /// Takes the family's entry for another part of its layers.
  bool choosePart(StringRef part) {
    std::string name = modelType + "." + part.str();
    if (const Family *found = findFamily(name)) {
      family = found;
      modelType = std::move(name);
      return true;
    }
    std::string known;
    for (const Family &other : getFamilies())
      for (StringRef type : other.getModelTypes())
        if (type.consume_front(modelType + "."))
          known += (known.empty() ? "" : ", ") + ("'" + type + "'").str();
    getConfig().error(
        "model_type",
        "the layers of model_type \"" + modelType + "\" have no part '" + part +
            "'" +
            (known.empty() ? "; leave out --part" : "; there is " + known));
    return false;
  }

  /// Enters the object with the keys.
  bool enter() {
    FieldReader *reader = &getConfig();
    modelType = reader->getObjectValue().find("model_type")->value.text;
    StringRef path = family->within;
    bool optional = path.consume_back("?");
    if (path.empty())
      return true;
    SmallVector<StringRef> names;
    path.split(names, '.');
    for (StringRef name : names) {
      if (optional && !reader->has(name))
        return true;
      const json::Value *object = reader->getObject(name);
      if (!object) {
        if (!reader->has(name))
          reader->reportMissing(name, "an object with the fields of the "
                                      "language model");
        return false;
      }
      std::string prefix = reader->getPath(name) + ".";
      inner.emplace(context, *object, std::move(prefix),
                    FieldReader::Null::IsAbsent);
      reader = &*inner;
    }
    // The outer `model_type` determined the family.
    if (!family->namedWithin)
      inner->markKnown("model_type");
    return true;
  }

  ImportContext &context;
  FieldReader outer;
  std::optional<FieldReader> inner;
  const Family *family = nullptr;
  const Family *wrapper = nullptr;
  std::string modelType;
};

/// Checks the expected values of keys that the family does not read.
void checkExpectations(const Family &family, KeyReader &reader,
                       const LayerSpec &spec, IgnoredFields &ignored) {
  for (const Expectation &expectation : family.expected) {
    KeyReader::Found found = reader.find(expectation.key);
    FieldReader &config = *found.reader;
    // Models treat null as false.
    bool isExpected =
        found.value ? llvm::any_of(expectation.values,
                                   [&](StringRef text) {
                                     return isSameScalar(*found.value, text);
                                   })
                    : !found.isPresent || expectation.key.takesNull ||
                          llvm::is_contained(expectation.values, "false") ||
                          llvm::is_contained(expectation.values, "0");
    if (isExpected || ignored.take(config.getPath(found.name)))
      continue;
    std::string values;
    for (auto [i, text] : llvm::enumerate(expectation.values))
      values += (i == 0                               ? ""
                 : i + 1 == expectation.values.size() ? " or "
                                                      : ", ") +
                text.str();
    config.error(found.name,
                 config.show(found.name) + " must be " + values + ", not " +
                     (found.value ? describeValue(*found.value) : "null") +
                     ": the other is not supported for model_type "
                     "\"" +
                     spec.modelType + "\"" +
                     (expectation.reason.empty() ? "" : "; ") +
                     expectation.reason.str());
  }
}

/// The object of a decoder layer in a list with one for each; none if the
/// family has no such list, or after an error.
std::optional<FieldReader> openLayerObject(const Family &family,
                                           KeyReader &reader) {
  if (!family.layerObjects)
    return std::nullopt;
  Key key = family.layerObjects;
  key.perLayer = true;
  KeyReader::Found found = reader.find(key);
  constexpr StringLiteral expected = "a list with an object per decoder layer";
  if (!found.isPresent)
    found.reader->reportMissing(found.name, expected);
  else if (found.value && !found.value->isObject())
    found.reader->reportWrong(found.name, *found.value, expected);
  else if (found.value)
    return FieldReader(found.reader->getContext(), *found.value,
                       found.reader->getPath(found.name) + ".",
                       FieldReader::Null::IsAbsent);
  return std::nullopt;
}

FailureOr<json::Value> requireObject(const SourceText &text,
                                     const json::Value &document,
                                     Diagnostics &diags) {
  if (document.isObject())
    return document;
  diags.error(text, document.range,
              "a model's configuration must be an object, not " +
                  describeValue(document));
  return failure();
}

} // namespace

std::vector<StringRef> getKnownModelTypes() {
  std::vector<StringRef> names;
  for (const Family &family : getFamilies())
    if (family.refusal.empty())
      llvm::append_range(names, family.getModelTypes());
  llvm::sort(names);
  return names;
}

/// The keys that messages offered to ignore are added to `offered`, except
/// those of `withheld`, which are not offered.
static FailureOr<LayerSpec>
readModel(const SourceText &text, const json::Value &document,
          const SpecOverrides &overrides, ArrayRef<std::string> withheld,
          std::vector<std::string> &offered, Diagnostics &diags) {
  unsigned numErrors = diags.getNumErrors();
  if (failed(requireObject(text, document, diags)))
    return failure();
  ImportContext context{text, diags, {}};
  ModelConfig model(context, document);
  if (!model.open(overrides.part))
    return failure();
  const Family &family = model.getFamily();
  FieldReader &config = model.getConfig();
  IgnoredFields ignored(overrides.ignoredFields, withheld);
  llvm::scope_exit keepOffers(
      [&] { llvm::append_range(offered, ignored.getOffered()); });

  LayerSpec spec;
  spec.modelType = model.getModelType().str();
  spec.name = nameLayer(text.getName(), spec.modelType);
  spec.dtype = DType::BF16;
  // Dtype and quantization may be at either level.
  for (FieldReader *reader : {model.getOuter(), &config})
    if (reader)
      if (std::optional<DType> dtype = readDType(*reader))
        spec.dtype = *dtype;

  KeyReader layerReader(config, model.getOuter(), std::nullopt);
  DecoderLayers layers(family, layerReader);
  if (overrides.gguf)
    layers.replace(overrides.gguf->getLayersWithExperts());
  if (diags.getNumErrors() != numErrors)
    return failure();
  std::optional<int64_t> layer =
      layers.choose(overrides.layer, text.getName(), context);
  if (!layer)
    return failure();
  if (overrides.layer || layers.getCount())
    spec.layerIndex = layer;
  spec.mtpIndex = layers.getMtpIndex(*layer);

  KeyReader ofLayer(config, model.getOuter(), layer);
  std::optional<FieldReader> own = openLayerObject(family, ofLayer);
  if (diags.getNumErrors() != numErrors)
    return failure();
  KeyReader reader(config, model.getOuter(), layer, own ? &*own : nullptr);
  readFamily(family, reader, *layer, layers.getWord(*layer), spec);
  checkExpectations(family, reader, spec, ignored);
  readConstantExperts(config, model.getOuter(), *layer, spec);
  if (!overrides.gguf)
    readQuantization(config, model.getOuter(), family, overrides, ignored,
                     spec);
  else if (diags.getNumErrors() == numErrors)
    readGgufLayer(*overrides.gguf, family, *layer, context, spec);
  // Experts that the loader joins or multiplies have values, not codes.
  if (spec.quantization && (spec.adjugate || spec.inputFactor.value_or(1) != 1))
    config.error("quantization_config",
                 "the experts of model_type \"" + spec.modelType +
                     "\" are changed at load and cannot be quantized; convert "
                     "the checkpoint to bf16 without a quantization_config");
  if (!overrides.gguf)
    readRouterDType(family, overrides, spec);
  spec.routing.nonfinite = getDefaultNonFinite(spec.routing);
  refuseUnreadKeys(config, family, spec, ignored);
  if (own)
    refuseUnreadKeys(*own, family, spec, ignored);
  if (FieldReader *outer = model.getOuter())
    refuseUnreadKeys(*outer, model.getOuterFamily(), spec, ignored,
                     &config.getObjectValue());
  if (diags.getNumErrors() == numErrors)
    ignored.reportUnused(text.getName(), diags);
  spec.ignoredFields = ignored.getUsed();
  return finishImport(std::move(spec), overrides, context, numErrors);
}

FailureOr<LayerSpec> parseModelConfig(const SourceText &text,
                                      const json::Value &document,
                                      const SpecOverrides &overrides,
                                      Diagnostics &diags) {
  auto attempt = [&](const SpecOverrides &tried,
                     std::vector<std::string> &offered) {
    llvm::raw_null_ostream nowhere;
    Diagnostics silent(nowhere);
    return readModel(text, document, tried, {}, offered, silent);
  };
  std::vector<std::string> offered;
  FailureOr<LayerSpec> spec = attempt(overrides, offered);
  if (succeeded(spec))
    return spec;
  // Messages offer to ignore keys only if that leads to a layer, perhaps after
  // some more messages.
  SpecOverrides tried = overrides;
  std::vector<std::string> all, others;
  while (failed(spec)) {
    llvm::erase_if(offered, [&](const std::string &name) {
      return llvm::is_contained(all, name);
    });
    if (offered.empty())
      break;
    llvm::append_range(tried.ignoredFields, offered);
    llvm::append_range(all, offered);
    offered.clear();
    spec = attempt(tried, offered);
  }
  if (succeeded(spec))
    all.clear();
  return readModel(text, document, overrides, all, others, diags);
}

FailureOr<std::vector<DecoderLayer>>
getDecoderLayers(const SourceText &text, const SpecOverrides &overrides,
                 Diagnostics &diags) {
  unsigned numErrors = diags.getNumErrors();
  FailureOr<json::Value> document = json::parse(text, diags);
  if (failed(document) || failed(requireObject(text, *document, diags)))
    return failure();
  ImportContext context{text, diags, {}};
  ModelConfig model(context, *document);
  if (!model.open(overrides.part))
    return failure();
  KeyReader reader(model.getConfig(), model.getOuter(), std::nullopt);
  DecoderLayers layers(model.getFamily(), reader);
  if (overrides.gguf)
    layers.replace(overrides.gguf->getLayersWithExperts());
  if (diags.getNumErrors() != numErrors)
    return failure();
  if (!layers.getCount()) {
    diags.error(text.getName(),
                "does not say how many decoder layers the model has "
                "('num_hidden_layers')");
    return failure();
  }
  std::vector<DecoderLayer> result;
  for (int64_t index = 0; index < *layers.getCount(); ++index)
    result.push_back({index, layers.hasExperts(index)});
  return result;
}

} // namespace moec
