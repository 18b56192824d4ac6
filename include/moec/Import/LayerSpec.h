//===- LayerSpec.h - a layer as the JSON spec describes it ------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The spec of docs/layers.md as a struct with every default resolved. Both
// sources of a layer, our own JSON spec and a model's config.json, end here;
// TensorSignature.h and BuildLayer.h start from it. Formulas and the meaning
// of every field are stated in docs/layers.md, not repeated here.
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_IMPORT_LAYERSPEC_H
#define MOEC_IMPORT_LAYERSPEC_H

#include "moec/Support/ScaleGroup.h"

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/ErrorHandling.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace moec {

/// Largest sizes a layer may have. They are far beyond any model, and small
/// enough that the bytes of every tensor of a layer fit in 64 bits: the largest
/// is the first product of all tokens, T * k * N * 4 bytes <= 2^57.
namespace limits {
constexpr int64_t kMaxWidth = int64_t(1) << 20;
constexpr int64_t kMaxExperts = int64_t(1) << 16;
constexpr int64_t kMaxTopK = int64_t(1) << 10;
constexpr int64_t kMaxRanks = int64_t(1) << 10;
constexpr int64_t kMaxReplicas = int64_t(1) << 10;
constexpr int64_t kMaxTokens = int64_t(1) << 24;
constexpr int64_t kMaxVocabulary = int64_t(1) << 24;
} // namespace limits

/// The layer dtype D.
enum class DType { F32, BF16, F16 };

/// What a call hands to the layer besides the hidden states.
enum class Entry {
  Gate,   ///< nothing: the router's weight is part of the layer
  Logits, ///< router logits
  Ids,    ///< expert ids and weights
};

/// Order of the rows of `w13` in a layer with a gate.
enum class GateUpOrder { GateUp, UpGate, Interleaved };

/// Formula 2: logit to score.
enum class Score { Identity, Softmax, Sigmoid, SqrtSoftplus };

/// Formula 4: how the experts of a token are chosen.
enum class Select { TopK, PerGroup, Hash, SparseMixer };

/// Formula 4: the key of a group of experts.
enum class GroupScore { Max, Top2Sum };

/// Formula 5: score to weight.
enum class RouteWeight { Score, Sigmoid, Softmax };

/// Formula 3: what becomes of a score that is not finite.
enum class NonFinite { Zero, NegInf, Lowest };

/// The table of activations. Kinds ending in `NoMul` have no gate.
enum class Activation {
  Silu,
  Gelu,
  GeluTanh,
  Relu2,
  SwigluOai,
  SwigluOaiUninterleave,
  SwigluStep,
  Situ,
  SiluNoMul,
  GeluNoMul,
  GeluTanhNoMul,
  Relu2NoMul,
};

/// What the shared expert's output is multiplied by.
enum class SharedGate { None, Sigmoid };

/// What a quantized element is in memory.
enum class StorageType { Fp8E4M3, Fp8E5M2, Fp4E2M1, NF4, Int8, Int4 };

inline bool isInteger(StorageType storage) {
  return storage == StorageType::Int8 || storage == StorageType::Int4;
}
/// Bits of an element; two of 4 bits lie in a byte.
inline int64_t getElementBits(StorageType storage) {
  switch (storage) {
  case StorageType::Fp4E2M1:
  case StorageType::NF4:
  case StorageType::Int4:
    return 4;
  default:
    return 8;
  }
}

/// What a scale is in memory.
enum class ScaleType { F32, BF16, F16, E8M0, E4M3 };

/// Which elements share a scale; docs/layers.md says what each is of.
enum class Granularity { Tensor, Channel, Token, Group, Block };

/// How checkpoints hold a quantized matrix; lib/Import/Packings.cpp says which
/// tensors each has.
enum class Packing {
  Unstated,       ///< no config.json says it: what the weight's type suggests
  Modules,        ///< `weight`, `weight_scale`
  InverseNames,   ///< `weight`, `weight_scale_inv`
  GptOss,         ///< `_blocks` and `_scales` of all experts
  CompressedInts, ///< `weight_packed` of integers, `weight_scale`
  CompressedFp4,  ///< `weight_packed` of floats, `weight_scale`
  ModelOpt,       ///< `weight`, `weight_scale`, `weight_scale_2`
  Gptq,           ///< `qweight`, `qzeros` less by one, `scales`, `g_idx`
  GptqV2,         ///< the same with `qzeros` as they are
  Awq,            ///< `qweight`, `qzeros`, `scales`, interleaved
  BitsAndBytes,   ///< `weight` in one column, `weight.absmax`
  BitsAndBytesNested, ///< the same with scales of 8 bits, which have scales
};

/// One operand of the experts' products.
struct OperandQuantization {
  StorageType storage = StorageType::Fp8E4M3;
  /// What scales of weights are in memory; those that activations find are f32,
  /// and with `E8M0` powers of two.
  ScaleType scale = ScaleType::F32;
  Granularity granularity = Granularity::Tensor;
  /// Rows and contracted elements of a block; of a group 1 row, else 0 both.
  int64_t blockRows = 0, blockColumns = 0;
  /// Scales of activations are tensors of the layer, not found in a call.
  bool isStatic = false;
  /// What stands for 0 among weights of integers is a tensor, one per scale.
  bool hasZeroPoint = false;
  /// Scales of weights in groups or blocks have a factor per matrix.
  bool hasGlobalScale = false;
  /// What is subtracted of weights of integers, behind their scale, is a
  /// tensor, one per scale and of its type.
  bool hasMinimum = false;

  bool operator==(const OperandQuantization &other) const;
  ScaleGroup getScaleGroup() const;
};

/// The two operands of a product, as the fields `weight` and `activation` of an
/// object `quantization` say.
struct QuantizationSpec {
  OperandQuantization weight;
  /// None for activations that stay in the layer dtype.
  std::optional<OperandQuantization> activation;
  /// What files alone have: it changes no number, and no spec has it.
  Packing packing = Packing::Unstated;

  /// Whether the numbers are the same.
  bool operator==(const QuantizationSpec &other) const {
    return weight == other.weight && activation == other.activation;
  }
};

/// An object `quantization` of the spec: how both products of experts are
/// quantized. None for a product that is not.
struct ExpertQuantization {
  std::optional<QuantizationSpec> w13, w2;

  ExpertQuantization() = default;
  /// Both products alike.
  ExpertQuantization(const std::optional<QuantizationSpec> &both)
      : w13(both), w2(both) {}
  ExpertQuantization(const QuantizationSpec &both) : w13(both), w2(both) {}

  /// Whether a product is quantized.
  explicit operator bool() const { return w13 || w2; }
  bool operator==(const ExpertQuantization &other) const {
    return w13 == other.w13 && w2 == other.w2;
  }
  bool operator!=(const ExpertQuantization &other) const {
    return !(*this == other);
  }
};

/// An abbreviation of an object `quantization`.
struct QuantizationName {
  llvm::StringLiteral name;
  QuantizationSpec meaning;
};
llvm::ArrayRef<QuantizationName> getQuantizationNames();
/// The abbreviation that means the same; empty where there is none.
llvm::StringRef getShortName(const QuantizationSpec &quantization);
/// Whether a target multiplies it; what none does can be described only.
bool isCompiled(const OperandQuantization &operand);
bool isCompiled(const QuantizationSpec &quantization);
/// In words, for messages and reports: "fp8_block128", or "fp8_e4m3 by channel,
/// activations fp8_e4m3 by token".
std::string describe(const QuantizationSpec &quantization);
/// Likewise: "mxfp4", or "w13 mxfp4, w2 not quantized".
std::string describe(const ExpertQuantization &quantization);

/// The spec's `routing` object. Of an entry `ids` only `weightOnInput` counts.
struct RoutingSpec {
  Score score = Score::Softmax;
  Select select = Select::TopK;
  /// The router has a bias (entry `gate`).
  bool gateBias = false;
  /// A bias that takes part in the selection but not in the weight.
  bool selectionBias = false;
  /// A factor per expert on the weight.
  bool expertScale = false;
  /// Groups of experts; 1 is no grouping.
  int64_t numGroups = 1;
  /// Groups that stay in the selection.
  int64_t topkGroups = 1;
  GroupScore groupScore = GroupScore::Max;
  RouteWeight weight = RouteWeight::Score;
  bool renormalize = false;
  double renormalizeEpsilon = 0.0;
  /// Factor of every weight.
  double scale = 1.0;
  /// Logits are bounded by it before the score: cap * tanh(l / cap).
  std::optional<double> logitSoftcap;
  /// The dtype of a call's logits (entry `logits`).
  DType logitsDtype = DType::F32;
  NonFinite nonfinite = NonFinite::Zero;
  /// The weight multiplies the input of the expert, not its output.
  bool weightOnInput = false;
  /// Rows of the hash table, with `Select::Hash` alone.
  std::optional<int64_t> hashVocabSize;
};

/// The spec's `activation` object. A parameter is set where the kind has it;
/// only `limit` may stay unset there, which means no clamp.
struct ActivationSpec {
  Activation kind = Activation::Silu;
  std::optional<double> limit;
  std::optional<double> alpha;
  std::optional<double> beta;
  std::optional<double> linearBeta;
};

/// The spec's `shared_experts` object: all shared experts as one.
struct SharedExpertsSpec {
  int64_t intermediateSize = 0;
  SharedGate gate = SharedGate::None;
  /// Factor of the output.
  double scale = 1.0;
  /// Where it is not the routed experts'; gated as that one.
  std::optional<ActivationSpec> activation;
  /// The columns of w13 are in an order of their own, a tensor.
  bool columns = false;
  ExpertQuantization quantization;
};

/// The spec's `placement` object. `num_ranks` can only be 1 and is not kept.
struct PlacementSpec {
  /// Global ids of the experts held here, in the order of the weights; absent
  /// means all.
  std::optional<std::vector<int64_t>> localExperts;
};

/// How routed experts are spread over the ranks of a layer.
enum class ExpertPlacement {
  Split,      ///< a part of every expert on each
  Linear,     ///< whole experts: neighbours
  RoundRobin, ///< whole experts: every so manieth
  Listed,     ///< whole experts, as `ParallelSpec::lists` says
};

/// The spec's `parallel` object (docs/parallel.md).
struct ParallelSpec {
  /// Groups of ranks with tokens of their own, `pcp` neighbours of which have a
  /// part of the same prompts each, and ranks of a group.
  int64_t dp = 1, pcp = 1, tp = 1;
  /// Whether each rank of a group has a part of its tokens, not all of them.
  bool sp = false;
  ExpertPlacement placement = ExpertPlacement::Split;
  /// With `Listed`: the experts of each rank, all of one number; one that
  /// several ranks have is one of several replicas.
  std::vector<std::vector<int64_t>> lists;

  /// Groups of ranks with tokens of their own.
  int64_t getNumGroups() const { return dp * pcp; }
  int64_t getNumRanks() const { return getNumGroups() * tp; }
  /// Ranks, or groups of ranks, with tokens of their own.
  int64_t getTokenRanks() const { return sp ? getNumRanks() : getNumGroups(); }
  /// "dp 2 x tp 4"; "dp 2 x pcp 2 x tp 4".
  std::string describeRanks() const;
  bool hasWholeExperts() const { return placement != ExpertPlacement::Split; }
};

/// The spec's `replicas` object: experts whose weights are there several times.
struct ReplicasSpec {
  /// Experts that have weights, replicas of one counted each.
  int64_t numPhysicalExperts = 0;
  /// As many as an expert may have.
  int64_t maxReplicas = 1;
};

/// A layer.
struct LayerSpec {
  /// Symbol name of the layer's function.
  std::string name = "layer";
  /// The `model_type` of the config.json that the layer came from, whose
  /// checkpoint names its tensors accept; empty for a spec of our own.
  std::string modelType;
  /// The decoder layer of that model; none for a spec of our own, and where the
  /// configuration does not count its layers.
  std::optional<int64_t> layerIndex;
  /// Keys of that config.json that were read past by order of the user.
  std::vector<std::string> ignoredFields;
  DType dtype = DType::F32;
  Entry entry = Entry::Gate;
  int64_t hiddenSize = 0;
  int64_t numExperts = 0;
  int64_t topK = 0;
  int64_t intermediateSize = 0;
  int64_t maxTokens = 16384;
  /// The layer takes the number of valid tokens as an operand.
  bool numValidTokens = false;
  /// The layer takes a mask of tokens that are padding.
  bool paddingMask = false;
  /// Ids and weights that the router chose are outputs.
  bool recordIds = false;
  /// Where the slots of each expert begin is an output.
  bool recordLoad = false;
  /// Identity experts, numbered after the others.
  int64_t numZeroExperts = 0;
  /// Width that the routed experts see, where it is not the hidden size.
  std::optional<int64_t> latentSize;
  GateUpOrder gateUpOrder = GateUpOrder::GateUp;
  bool expertBias = false;
  /// The columns of each expert's w13 are in an order of its own, a tensor.
  bool expertColumns = false;
  /// Weight matrices may be bound with gaps between their rows.
  bool stridedWeights = false;
  RoutingSpec routing;
  ActivationSpec activation;
  std::optional<SharedExpertsSpec> sharedExperts;
  /// That of the routed experts.
  ExpertQuantization quantization;
  std::optional<PlacementSpec> placement;
  std::optional<ParallelSpec> parallel;
  std::optional<ReplicasSpec> replicas;

  /// R: rows of the router.
  int64_t getNumRouted() const { return numExperts + numZeroExperts; }
  /// L: width that the routed experts see.
  int64_t getExpertWidth() const { return latentSize.value_or(hiddenSize); }
  /// Experts that have weights on one rank or another, replicas of one counted
  /// each.
  int64_t getNumPhysicalExperts() const;
  /// The expert of each of them, when the layer is loaded.
  std::vector<int64_t> getLogicalIds() const;
  /// Experts whose weights are here.
  int64_t getNumLocalExperts() const;
  /// I and S of the weights that are here.
  int64_t getLocalIntermediateSize() const;
  int64_t getLocalSharedSize() const;
  /// With `parallel`: global ids of the experts whose weights a rank has, in
  /// their order; those of physical ones, where there are replicas.
  std::vector<int64_t> getExpertsOf(int64_t rank) const;
  /// The layer on one rank.
  LayerSpec getWhole() const;
  /// Whether an expert has gate and up rows.
  bool isGated() const;
  /// N: rows of `w13` for an intermediate size.
  int64_t getFirstProductRows(int64_t intermediate) const {
    return isGated() ? 2 * intermediate : intermediate;
  }
  /// Names of the weights of experts, the shared one's last, if there is one.
  llvm::ArrayRef<llvm::StringLiteral> getExpertWeights() const;
  /// How the product with this weight is quantized, or with the weight that
  /// the tensor of this name belongs to ("experts.w2_scale").
  const std::optional<QuantizationSpec> &
  getQuantization(llvm::StringRef tensor) const;
  /// Whether a product of experts is quantized.
  bool isQuantized() const;
  /// How files have the matrices that are quantized, all alike.
  Packing getPacking() const;
  void setPacking(Packing packing);
};

/// Whether an activation takes a gate and an up value.
bool isGated(Activation kind);

/// The parameters that an activation kind has, with the value each takes when
/// the spec is silent (none for a `limit` that means no clamp).
struct ActivationParameters {
  struct Parameter {
    /// Whether the kind has the parameter.
    bool exists = false;
    std::optional<double> fallback;
  };
  Parameter limit, alpha, beta, linearBeta;
};
ActivationParameters getParameters(Activation kind);

/// An activation of this kind with its default parameters.
ActivationSpec getDefaultActivation(Activation kind);

/// The rule for scores that are not finite where the spec states none.
NonFinite getDefaultNonFinite(const RoutingSpec &routing);

/// One value of an enum with its spelling in the spec.
template <typename E>
struct EnumName {
  E value;
  llvm::StringLiteral name;
};

/// All values of an enum of this header, as docs/layers.md spells them.
template <typename E>
llvm::ArrayRef<EnumName<E>> getEnumNames();

template <typename E>
llvm::StringRef stringify(E value) {
  for (const EnumName<E> &entry : getEnumNames<E>())
    if (entry.value == value)
      return entry.name;
  llvm_unreachable("an enum value without a name");
}

template <typename E>
std::optional<E> symbolize(llvm::StringRef name) {
  for (const EnumName<E> &entry : getEnumNames<E>())
    if (entry.name == name)
      return entry.value;
  return std::nullopt;
}

template <>
llvm::ArrayRef<EnumName<DType>> getEnumNames<DType>();
template <>
llvm::ArrayRef<EnumName<Entry>> getEnumNames<Entry>();
template <>
llvm::ArrayRef<EnumName<GateUpOrder>> getEnumNames<GateUpOrder>();
template <>
llvm::ArrayRef<EnumName<Score>> getEnumNames<Score>();
template <>
llvm::ArrayRef<EnumName<Select>> getEnumNames<Select>();
template <>
llvm::ArrayRef<EnumName<GroupScore>> getEnumNames<GroupScore>();
template <>
llvm::ArrayRef<EnumName<RouteWeight>> getEnumNames<RouteWeight>();
template <>
llvm::ArrayRef<EnumName<NonFinite>> getEnumNames<NonFinite>();
template <>
llvm::ArrayRef<EnumName<Activation>> getEnumNames<Activation>();
template <>
llvm::ArrayRef<EnumName<SharedGate>> getEnumNames<SharedGate>();
template <>
llvm::ArrayRef<EnumName<StorageType>> getEnumNames<StorageType>();
template <>
llvm::ArrayRef<EnumName<ScaleType>> getEnumNames<ScaleType>();
template <>
llvm::ArrayRef<EnumName<Granularity>> getEnumNames<Granularity>();

} // namespace moec

#endif // MOEC_IMPORT_LAYERSPEC_H
