//===- LayerSpec.cpp - names and defaults of the spec ---------------------===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/Import/LayerSpec.h"

#include "llvm/ADT/Twine.h"
#include "llvm/Support/MathExtras.h"

#include <numeric>

using namespace llvm;

namespace moec {

#define MOEC_NAMES(E, ...)                                                     \
  template <>                                                                  \
  ArrayRef<EnumName<E>> getEnumNames<E>() {                                    \
    static constexpr EnumName<E> names[] = {__VA_ARGS__};                      \
    return names;                                                              \
  }

MOEC_NAMES(DType, {DType::F32, "f32"}, {DType::BF16, "bf16"},
           {DType::F16, "f16"})
MOEC_NAMES(Entry, {Entry::Gate, "gate"}, {Entry::Logits, "logits"},
           {Entry::Ids, "ids"})
MOEC_NAMES(IdType, {IdType::Int32, "int32"}, {IdType::Int16, "int16"},
           {IdType::UInt8, "uint8"})
MOEC_NAMES(Score, {Score::Identity, "identity"}, {Score::Softmax, "softmax"},
           {Score::Sigmoid, "sigmoid"}, {Score::SqrtSoftplus, "sqrtsoftplus"})
MOEC_NAMES(RouteWeight, {RouteWeight::Score, "score"},
           {RouteWeight::Sigmoid, "sigmoid"}, {RouteWeight::Softmax, "softmax"})
MOEC_NAMES(Activation, {Activation::Silu, "silu"}, {Activation::Gelu, "gelu"},
           {Activation::GeluTanh, "gelu_tanh"}, {Activation::Relu, "relu"},
           {Activation::Relu2, "relu2"}, {Activation::SwigluOai, "swigluoai"},
           {Activation::SwigluOaiUninterleave, "swigluoai_uninterleave"},
           {Activation::SwigluStep, "swiglustep"}, {Activation::Situ, "situ"},
           {Activation::SiluNoMul, "silu_no_mul"},
           {Activation::GeluNoMul, "gelu_no_mul"},
           {Activation::GeluTanhNoMul, "gelu_tanh_no_mul"},
           {Activation::ReluNoMul, "relu_no_mul"},
           {Activation::Relu2NoMul, "relu2_no_mul"})
MOEC_NAMES(OutputRows, {OutputRows::Sum, "sum"}, {OutputRows::Slots, "slots"})
MOEC_NAMES(SharedGate, {SharedGate::None, "none"},
           {SharedGate::Sigmoid, "sigmoid"}, {SharedGate::Softmax, "softmax"})
MOEC_NAMES(StorageType, {StorageType::Fp8E4M3, "fp8_e4m3"},
           {StorageType::Fp8E5M2, "fp8_e5m2"},
           {StorageType::Fp4E2M1, "fp4_e2m1"}, {StorageType::NF4, "nf4"},
           {StorageType::Int8, "int8"}, {StorageType::Int4, "int4"})
MOEC_NAMES(ScaleType, {ScaleType::F32, "f32"}, {ScaleType::BF16, "bf16"},
           {ScaleType::F16, "f16"}, {ScaleType::E8M0, "e8m0"},
           {ScaleType::E4M3, "e4m3"})
#undef MOEC_NAMES

template <>
ArrayRef<EnumName<GateUpOrder>> getEnumNames<GateUpOrder>() {
  static constexpr EnumName<GateUpOrder> names[] = {
#define GATE_UP_ORDER(NAME, SPELLING) {GateUpOrder::NAME, SPELLING},
#include "moec/Support/LayerEnums.def"
  };
  return names;
}

template <>
ArrayRef<EnumName<Select>> getEnumNames<Select>() {
  static constexpr EnumName<Select> names[] = {
#define SELECT(NAME, SPELLING) {Select::NAME, SPELLING},
#include "moec/Support/LayerEnums.def"
  };
  return names;
}

template <>
ArrayRef<EnumName<GroupScore>> getEnumNames<GroupScore>() {
  static constexpr EnumName<GroupScore> names[] = {
#define GROUP_SCORE(NAME, SPELLING) {GroupScore::NAME, SPELLING},
#include "moec/Support/LayerEnums.def"
  };
  return names;
}

template <>
ArrayRef<EnumName<NonFinite>> getEnumNames<NonFinite>() {
  static constexpr EnumName<NonFinite> names[] = {
#define NON_FINITE(NAME, SPELLING) {NonFinite::NAME, SPELLING},
#include "moec/Support/LayerEnums.def"
  };
  return names;
}

template <>
ArrayRef<EnumName<Granularity>> getEnumNames<Granularity>() {
  static constexpr EnumName<Granularity> names[] = {
#define GRANULARITY(NAME, SPELLING) {Granularity::NAME, SPELLING},
#include "moec/Support/LayerEnums.def"
  };
  return names;
}

unsigned getIdBits(IdType type) {
  switch (type) {
  case IdType::Int32:
    return 32;
  case IdType::Int16:
    return 16;
  case IdType::UInt8:
    return 8;
  }
  llvm_unreachable("every type is listed");
}

bool isGated(Activation kind) {
  switch (kind) {
  case Activation::SiluNoMul:
  case Activation::GeluNoMul:
  case Activation::GeluTanhNoMul:
  case Activation::ReluNoMul:
  case Activation::Relu2NoMul:
    return false;
  default:
    return true;
  }
}

bool OperandQuantization::operator==(const OperandQuantization &other) const {
  return storage == other.storage && scale == other.scale &&
         granularity == other.granularity && blockRows == other.blockRows &&
         blockColumns == other.blockColumns && isStatic == other.isStatic &&
         hasZeroPoint == other.hasZeroPoint &&
         hasGlobalScale == other.hasGlobalScale &&
         hasMinimum == other.hasMinimum;
}

ScaleGroup OperandQuantization::getScaleGroup() const {
  return ScaleGroup::of(granularity, blockRows, blockColumns);
}

llvm::ArrayRef<QuantizationName> getQuantizationNames() {
  static const QuantizationName names[] = {
      {"fp8_block128",
       {{StorageType::Fp8E4M3, ScaleType::F32, Granularity::Block, 128, 128},
        OperandQuantization{StorageType::Fp8E4M3, ScaleType::F32,
                            Granularity::Group, 1, 128}}},
      {"mxfp4",
       {{StorageType::Fp4E2M1, ScaleType::E8M0, Granularity::Group, 1, 32},
        std::nullopt}},
      {"nvfp4",
       {{StorageType::Fp4E2M1, ScaleType::E4M3, Granularity::Group, 1, 16,
         /*isStatic=*/false, /*hasZeroPoint=*/false, /*hasGlobalScale=*/true},
        std::nullopt}},
      {"mxfp8",
       {{StorageType::Fp8E4M3, ScaleType::E8M0, Granularity::Group, 1, 32},
        OperandQuantization{StorageType::Fp8E4M3, ScaleType::E8M0,
                            Granularity::Group, 1, 32}}},
  };
  return names;
}

llvm::StringRef getShortName(const QuantizationSpec &quantization) {
  for (const QuantizationName &entry : getQuantizationNames())
    if (entry.meaning == quantization)
      return entry.name;
  return {};
}

bool isCompiled(const OperandQuantization &operand) {
  // K elements are processed in vectors of 16 that share a scale.
  constexpr int64_t minColumns = 16;
  return operand.storage != StorageType::Fp8E5M2 &&
         operand.blockColumns % minColumns == 0;
}

bool isCompiled(const QuantizationSpec &quantization) {
  return isCompiled(quantization.weight) &&
         (!quantization.activation || isCompiled(*quantization.activation));
}

static std::string describe(const OperandQuantization &operand) {
  std::string text = stringify(operand.storage).str() + " by " +
                     (operand.isStatic ? "static " : "") +
                     stringify(operand.granularity).str();
  if (operand.granularity == Granularity::Group)
    text += " of " + std::to_string(operand.blockColumns);
  if (operand.granularity == Granularity::Block)
    text += " of " + std::to_string(operand.blockRows) + " x " +
            std::to_string(operand.blockColumns);
  if (operand.scale != ScaleType::F32)
    text += ", scales " + stringify(operand.scale).str();
  if (operand.hasZeroPoint)
    text += ", zero points";
  if (operand.hasMinimum)
    text += ", minima";
  if (operand.hasGlobalScale)
    text += ", global scales";
  return text;
}

std::string describe(const QuantizationSpec &quantization) {
  StringRef name = getShortName(quantization);
  if (!name.empty())
    return name.str();
  std::string text = describe(quantization.weight);
  if (quantization.activation)
    text += ", activations " + describe(*quantization.activation);
  return text;
}

std::string describe(const ExpertQuantization &quantization) {
  auto describeProduct = [](const std::optional<QuantizationSpec> &product) {
    return product ? describe(*product) : std::string("not quantized");
  };
  std::string first = describeProduct(quantization.w13);
  if (quantization.w13 == quantization.w2)
    return first;
  return "w13 " + first + ", w2 " + describeProduct(quantization.w2);
}

std::string ParallelSpec::describeRanks() const {
  return "dp " + std::to_string(dp) +
         (pcp > 1 ? " x pcp " + std::to_string(pcp) : "") + " x tp " +
         std::to_string(tp);
}

bool LayerSpec::isGated() const { return moec::isGated(activation.kind); }

bool LayerSpec::holdsZeros(StringRef tensor, int64_t expert) const {
  if (constantExperts.empty() || !tensor.starts_with("experts."))
    return false;
  bool isConstant = is_contained(constantExperts, expert);
  return tensor == "experts.w13_bias" ||
         isConstant != (tensor == "experts.w2_bias");
}

int64_t LayerSpec::getNumPhysicalExperts() const {
  return replicas ? replicas->numPhysicalExperts : numExperts;
}

std::vector<int64_t> LayerSpec::getLogicalIds() const {
  std::vector<int64_t> ids;
  if (replicas && parallel && parallel->placement == ExpertPlacement::Listed) {
    for (const std::vector<int64_t> &list : parallel->lists)
      append_range(ids, list);
    return ids;
  }
  for (int64_t i = 0; i < getNumPhysicalExperts(); ++i)
    ids.push_back(i % numExperts);
  return ids;
}

int64_t LayerSpec::getNumLocalExperts() const {
  if (placement && placement->localExperts)
    return placement->localExperts->size();
  if (!parallel || !parallel->hasWholeExperts())
    return getNumPhysicalExperts();
  size_t most = 0;
  for (const std::vector<int64_t> &list : parallel->lists)
    most = std::max(most, list.size());
  if (parallel->placement == ExpertPlacement::Listed)
    return most;
  return divideCeil(getNumPhysicalExperts(), parallel->getNumRanks());
}

/// I, or S of the shared expert.
static int64_t getWidth(const LayerSpec &spec, StringRef experts) {
  return experts == "experts" ? spec.intermediateSize
                              : spec.sharedExperts->intermediateSize;
}

int64_t LayerSpec::getSharedUnit(StringRef experts, int64_t ranks) const {
  int64_t unit = 1;
  auto keepWhole = [&](int64_t elements) {
    unit = std::lcm(unit, std::max<int64_t>(elements, 1));
  };
  if (const auto &w13 = getQuantization((experts + ".w13").str()))
    keepWhole(w13->weight.blockRows);
  // The down gemm has the split dimension as K.
  if (const auto &w2 = getQuantization((experts + ".w2").str())) {
    keepWhole(w2->weight.blockColumns);
    if (w2->activation)
      keepWhole(w2->activation->blockColumns);
    if (getElementBits(w2->weight.storage) < 8)
      keepWhole(2);
  }
  // Shards with zeros are of a size that every target multiplies.
  constexpr int64_t vector = 32;
  if (unit > 1 && getWidth(*this, experts) % (ranks * unit) != 0)
    keepWhole(vector);
  return unit;
}

/// The elements of a rank with most of them.
static int64_t getShare(const LayerSpec &spec, StringRef experts,
                        int64_t ranks) {
  if (ranks == 1)
    return getWidth(spec, experts);
  int64_t unit = spec.getSharedUnit(experts, ranks);
  return divideCeil(getWidth(spec, experts), ranks * unit) * unit;
}

int64_t LayerSpec::getLocalIntermediateSize() const {
  if (!parallel || parallel->hasWholeExperts())
    return intermediateSize;
  return getShare(*this, "experts", parallel->getNumRanks());
}

int64_t LayerSpec::getLocalSharedSize() const {
  if (!parallel)
    return sharedExperts->intermediateSize;
  return getShare(*this, "shared_experts", parallel->tp);
}

std::vector<int64_t> LayerSpec::getExpertsOf(int64_t rank) const {
  // Listed expert ids are global ids.
  if (parallel && parallel->placement == ExpertPlacement::Listed && !replicas)
    return parallel->lists[rank];
  int64_t numRanks =
      parallel && parallel->hasWholeExperts() ? parallel->getNumRanks() : 1;
  rank %= numRanks;
  bool isStrided =
      parallel && parallel->placement == ExpertPlacement::RoundRobin;
  // The first ranks have one more, as in vLLM.
  int64_t each = getNumPhysicalExperts() / numRanks;
  int64_t numLarger = getNumPhysicalExperts() % numRanks;
  std::vector<int64_t> experts(each + (rank < numLarger));
  int64_t first = rank * each + std::min(rank, numLarger);
  for (auto [i, expert] : enumerate(experts))
    expert = isStrided ? int64_t(i) * numRanks + rank : first + int64_t(i);
  return experts;
}

LayerSpec LayerSpec::getWhole() const {
  LayerSpec whole = *this;
  whole.parallel.reset();
  return whole;
}

ArrayRef<StringLiteral> LayerSpec::getExpertWeights() const {
  static constexpr StringLiteral names[] = {
      "experts.w13", "experts.w2", "shared_experts.w13", "shared_experts.w2"};
  constexpr size_t numRouted = 2;
  ArrayRef<StringLiteral> all = names;
  return sharedExperts ? all : all.take_front(numRouted);
}

StringRef getDecodedForm(Packing packing) {
  switch (packing) {
  case Packing::AwqGemv:
    return "AWQ's gemv";
  case Packing::AwqGemvFast:
    return "AWQ's gemv_fast";
  case Packing::LlmAwq:
    return "llm-awq";
  case Packing::AwqMarlin:
    return "AWQ's marlin";
  case Packing::GptqMarlin:
    return "GPTQ's marlin";
  case Packing::Hqq:
    return "HQQ";
  case Packing::Gemma:
    return "Gemma's integers";
  case Packing::BitNet:
  case Packing::AutoBitNet:
    return "BitNet";
  case Packing::Aqlm:
    return "AQLM";
  case Packing::ModelOptAwq:
    return "ModelOpt's AWQ";
  case Packing::ModelOptSvd:
    return "ModelOpt's nvfp4 with factors";
  case Packing::GgmlBlocks:
    return "blocks of ggml";
  default:
    return "";
  }
}

const StoredModules *LayerSpec::findStored(StringRef weight) const {
  auto found = stored.find(weight.str());
  return found != stored.end() && !found->second.schemes.empty()
             ? &found->second
             : nullptr;
}

const std::optional<QuantizationSpec> &
LayerSpec::getQuantization(StringRef tensor) const {
  static const std::optional<QuantizationSpec> none;
  const ExpertQuantization *experts = nullptr;
  if (tensor.consume_front("experts."))
    experts = &quantization;
  else if (tensor.consume_front("shared_experts.") && sharedExperts)
    experts = &sharedExperts->quantization;
  if (!experts)
    return none;
  // The shared expert's gate is not quantized.
  return tensor.starts_with("w13")  ? experts->w13
         : tensor.starts_with("w2") ? experts->w2
                                    : none;
}

bool LayerSpec::isQuantized() const {
  return quantization || (sharedExperts && sharedExperts->quantization);
}

ActivationParameters getParameters(Activation kind) {
  ActivationParameters parameters;
  switch (kind) {
  case Activation::Silu:
  case Activation::SiluNoMul:
    parameters.limit = {true, std::nullopt};
    break;
  case Activation::Gelu:
    parameters.beta = {true, 0.0};
    break;
  case Activation::SwigluOai:
    parameters.alpha = {true, 1.702};
    parameters.limit = {true, 7.0};
    break;
  case Activation::SwigluOaiUninterleave:
    parameters.alpha = {true, 1.0};
    parameters.beta = {true, 0.0};
    parameters.limit = {true, std::nullopt};
    break;
  case Activation::SwigluStep:
    parameters.limit = {true, 7.0};
    break;
  case Activation::Situ:
    parameters.beta = {true, 4.0};
    parameters.linearBeta = {true, 25.0};
    break;
  default:
    break;
  }
  return parameters;
}

ActivationSpec getDefaultActivation(Activation kind) {
  ActivationParameters parameters = getParameters(kind);
  ActivationSpec spec;
  spec.kind = kind;
  spec.limit = parameters.limit.fallback;
  spec.alpha = parameters.alpha.fallback;
  spec.beta = parameters.beta.fallback;
  spec.linearBeta = parameters.linearBeta.fallback;
  return spec;
}

NonFinite getDefaultNonFinite(const RoutingSpec &routing) {
  if (routing.numGroups > 1 || routing.weight == RouteWeight::Softmax ||
      routing.select == Select::SparseMixer)
    return NonFinite::NegInf;
  if (routing.score == Score::SqrtSoftplus)
    return NonFinite::Lowest;
  return NonFinite::Zero;
}

} // namespace moec
