//===- Packings.cpp - checkpoint layouts of quantized matrices ------------===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Sources: the compressors of compressed-tensors, ModelOpt's unified export,
// the linear modules of AutoGPTQ and GPTQModel, AutoAWQ's WQLinear_GEMM, the
// QuantState of bitsandbytes, torchao's tensors as its safetensors have them.
//
//===----------------------------------------------------------------------===//

#include "Packings.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/Twine.h"

using namespace llvm;

namespace moec {

namespace {

/// Role of a tensor in a module.
enum class Role {
  Weight,
  Scale,
  /// 127 times the scale.
  ScaleOf127,
  ZeroPoint,
  GlobalScale,
  InputScale,
  Shape,
  GroupOfColumn,
  /// A bias or zero points of zeros, which AutoGPTQ, Quark and torchao write
  /// for modules without them.
  NoBias,
  NoZeroPoint,
  /// Not read.
  Beside,
  /// Values of the middle code, and the scales needed to make minima of them.
  MiddleValue,
  ScaleOfMiddle,
  /// Scales of either sign, the values of code 0, and MLX's largest magnitude
  /// of a matrix.
  SignedScale,
  LeastValue,
  LargestValue,
  /// Quantized scales, and the tensors needed to dequantize them.
  NestedScale,
  NestedValues,
  NF4Numbers,
  NF4State,
};

/// Order of elements in a tensor.
struct Order {
  /// The matrix is K x N instead of N x K.
  bool transposed = false;
  /// 0 if elements are stored as in the layer.
  int64_t wordBits = 0;
  /// Words pack elements along N instead of K.
  bool alongRows = false;
  /// Even elements of a word precede odd ones.
  bool interleaved = false;
  /// The matrix is one column. The first of a byte's two elements is in the
  /// high half.
  bool isFlat = false;
  /// See CheckpointPart::maybeTiled.
  bool maybeTiled = false;
};
constexpr int64_t kWord = 32;
constexpr Order kPlain = {};
constexpr Order kTransposed = {true};
constexpr Order kWords = {false, kWord};
constexpr Order kWordsOfRows = {false, kWord, true};
constexpr Order kTransposedWords = {true, kWord};
constexpr Order kTransposedWordsOfRows = {true, kWord, true};
constexpr Order kInterleavedWordsOfRows = {true, kWord, true, true};
constexpr Order kFlat = {false, 0, false, false, true};
constexpr Order kMaybeTiled = {false, 0, false, false, false, true};

/// A tensor of a module.
struct PackedTensor {
  Role role;
  StringLiteral suffix;
  Order order = kPlain;
  bool isOptional = false;
  /// Scales are stored as reciprocals.
  bool isInverse = false;
};

/// Beside the parameters of ModelOpt's files of Inkling.
constexpr StringLiteral kInputAmax = ".input_amax",
                        kOriginalShape = ".original_shape";
bool isOfDotted(StringRef suffix) {
  return suffix == kInputAmax || suffix == kOriginalShape;
}

struct PackingInfo {
  Packing packing;
  SmallVector<PackedTensor, 6> tensors;
  /// 8-bit integers are two's complement, else unsigned.
  bool hasSigns = false;
  /// Zero points are stored although the weight has none; each is half the
  /// range.
  bool hasMiddleZeros = false;
  /// 1 per element is subtracted from a word of packed zero points.
  bool hasZerosLessOne = false;
  /// Suffixes of weight and scale in parameters of all experts.
  StringLiteral fused[2] = {"", ""};
};

ArrayRef<PackingInfo> getInfos() {
  constexpr bool optional = true, inverse = true;
  auto makeGptq = [](Packing packing, bool hasZerosLessOne) {
    return PackingInfo{packing,
                       {{Role::Weight, ".qweight", kTransposedWords},
                        {Role::ZeroPoint, ".qzeros", kTransposedWordsOfRows},
                        {Role::Scale, ".scales", kTransposed},
                        {Role::GroupOfColumn, ".g_idx", kPlain, optional},
                        {Role::NoBias, ".bias", kPlain, optional}},
                       /*hasSigns=*/false,
                       /*hasMiddleZeros=*/true,
                       hasZerosLessOne};
  };
  auto makeMlx = [](Packing packing, StringLiteral biases) {
    return PackingInfo{packing,
                       {{Role::Weight, ".weight", kWords},
                        {Role::SignedScale, ".scales"},
                        {Role::LeastValue, biases},
                        {Role::LargestValue, ".global_scale"}}};
  };
  static const PackingInfo infos[] = {
      {Packing::Modules,
       {{Role::Weight, ".weight"},
        {Role::Scale, ".weight_scale"},
        {Role::ZeroPoint, ".weight_zero_point"},
        {Role::NoZeroPoint, ".weight_zero_point", kPlain, optional},
        {Role::InputScale, ".input_scale"}},
       /*hasSigns=*/true},
      {Packing::InverseNames,
       {{Role::Weight, ".weight"}, {Role::Scale, ".weight_scale_inv"}}},
      {Packing::Reciprocals,
       {{Role::Weight, ".weight"},
        {Role::Scale, ".weight_scale_inv", kPlain, !optional, inverse},
        {Role::NoBias, ".bias", kPlain, optional}}},
      {Packing::ShortNames,
       {{Role::Weight, ".weight"}, {Role::Scale, ".scale"}}},
      {Packing::GptOss, {}, false, false, false, {"_blocks", "_scales"}},
      {Packing::CompressedInts,
       {{Role::Weight, ".weight_packed", kWords},
        {Role::Scale, ".weight_scale"},
        {Role::ZeroPoint, ".weight_zero_point", kWordsOfRows},
        {Role::Shape, ".weight_shape", kPlain, optional},
        {Role::GroupOfColumn, ".weight_g_idx", kPlain, optional}}},
      {Packing::CompressedFp4,
       {{Role::Weight, ".weight_packed"},
        {Role::Scale, ".weight_scale"},
        {Role::GlobalScale, ".weight_global_scale", kPlain, !optional, inverse},
        {Role::InputScale, ".input_global_scale"}}},
      {Packing::ModelOpt,
       {{Role::Weight, ".weight"},
        {Role::Scale, ".weight_scale"},
        {Role::GlobalScale, ".weight_scale_2"},
        {Role::NoZeroPoint, ".weight_zero_point", kPlain, optional},
        {Role::InputScale, ".input_scale"},
        {Role::Beside, kInputAmax, kPlain, optional},
        {Role::Beside, kOriginalShape, kPlain, optional}},
       /*hasSigns=*/true},
      makeGptq(Packing::Gptq, true),
      makeGptq(Packing::GptqV2, false),
      makeGptq(Packing::GptqPlanes, false),
      {Packing::Awq,
       {{Role::Weight, ".qweight", kInterleavedWordsOfRows},
        {Role::ZeroPoint, ".qzeros", kInterleavedWordsOfRows},
        {Role::Scale, ".scales", kTransposed}}},
      {Packing::BitsAndBytes,
       {{Role::Weight, ".weight", kFlat},
        {Role::Scale, ".weight.absmax", kFlat},
        {Role::NF4Numbers, ".weight.quant_map"},
        {Role::NF4State, ".weight.quant_state.bitsandbytes__nf4"}}},
      {Packing::BitsAndBytesNested,
       {{Role::Weight, ".weight", kFlat},
        {Role::NestedScale, ".weight.absmax", kFlat},
        {Role::NestedValues, ".weight.nested_absmax"},
        {Role::NestedValues, ".weight.nested_quant_map"},
        {Role::NestedValues, ".weight.quant_state.bitsandbytes__nf4"},
        {Role::NF4Numbers, ".weight.quant_map"},
        {Role::NF4State, ".weight.quant_state.bitsandbytes__nf4"}}},
      {Packing::BitsAndBytesFp4,
       {{Role::Weight, ".weight", kFlat},
        {Role::Scale, ".weight.absmax", kFlat},
        {Role::NestedValues, ".weight.quant_map"},
        {Role::NestedValues, ".weight.quant_state.bitsandbytes__fp4"}}},
      {Packing::BitsAndBytesFp4Nested,
       {{Role::Weight, ".weight", kFlat},
        {Role::NestedScale, ".weight.absmax", kFlat},
        {Role::NestedValues, ".weight.nested_absmax"},
        {Role::NestedValues, ".weight.nested_quant_map"},
        {Role::NestedValues, ".weight.quant_map"},
        {Role::NestedValues, ".weight.quant_state.bitsandbytes__fp4"}}},
      {Packing::BitsAndBytesInt8,
       {{Role::Weight, ".weight"},
        {Role::ScaleOf127, ".SCB"},
        {Role::NestedValues, ".weight_format", kPlain, optional}},
       /*hasSigns=*/true},
      {Packing::TorchAo,
       {{Role::Weight, "._weight_qdata"},
        {Role::Scale, "._weight_scale", kMaybeTiled},
        {Role::ZeroPoint, "._weight_zero_point"},
        {Role::NoZeroPoint, "._weight_zero_point", kPlain, optional},
        {Role::GlobalScale, "._weight_per_tensor_scale"},
        {Role::InputScale, "._weight_act_per_tensor_scale"}},
       /*hasSigns=*/true},
      {Packing::TorchAoInt4,
       {{Role::Weight, "._weight_qdata"},
        {Role::Scale, "._weight_scale", kTransposed},
        {Role::MiddleValue, "._weight_zero_point", kTransposed},
        {Role::ScaleOfMiddle, "._weight_scale"}},
       /*hasSigns=*/true},
      makeMlx(Packing::Mlx, ".biases"),
      makeMlx(Packing::Metal, ".qbiases"),
      {Packing::AwqGemv,
       {{Role::Weight, ".qweight"},
        {Role::NestedValues, ".qzeros"},
        {Role::NestedValues, ".scales"}}},
      {Packing::AwqGemvFast,
       {{Role::Weight, ".qweight"},
        {Role::NestedValues, ".qzeros"},
        {Role::NestedValues, ".scales"}}},
      {Packing::LlmAwq,
       {{Role::Weight, ".qweight"},
        {Role::NestedValues, ".scales"},
        // GPTQModel's name is the second.
        {Role::Beside, ".scaled_zeros", kPlain, optional},
        {Role::Beside, ".qzeros", kPlain, optional}}},
      {Packing::AwqMarlin,
       {{Role::Weight, ".qweight"}, {Role::NestedValues, ".scales"}}},
      {Packing::GptqMarlin,
       {{Role::Weight, ".B"},
        {Role::NestedValues, ".s"},
        {Role::Beside, ".workspace", kPlain, optional}}},
      {Packing::Hqq,
       {{Role::Weight, ".W_q"},
        {Role::NestedValues, ".scale"},
        {Role::NestedValues, ".zero"},
        {Role::Beside, ".axis", kPlain, optional},
        {Role::Beside, ".channel_wise", kPlain, optional},
        {Role::Beside, ".compute_dtype", kPlain, optional},
        {Role::Beside, ".encoded_state_dict", kPlain, optional},
        {Role::Beside, ".group_size", kPlain, optional},
        {Role::Beside, ".nbits", kPlain, optional},
        {Role::Beside, ".offload_meta", kPlain, optional},
        {Role::Beside, ".optimize", kPlain, optional},
        {Role::Beside, ".packing", kPlain, optional},
        {Role::Beside, ".quant_scale", kPlain, optional},
        {Role::Beside, ".quant_zero", kPlain, optional},
        {Role::Beside, ".round_zero", kPlain, optional},
        {Role::Beside, ".shape", kPlain, optional},
        {Role::Beside, ".stores_quant_config", kPlain, optional},
        {Role::Beside, ".unpack_view_dtype", kPlain, optional},
        {Role::Beside, ".view_as_float", kPlain, optional}}},
      {Packing::Gemma,
       {{Role::Weight, ".weight"},
        {Role::NestedValues, ".weight_scale"},
        {Role::Beside, ".input_activation_scale", kPlain, optional},
        {Role::Beside, ".output_activation_scale", kPlain, optional}}},
      {Packing::BitNet,
       {{Role::Weight, ".weight"}, {Role::NestedValues, ".weight_scale"}}},
      {Packing::AutoBitNet,
       {{Role::Weight, ".weight"}, {Role::NestedValues, ".weight_scale"}}},
      {Packing::Aqlm,
       {{Role::Weight, ".codes"},
        {Role::NestedValues, ".codebooks"},
        {Role::NestedValues, ".scales"}}},
      {Packing::ModelOptAwq,
       {{Role::Weight, ".weight"},
        {Role::NestedValues, ".weight_scale"},
        {Role::Beside, ".weight_scale_2", kPlain, optional},
        {Role::Beside, ".pre_quant_scale", kPlain, optional},
        {Role::Beside, ".input_scale", kPlain, optional}}},
      {Packing::ModelOptSvd,
       {{Role::Weight, ".weight"},
        {Role::NestedValues, ".weight_scale"},
        {Role::NestedValues, ".weight_scale_2"},
        {Role::Beside, ".pre_quant_scale", kPlain, optional},
        {Role::Beside, ".svdquant_lora_a", kPlain, optional},
        {Role::Beside, ".svdquant_lora_b", kPlain, optional},
        {Role::Beside, ".input_scale", kPlain, optional}}},
      {Packing::GgmlBlocks, {{Role::Weight, ".qweight"}}},
  };
  return infos;
}

/// The packing of a quantization, by default the usual one of its type; null if
/// there is none.
const PackingInfo *findInfo(const QuantizationSpec &quantization) {
  Packing packing = quantization.packing;
  const OperandQuantization &weight = quantization.weight;
  if (packing == Packing::Unstated) {
    if (getElementBits(weight.storage) == 8)
      packing = weight.granularity == Granularity::Block ? Packing::InverseNames
                                                         : Packing::Modules;
    else if (weight.storage == StorageType::Fp4E2M1 &&
             weight.scale == ScaleType::E8M0)
      packing = Packing::GptOss;
  }
  for (const PackingInfo &info : getInfos())
    if (info.packing == packing)
      return &info;
  return nullptr;
}

/// `bits` are those of an element in the file.
PartUse getUse(const PackedTensor &tensor, Projection projection,
               int64_t bits) {
  switch (tensor.role) {
  case Role::Weight:
    return PartUse::Values;
  case Role::Scale:
    if (tensor.isInverse)
      return PartUse::InverseScales;
    // The largest magnitude of a block; 0 for a block of zeros.
    return tensor.order.isFlat ? PartUse::AnyScales : PartUse::Scales;
  case Role::ScaleOf127:
    return PartUse::ScalesOf127;
  case Role::ZeroPoint:
    return projection == Projection::ZeroPoint ? PartUse::Values
                                               : PartUse::MiddleZeros;
  case Role::GlobalScale:
    return tensor.isInverse ? PartUse::InverseScales : PartUse::Scales;
  case Role::InputScale:
    return projection == Projection::InputScale ? PartUse::LargestScale
                                                : PartUse::Unused;
  case Role::Shape:
    return PartUse::Shape;
  case Role::GroupOfColumn:
    return PartUse::GroupOfColumn;
  case Role::NoBias:
  case Role::NoZeroPoint:
    return PartUse::Zeros;
  case Role::MiddleValue:
    return PartUse::MiddleValues;
  case Role::NestedScale:
    return PartUse::NestedScales;
  case Role::LeastValue:
    // The codes of bytes are signed in the layer.
    return bits == 8 ? PartUse::LeastValues : PartUse::AnyScales;
  case Role::SignedScale:
    return PartUse::AnyScales;
  case Role::LargestValue:
    return PartUse::Scales;
  case Role::Beside:
  case Role::ScaleOfMiddle:
  case Role::NestedValues:
    return PartUse::Unused;
  case Role::NF4Numbers:
    return PartUse::NF4Numbers;
  case Role::NF4State:
    return PartUse::NF4State;
  }
  llvm_unreachable("every role is listed");
}

ElementPacking getPacking(const PackingInfo &info, const PackedTensor &tensor,
                          const QuantizationSpec &quantization) {
  const OperandQuantization &weight = quantization.weight;
  int64_t bits = getElementBits(weight.storage);
  bool isWeight = tensor.role == Role::Weight;
  bool isZeroPoint = tensor.role == Role::ZeroPoint;
  ElementPacking packing;
  packing.elementBits = bits;
  packing.layerBits = isZeroPoint ? 8 : bits;
  if (isWeight && tensor.order.isFlat) {
    packing.wordBits = 8;
    packing.order = {1, 0};
  }
  if (!isInteger(weight.storage) && isWeight && tensor.order.wordBits)
    packing.wordBits = tensor.order.wordBits;
  if (!isInteger(weight.storage) || !(isWeight || isZeroPoint))
    return packing;
  constexpr uint8_t sign = 0x80, signs = 0x88;
  packing.wordBits = tensor.order.wordBits;
  packing.alongRows = tensor.order.alongRows;
  if (tensor.order.interleaved)
    packing.order = {0, 2, 4, 6, 1, 3, 5, 7};
  if (int64_t stored = quantization.storedBits) {
    packing.elementBits = stored;
    bool isDivisor = kWord % stored == 0;
    packing.hasPlanes = info.packing == Packing::GptqPlanes && !isDivisor;
    if (isZeroPoint && info.hasZerosLessOne)
      packing.wordOffset = isDivisor ? 0x55555555 : 1;
    // Without zero points, 0 is the middle of the range.
    if (isWeight && !weight.hasZeroPoint && !weight.hasMinimum)
      packing.addend = uint8_t((bits == 4 ? 8 : 0) - (1 << (stored - 1)));
    return packing;
  }
  // In the layer, 8-bit integers are signed only if they have no zero points.
  bool wantsSign = packing.elementBits == 8 && !weight.hasZeroPoint;
  if (packing.elementBits == 8 && wantsSign != info.hasSigns &&
      (isWeight || weight.hasZeroPoint))
    packing.flipped = sign;
  if (packing.elementBits == 4 && info.hasSigns && isWeight)
    packing.flipped = signs;
  // Adds 1 to each element.
  if (isZeroPoint && info.hasZerosLessOne)
    packing.wordOffset = packing.elementBits == 8 ? 0x01010101 : 0x11111111;
  // Bytes form words of their own for `flipped`.
  if (packing.flipped && !packing)
    packing.wordBits = 8;
  return packing;
}

/// Whether the tensor is read for a projection: for its values, or as an
/// accompanying tensor.
bool belongsTo(const PackingInfo &info, const PackedTensor &tensor,
               Projection projection, const QuantizationSpec &quantization) {
  switch (tensor.role) {
  case Role::Weight:
    return projection == Projection::Weight;
  case Role::Scale:
  case Role::ScaleOf127:
  case Role::SignedScale:
  case Role::NestedScale:
  case Role::NestedValues:
    return projection == Projection::Scale;
  case Role::ZeroPoint:
    return quantization.weight.hasZeroPoint
               ? projection == Projection::ZeroPoint
               : info.hasMiddleZeros && projection == Projection::Scale;
  case Role::MiddleValue:
  case Role::ScaleOfMiddle:
  case Role::LeastValue:
    return projection == Projection::Minimum;
  case Role::NoZeroPoint:
    return projection == Projection::Weight &&
           !quantization.weight.hasZeroPoint;
  case Role::GlobalScale:
  case Role::LargestValue:
    return projection == Projection::GlobalScale;
  case Role::InputScale:
    // Not used if activations are not quantized, or scaled in a call.
    return projection == Projection::InputScale ||
           (projection == Projection::Weight &&
            !(quantization.activation && quantization.activation->isStatic));
  case Role::Shape:
  case Role::GroupOfColumn:
  case Role::NoBias:
  case Role::Beside:
  case Role::NF4Numbers:
  case Role::NF4State:
    return projection == Projection::Weight;
  }
  llvm_unreachable("every role is listed");
}

} // namespace

Projection takePlane(StringRef &name) {
  // Longer suffixes first, since they end in shorter ones.
  constexpr std::pair<StringLiteral, Projection> suffixes[] = {
      {"_zero_point", Projection::ZeroPoint},
      {"_minimum", Projection::Minimum},
      {"_global_scale", Projection::GlobalScale},
      {"_input_scale", Projection::InputScale},
      {"_scale", Projection::Scale}};
  for (auto [suffix, projection] : suffixes)
    if (name.consume_back(suffix))
      return projection;
  return Projection::Weight;
}

SmallVector<CheckpointPart, 4>
getModuleTensors(const QuantizationSpec &quantization, Projection projection) {
  SmallVector<CheckpointPart, 4> parts, beside;
  const PackingInfo *info = findInfo(quantization);
  if (!info)
    return parts;
  const OperandQuantization &weight = quantization.weight;
  for (const PackedTensor &tensor : info->tensors) {
    if (!belongsTo(*info, tensor, projection, quantization))
      continue;
    CheckpointPart part;
    part.name = tensor.suffix.str();
    int64_t storedBits = quantization.storedBits
                             ? quantization.storedBits
                             : getElementBits(weight.storage);
    part.use = getUse(tensor, projection, storedBits);
    if (tensor.role == Role::LeastValue && part.use == PartUse::AnyScales)
      part.factor = -1;
    // The product of the largest values of e4m3 and of e2m1.
    if (tensor.role == Role::LargestValue)
      part.factor = 1.0 / (448 * 6);
    part.transposed = tensor.order.transposed;
    part.isFlat = tensor.order.isFlat;
    part.maybeTiled = tensor.order.maybeTiled;
    part.packing = getPacking(*info, tensor, quantization);
    bool isRead =
        tensor.role == Role::NestedValues || tensor.role == Role::ScaleOfMiddle;
    part.isOptional =
        tensor.isOptional || (part.use == PartUse::Unused && !isRead);
    if (part.use == PartUse::GroupOfColumn || part.use == PartUse::NF4State)
      part.groupColumns = weight.blockColumns;
    (isBeside(part.use) ? beside : parts).push_back(std::move(part));
  }
  // The projection's own tensor comes first, regardless of the table's order.
  llvm::append_range(parts, beside);
  return parts;
}

namespace {

/// The name of ".weight_scale" beside a parameter of all experts.
enum class ParameterNames {
  /// "_scale"
  Short,
  /// "_weight_scale"
  Long,
  /// ".weight_scale", as of a module
  Module,
  /// ".scale", ".scale2": ModelOpt's files of Inkling
  Dotted
};
constexpr size_t kNumParameterNames = 4;

std::string rename(StringRef suffix, ParameterNames names) {
  constexpr StringLiteral weight = ".weight";
  if (isOfDotted(suffix))
    return suffix.str();
  // torchao's "._weight_scale" has the parameter's own name in place of
  // "weight".
  if (suffix.consume_front("._weight"))
    return ("._{p}" + suffix).str();
  bool isElements = suffix == weight;
  switch (names) {
  case ParameterNames::Short:
    if (isElements || suffix.starts_with(".weight_"))
      suffix.consume_front(weight);
    break;
  case ParameterNames::Long:
    if (isElements)
      return "";
    break;
  case ParameterNames::Module:
    return suffix.str();
  case ParameterNames::Dotted:
    if (suffix == ".weight_scale_2")
      return ".scale2";
    if (suffix.consume_front(".weight_"))
      return ("." + suffix).str();
    return isElements ? "" : suffix.str();
  }
  std::string name = suffix.str();
  if (suffix.starts_with("."))
    name.front() = '_';
  return name;
}

} // namespace

/// `way` counts the names. Empty if the tool does not use them.
static SmallVector<CheckpointPart, 4>
getParameterTensors(const QuantizationSpec &quantization, Projection projection,
                    size_t way) {
  const PackingInfo *info = findInfo(quantization);
  auto names = ParameterNames(way);
  bool isDotted = names == ParameterNames::Dotted;
  if (!info || (isDotted && info->packing != Packing::ModelOpt))
    return {};
  SmallVector<CheckpointPart, 4> parts;
  if (info->fused[0].empty()) {
    parts = getModuleTensors(quantization, projection);
    for (CheckpointPart &part : parts)
      part.name = rename(part.name, names);
    return parts;
  }
  bool isScale = projection == Projection::Scale;
  if (!isScale && projection != Projection::Weight)
    return {};
  parts.emplace_back();
  parts.front().name = info->fused[isScale].str();
  if (isScale)
    parts.front().use = PartUse::Scales;
  return parts;
}

SmallVector<SmallVector<CheckpointPart, 4>, 4>
getParameterTensors(const QuantizationSpec &quantization,
                    Projection projection) {
  SmallVector<SmallVector<CheckpointPart, 4>, 4> ways;
  auto isSame = [](const CheckpointPart &a, const CheckpointPart &b) {
    return a.name == b.name;
  };
  for (size_t way = 0; way < kNumParameterNames; ++way) {
    SmallVector<CheckpointPart, 4> parts =
        getParameterTensors(quantization, projection, way);
    if (!parts.empty() && llvm::none_of(ways, [&](const auto &other) {
          return llvm::equal(parts, other, isSame);
        }))
      ways.push_back(std::move(parts));
  }
  return ways;
}

SmallVector<std::string, 4>
getFusedSuffixes(const QuantizationSpec &quantization, Projection projection) {
  SmallVector<std::string, 4> suffixes;
  for (ArrayRef<CheckpointPart> way :
       getParameterTensors(quantization, projection))
    suffixes.push_back(way.front().name);
  return suffixes;
}

std::string joinName(StringRef name, StringRef suffix) {
  constexpr StringLiteral own = "{p}";
  size_t place = suffix.find(own);
  if (place == StringRef::npos)
    return (name + suffix).str();
  StringRef last = name.substr(name.rfind('.') + 1);
  name.consume_back(last);
  name.consume_back(".");
  return (name + suffix.take_front(place) + last +
          suffix.drop_front(place + own.size()))
      .str();
}

static std::shared_ptr<const StoredMatrix>
makeStoredMatrix(const QuantizationSpec &quantization, StringRef module,
                 std::vector<int64_t> shape, std::optional<size_t> way) {
  // Input scales have no use then.
  QuantizationSpec weightOnly = quantization;
  weightOnly.activation.reset();
  auto matrix = std::make_shared<StoredMatrix>();
  matrix->quantization = weightOnly.weight;
  if (!getDecodedForm(quantization.packing).empty()) {
    // Names of parameters of all experts are those of no such tool.
    if (way)
      return nullptr;
    matrix->module = module.str();
    matrix->packing = quantization.packing;
    matrix->storedBits = quantization.storedBits;
    matrix->storedBlocks = quantization.storedBlocks;
    TensorInfo &elements = matrix->tensors.emplace_back();
    CheckpointForm &form = elements.checkpointForms.emplace_back();
    for (Projection projection : {Projection::Weight, Projection::Scale})
      for (CheckpointPart &part : getModuleTensors(weightOnly, projection)) {
        part.name = joinName(module, part.name);
        form.push_back(std::move(part));
      }
    elements.shape = std::move(shape);
    return matrix;
  }
  if (hasStoredTable(quantization.packing))
    matrix->table = module.str() + ".weight.quant_map";
  matrix->tensors = getQuantizedTensors(weightOnly.weight, "", std::move(shape),
                                        /*hasHalves=*/false);
  for (TensorInfo &tensor : matrix->tensors) {
    StringRef suffix = tensor.name;
    Projection projection = takePlane(suffix);
    SmallVector<CheckpointPart, 4> parts;
    if (way)
      parts = getParameterTensors(weightOnly, projection, *way);
    else
      parts = getModuleTensors(weightOnly, projection);
    if (parts.empty())
      return nullptr;
    for (CheckpointPart &part : parts) {
      part.name = joinName(module, part.name);
      part.numRows = tensor.shape[1];
      part.maybeTransposed = way && !part.packing;
    }
    tensor.checkpointForms = {CheckpointForm(parts.begin(), parts.end())};
  }
  return matrix;
}

std::shared_ptr<const StoredMatrix>
makeStoredMatrix(const QuantizationSpec &quantization, StringRef module,
                 std::vector<int64_t> shape) {
  return makeStoredMatrix(quantization, module, std::move(shape),
                          /*way=*/std::nullopt);
}

std::vector<std::shared_ptr<const StoredMatrix>>
makeStoredParameters(const QuantizationSpec &quantization, StringRef name,
                     const std::vector<int64_t> &shape) {
  std::vector<std::shared_ptr<const StoredMatrix>> matrices;
  for (size_t way = 0; way < kNumParameterNames; ++way)
    if (auto matrix = makeStoredMatrix(quantization, name, shape, way))
      matrices.push_back(std::move(matrix));
  return matrices;
}

} // namespace moec
