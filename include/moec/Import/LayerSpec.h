//===- LayerSpec.h - a layer as the JSON spec describes it ------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The spec of docs/use/layers.md as a struct with all defaults resolved. Both
// sources of a layer, spec and config.json, are parsed into it;
// TensorSignature.h and BuildLayer.h start from it. Formulas and the meaning of
// each field are in docs/use/layers.md and not repeated here.
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_IMPORT_LAYERSPEC_H
#define MOEC_IMPORT_LAYERSPEC_H

#include "moec/Support/ScaleGroup.h"

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/ErrorHandling.h"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace moec {

/// Largest sizes of a layer. They exceed any model by far, and the bytes of
/// each tensor still fit in 64 bits: the largest is the result of the gate and
/// up gemm for all tokens, T * k * N * 4 bytes <= 2^57.
namespace limits {
constexpr int64_t kMaxWidth = int64_t(1) << 20;
constexpr int64_t kMaxExperts = int64_t(1) << 16;
constexpr int64_t kMaxAdapters = int64_t(1) << 16;
constexpr int64_t kMaxRank = int64_t(1) << 12;
constexpr int64_t kMaxTopK = int64_t(1) << 10;
constexpr int64_t kMaxRanks = int64_t(1) << 10;
constexpr int64_t kMaxReplicas = int64_t(1) << 10;
constexpr int64_t kMaxTokens = int64_t(1) << 24;
constexpr int64_t kMaxVocabulary = int64_t(1) << 24;
} // namespace limits

/// The layer dtype D.
enum class DType { F32, BF16, F16 };

/// Inputs of a call besides the hidden states.
enum class Entry {
  Gate,   ///< nothing: the router's weight is part of the layer
  Logits, ///< router logits
  Ids,    ///< expert ids and weights
};

/// Type of the ids of experts that a layer records or replays.
enum class IdType { Int32, Int16, UInt8 };
/// Bits per id.
unsigned getIdBits(IdType type);

/// What a layer returns for a token.
enum class OutputRows {
  Sum,   ///< the weighted sum of its experts' rows
  Slots, ///< the row of the expert of each slot, one after another
};

/// Row order of `w13` in a gated layer.
enum class GateUpOrder {
#define GATE_UP_ORDER(NAME, SPELLING) NAME,
#include "moec/Support/LayerEnums.def"
};

/// Formula 2: logit to score.
enum class Score { Identity, Softmax, Sigmoid, SqrtSoftplus };

/// Formula 4: selection of a token's experts.
enum class Select {
#define SELECT(NAME, SPELLING) NAME,
#include "moec/Support/LayerEnums.def"
};

/// Formula 4: sort key of a group of experts.
enum class GroupScore {
#define GROUP_SCORE(NAME, SPELLING) NAME,
#include "moec/Support/LayerEnums.def"
};

/// Formula 5: score to weight.
enum class RouteWeight { Score, Sigmoid, Softmax };

/// Formula 3: replacement of a score that is not finite.
enum class NonFinite {
#define NON_FINITE(NAME, SPELLING) NAME,
#include "moec/Support/LayerEnums.def"
};

/// Activation functions. Kinds ending in `NoMul` are not gated.
enum class Activation {
  Silu,
  Gelu,
  GeluTanh,
  Relu,
  Relu2,
  SwigluOai,
  SwigluOaiUninterleave,
  SwigluStep,
  Situ,
  SiluNoMul,
  GeluNoMul,
  GeluTanhNoMul,
  ReluNoMul,
  Relu2NoMul,
};

/// Factor of the shared expert's output.
enum class SharedGate {
  None,
  Sigmoid, ///< a factor of the shared expert
  Softmax, ///< shares of the experts' sum and of the shared expert
};

/// Storage type of quantized elements.
enum class StorageType { Fp8E4M3, Fp8E5M2, Fp4E2M1, NF4, Int8, Int4 };

inline bool isInteger(StorageType storage) {
  return storage == StorageType::Int8 || storage == StorageType::Int4;
}
/// Bits per element; 4-bit elements are packed two to a byte.
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

/// Storage type of scales.
enum class ScaleType { F32, BF16, F16, E8M0, E4M3 };

/// Elements that share a scale; defined in docs/use/layers.md.
enum class Granularity {
#define GRANULARITY(NAME, SPELLING) NAME,
#include "moec/Support/LayerEnums.def"
};

/// Checkpoint layout of a quantized matrix. lib/Import/Packings.cpp lists the
/// tensors of each.
enum class Packing {
  Unstated,           ///< not in config.json: follows from the weight's type
  Modules,            ///< `weight`, `weight_scale`
  InverseNames,       ///< `weight`, `weight_scale_inv`
  Reciprocals,        ///< as `InverseNames`, which divide
  ShortNames,         ///< `weight`, `scale`
  GptOss,             ///< `_blocks` and `_scales` of all experts
  CompressedInts,     ///< `weight_packed` of integers, `weight_scale`
  CompressedFp4,      ///< `weight_packed` of floats, `weight_scale`
  ModelOpt,           ///< `weight`, `weight_scale`, `weight_scale_2`
  Gptq,               ///< `qweight`, `qzeros` minus 1, `scales`, `g_idx`
  GptqV2,             ///< as `Gptq`, `qzeros` unchanged
  GptqPlanes,         ///< as `GptqV2`, bits of an element in several words
  Awq,                ///< `qweight`, `qzeros`, `scales`, interleaved
  BitsAndBytes,       ///< `weight` in one column, `weight.absmax`
  BitsAndBytesNested, ///< with 8-bit scales that have scales
  BitsAndBytesFp4,    ///< as `BitsAndBytes`, with the numbers of its quant_map
  BitsAndBytesFp4Nested, ///< likewise, of `BitsAndBytesNested`
  BitsAndBytesInt8,      ///< `weight`, `SCB`: scales times 127
  TorchAo,               ///< `_weight_qdata`, `_weight_scale`, maybe in tiles
  TorchAoInt4,           ///< likewise transposed, `_weight_zero_point`
  Mlx,                   ///< `weight` in words, `scales`, `biases`
  Metal,                 ///< likewise, `qbiases`
  // Forms that the loader decodes to the layer's dtype.
  AwqGemv,     ///< `qweight` in words along K, `qzeros`, `scales`
  AwqGemvFast, ///< `qweight` of four rows in 16 bits, `qzeros` of products
  LlmAwq,      ///< likewise, `scaled_zeros`
  AwqMarlin,   ///< `qweight` and `scales` in the order of Marlin's kernel
  GptqMarlin,  ///< likewise, `B` and `s`
  Hqq,         ///< `W_q`, `scale` and `zero` of numbers
  Gemma,       ///< `weight` of 2, 4 or 8 bits, `weight_scale` of rows
  BitNet,      ///< `weight` of three values, `weight_scale` divides
  AutoBitNet,  ///< likewise, `weight_scale` multiplies
  Aqlm,        ///< `codes` into `codebooks`, whose vectors are added
  ModelOptAwq, ///< `weight`, `weight_scale`, `pre_quant_scale`
  ModelOptSvd, ///< likewise of nvfp4, with a product of low rank
  GgmlBlocks,  ///< `qweight` in blocks of ggml
};

/// The form's name in messages, of a packing that the loader decodes; empty for
/// others.
llvm::StringRef getDecodedForm(Packing packing);

/// Whether codes are indices into a table that the checkpoint has. No kernel
/// takes such a table: the loader dequantizes the weight.
inline bool hasStoredTable(Packing packing) {
  return packing == Packing::BitsAndBytesFp4 ||
         packing == Packing::BitsAndBytesFp4Nested;
}

/// Quantization of one operand of the experts' gemms.
struct OperandQuantization {
  StorageType storage = StorageType::Fp8E4M3;
  /// Storage type of weight scales. Activation scales computed in a call are
  /// f32, with `E8M0` rounded to powers of two.
  ScaleType scale = ScaleType::F32;
  Granularity granularity = Granularity::Tensor;
  /// Rows and K elements of a block. A group has 1 row; both are 0 for other
  /// granularities.
  int64_t blockRows = 0, blockColumns = 0;
  /// Activation scales are tensors of the layer, not computed in a call.
  bool isStatic = false;
  /// Integer weights have a tensor of zero points, one per scale.
  bool hasZeroPoint = false;
  /// Group or block scales of weights have one more factor per matrix.
  bool hasGlobalScale = false;
  /// Integer weights have a tensor of minima, one per scale and of the scale's
  /// type, subtracted after scaling.
  bool hasMinimum = false;

  bool operator==(const OperandQuantization &other) const;
  ScaleGroup getScaleGroup() const;
};

/// Quantization of the two operands of a gemm: the fields `weight` and
/// `activation` of a `quantization` object.
struct QuantizationSpec {
  OperandQuantization weight;
  /// None if activations stay in the layer dtype.
  std::optional<OperandQuantization> activation;
  /// Layout in files. It changes no value, and a spec cannot state it.
  Packing packing = Packing::Unstated;
  /// Bits of a weight's element in files; 0: as many as its storage type has.
  int64_t storedBits = 0;
  /// ggml's name of the blocks, for `Packing::GgmlBlocks`.
  std::string storedBlocks = {};

  /// Compares values, not the layout in files.
  bool operator==(const QuantizationSpec &other) const {
    return weight == other.weight && activation == other.activation;
  }
};

/// A `quantization` object of the spec: quantization of both gemms of the
/// experts. None for a gemm that is not quantized.
struct ExpertQuantization {
  std::optional<QuantizationSpec> w13, w2;

  ExpertQuantization() = default;
  /// Both gemms quantized alike.
  ExpertQuantization(const std::optional<QuantizationSpec> &both)
      : w13(both), w2(both) {}
  ExpertQuantization(const QuantizationSpec &both) : w13(both), w2(both) {}

  /// Whether at least one gemm is quantized.
  explicit operator bool() const { return w13 || w2; }
  bool operator==(const ExpertQuantization &other) const {
    return w13 == other.w13 && w2 == other.w2;
  }
  bool operator!=(const ExpertQuantization &other) const {
    return !(*this == other);
  }
};

/// Short name of a `quantization` object.
struct QuantizationName {
  llvm::StringLiteral name;
  QuantizationSpec meaning;
};
llvm::ArrayRef<QuantizationName> getQuantizationNames();
/// The short name of a quantization; empty if it has none.
llvm::StringRef getShortName(const QuantizationSpec &quantization);
/// Whether some target can multiply it. Other quantizations can only be
/// described.
bool isCompiled(const OperandQuantization &operand);
bool isCompiled(const QuantizationSpec &quantization);
/// Text for messages and reports: "fp8_block128", or "fp8_e4m3 by channel,
/// activations fp8_e4m3 by token".
std::string describe(const QuantizationSpec &quantization);
/// Likewise: "mxfp4", or "w13 mxfp4, w2 not quantized".
std::string describe(const ExpertQuantization &quantization);

/// The spec's `routing` object. With entry `ids` only `weightOnInput` is used.
struct RoutingSpec {
  Score score = Score::Softmax;
  Select select = Select::TopK;
  /// The router has a bias (entry `gate`).
  bool gateBias = false;
  /// The router's weight is a sum of two values of the layer's dtype, because
  /// the model has it in f32 (entry `gate`): rows 0 .. R - 1 and R .. 2 R - 1.
  bool splitGate = false;
  /// The router is two gemms with a tanh between them: its width (entry
  /// `gate`).
  std::optional<int64_t> gateHiddenSize;
  /// A bias that is added for the selection but not for the weight.
  bool selectionBias = false;
  /// A factor per expert, applied to the weight.
  bool expertScale = false;
  /// Number of groups of experts; 1 means no grouping.
  int64_t numGroups = 1;
  /// Number of groups that stay in the selection.
  int64_t topkGroups = 1;
  GroupScore groupScore = GroupScore::Max;
  RouteWeight weight = RouteWeight::Score;
  bool renormalize = false;
  double renormalizeEpsilon = 0.0;
  /// Factor of all weights.
  double scale = 1.0;
  /// Factor of the logits, before the soft cap.
  double logitScale = 1.0;
  /// Soft cap of the logits, before the score: cap * tanh(l / cap).
  std::optional<double> logitSoftcap;
  /// The dtype of a call's logits (entry `logits`).
  DType logitsDtype = DType::F32;
  NonFinite nonfinite = NonFinite::Zero;
  /// The weight multiplies the input of the expert instead of its output.
  bool weightOnInput = false;
  /// Rows of the hash table; only with `Select::Hash`.
  std::optional<int64_t> hashVocabSize;
};

/// The spec's `activation` object. Parameters are set if the kind has them;
/// only `limit` may stay unset, which means no clamp.
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
  /// The gate has a bias.
  bool gateBias = false;
  /// Both gemms add biases.
  bool bias = false;
  /// Factor of the output.
  double scale = 1.0;
  /// Activation, if it differs from that of the routed experts. Both are gated,
  /// or neither.
  std::optional<ActivationSpec> activation;
  /// The columns of w13 are permuted; the order is a tensor.
  bool columns = false;
  ExpertQuantization quantization;
};

/// An RMS norm of rows of the routed experts' width. Its weight is a tensor of
/// the layer.
struct NormSpec {
  double epsilon = 0.0;
  /// Added to each weight.
  double offset = 0.0;
  /// The weight multiplies the row before the norm instead of after it.
  bool weightFirst = false;
};

/// The spec's `norms` object.
struct NormsSpec {
  /// Norms of the rows out of `latent.down`, of each expert's rows ahead of
  /// their weights, and of the sum ahead of `latent.up`.
  std::optional<NormSpec> latentIn, expert, latentOut;

  explicit operator bool() const { return latentIn || expert || latentOut; }
};

/// Narrow experts that groups of neighbouring experts share. Each adds to the
/// output of an expert, so that both are one of `intermediateSize`, of which
/// the last `width` columns are the narrow one's.
struct AdjugateSpec {
  /// Experts that share one.
  int64_t numExperts = 1;
  int64_t width = 0;
  /// Multiplies the narrow expert's output.
  double factor = 1.0;
};

/// The spec's `lora` object: adapters of the routed experts.
struct LoraSpec {
  int64_t adapters = 0, rank = 0;
};

/// The spec's `placement` object. `num_ranks` can only be 1 and is not stored.
struct PlacementSpec {
  /// Global ids of the experts on this rank, in the order of the weights;
  /// absent means all.
  std::optional<std::vector<int64_t>> localExperts;
};

/// Distribution of routed experts over the ranks of a layer.
enum class ExpertPlacement {
  Split,      ///< a slice of every expert on each rank
  Linear,     ///< whole experts, consecutive ids
  RoundRobin, ///< whole experts, round-robin
  Listed,     ///< whole experts, by `ParallelSpec::lists`
};

/// The spec's `parallel` object (docs/use/parallel.md).
struct ParallelSpec {
  /// `dp * pcp` groups of `tp` ranks. Each group has its own tokens; `pcp`
  /// neighbouring groups split the same prompts.
  int64_t dp = 1, pcp = 1, tp = 1;
  /// Sequence parallel: each rank of a group holds a part of its tokens.
  bool sp = false;
  /// The output is summed over the ranks of a group; else each has a summand.
  bool reduce = true;
  ExpertPlacement placement = ExpertPlacement::Split;
  /// With `Listed`: expert ids per rank, equally many on each. An id on several
  /// ranks is an expert with replicas.
  std::vector<std::vector<int64_t>> lists;

  /// Groups of ranks with their own tokens.
  int64_t getNumGroups() const { return dp * pcp; }
  int64_t getNumRanks() const { return getNumGroups() * tp; }
  /// Ranks, or groups of ranks, with their own tokens.
  int64_t getTokenRanks() const { return sp ? getNumRanks() : getNumGroups(); }
  /// "dp 2 x tp 4"; "dp 2 x pcp 2 x tp 4".
  std::string describeRanks() const;
  bool hasWholeExperts() const { return placement != ExpertPlacement::Split; }
};

/// The spec's `replicas` object: experts whose weights exist several times.
struct ReplicasSpec {
  /// Number of physical experts: all replicas of all experts.
  int64_t numPhysicalExperts = 0;
  /// Largest number of replicas of one expert.
  int64_t maxReplicas = 1;
};

/// Matrices of one weight as a model's checkpoint stores them.
struct StoredModules {
  /// The field that gives their scheme, for messages; may be empty.
  std::string decidedBy;
  /// Schemes of matrices that the layer stores in its dtype: the loader
  /// dequantizes them, because one gemm has one scheme. Gate and up (or the
  /// only matrix) of expert 0, then of expert 1; empty if all matrices are
  /// stored as in the layer.
  std::vector<std::optional<QuantizationSpec>> schemes;
};

/// Description of one MoE layer.
struct LayerSpec {
  /// Symbol name of the layer's function.
  std::string name = "layer";
  /// `model_type` of the config.json that the layer came from; its checkpoint
  /// names are accepted. Empty for a spec.
  std::string modelType;
  /// Index of the decoder layer in that model. None for a spec, and for a
  /// configuration that does not count its layers.
  std::optional<int64_t> layerIndex;
  /// Set for a layer of multi-token prediction: its number among these. In
  /// checkpoints their numbers continue those of the decoder's layers, or start
  /// at 0 (`mtp.layers.0`).
  std::optional<int64_t> mtpIndex;
  /// The index of the bank of experts that the decoder layer shares with
  /// others.
  std::optional<int64_t> bank;
  /// Number of experts, those with the highest ids, that every token has: the
  /// loader gives them a selection bias above all keys.
  int64_t numAlwaysChosen = 0;
  /// Experts that return a constant vector, ascending (MoNE). The layer has a
  /// bias for it; the loader sets their weights to zeros.
  std::vector<int64_t> constantExperts;
  /// The loader appends these to the experts.
  std::optional<AdjugateSpec> adjugate;
  /// The loader multiplies the weights of the first gemm by this factor of the
  /// experts' input. None for a model without one, and if it is not known.
  std::optional<double> inputFactor;
  /// Keys of that config.json that the user asked to ignore.
  std::vector<std::string> ignoredFields;
  /// Sentences about where the layer differs from the configuration:
  /// activations of 4 bits that stay in D, weights dequantized at load.
  std::vector<std::string> remarks;
  /// By weight ("experts.w13"); a weight of a spec has none.
  std::map<std::string, StoredModules> stored;
  DType dtype = DType::F32;
  Entry entry = Entry::Gate;
  int64_t hiddenSize = 0;
  int64_t numExperts = 0;
  int64_t topK = 0;
  int64_t intermediateSize = 0;
  int64_t maxTokens = 16384;
  /// The layer takes the number of valid tokens as an operand.
  bool numValidTokens = false;
  /// The layer takes a mask of padding tokens.
  bool paddingMask = false;
  /// The ids and weights chosen by the router are outputs, ids of this type.
  std::optional<IdType> recordIds;
  /// The caller gives the ids of this type that an earlier run has recorded;
  /// the router weighs them.
  std::optional<IdType> replayIds;
  /// The offsets of the slots of each expert are an output.
  bool recordLoad = false;
  /// The bits of a row depend on this row and the weights alone.
  bool batchInvariant = false;
  /// Weights of a checkpoint with more digits than the layer's dtype are
  /// rounded when they are loaded, not refused.
  bool roundWeights = false;
  /// Tokens of a sequence that an expert of the model may have: the model
  /// leaves out others, so a call has no more.
  std::optional<int64_t> expertCapacity;
  OutputRows output = OutputRows::Sum;
  /// The hidden states are rows that the caller has quantized, as the gemm
  /// with w13 quantizes them.
  bool quantizedInput = false;
  /// Identity experts, numbered after the others.
  int64_t numZeroExperts = 0;
  /// Width of the routed experts, if it differs from the hidden size.
  std::optional<int64_t> latentSize;
  NormsSpec norms;
  std::optional<LoraSpec> lora;
  GateUpOrder gateUpOrder = GateUpOrder::GateUp;
  bool expertBias = false;
  /// A bias is added to the sum of the experts.
  bool outputBias = false;
  /// The columns of each expert's w13 are permuted; the order is a tensor.
  bool expertColumns = false;
  /// Weight matrices may be bound with gaps between their rows.
  bool stridedWeights = false;
  RoutingSpec routing;
  ActivationSpec activation;
  std::optional<SharedExpertsSpec> sharedExperts;
  /// Quantization of the routed experts.
  ExpertQuantization quantization;
  std::optional<PlacementSpec> placement;
  std::optional<ParallelSpec> parallel;
  std::optional<ReplicasSpec> replicas;

  /// The selection bias of experts that every token has; all keys are below.
  static constexpr float kAlwaysChosenBias = 1e30F;
  /// Whether an expert has zeros in a tensor, because it is constant or because
  /// the others are.
  bool holdsZeros(llvm::StringRef tensor, int64_t expert) const;
  /// R: rows of the router.
  int64_t getNumRouted() const { return numExperts + numZeroExperts; }
  /// L: width of the routed experts.
  int64_t getExpertWidth() const { return latentSize.value_or(hiddenSize); }
  /// Columns of the output.
  int64_t getOutputWidth() const {
    return output == OutputRows::Slots ? topK * hiddenSize : hiddenSize;
  }
  /// Number of physical experts over all ranks.
  int64_t getNumPhysicalExperts() const;
  /// Logical expert of each physical one when the layer is loaded.
  std::vector<int64_t> getLogicalIds() const;
  /// Number of experts that the weights on each rank have room for: those of a
  /// rank with most of them.
  int64_t getNumLocalExperts() const;
  /// Rows of gate and columns of `w2` that each of `ranks` keeps together,
  /// since they share scales or a byte. `experts` is "experts" or
  /// "shared_experts".
  int64_t getSharedUnit(llvm::StringRef experts, int64_t ranks) const;
  /// I and S of the weights on each rank, zeros included: those of a rank with
  /// most of them.
  int64_t getLocalIntermediateSize() const;
  int64_t getLocalSharedSize() const;
  /// With `parallel`: global ids of the experts on a rank, in the order of its
  /// weights. With replicas the ids are physical.
  std::vector<int64_t> getExpertsOf(int64_t rank) const;
  /// The layer without `parallel`, as on a single rank.
  LayerSpec getWhole() const;
  /// Whether an expert has gate and up rows.
  bool isGated() const;
  /// N: rows of `w13` for an intermediate size.
  int64_t getFirstProductRows(int64_t intermediate) const {
    return isGated() ? 2 * intermediate : intermediate;
  }
  /// Names of the experts' weights; those of the shared expert are last.
  llvm::ArrayRef<llvm::StringLiteral> getExpertWeights() const;
  /// Quantization of the gemm with this weight. `tensor` may also name a scale
  /// of the weight ("experts.w2_scale").
  const std::optional<QuantizationSpec> &
  getQuantization(llvm::StringRef tensor) const;
  /// Whether a gemm of the experts is quantized.
  bool isQuantized() const;
  /// The matrices of a weight that are stored in other schemes than the
  /// layer's; null if there are none.
  const StoredModules *findStored(llvm::StringRef weight) const;
};

/// Whether an activation takes a gate and an up value.
bool isGated(Activation kind);

/// Parameters of an activation kind and their defaults (none for a `limit` that
/// means no clamp).
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

/// Default rule for scores that are not finite.
NonFinite getDefaultNonFinite(const RoutingSpec &routing);

/// An enum value and its spelling in the spec.
template <typename E>
struct EnumName {
  E value;
  llvm::StringLiteral name;
};

/// All values of an enum of this header, spelled as in docs/use/layers.md.
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
