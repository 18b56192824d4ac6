//===- GgufConfig.cpp - a configuration from a GGUF file's metadata -------===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Metadata become the keys that the family's entry in the table of families
// reads, so that routing rules stay in that entry.
//
// Sources: MODEL_ARCH_NAMES and Keys in gguf/constants.py; load_arch_hparams()
// and build_moe_ffn() in src/models of llama.cpp.
//
//===----------------------------------------------------------------------===//

#include "moec/Import/GgufModel.h"

#include "Families/Family.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/raw_ostream.h"

#include <cmath>

using namespace llvm;

namespace moec {

const GgufTensor *GgufModel::find(int64_t layer, StringRef name) const {
  auto it = tensors.find(("blk." + Twine(layer) + "." + name).str());
  return it == tensors.end() ? nullptr : &it->second;
}

std::vector<int64_t> GgufModel::getLayersWithExperts() const {
  std::vector<int64_t> layers;
  for (const auto &[text, tensor] : tensors) {
    StringRef name = text;
    int64_t layer = 0;
    if (name.consume_front("blk.") && !name.consumeInteger(10, layer) &&
        name == ".ffn_down_exps.weight" && layer >= 0)
      layers.push_back(layer);
  }
  llvm::sort(layers);
  return layers;
}

namespace {

/// The family of an architecture of llama.cpp.
struct Architecture {
  StringLiteral name, modelType;
  /// Whether llama.cpp divides weights by their sum, if that follows from the
  /// architecture and not from metadata.
  std::optional<bool> renormalizes = std::nullopt;
  /// The `expert_gating_func` that the row is for; 0 for every other.
  int gating = 0;
};

constexpr int kSigmoid = 2;

constexpr Architecture kArchitectures[] = {
    {"afmoe", "afmoe"},
    {"arctic", "arctic"},
    {"bailingmoe", "bailing_moe"},
    {"bailingmoe2", "bailing_moe_v2"},
    {"deepseek", "deepseek"},
    {"deepseek2", "deepseek_v3", std::nullopt, kSigmoid},
    {"deepseek2", "deepseek_v2"},
    {"deepseek32", "deepseek_v32"},
    {"dots1", "dots1"},
    {"ernie4_5-moe", "ernie4_5_moe"},
    {"exaone-moe", "exaone_moe"},
    {"glm-dsa", "glm_moe_dsa"},
    {"glm4moe", "glm4_moe"},
    {"gpt-oss", "gpt_oss"},
    {"granitehybrid", "granitemoehybrid"},
    {"granitemoe", "granitemoeshared"},
    {"hunyuan-moe", "hunyuan_v1_moe"},
    {"jamba", "jamba"},
    {"kimi-linear", "kimi_linear"},
    {"lfm2moe", "lfm2_moe"},
    {"llada-moe", "llada_moe", false},
    {"llama", "mixtral"},
    {"llama4", "llama4_text"},
    {"mimo2", "mimo_v2"},
    {"minimax-m2", "minimax_m2"},
    {"mistral4", "mistral4"},
    {"nemotron_h_moe", "nemotron_h"},
    {"olmoe", "olmoe", false},
    {"phimoe", "phimoe"},
    {"qwen2moe", "qwen2_moe", false},
    {"qwen35moe", "qwen3_5_moe_text", true},
    {"qwen3moe", "qwen3_moe", true},
    {"qwen3next", "qwen3_next", true},
    {"qwen3vlmoe", "qwen3_vl_moe_text", true},
    {"rnd1", "rnd1", true},
    {"step35", "step3p5"},
};

/// A number that JSON and the table of families take.
std::optional<std::string> printNumber(StringRef text) {
  int64_t integer = 0;
  if (text == "true" || text == "false" || !text.getAsInteger(10, integer))
    return text.str();
  double value = 0;
  if (text.getAsDouble(value) || !std::isfinite(value))
    return std::nullopt;
  // The shortest text of an f32: 1.8, not 1.79999995.
  constexpr int most = 9;
  for (int digits = 6; double(float(value)) == double(value) && digits < most;
       ++digits) {
    std::string shorter;
    raw_string_ostream(shorter) << format("%.*g", digits, value);
    double read = 0;
    if (!StringRef(shorter).getAsDouble(read) && float(read) == float(value))
      return shorter;
  }
  return text.str();
}

std::string quoteWord(StringRef word) { return "\"" + word.str() + "\""; }

class ConfigWriter {
public:
  ConfigWriter(const GgufModel &model, StringRef path, Diagnostics &diags)
      : model(model), path(path), diags(diags) {}

  FailureOr<SourceText> run() {
    unsigned numErrors = diags.getNumErrors();
    if (!findFamilyOfFile() || !findLayers())
      return failure();
    writeSizes();
    writeRouting();
    writeSharedExperts();
    writeRest();
    if (diags.getNumErrors() != numErrors)
      return failure();
    return SourceText(path.str(), text + "\n}\n");
  }

private:
  bool fail(const Twine &message) {
    diags.error(path, message);
    return false;
  }
  std::string getKey(StringRef name) const {
    return architecture + "." + name.str();
  }
  std::string show(StringRef name) const { return quote(getKey(name)); }

  bool findFamilyOfFile();
  bool findLayers();
  void writeSizes();
  void writeRouting();
  void writeSharedExperts();
  void writeRest();

  const GgufTensor *find(StringRef name) const {
    return model.find(layers.front(), name);
  }
  /// Rows of a matrix that the first layer with experts has; 0 if it has not.
  int64_t countRows(StringRef name) const {
    const GgufTensor *tensor = find(name);
    size_t rank = tensor ? tensor->shape.size() : 0;
    return rank < 2 ? 0 : tensor->shape[rank - 2];
  }

  /// The numbers of a key in the layers with experts, or one for all. Empty if
  /// the file has no such key.
  std::vector<std::string> getValues(StringRef name) {
    auto it = model.metadata.find(getKey(name));
    if (it == model.metadata.end() || it->second.empty())
      return {};
    StringRef stated = it->second;
    SmallVector<StringRef> parts = {stated};
    bool isList = stated.consume_front("[") && stated.consume_back("]");
    if (isList) {
      parts.clear();
      stated.split(parts, ',');
    }
    std::vector<std::string> values;
    for (StringRef part : parts) {
      std::optional<std::string> number = printNumber(part);
      if (!number) {
        (void)fail(show(name) + " must be a number, or one for each layer");
        return {};
      }
      values.push_back(*number);
    }
    if (!isList)
      return values;
    if (layers.back() >= int64_t(values.size())) {
      (void)fail(show(name) + " has " + Twine(values.size()) +
                 " values, and layer " + Twine(layers.back()) +
                 " has experts; a value for each layer is needed");
      return {};
    }
    bool isSame = llvm::all_of(layers, [&](int64_t layer) {
      return values[size_t(layer)] == values[size_t(layers.front())];
    });
    if (isSame)
      values = {values[size_t(layers.front())]};
    return values;
  }

  void writeMember(StringRef key, const Twine &value) {
    if (!written.insert(key).second)
      return;
    text += (text == "{" ? "\n  \"" : ",\n  \"") + key.str() + "\": ";
    text += value.str();
  }
  void write(const Key &key, const Twine &value) {
    if (key)
      writeMember(key.names.front(), value);
  }
  /// Writes what metadata say under the family's key. Returns whether they do.
  bool copy(StringRef name, const Key &key) {
    if (!key)
      return false;
    std::vector<std::string> values = getValues(name);
    if (values.empty())
      return false;
    if (values.size() == 1)
      write(key, values.front());
    else if (key.perLayer)
      write(key, "[" + llvm::join(values, ", ") + "]");
    else
      return fail(show(name) +
                  " differs by layer, which layers of model_type \"" +
                  family->getModelTypes().front() +
                  "\" do not; describe the layer in a spec, and give the file "
                  "as its weights (moe-run SPEC --inputs=model.gguf)");
    return true;
  }

  /// The only number of a key, if it has one.
  std::optional<double> getNumber(StringRef name) {
    std::vector<std::string> values = getValues(name);
    double number = 0;
    if (values.size() != 1)
      return std::nullopt;
    if (values.front() == "true" || values.front() == "false")
      return values.front() == "true";
    StringRef(values.front()).getAsDouble(number);
    return number;
  }

  const GgufModel &model;
  StringRef path;
  Diagnostics &diags;
  std::string architecture;
  const Architecture *entry = nullptr;
  const Family *family = nullptr;
  std::vector<int64_t> layers;
  int64_t width = 0;
  std::string text = "{";
  StringSet<> written;
};

bool ConfigWriter::findFamilyOfFile() {
  auto it = model.metadata.find("general.architecture");
  if (it == model.metadata.end())
    return fail("'general.architecture' is missing; it names the kind of model "
                "(\"qwen3moe\")");
  architecture = it->second;
  StringRef stated;
  if (auto gating = model.metadata.find(getKey("expert_gating_func"));
      gating != model.metadata.end())
    stated = gating->second;
  entry = llvm::find_if(kArchitectures, [&](const Architecture &one) {
    return one.name == architecture &&
           (one.gating == 0 || stated == std::to_string(one.gating));
  });
  if (entry == std::end(kArchitectures)) {
    std::string known;
    for (const Architecture &one : kArchitectures)
      if (one.gating == 0)
        known += (known.empty() ? "" : ", ") + one.name.str();
    return fail("'general.architecture' is " + quote(architecture) +
                ", whose layers are not known; known are " + known +
                ". Describe the layer in a spec, and give the file as its "
                "weights (moe-run SPEC --inputs=model.gguf)");
  }
  family = findFamily(entry->modelType);
  assert(family && family->refusal.empty() && "the table names read families");
  return true;
}

bool ConfigWriter::findLayers() {
  layers = model.getLayersWithExperts();
  if (!layers.empty())
    return true;
  auto count = model.metadata.find(getKey("expert_count"));
  bool statesNone =
      count == model.metadata.end() || StringRef(count->second) == "0";
  return fail("the model has no experts: no 'blk.N.ffn_down_exps.weight'" +
              (statesNone ? std::string()
                          : ", although " + show("expert_count") + " is " +
                                count->second +
                                "; convert the model anew with llama.cpp"));
}

void ConfigWriter::writeSizes() {
  writeMember("model_type", quoteWord(entry->modelType));
  // Quantized weights say nothing of the dtype; nearly all models have bf16.
  std::optional<DType> dtype = find("ffn_down_exps.weight")->dtype;
  writeMember("torch_dtype", quoteWord(dtype == DType::F16   ? "float16"
                                       : dtype == DType::F32 ? "float32"
                                                             : "bfloat16"));
  for (auto [name, key] :
       {std::pair(StringRef("embedding_length"), &family->hiddenSize),
        {"expert_count", &family->numExperts},
        {"expert_used_count", &family->topK}})
    if (!copy(name, *key) && model.metadata.count(getKey(name)) == 0)
      (void)fail(show(name) + " is missing; it is '" + key->names.front() +
                 "' of a config.json");
  if (!copy("block_count", family->numLayers))
    write(family->numLayers, Twine(layers.back() + 1));
  width = countRows("ffn_up_exps.weight");
  if (width == 0)
    width = countRows("ffn_gate_up_exps.weight") / 2;
  if (getNumber("expert_feed_forward_length").value_or(1) == 0 ||
      !copy("expert_feed_forward_length", family->intermediateSize))
    write(family->intermediateSize, Twine(width));
  if (double stated = getNumber("moe_latent_size").value_or(0); stated > 0)
    copy("moe_latent_size", family->latentSize);
}

void ConfigWriter::writeRouting() {
  if (!copy("expert_weights_norm", family->renormalize.key) &&
      entry->renormalizes)
    write(family->renormalize.key, *entry->renormalizes ? "true" : "false");
  // 0 means that there is no factor, which some families have to state.
  std::optional<double> scale = getNumber("expert_weights_scale");
  if (scale == 0.0 || (!scale && family->scale && !family->scale.fallback))
    write(family->scale, "1.0");
  else
    copy("expert_weights_scale", family->scale);
  double numGroups = getNumber("expert_group_count").value_or(0);
  if (family->groupsIf)
    write(family->groupsIf,
          quoteWord(numGroups > 1 ? family->groupsIfWord : "greedy"));
  if (numGroups > 0) {
    copy("expert_group_count", family->numGroups);
    copy("expert_group_used_count", family->topkGroups);
  } else if (family->numGroups && !family->numGroups.fallback) {
    // Engines take the experts of such a file for one group.
    write(family->numGroups, "1");
    write(family->topkGroups, "1");
  }
}

void ConfigWriter::writeSharedExperts() {
  if (!family->hasShared)
    return;
  int64_t total = countRows("ffn_up_shexp.weight");
  const Key &key = family->sharedWidth;
  bool isWidthOfExperts =
      key.names.front() == family->intermediateSize.names.front();
  auto count = int64_t(getNumber("expert_shared_count").value_or(0));
  int64_t each = isWidthOfExperts                  ? width
                 : count > 0 && total % count == 0 ? total / count
                                                   : total;
  if (!family->numShared) {
    if (!isWidthOfExperts)
      write(key, Twine(total));
    return;
  }
  if (each > 0 && total % each != 0) {
    (void)fail("the shared expert has " + Twine(total) +
               " rows ('ffn_up_shexp.weight'), which is no multiple of " +
               Twine(each) + ", the width of an expert in this family");
    return;
  }
  write(family->numShared, Twine(total == 0 ? 0 : total / each));
  if (total > 0)
    write(key, Twine(each));
}

void ConfigWriter::writeRest() {
  copy("swiglu_clamp_exp", family->limit);
  copy("swiglu_clamp_shexp", family->sharedLimit);
  copy("router_logit_softcapping", family->softcap);
}

} // namespace

FailureOr<SourceText> writeModelConfig(const GgufModel &model, StringRef path,
                                       Diagnostics &diags) {
  return ConfigWriter(model, path, diags).run();
}

} // namespace moec
