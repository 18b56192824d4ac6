//===- TensorSignature.cpp - the tensors of a layer -------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/Import/TensorSignature.h"

#include "CheckpointNames.h"
#include "GgufNames.h"
#include "moec/Dialect/RowDestinations.h"
#include "moec/Import/Shards.h"

#include "llvm/ADT/Twine.h"

using namespace llvm;

namespace moec {

StringRef stringify(TensorType type) {
  switch (type) {
  case TensorType::F32:
    return "f32";
  case TensorType::BF16:
    return "bf16";
  case TensorType::F16:
    return "f16";
  case TensorType::I32:
    return "i32";
  case TensorType::I16:
    return "i16";
  case TensorType::F8E4M3FN:
    return "f8E4M3FN";
  case TensorType::F8E5M2:
    return "f8E5M2";
  case TensorType::F8E8M0FNU:
    return "f8E8M0FNU";
  case TensorType::I8:
    return "i8";
  }
  llvm_unreachable("every type is listed");
}

int64_t getStorageBits(TensorType type) {
  switch (type) {
  case TensorType::F32:
  case TensorType::I32:
    return 32;
  case TensorType::BF16:
  case TensorType::F16:
  case TensorType::I16:
    return 16;
  case TensorType::F8E4M3FN:
  case TensorType::F8E5M2:
  case TensorType::F8E8M0FNU:
  case TensorType::I8:
    return 8;
  }
  llvm_unreachable("every type is listed");
}

TensorType getTensorType(DType dtype) {
  switch (dtype) {
  case DType::F32:
    return TensorType::F32;
  case DType::BF16:
    return TensorType::BF16;
  case DType::F16:
    return TensorType::F16;
  }
  llvm_unreachable("every dtype is listed");
}

TensorType getTensorType(IdType type) {
  switch (type) {
  case IdType::Int32:
    return TensorType::I32;
  case IdType::Int16:
    return TensorType::I16;
  case IdType::UInt8:
    return TensorType::I8;
  }
  llvm_unreachable("every type is listed");
}

TensorType getTensorType(StorageType storage) {
  switch (storage) {
  case StorageType::Fp8E4M3:
    return TensorType::F8E4M3FN;
  case StorageType::Fp8E5M2:
    return TensorType::F8E5M2;
  case StorageType::Fp4E2M1:
  case StorageType::NF4:
  case StorageType::Int8:
  case StorageType::Int4:
    return TensorType::I8;
  }
  llvm_unreachable("every storage is listed");
}

TensorType getTensorType(ScaleType scale) {
  switch (scale) {
  case ScaleType::F32:
    return TensorType::F32;
  case ScaleType::BF16:
    return TensorType::BF16;
  case ScaleType::F16:
    return TensorType::F16;
  case ScaleType::E8M0:
    return TensorType::F8E8M0FNU;
  case ScaleType::E4M3:
    return TensorType::F8E4M3FN;
  }
  llvm_unreachable("every type of scales is listed");
}

StringRef stringify(TensorRole role) {
  switch (role) {
  case TensorRole::Input:
    return "input";
  case TensorRole::Weight:
    return "weight";
  case TensorRole::Output:
    return "output";
  }
  llvm_unreachable("every role is listed");
}

namespace {

/// Collects the tensors of one layer.
class SignatureBuilder {
public:
  explicit SignatureBuilder(const LayerSpec &spec)
      : spec(spec), layerType(getTensorType(spec.dtype)) {}

  std::vector<TensorInfo> build() {
    addInputs();
    addRouter();
    addExperts();
    addSharedExperts();
    addLatent();
    addNorms();
    addLora();
    if (spec.parallel && spec.parallel->hasWholeExperts())
      add("placement.local_ids", {spec.getNumPhysicalExperts()},
          TensorType::I32);
    if (hasDestinations(spec))
      add(kDestinationsTensor, {spec.numExperts}, TensorType::I32);
    if (spec.replicas) {
      add("replicas.physical_ids",
          {spec.numExperts, spec.replicas->maxReplicas}, TensorType::I32);
      add("replicas.counts", {spec.numExperts}, TensorType::I32);
    }
    addOutputs();
    return std::move(tensors);
  }

private:
  void add(StringRef name, std::vector<int64_t> shape, TensorType type,
           TensorRole role = TensorRole::Weight) {
    TensorInfo info;
    info.name = name.str();
    info.shape = std::move(shape);
    info.type = type;
    info.role = role;
    if (role == TensorRole::Weight) {
      info.checkpointForms = getCheckpointForms(spec, info);
      info.ggufForms = getGgufForms(spec, info);
    }
    tensors.push_back(std::move(info));
  }

  /// Adds the weight of a gemm.
  void addMatrix(StringRef name, std::vector<int64_t> shape, TensorType type) {
    add(name, std::move(shape), type);
    tensors.back().isStrided = spec.stridedWeights;
  }

  /// Adds a weight matrix of the routed or shared experts, the scales of its
  /// quantization and those of the gemm's input. `shape` ends in rows x K. With
  /// `hasHalves` gate and up rows have separate scales.
  void addQuantized(StringRef name, std::vector<int64_t> shape,
                    bool hasHalves = false) {
    const std::optional<QuantizationSpec> &quantization =
        spec.getQuantization(name);
    if (!quantization)
      return addMatrix(name, std::move(shape), layerType);
    for (TensorInfo &info : getQuantizedTensors(quantization->weight, name,
                                                std::move(shape), hasHalves)) {
      bool isElements = info.name == name;
      add(info.name, std::move(info.shape), info.type);
      if (isElements && getElementBits(quantization->weight.storage) == 8)
        tensors.back().isStrided = spec.stridedWeights;
    }
    if (quantization->activation && quantization->activation->isStatic)
      add((name + "_input_scale").str(), {1}, TensorType::F32);
  }

  /// Quantized rows have a scale per row or group, or one for all.
  void addHiddenStates() {
    constexpr TensorRole input = TensorRole::Input;
    constexpr int64_t tokens = kTokenDimension;
    std::vector<int64_t> shape = {tokens, spec.hiddenSize};
    const auto &first = spec.getQuantization("experts.w13");
    if (!spec.quantizedInput || !first || !first->activation)
      return add("hidden_states", shape, layerType, input);
    const OperandQuantization &rows = *first->activation;
    add("hidden_states", shape, getTensorType(rows.storage), input);
    if (rows.isStatic)
      return;
    bool isShared = rows.granularity == Granularity::Tensor;
    shape.back() = rows.getScaleGroup().countColumns(spec.hiddenSize);
    add("hidden_states_scale", isShared ? std::vector<int64_t>{1} : shape,
        TensorType::F32, input);
  }

  void addInputs() {
    constexpr TensorRole input = TensorRole::Input;
    constexpr int64_t tokens = kTokenDimension;
    addHiddenStates();
    if (spec.entry == Entry::Logits)
      add("router_logits", {tokens, spec.getNumRouted()},
          getTensorType(spec.routing.logitsDtype), input);
    if (spec.entry == Entry::Ids) {
      add("topk_ids", {tokens, spec.topK}, TensorType::I32, input);
      add("topk_weights", {tokens, spec.topK}, TensorType::F32, input);
    }
    if (spec.replayIds)
      add("topk_ids", {tokens, spec.topK}, getTensorType(*spec.replayIds),
          input);
    if (spec.numValidTokens)
      add("num_valid_tokens", {1}, TensorType::I32, input);
    if (spec.paddingMask)
      add("is_padding", {tokens}, TensorType::I8, input);
    if (usesHash())
      add("input_ids", {tokens}, TensorType::I32, input);
    if (spec.lora)
      add("adapter_ids", {tokens}, TensorType::I32, input);
  }

  void addRouter() {
    if (spec.entry == Entry::Ids)
      return;
    const RoutingSpec &routing = spec.routing;
    int64_t numRouted = spec.getNumRouted();
    int64_t width = routing.gateHiddenSize.value_or(spec.hiddenSize);
    if (routing.gateHiddenSize)
      addMatrix("gate.hidden", {width, spec.hiddenSize}, layerType);
    if (spec.entry == Entry::Gate)
      addMatrix("gate.weight",
                {routing.splitGate ? 2 * numRouted : numRouted, width},
                layerType);
    if (routing.gateBias)
      add("gate.bias", {numRouted}, TensorType::F32);
    if (routing.selectionBias)
      add("gate.selection_bias", {numRouted}, TensorType::F32);
    if (routing.expertScale)
      add("gate.expert_scale", {numRouted}, TensorType::F32);
    if (usesHash())
      add("gate.hash_table", {*routing.hashVocabSize, spec.topK},
          TensorType::I32);
  }

  void addExperts() {
    int64_t numExperts = spec.getNumLocalExperts();
    int64_t width = spec.getExpertWidth();
    int64_t size = spec.getLocalIntermediateSize();
    int64_t rows = spec.getFirstProductRows(size);
    addQuantized("experts.w13", {numExperts, rows, width}, hasHalves());
    if (spec.expertColumns)
      add("experts.w13_columns", {numExperts, width}, TensorType::I32);
    if (spec.expertBias)
      add("experts.w13_bias", {numExperts, rows}, layerType);
    addQuantized("experts.w2", {numExperts, width, size});
    if (spec.expertBias)
      add("experts.w2_bias", {numExperts, width}, layerType);
    if (spec.outputBias)
      add("output_bias", {spec.hiddenSize}, layerType);
  }

  void addSharedExperts() {
    if (!spec.sharedExperts)
      return;
    int64_t size = spec.getLocalSharedSize();
    addQuantized("shared_experts.w13",
                 {spec.getFirstProductRows(size), spec.hiddenSize},
                 hasHalves());
    if (spec.sharedExperts->columns)
      add("shared_experts.w13_columns", {1, spec.hiddenSize}, TensorType::I32);
    if (spec.sharedExperts->bias)
      add("shared_experts.w13_bias", {spec.getFirstProductRows(size)},
          layerType);
    addQuantized("shared_experts.w2", {spec.hiddenSize, size});
    if (spec.sharedExperts->bias)
      add("shared_experts.w2_bias", {spec.hiddenSize}, layerType);
    if (spec.sharedExperts->gate == SharedGate::None)
      return;
    int64_t rows = spec.sharedExperts->gate == SharedGate::Softmax ? 2 : 1;
    add("shared_experts.gate", {rows, spec.hiddenSize}, layerType);
    if (spec.sharedExperts->gateBias)
      add("shared_experts.gate_bias", {rows}, TensorType::F32);
  }

  void addLatent() {
    if (!spec.latentSize)
      return;
    addMatrix("latent.down", {*spec.latentSize, spec.hiddenSize}, layerType);
    addMatrix("latent.up", {spec.hiddenSize, *spec.latentSize}, layerType);
  }

  void addNorms() {
    if (spec.norms.latentIn)
      add("norms.latent_in", {spec.getExpertWidth()}, layerType);
    if (spec.norms.expert)
      add("norms.expert", {spec.getExpertWidth()}, layerType);
    if (spec.norms.latentOut)
      add("norms.latent_out", {spec.getExpertWidth()}, layerType);
  }

  /// The stacked tensors of adapters, as vLLM holds them.
  void addLora() {
    if (!spec.lora)
      return;
    auto addPair = [&](const Twine &name, int64_t from, int64_t to) {
      int64_t adapters = spec.lora->adapters, rank = spec.lora->rank;
      int64_t experts = spec.getNumLocalExperts();
      add(("lora." + name + "_a").str(), {adapters, experts, rank, from},
          layerType);
      add(("lora." + name + "_b").str(), {adapters, experts, to, rank},
          layerType);
    };
    int64_t width = spec.getExpertWidth();
    int64_t size = spec.getLocalIntermediateSize();
    if (spec.isGated())
      addPair("gate", width, size);
    addPair("up", width, size);
    addPair("down", size, width);
  }

  void addOutputs() {
    constexpr TensorRole output = TensorRole::Output;
    constexpr int64_t tokens = kTokenDimension;
    add("output", {tokens, spec.getOutputWidth()}, layerType, output);
    if (spec.recordIds) {
      add("topk_ids", {tokens, spec.topK}, getTensorType(*spec.recordIds),
          output);
      add("topk_weights", {tokens, spec.topK}, TensorType::F32, output);
    }
    if (spec.recordLoad)
      add("expert_offsets", {spec.getNumLocalExperts() + 1}, TensorType::I32,
          output);
  }

  bool hasHalves() const {
    return spec.isGated() && spec.gateUpOrder != GateUpOrder::Interleaved;
  }

  bool usesHash() const {
    return spec.entry != Entry::Ids && spec.routing.select == Select::Hash;
  }

  const LayerSpec &spec;
  TensorType layerType;
  std::vector<TensorInfo> tensors;
};

} // namespace

std::vector<TensorInfo> getQuantizedTensors(const OperandQuantization &weight,
                                            StringRef name,
                                            std::vector<int64_t> shape,
                                            bool hasHalves) {
  std::vector<TensorInfo> tensors;
  auto add = [&](const Twine &name, std::vector<int64_t> shape,
                 TensorType type) {
    TensorInfo info;
    info.name = name.str();
    info.shape = std::move(shape);
    info.type = type;
    info.role = TensorRole::Weight;
    tensors.push_back(std::move(info));
  };
  ScaleGroup group = weight.getScaleGroup();
  std::vector<int64_t> scales = shape;
  scales.back() = group.countColumns(shape.back());
  scales[scales.size() - 2] =
      group.countRows(shape[shape.size() - 2], hasHalves);
  std::vector<int64_t> globalScales(shape.begin(), shape.end() - 2);
  globalScales.push_back(1 + hasHalves);
  if (getElementBits(weight.storage) < 8)
    shape.back() /= 2;
  add(name, std::move(shape), getTensorType(weight.storage));
  add(name + "_scale", scales, getTensorType(weight.scale));
  if (weight.hasMinimum)
    add(name + "_minimum", std::move(scales), getTensorType(weight.scale));
  else if (weight.hasZeroPoint)
    add(name + "_zero_point", std::move(scales), TensorType::I8);
  if (weight.hasGlobalScale)
    add(name + "_global_scale", std::move(globalScales), TensorType::F32);
  return tensors;
}

std::vector<TensorInfo> getTensorSignature(const LayerSpec &spec) {
  return SignatureBuilder(spec).build();
}

} // namespace moec
