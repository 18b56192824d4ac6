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
  /// The tensor of a decoder layer with experts that the row is for; empty for
  /// every other.
  StringLiteral tensor = "";
  /// The score of files without `expert_gating_func`, if it is not that of the
  /// family.
  int otherwise = 0;

  bool isForSome() const { return gating != 0 || !tensor.empty(); }
};

constexpr int kSoftmax = 1, kSigmoid = 2, kSoftmaxOfChosen = 3,
              kSqrtSoftplus = 4;

constexpr Architecture kArchitectures[] = {
    {"afmoe", "afmoe"},
    {"arctic", "arctic"},
    {"bailingmoe", "bailing_moe"},
    {"bailingmoe2", "bailing_moe_v2"},
    {"cohere2moe", "cohere2_moe", std::nullopt, 0, "", kSigmoid},
    {"dbrx", "dbrx"},
    {"deepseek", "deepseek"},
    {"deepseek2", "deepseek_v3", std::nullopt, kSigmoid},
    {"deepseek2", "deepseek_v2"},
    {"deepseek2-ocr", "deepseek_v3", std::nullopt, kSigmoid},
    {"deepseek2-ocr", "deepseek_v2"},
    {"deepseek32", "deepseek_v32"},
    {"deepseek4", "deepseek_v4"},
    {"dots1", "dots1"},
    {"ernie4_5-moe", "ernie4_5_moe"},
    {"exaone-moe", "exaone_moe"},
    {"gemma4", "gemma4_text"},
    {"glm-dsa", "glm_moe_dsa"},
    {"glm4moe", "glm4_moe"},
    {"gpt-oss", "gpt_oss"},
    {"granitehybrid", "granitemoehybrid"},
    {"granitemoe", "granitemoeshared"},
    {"grok", "git", std::nullopt, 0, "ffn_up.weight"},
    {"grok", "grok-1"},
    {"grovemoe", "grove_moe"},
    {"hunyuan-moe", "hunyuan_v1_moe"},
    {"hy_v3", "hy_v3"},
    {"jamba", "jamba"},
    {"kimi-k3", "kimi_k3"},
    {"kimi-linear", "kimi_linear"},
    {"laguna", "laguna"},
    {"lfm2moe", "lfm2_moe"},
    {"llada-moe", "llada_moe", false},
    {"llama", "mixtral"},
    {"llama-embed", "mixtral"},
    {"llama4", "llama4_text"},
    {"mellum", "mellum", true},
    {"mimo2", "mimo_v2"},
    {"minicpm", "minicpm"},
    {"minimax-m2", "minimax_m2"},
    {"minimax-m3", "minimax_m3"},
    {"mistral3", "mixtral"},
    {"mistral4", "mistral4"},
    {"nemotron_h_moe", "nemotron_h"},
    {"nomic-bert-moe", "nomic_bert", false},
    {"olmoe", "olmoe", false},
    {"phimoe", "phimoe"},
    {"qwen2moe", "qwen2_moe", false},
    {"qwen35moe", "qwen3_5_moe_text", true},
    {"qwen3moe", "qwen3_moe", true},
    {"qwen3next", "qwen3_next", true},
    {"qwen3vlmoe", "qwen3_vl_moe_text", true},
    {"rnd1", "rnd1", true},
    {"smallthinker", "smallthinker"},
    {"step35", "step3p5"},
};

/// Architectures with names for experts in gguf-py, and why none of their
/// models is read.
constexpr std::pair<StringLiteral, StringLiteral> kRefused[] = {
    {"deci", "its models are dense, and llama.cpp reads no experts of them"},
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
    writeScore();
    writeRouting();
    writeHash();
    writeSharedExperts();
    writeRest();
    if (diags.getNumErrors() != numErrors)
      return failure();
    StringRef within = getWithin();
    if (!within.empty())
      outer += ",\n  " + quoteWord(within) + ": {" + inner + "\n  }";
    return SourceText(path.str(), "{" + outer + "\n}\n");
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
  void writeLatent();
  void writeAdjugate();
  void writeScore();
  void writeRouting();
  void writeHash();
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

  /// The object with the family's keys; empty if they may be in the file
  /// itself.
  StringRef getWithin() const {
    return family->within.ends_with("?") ? StringRef() : family->within;
  }

  void writeMember(std::string &object, StringRef key, const Twine &value) {
    if (written.insert(key).second)
      object += (object.empty() ? "\n  " : ",\n  ") + quoteWord(key) + ": " +
                value.str();
  }
  void write(const Key &key, const Twine &value) {
    if (!key)
      return;
    StringRef name = key.names.front();
    bool isOutside = name.consume_front("^") || getWithin().empty();
    writeMember(isOutside ? outer : inner, name, value);
  }
  /// Words of a boolean are no strings.
  void writeWord(const Key &key, StringRef word) {
    bool isBoolean = word == "true" || word == "false";
    write(key, isBoolean ? word.str() : quoteWord(word));
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
                  "as its weights (--inputs=model.gguf)");
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
  /// Members of the file, and of the object with the family's keys.
  std::string outer, inner;
  StringSet<> written;
};

bool ConfigWriter::findFamilyOfFile() {
  auto it = model.metadata.find("general.architecture");
  if (it == model.metadata.end())
    return fail("'general.architecture' is missing; it names the kind of model "
                "(\"qwen3moe\")");
  architecture = it->second;
  layers = model.getLayersWithExperts();
  StringRef stated;
  if (auto gating = model.metadata.find(getKey("expert_gating_func"));
      gating != model.metadata.end())
    stated = gating->second;
  entry = llvm::find_if(kArchitectures, [&](const Architecture &one) {
    return one.name == architecture &&
           (one.gating == 0 || stated == std::to_string(one.gating)) &&
           (one.tensor.empty() || llvm::any_of(layers, [&](int64_t layer) {
              return model.find(layer, one.tensor);
            }));
  });
  for (const auto &[name, reason] : kRefused)
    if (name == architecture)
      return fail("'general.architecture' is " + quote(architecture) +
                  ", whose layers cannot be compiled: " + reason);
  if (entry == std::end(kArchitectures)) {
    std::string known;
    for (const Architecture &one : kArchitectures)
      if (!one.isForSome())
        known += (known.empty() ? "" : ", ") + one.name.str();
    return fail("'general.architecture' is " + quote(architecture) +
                ", whose layers are not known; known are " + known +
                ". Describe the layer in a spec, and give the file as its "
                "weights (--inputs=model.gguf)");
  }
  family = findFamily(entry->modelType);
  assert(family && family->refusal.empty() && "the table names read families");
  return true;
}

bool ConfigWriter::findLayers() {
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
  writeMember(outer, "model_type", quoteWord(entry->modelType));
  // Quantized weights say nothing of the dtype; nearly all models have bf16.
  std::optional<DType> dtype = find("ffn_down_exps.weight")->dtype;
  writeMember(outer, "torch_dtype",
              quoteWord(dtype == DType::F16   ? "float16"
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
  for (const LayerRule &rule : family->layers)
    if (rule.kind == LayerRule::Step)
      copy("moe_every_n_layers", rule.key);
  writeLatent();
  writeAdjugate();
}

void ConfigWriter::writeLatent() {
  for (StringRef name : {"moe_latent_size", "expert_latent_length"})
    if (getNumber(name).value_or(0) > 0)
      copy(name, family->latentSize);
  const FamilyNorm &norm = family->normLatentOut;
  if (norm.enabled && find("ffn_routed_norm.weight")) {
    write(norm.enabled, "true");
    copy("attention.layer_norm_rms_epsilon", norm.epsilon);
  }
}

void ConfigWriter::writeAdjugate() {
  copy("experts_per_group", family->adjugateSharing);
  if (int64_t rows = countRows("ffn_up_chexps.weight"))
    write(family->adjugateWidth, Twine(rows));
}

void ConfigWriter::writeScore() {
  auto gating = int(getNumber("expert_gating_func").value_or(0));
  if (gating == 0)
    gating = entry->otherwise;
  auto isScore = [&](Score score) {
    return gating == (score == Score::Softmax        ? kSoftmax
                      : score == Score::Sigmoid      ? kSigmoid
                      : score == Score::SqrtSoftplus ? kSqrtSoftplus
                                                     : -1);
  };
  for (const Words<Score> &word : family->scoreWords)
    if (isScore(word.value))
      writeWord(family->score.key, word.word);
  for (const Words<RouteWeight> &word : family->weightWords)
    if (word.value == RouteWeight::Softmax
            ? gating == kSoftmax || gating == kSoftmaxOfChosen
            : word.value == RouteWeight::Sigmoid && gating == kSigmoid)
      writeWord(family->weight.key, word.word);
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

void ConfigWriter::writeHash() {
  if (!family->hashLayers)
    return;
  int64_t count = 0, vocabulary = 0;
  for (int64_t layer : layers)
    if (const GgufTensor *table =
            model.find(layer, "ffn_gate_tid2eid.weight")) {
      count = layer + 1;
      vocabulary = table->shape.front();
    }
  write(family->hashLayers, Twine(count));
  if (count > 0)
    write(family->hashVocabulary, Twine(vocabulary));
}

void ConfigWriter::writeSharedExperts() {
  if (!family->hasShared)
    return;
  // The rows of some architectures are told apart by a dense part, which is a
  // shared expert.
  int64_t total =
      countRows(entry->tensor.empty() ? StringRef("ffn_up_shexp.weight")
                                      : StringRef(entry->tensor));
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
  copy("activation.situ_beta", family->gateSoftcap);
  copy("activation.situ_linear_beta", family->upSoftcap);
}

} // namespace

FailureOr<SourceText> writeModelConfig(const GgufModel &model, StringRef path,
                                       Diagnostics &diags) {
  return ConfigWriter(model, path, diags).run();
}

} // namespace moec
