//===- QuantizationConfig.cpp - quantization in a model's config ----------===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Quantization changes all values of a layer, so nothing is ignored here.
// Unknown methods, fields and values are errors, and so are statements about
// quantization in other places.
//
//===----------------------------------------------------------------------===//

#include "Internal.h"

#include "QuantizationKeys.h"
#include "QuantizationMethods.h"
#include "StoredNames.h"
#include "llvm/ADT/STLExtras.h"

using namespace llvm;

namespace moec {

void refuseOtherFields(FieldReader &reader, StringRef tool) {
  for (const json::Member &member : reader.getObjectValue().members) {
    if (reader.isKnown(member.name) ||
        saysNothing(tool, member.name, member.value) ||
        // A key that is ignored reads as absent.
        !reader.has(member.name))
      continue;
    reader.getContext().diags.error(
        reader.getContext().text, member.nameRange,
        reader.show(member.name) + " = " + describeValue(member.value) +
            " is not supported with quant_method \"" + tool + "\"" +
            reader.offerIgnoring(member.name));
  }
}

void refuseValue(FieldReader &reader, StringRef field, const Twine &expected,
                 bool isRequired) {
  const json::Value *value = reader.get(field);
  reader.error(field,
               reader.show(field) +
                   (value ? " = " + describeValue(*value)
                          : std::string(", which is absent,")) +
                   " is not supported; " + expected + " is" +
                   (isRequired ? std::string() : reader.offerIgnoring(field)));
}

void setOnlyScheme(QuantizationMethod &method, const Scheme &scheme) {
  method.rules.setDefault(0);
  method.read = [scheme](int) { return scheme; };
}

void keepActivations(QuantizationContext &context, StringRef shownField) {
  std::string remark =
      shownField.str() +
      " quantizes activations to 4 bits, which no target multiplies; they "
      "stay in " +
      stringify(context.dtype).str();
  if (!is_contained(context.remarks, remark))
    context.remarks.push_back(std::move(remark));
}

void readBlockSize(FieldReader &reader, OperandQuantization &weight) {
  const json::Value *list = reader.getList("weight_block_size");
  constexpr int64_t unit = 16;
  auto isSize = [](const json::Value &value) {
    std::optional<int64_t> size = value.getInteger();
    return size && *size > 0 && *size <= limits::kMaxWidth;
  };
  if (!list || list->elements.size() != 2 ||
      !llvm::all_of(list->elements, isSize) ||
      *list->elements[1].getInteger() % unit != 0)
    return reader.error("weight_block_size",
                        reader.show("weight_block_size") +
                            " must be two numbers, the rows and columns of a "
                            "block, columns a multiple of 16 ([128, 128]), or "
                            "absent for one scale of a tensor");
  weight.granularity = Granularity::Block;
  weight.blockRows = *list->elements[0].getInteger();
  weight.blockColumns = *list->elements[1].getInteger();
}

std::string listNumbers(ArrayRef<int64_t> numbers) {
  std::string text;
  for (auto [i, number] : enumerate(numbers))
    text += (i == 0                    ? ""
             : i + 1 == numbers.size() ? " or "
                                       : ", ") +
            std::to_string(number);
  return text;
}

void setIntegerBits(QuantizationSpec &quantization, int64_t bits) {
  StorageType &storage = quantization.weight.storage;
  storage = bits <= 4 ? StorageType::Int4 : StorageType::Int8;
  quantization.storedBits = getElementBits(storage) == bits ? 0 : bits;
}

ScaleType getScaleType(DType dtype) {
  switch (dtype) {
  case DType::F32:
    return ScaleType::F32;
  case DType::BF16:
    return ScaleType::BF16;
  case DType::F16:
    return ScaleType::F16;
  }
  llvm_unreachable("every dtype is listed");
}

OperandQuantization makeFp8(Granularity granularity, bool isStatic) {
  OperandQuantization operand;
  operand.granularity = granularity;
  operand.isStatic = isStatic;
  return operand;
}

QuantizationSpec getMeaning(StringRef name, Packing packing) {
  for (const QuantizationName &entry : getQuantizationNames())
    if (entry.name == name) {
      QuantizationSpec meaning = entry.meaning;
      meaning.packing = packing;
      return meaning;
    }
  llvm_unreachable("asked for with a name of the table");
}

namespace {

/// Fields that list modules excluded from quantization.
constexpr StringLiteral kExceptions[] = {"modules_to_not_convert",
                                         "ignored_layers",
                                         "ignore",
                                         "exclude_modules",
                                         "llm_int8_skip_modules",
                                         "exclude",
                                         "skip_modules"};

/// Reads the lists of excluded modules. An entry that cannot be translated is
/// an error.
void readExceptions(FieldReader &reader, ModuleRules &rules) {
  const json::Member *method = reader.getObjectValue().find("quant_method");
  bool isCompressed = method && method->value.text == "compressed-tensors";
  for (StringRef field : kExceptions) {
    const json::Value *list = reader.getList(field);
    if (!list)
      continue;
    for (const json::Value &element : list->elements) {
      bool understood = element.kind == json::Value::Kind::String;
      StringRef text = element.text;
      auto add = [&](Matching matching) {
        rules.add(matching, text, ModuleRules::kNotQuantized);
      };
      if (text.consume_front("re:")) {
        understood &= rules.addExpression(Matching::Expression, text,
                                          ModuleRules::kNotQuantized);
      } else if (isCompressed) {
        // The name of a parent does not match its children.
        add(Matching::Name);
        add(Matching::Class);
      } else {
        add(Matching::Components);
      }
      if (!understood)
        reader.getContext().diags.error(
            reader.getContext().text, element.range,
            reader.show(field) + " contains " + describeValue(element) +
                ", which is no name of a module that can be understood; write "
                "names, names with *, or " +
                kReadableExpressions + ", as \"re:.*experts.*\"" +
                reader.offerIgnoring(field));
    }
  }
}

/// Whether the rules leave every module of the layer as it is.
bool leavesAll(const ModuleRules &rules, const LayerModules &modules) {
  return llvm::all_of(modules.getWeights(), [&](StringRef weight) {
    for (int64_t e = 0; e < modules.getNumExperts(weight); ++e)
      for (const LayerModule &module : modules.get(weight, e)) {
        ModuleRules::Choice choice = rules.choose(module);
        if (choice.scheme != ModuleRules::kNotQuantized || choice.text.empty())
          return false;
      }
    return true;
  });
}

/// The scheme of each module of a layer, from a method's rules and from what
/// the checkpoint has.
class SchemeAssigner {
public:
  SchemeAssigner(FieldReader &reader, const QuantizationMethod &method,
                 const LayerModules &modules, const StoredNames &names,
                 QuantizationContext &context)
      : reader(reader), method(method), modules(modules), names(names),
        context(context) {}

  /// Sets the quantization of all weights of the layer.
  void assign(LayerSpec &spec) {
    for (StringRef weight : modules.getWeights())
      assign(weight, spec);
    auto hasOrder = [&](StringRef w13) {
      return spec.getQuantization(w13) && ordered.count(w13.split('.').first);
    };
    spec.expertColumns = hasOrder("experts.w13");
    if (spec.sharedExperts)
      spec.sharedExperts->columns = hasOrder("shared_experts.w13");
    for (const LayerModule &module : modules.getDense())
      assignDense(module, spec);
  }

private:
  /// A router that the tool has quantized is dequantized. Only the checkpoint
  /// tells: tools differ in whether they quantize it.
  void assignDense(const LayerModule &module, LayerSpec &spec) {
    ModuleRules::Choice choice = method.rules.choose(module);
    if (choice.scheme == ModuleRules::kNotQuantized)
      return;
    const std::optional<Scheme> &scheme = getScheme(choice.scheme);
    if (!scheme || !names.hasScales(module, scheme->quantization))
      return;
    QuantizationSpec quantization = scheme->quantization;
    quantization.packing = names.choosePacking(module, quantization);
    quantization.weight.scale = names.chooseScale(module, quantization);
    context.remarks.push_back("'" + module.weight.str() +
                              "' is quantized in the checkpoint and "
                              "dequantized to " +
                              stringify(spec.dtype).str() +
                              " when it is loaded");
    spec.stored[module.weight.str()].schemes = {quantization};
  }

  /// A module's scheme; none if it is not quantized.
  struct Answer {
    std::optional<QuantizationSpec> quantization;
    bool hasColumnOrder = false;

    bool operator==(const Answer &other) const {
      auto getLayout = [](const Answer &answer) {
        return answer.quantization ? std::pair(answer.quantization->packing,
                                               answer.quantization->storedBits)
                                   : std::pair(Packing::Unstated, int64_t(0));
      };
      return quantization == other.quantization &&
             getLayout(*this) == getLayout(other) &&
             hasColumnOrder == other.hasColumnOrder;
    }
  };

  const std::optional<Scheme> &getScheme(int number) {
    auto [entry, isNew] = schemes.try_emplace(number);
    if (isNew)
      entry->second = method.read(number);
    return entry->second;
  }

  /// Whether the checkpoint has the module's matrix as it is. Where names do
  /// not tell, all matrices of the weight have to lack their scales, except
  /// those of experts that every token has.
  bool isPlain(const LayerModule &module,
               const QuantizationSpec &quantization) const {
    if (!names.isPlain(module, quantization))
      return false;
    if (StoredNames::hasOwnName(quantization))
      return true;
    for (int64_t e = 0; e < modules.getNumExperts(module.weight); ++e)
      for (const LayerModule &other : modules.get(module.weight, e))
        if (other.isAlwaysChosen == module.isAlwaysChosen &&
            !names.isPlain(other, quantization))
          return false;
    return true;
  }

  Answer getAnswer(const LayerModule &module, StoredModules &stored) {
    ModuleRules::Choice choice = method.rules.choose(module);
    if (stored.decidedBy.empty() || !choice.text.empty())
      stored.decidedBy =
          reader.getName() + (choice.text.empty()
                                  ? std::string()
                                  : " (\"" + choice.text.str() + "\")");
    if (choice.scheme == ModuleRules::kNotQuantized)
      return {};
    const std::optional<Scheme> &scheme = getScheme(choice.scheme);
    if (!scheme)
      return {};
    QuantizationSpec quantization = scheme->quantization;
    quantization.packing = names.choosePacking(module, quantization);
    quantization.weight.scale = names.chooseScale(module, quantization);
    if (isPlain(module, quantization)) {
      ++numPlain;
      return {};
    }
    return {quantization, scheme->hasColumnOrder};
  }

  /// Why matrices that all have one scheme are dequantized at load; empty if
  /// the layer stores them as they are.
  std::string whyDequantized(StringRef weight,
                             const QuantizationSpec &quantization,
                             const LayerSpec &spec) const {
    if (names.cutsAcrossHalves(weight, quantization, spec))
      return "scales of '" + weight.str() +
             "' span gate and up rows in the checkpoint";
    if (hasStoredTable(quantization.packing))
      return "codes of '" + weight.str() +
             "' stand for values of a table in the checkpoint";
    if (quantization.weight.storage == StorageType::Fp8E5M2)
      return "no target multiplies the fp8_e5m2 of '" + weight.str() + "'";
    if (StringRef form = getDecodedForm(quantization.packing); !form.empty())
      return "'" + weight.str() +
             "' is stored in a form that no kernel takes, " + form.str();
    bool isOfRouted = weight.starts_with("experts.");
    int64_t columns = weight.ends_with(".w13")
                          ? isOfRouted ? spec.getExpertWidth() : spec.hiddenSize
                      : isOfRouted ? spec.intermediateSize
                                   : spec.sharedExperts->intermediateSize;
    const OperandQuantization &stored = quantization.weight;
    // The size is 0 after an error.
    if (stored.granularity == Granularity::Group && stored.blockColumns > 0 &&
        columns % stored.blockColumns != 0)
      return "rows of '" + weight.str() + "' have " + std::to_string(columns) +
             " elements, and the last scale is of a part of a group of " +
             std::to_string(stored.blockColumns);
    return "";
  }

  void assign(StringRef weight, LayerSpec &spec) {
    std::vector<Answer> answers;
    std::vector<std::string> shown;
    StoredModules stored;
    numPlain = 0;
    for (int64_t e = 0; e < modules.getNumExperts(weight); ++e)
      for (const LayerModule &module : modules.get(weight, e)) {
        answers.push_back(getAnswer(module, stored));
        shown.push_back(module.names.empty() ? std::string()
                                             : module.names.front());
      }
    if (answers.empty())
      return;
    auto other = llvm::find_if(answers, [&](const Answer &answer) {
      return !(answer == answers.front());
    });
    bool isOne = other == answers.end();
    const std::optional<QuantizationSpec> &only = answers.front().quantization;
    if (isOne && numPlain)
      context.remarks.push_back("'" + weight.str() +
                                "' is not quantized in the checkpoint, "
                                "although " +
                                stored.decidedBy + " says so");
    std::string whyOne =
        isOne && only ? whyDequantized(weight, *only, spec) : "";
    if (isOne && whyOne.empty()) {
      if (only && only->storedBits)
        context.remarks.push_back(
            "elements of '" + weight.str() + "' have " +
            std::to_string(only->storedBits) + " bits in the checkpoint and " +
            std::to_string(getElementBits(only->weight.storage)) +
            " in the layer, with the same values");
      setQuantization(spec, weight, only);
      if (only && answers.front().hasColumnOrder)
        ordered.insert(weight.split('.').first);
      spec.stored[weight.str()] = std::move(stored);
      return;
    }
    auto describe = [](const Answer &answer) {
      if (!answer.quantization)
        return std::string("not quantized");
      StringRef form = getDecodedForm(answer.quantization->packing);
      return form.empty() ? moec::describe(*answer.quantization) : form.str();
    };
    std::string why = isOne ? whyOne
                            : "'" + shown.front() + "' is " +
                                  describe(answers.front()) + " and '" +
                                  shown[size_t(other - answers.begin())] +
                                  "' is " + describe(*other);
    if (llvm::any_of(answers, [](const Answer &answer) {
          return answer.hasColumnOrder;
        }))
      return reader.getContext().diags.error(
          reader.getContext().text, reader.getObjectValue().range,
          reader.getName() + ": " + why +
              ", and columns may be in any order (desc_act, or actorder "
              "\"group\"); with this, experts have one scheme and whole "
              "groups");
    context.remarks.push_back(
        why + "; '" + weight.str() + "' is dequantized to " +
        stringify(spec.dtype).str() + " when it is loaded");
    for (Answer &answer : answers)
      stored.schemes.push_back(answer.quantization);
    setQuantization(spec, weight, std::nullopt);
    spec.stored[weight.str()] = std::move(stored);
  }

  static void
  setQuantization(LayerSpec &spec, StringRef weight,
                  const std::optional<QuantizationSpec> &quantization) {
    ExpertQuantization &experts = weight.starts_with("experts.")
                                      ? spec.quantization
                                      : spec.sharedExperts->quantization;
    (weight.ends_with(".w2") ? experts.w2 : experts.w13) = quantization;
  }

  FieldReader &reader;
  const QuantizationMethod &method;
  const LayerModules &modules;
  const StoredNames &names;
  QuantizationContext &context;
  std::map<int, std::optional<Scheme>> schemes;
  /// Modules that the checkpoint has without scales.
  size_t numPlain = 0;
  /// "experts" and "shared_experts", if columns may belong to any group.
  StringSet<> ordered;
};

constexpr StringLiteral kSupported =
    "\"fp8\" of tensors and of blocks, \"compressed-tensors\", "
    "\"modelopt\", \"gptq\", \"awq\", \"auto-round\", \"quark\", "
    "\"torchao\", \"bitsandbytes\", \"mxfp4\", \"hqq\", \"aqlm\", "
    "\"bitnet\", \"fbgemm_fp8\", \"gemma\" and \"metal\", and the object "
    "'quantization' of MLX, are";

QuantizationSpec readFp8(FieldReader &reader) {
  reader.getOneOf("fmt", {"e4m3", "float8_e4m3fn"});
  if (reader.has("weight_block_size")) {
    reader.getOneOf("activation_scheme", {"dynamic"});
    QuantizationSpec result = getMeaning("fp8_block128");
    readBlockSize(reader, result.weight);
    result.activation->blockColumns = result.weight.blockColumns;
    // Weight scales are used as stored; this affects activation scales.
    if (reader.getOneOf("scale_fmt", {"float", "ue8m0"}) == "ue8m0")
      result.activation->scale = ScaleType::E8M0;
    return result;
  }
  StringRef scheme =
      reader.getOneOf("activation_scheme", {"dynamic", "static"});
  return {makeFp8(Granularity::Tensor),
          makeFp8(Granularity::Tensor, /*isStatic=*/scheme == "static")};
}

/// DeepSeek's models of fp8 may have routed experts of fp4.
void readFp8Method(FieldReader &reader, QuantizationContext &context,
                   QuantizationMethod &method) {
  if (reader.has("weight_scale_semantics"))
    return readGptqModelFp8(reader, method);
  QuantizationSpec all = readFp8(reader);
  // Transformers then dequantizes weights at load and rounds no activations.
  if (reader.getBoolean("dequantize", false)) {
    all.activation.reset();
    context.remarks.push_back(reader.show("dequantize") +
                              " leaves activations in " +
                              stringify(context.dtype).str());
  }
  StringRef experts = context.expertDType;
  if (reader.has("expert_dtype"))
    experts = reader.getOneOf("expert_dtype", {"fp8", "fp4"});
  refuseOtherFields(reader, "fp8");
  setOnlyScheme(method, {all});
  if (experts != "fp4")
    return;
  QuantizationSpec four = getMeaning("mxfp4", Packing::ShortNames);
  four.activation = all.activation;
  method.rules.add(Matching::Class, "RoutedExperts", 1);
  method.read = [all, four](int scheme) { return Scheme{scheme ? four : all}; };
}

using MethodReader = void (*)(FieldReader &, QuantizationContext &,
                              QuantizationMethod &);

struct MethodName {
  StringLiteral name;
  MethodReader read;
};

/// `quant_method` and its reader.
constexpr MethodName kMethods[] = {
    {"fp8", readFp8Method},
    {"mxfp4",
     [](FieldReader &reader, QuantizationContext &,
        QuantizationMethod &method) {
       setOnlyScheme(method, {getMeaning("mxfp4")});
       refuseOtherFields(reader, "mxfp4");
     }},
    {"compressed-tensors", readCompressedTensors},
    {"gptq", readGptq},
    {"awq", readAwq},
    {"auto-round", readAutoRound},
    {"intel/auto-round", readAutoRound},
    {"quark", readQuark},
    {"torchao", readTorchAo},
    {"bitsandbytes", readBitsAndBytes},
    {"modelopt", readModelOpt},
    {"modelopt_fp4", readModelOpt},
    {"modelopt_mixed", readModelOpt},
    {"metal", readMlx},
    {"hqq", readHqq},
    {"aqlm", readAqlm},
    {"bitnet", readBitNet},
    {"fbgemm_fp8", readFbgemmFp8},
    {"gemma", readGemma},
    {"gguf", readGptqModelGguf},
    {"quanto", readOnLoad},
    {"nvfp4", readOnLoad},
};

/// Methods that are not read, and what to do with their models.
constexpr std::pair<StringLiteral, StringLiteral> kRemedies[] = {
    {"eetq", "its weights are in the order of a kernel; quantize the model "
             "again, as int8 with torchao or bitsandbytes"},
    {"exl3", "its weights are paths through a trellis; take the model that it "
             "was made of"},
    {"fouroversix", "save the model with 'keep_master_weights', whose weights "
                    "are not quantized, and remove 'quantization_config'"},
    {"fp_quant", "its modules rotate their input; save the model with "
                 "'store_master_weights', or take the model that it was made "
                 "of"},
    {"higgs", "its weights are rotated and in the order of a kernel; take the "
              "model that it was made of"},
    {"paroquant", "its modules rotate their input; take the model that it was "
                  "made of, or its AWQ form"},
    {"qqq", "its weights are in the order of a kernel; quantize the model "
            "again with GPTQ and 'activation': \"w4afp8\""},
    {"sinq", "its modules hold objects that safetensors files do not have; "
             "take the model that it was made of"},
    {"spqr", "its weights have sparse outliers; take the model that it was "
             "made of"},
    {"vptq", "its codes are vectors with outliers and permutations; take the "
             "model that it was made of"},
};

/// Reads an object of a tool and gives the layer's modules their schemes.
void readObject(FieldReader &reader, MethodReader readMethod,
                const LayerModules &modules, const StoredNames &names,
                QuantizationContext &context, LayerSpec &spec) {
  QuantizationMethod method;
  unsigned numErrors = reader.getContext().diags.getNumErrors();
  readExceptions(reader, method.rules);
  if (!leavesAll(method.rules, modules))
    readMethod(reader, context, method);
  if (reader.getContext().diags.getNumErrors() != numErrors)
    return;
  SchemeAssigner(reader, method, modules, names, context).assign(spec);
}

/// True if an object of ModelOpt quantizes the KV cache and no weights.
bool quantizesCacheOnly(const json::Value &object) {
  const json::Member *algorithm = object.find("quant_algo");
  return algorithm && algorithm->value.isNull();
}

/// Reads a `quantization_config`.
void readStatement(FieldReader &reader, const LayerModules &modules,
                   const StoredNames &names, QuantizationContext &context,
                   LayerSpec &spec) {
  bool isMlx = statesMlx(reader.getObjectValue());
  StringRef shown = isMlx ? "bits" : "quant_method";
  std::optional<StringRef> name =
      isMlx ? StringRef("mlx") : reader.getString("quant_method");
  if (!name)
    return;
  for (StringRef field : {"quantization.weight", "quantization.activation"})
    reader.getContext().origins[field] = {reader.show(shown),
                                          reader.get(shown)->range};
  if (isMlx)
    return readObject(reader, readMlx, modules, names, context, spec);
  const auto *found = llvm::find_if(
      kMethods, [&](const MethodName &one) { return one.name == *name; });
  // The object that ModelOpt writes to hf_quant_config.json.
  if (name->starts_with("modelopt")) {
    if (quantizesCacheOnly(reader.getObjectValue()))
      return;
    if (const json::Value *object = reader.getObject("quantization")) {
      refuseOtherFields(reader, "modelopt");
      FieldReader inner = reader.getInner("quantization", *object);
      if (!quantizesCacheOnly(*object))
        readObject(inner, readModelOpt, modules, names, context, spec);
      return;
    }
  }
  MethodReader refuse = [](FieldReader &reader, QuantizationContext &,
                           QuantizationMethod &) {
    const json::Value &method = *reader.get("quant_method");
    const auto *remedy = llvm::find_if(
        kRemedies, [&](const auto &one) { return one.first == method.text; });
    reader.error("quant_method", "quantization " + describeValue(method) +
                                     " is not supported; " +
                                     (remedy == std::end(kRemedies)
                                          ? StringRef(kSupported)
                                          : StringRef(remedy->second)));
  };
  readObject(reader, found == std::end(kMethods) ? refuse : found->read,
             modules, names, context, spec);
}

/// Refuses keys with which other tools state a quantization.
void refuseOtherStatements(FieldReader &config, QuantizationContext &context) {
  for (StringRef name :
       {"compression_config", "quantization", "quant_config", "quant_method",
        "load_in_4bit", "load_in_8bit", "expert_dtype", "experts_dtype",
        "moe_dtype", "weight_dtype"}) {
    const json::Value *value = config.get(name);
    bool isOff = !value ||
                 (value->kind == json::Value::Kind::Boolean && !value->boolean);
    // The layer's own dtype is not a quantization.
    bool isPlain = value && value->kind == json::Value::Kind::String &&
                   parseModelDType(value->text) == context.dtype;
    if (name == "compression_config" && value && statesSubstitution(*value))
      continue;
    if (isOff || isPlain || context.ignored.take(config.getPath(name)))
      continue;
    // Read as a 'quantization_config'.
    if (name == "quantization" && statesMlx(*value))
      continue;
    if (name == "expert_dtype" &&
        (value->text == "fp4" || value->text == "fp8")) {
      context.expertDType = value->text;
      continue;
    }
    config.error(name, config.show(name) + " = " + describeValue(*value) +
                           " states a quantization that is not supported; of "
                           "'quantization_config' " +
                           kSupported);
  }
}

/// Reads the hf_quant_config.json that ModelOpt writes beside a config.json.
void readQuantConfigFile(const SourceText &text, Diagnostics &diags,
                         const LayerModules &modules, const StoredNames &names,
                         QuantizationContext &context, LayerSpec &spec) {
  FailureOr<json::Value> document = json::parse(text, diags);
  if (failed(document))
    return;
  if (!document->isObject()) {
    diags.error(text, document->range,
                "must be an object, not " + describeValue(*document));
    return;
  }
  ImportContext own{text, diags, {}};
  FieldReader outer(own, *document, "", FieldReader::Null::IsAbsent,
                    &context.ignored);
  const json::Value *object = outer.getObject("quantization");
  if (!object) {
    if (!document->find("quantization"))
      outer.reportMissing("quantization", "the object that ModelOpt writes");
    return;
  }
  FieldReader reader = outer.getInner("quantization", *object);
  if (!quantizesCacheOnly(*object))
    readObject(reader, readModelOpt, modules, names, context, spec);
}

/// Whether two values are equal; the order of an object's keys means nothing.
bool isSame(const json::Value &a, const json::Value &b) {
  if (a.kind != b.kind || a.boolean != b.boolean || a.text != b.text ||
      a.members.size() != b.members.size() ||
      a.elements.size() != b.elements.size())
    return false;
  for (auto [x, y] : llvm::zip(a.elements, b.elements))
    if (!isSame(x, y))
      return false;
  return llvm::all_of(a.members, [&](const json::Member &member) {
    const json::Member *other = b.find(member.name);
    return other && isSame(member.value, other->value);
  });
}

} // namespace

void readQuantization(FieldReader &config, FieldReader *outer,
                      const Family &family, const SpecOverrides &overrides,
                      IgnoredFields &ignored, LayerSpec &spec) {
  QuantizationContext context{spec.dtype, ignored, spec.layerIndex};
  constexpr StringLiteral fields[] = {"quantization_config", "quantization"};
  auto isMlx = [&](FieldReader *reader) {
    return reader && llvm::any_of(fields, [&](StringRef field) {
             const json::Value *object = reader->get(field);
             return object && statesMlx(*object);
           });
  };
  LayerModules modules(family, spec, isMlx(outer) || isMlx(&config));
  StoredNames names(overrides.tensors.get(), modules);
  FieldReader *stated = nullptr;
  StringRef statedField;
  const json::Value *statement = nullptr;
  auto read = [&](FieldReader *reader, StringRef field) {
    const json::Value *object = reader->get(field);
    if (!object || ignored.take(reader->getPath(field)) ||
        (statement && isSame(*statement, *object)))
      return;
    if (stated)
      reader->error(field, reader->show(field) +
                               " is stated twice, here and "
                               "as " +
                               stated->show(statedField) +
                               ", and the two differ; keep one");
    stated = reader;
    statedField = field;
    statement = object;
    if (!reader->getObject(field))
      return;
    FieldReader inner(reader->getContext(), *object,
                      reader->getPath(field) + ".", FieldReader::Null::IsAbsent,
                      &ignored);
    readStatement(inner, modules, names, context, spec);
  };
  for (FieldReader *reader : {outer, &config}) {
    if (!reader)
      continue;
    refuseOtherStatements(*reader, context);
    // MLX writes both, with the same content.
    for (StringRef field : fields)
      if (const json::Value *object = reader->get(field))
        if (field == "quantization_config" || statesMlx(*object))
          read(reader, field);
  }
  if (!stated && !context.expertDType.empty())
    config.error(
        "expert_dtype",
        "'expert_dtype' needs a 'quantization_config' with quant_method "
        "\"fp8\"");
  if (overrides.quantConfig && !stated)
    readQuantConfigFile(*overrides.quantConfig, config.getContext().diags,
                        modules, names, context, spec);
  llvm::append_range(spec.remarks, context.remarks);
}

} // namespace moec
