//===- CheckpointNames.cpp - names in Hugging Face checkpoints --*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Checkpoints differ in what they call a tensor and in how they cut the first
// product: a tensor for each expert's gate and up, or one for all experts. One
// table of schemes says which families do what.
//
//===----------------------------------------------------------------------===//

#include "CheckpointNames.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"

using namespace llvm;

namespace moec {

bool CheckpointPart::isPerExpert() const {
  return StringRef(name).contains("{e}");
}

std::string CheckpointPart::getName(int64_t expert) const {
  auto [before, after] = StringRef(name).split("{e}");
  return isPerExpert() ? (before + Twine(expert) + after).str() : name;
}

bool CheckpointPart::matches(StringRef fileName, int64_t expert) const {
  std::string own = getName(expert);
  return fileName.consume_back(own) &&
         (fileName.empty() || fileName.ends_with("."));
}

namespace {

/// How the checkpoints of some families name and cut tensors. Empty names are
/// tensors that the families do not have.
struct Scheme {
  /// Families of the scheme, separated by blanks.
  StringRef modelTypes;
  StringRef gate = "gate";
  /// Bias that takes part in the selection.
  StringRef selectionBias;
  /// Modules of an expert for gate, up and down. With `fused`, gate and up are
  /// one tensor of all experts, in the layer's own order of rows, and the
  /// contracted dimension comes before the rows.
  StringRef expertGate, expertUp, expertDown;
  bool fused = false;
  /// Module of the shared expert, whose parts are called as in Qwen.
  StringRef shared;
};

constexpr StringLiteral kCorrectionBias = "gate.e_score_correction_bias";

constexpr Scheme kSchemes[] = {
    {"qwen2_moe qwen3_moe qwen3_next olmoe", "gate", "",
     "experts.{e}.gate_proj", "experts.{e}.up_proj", "experts.{e}.down_proj",
     false, "shared_expert"},
    {"deepseek_v2 deepseek_v3 kimi_k2 glm4_moe nemotron_h", "gate",
     kCorrectionBias, "experts.{e}.gate_proj", "experts.{e}.up_proj",
     "experts.{e}.down_proj", false, "shared_experts"},
    {"ernie4_5_moe", "gate", "moe_statics.e_score_correction_bias",
     "experts.{e}.gate_proj", "experts.{e}.up_proj", "experts.{e}.down_proj",
     false, "shared_experts"},
    {"mixtral minimax_m2", "gate", "e_score_correction_bias", "experts.{e}.w1",
     "experts.{e}.w3", "experts.{e}.w2", false, ""},
    {"gpt_oss", "router", "", "", "experts.gate_up_proj", "experts.down_proj",
     true, ""},
    {"llama4 llama4_text", "router", "", "", "experts.gate_up_proj",
     "experts.down_proj", true, "shared_expert"},
};

bool belongs(const Scheme &scheme, StringRef modelType) {
  SmallVector<StringRef> types;
  scheme.modelTypes.split(types, ' ');
  // A spec of our own may come with any checkpoint that keeps experts apart.
  return modelType.empty() ? !scheme.fused
                           : llvm::is_contained(types, modelType);
}

/// The forms of one scheme for one layer.
class FormBuilder {
public:
  FormBuilder(const LayerSpec &spec, const Scheme &scheme)
      : spec(spec), scheme(scheme) {}

  CheckpointForm getForm(const TensorInfo &tensor) const {
    StringRef name = tensor.name;
    bool isScale = name.consume_back("_scale");
    int64_t numRows = tensor.shape.size() > 1
                          ? tensor.shape[tensor.shape.size() - 2]
                          : tensor.shape.back();
    if (name == "gate.weight")
      return whole(scheme.gate + ".weight", numRows);
    if (name == "gate.bias")
      return whole(scheme.gate + ".bias", numRows);
    if (name == "gate.selection_bias")
      return whole(scheme.selectionBias, numRows);
    if (name.starts_with("experts."))
      return scheme.fused ? getFusedExperts(name, tensor, isScale)
                          : getExperts(name, numRows, isScale);
    if (name.starts_with("shared_experts."))
      return getShared(name, numRows, isScale);
    if (name == "latent.down")
      return whole("fc1_latent_proj.weight", numRows);
    if (name == "latent.up")
      return whole("fc2_latent_proj.weight", numRows);
    return {};
  }

private:
  /// One part that is the whole tensor; no form when it has no name.
  static CheckpointForm whole(const Twine &name, int64_t numRows,
                              bool transposed = false) {
    CheckpointPart part{name.str(), 0, 1, numRows, transposed};
    return part.name.empty() ? CheckpointForm() : CheckpointForm{part};
  }

  /// What follows the name of a module.
  StringRef getSuffix(bool isScale) const {
    return isScale ? ".weight_scale_inv" : ".weight";
  }

  /// `w13` out of the weights of two modules.
  CheckpointForm getFirst(const Twine &gate, const Twine &up, int64_t numRows,
                          bool isScale) const {
    std::string gateName = (gate + getSuffix(isScale)).str();
    std::string upName = (up + getSuffix(isScale)).str();
    if (!spec.isGated())
      return whole(upName, numRows);
    int64_t half = numRows / 2;
    switch (spec.gateUpOrder) {
    case GateUpOrder::GateUp:
      return {{gateName, 0, 1, half, false}, {upName, half, 1, half, false}};
    case GateUpOrder::UpGate:
      return {{gateName, half, 1, half, false}, {upName, 0, 1, half, false}};
    case GateUpOrder::Interleaved:
      return {{gateName, 0, 2, half, false}, {upName, 1, 2, half, false}};
    }
    llvm_unreachable("every order is listed");
  }

  /// A tensor for each expert. Such checkpoints have no biases of experts and
  /// no mxfp4.
  CheckpointForm getExperts(StringRef name, int64_t numRows,
                            bool isScale) const {
    if (spec.quantization == WeightQuantization::MxFp4)
      return {};
    if (name == "experts.w13")
      return getFirst(scheme.expertGate, scheme.expertUp, numRows, isScale);
    if (name == "experts.w2")
      return whole(scheme.expertDown + getSuffix(isScale), numRows);
    return {};
  }

  /// Parameters of the module of all experts, gate and up in one. Blocks of
  /// mxfp4 lie along the contracted dimension, which is the last one there.
  CheckpointForm getFusedExperts(StringRef name, const TensorInfo &tensor,
                                 bool isScale) const {
    if (spec.quantization == WeightQuantization::Fp8Block128)
      return {};
    bool isBias = name.consume_back("_bias");
    StringRef module =
        name == "experts.w13" ? scheme.expertUp : scheme.expertDown;
    if (isBias)
      return whole(module + "_bias", tensor.shape.back());
    int64_t numRows = tensor.shape[1];
    if (!spec.quantization)
      return whole(module, numRows, /*transposed=*/true);
    return whole(module + (isScale ? "_scales" : "_blocks"), numRows);
  }

  CheckpointForm getShared(StringRef name, int64_t numRows,
                           bool isScale) const {
    if (scheme.shared.empty())
      return {};
    if (name == "shared_experts.gate")
      return whole("shared_expert_gate.weight", numRows);
    if (name == "shared_experts.w2")
      return whole(scheme.shared + ".down_proj" + getSuffix(isScale), numRows);
    return getFirst(scheme.shared + ".gate_proj", scheme.shared + ".up_proj",
                    numRows, isScale);
  }

  const LayerSpec &spec;
  const Scheme &scheme;
};

} // namespace

std::vector<CheckpointForm> getCheckpointForms(const LayerSpec &spec,
                                               const TensorInfo &tensor) {
  std::vector<CheckpointForm> forms;
  for (const Scheme &scheme : kSchemes) {
    if (!belongs(scheme, spec.modelType))
      continue;
    CheckpointForm form = FormBuilder(spec, scheme).getForm(tensor);
    bool isNew = !form.empty() && llvm::none_of(forms, [&](const auto &other) {
      return other.front().name == form.front().name;
    });
    if (isNew)
      forms.push_back(std::move(form));
  }
  return forms;
}

} // namespace moec
