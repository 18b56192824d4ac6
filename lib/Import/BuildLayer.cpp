//===- BuildLayer.cpp - builds moe IR from a layer spec -------------------===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/Import/BuildLayer.h"

#include "ScalarRegions.h"
#include "moec/Dialect/Moe/Moe.h"
#include "moec/Dialect/Names.h"
#include "moec/Import/TensorSignature.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Verifier.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/StringMap.h"

using namespace mlir;

namespace moec {

// The values of the spec's enums are those that TableGen gives the dialect's.
#define GATE_UP_ORDER(NAME, SPELLING)                                          \
  static_assert(unsigned(GateUpOrder::NAME) ==                                 \
                unsigned(moe::GateUpOrder::NAME));
#define SELECT(NAME, SPELLING)                                                 \
  static_assert(unsigned(Select::NAME) == unsigned(moe::Select::NAME));
#define GROUP_SCORE(NAME, SPELLING)                                            \
  static_assert(unsigned(GroupScore::NAME) == unsigned(moe::GroupScore::NAME));
#define NON_FINITE(NAME, SPELLING)                                             \
  static_assert(unsigned(NonFinite::NAME) == unsigned(moe::NonFinite::NAME));
#define GRANULARITY(NAME, SPELLING)                                            \
  static_assert(unsigned(Granularity::NAME) ==                                 \
                unsigned(moe::Granularity::NAME));
#include "moec/Support/LayerEnums.def"

static moe::GateUpOrder toDialect(GateUpOrder value) {
  return static_cast<moe::GateUpOrder>(value);
}
static moe::Select toDialect(Select value) {
  return static_cast<moe::Select>(value);
}
static moe::GroupScore toDialect(GroupScore value) {
  return static_cast<moe::GroupScore>(value);
}
static moe::NonFinite toDialect(NonFinite value) {
  return static_cast<moe::NonFinite>(value);
}
static moe::Granularity toDialect(Granularity value) {
  return static_cast<moe::Granularity>(value);
}

namespace {

class LayerBuilder {
public:
  LayerBuilder(MLIRContext &context, const LayerSpec &spec)
      : spec(spec), builder(&context), loc(builder.getUnknownLoc()),
        signature(getTensorSignature(spec)) {}

  OwningOpRef<ModuleOp> build();

private:
  Type getElementType(TensorType type);
  RankedTensorType getType(const TensorInfo &tensor);
  func::FuncOp buildFunction();
  moe::LayerOp buildLayer(func::FuncOp func);

  moe::RoutingAttr getRouting();
  moe::WeightLayoutAttr getLayout();
  Type getStorage(StorageType storage);
  moe::QuantAttr getQuant(const OperandQuantization &operand,
                          bool isActivation);
  /// Quantization of a gemm; null if it has none.
  moe::ProductQuantAttr
  getProductQuant(const std::optional<QuantizationSpec> &quantization);
  /// The quantization attributes of the layer.
  struct Quants {
    moe::QuantAttr weight, activation;
    DictionaryAttr byProduct;
  };
  Quants getQuants();
  moe::PlacementAttr getPlacement();
  /// None for one rank.
  moe::MeshAttr getMesh();
  /// None for a factor of 1.
  FloatAttr getSharedScale();
  DictionaryAttr getNorms();

  /// The argument with a canonical name; null if the layer has none.
  Value get(StringRef name) { return arguments.lookup(name); }
  /// The zero points or minima of a weight.
  Value getZeros(const Twine &weight) {
    Value points = get((weight + "_zero_point").str());
    return points ? points : get((weight + "_minimum").str());
  }

  const LayerSpec &spec;
  OpBuilder builder;
  Location loc;
  std::vector<TensorInfo> signature;
  llvm::StringMap<Value> arguments;
};

Type LayerBuilder::getElementType(TensorType type) {
  switch (type) {
  case TensorType::F32:
    return builder.getF32Type();
  case TensorType::BF16:
    return builder.getBF16Type();
  case TensorType::F16:
    return builder.getF16Type();
  case TensorType::I32:
    return builder.getI32Type();
  case TensorType::I16:
    return builder.getI16Type();
  case TensorType::F8E4M3FN:
    return builder.getType<Float8E4M3FNType>();
  case TensorType::F8E5M2:
    return builder.getType<Float8E5M2Type>();
  case TensorType::F8E8M0FNU:
    return builder.getType<Float8E8M0FNUType>();
  case TensorType::I8:
    return builder.getI8Type();
  }
  llvm_unreachable("every type is listed");
}

RankedTensorType LayerBuilder::getType(const TensorInfo &tensor) {
  SmallVector<int64_t> shape;
  for (int64_t size : tensor.shape)
    shape.push_back(size == kTokenDimension ? ShapedType::kDynamic : size);
  return RankedTensorType::get(shape, getElementType(tensor.type));
}

func::FuncOp LayerBuilder::buildFunction() {
  SmallVector<Type> inputs, results;
  SmallVector<DictionaryAttr> inputAttrs, resultAttrs;
  for (const TensorInfo &tensor : signature) {
    NamedAttribute name =
        builder.getNamedAttr(kNameAttr, builder.getStringAttr(tensor.name));
    if (tensor.role == TensorRole::Output) {
      results.push_back(getType(tensor));
      SmallVector<NamedAttribute> attrs{name};
      if (tensor.name == "output" && spec.parallel && !spec.parallel->reduce &&
          spec.parallel->tp > 1)
        attrs.push_back(builder.getNamedAttr(
            kPartialAttr,
            builder.getStrArrayAttr({moe::stringifyAxis(moe::Axis::Tp)})));
      resultAttrs.push_back(builder.getDictionaryAttr(attrs));
      continue;
    }
    inputs.push_back(getType(tensor));
    SmallVector<NamedAttribute> attrs = {
        name, builder.getNamedAttr(
                  kRoleAttr, builder.getStringAttr(stringify(tensor.role)))};
    if (tensor.isStrided)
      attrs.push_back(
          builder.getNamedAttr(kStridedAttr, builder.getUnitAttr()));
    inputAttrs.push_back(builder.getDictionaryAttr(attrs));
  }
  auto func = func::FuncOp::create(loc, spec.name,
                                   builder.getFunctionType(inputs, results));
  func.setAllArgAttrs(inputAttrs);
  func.setAllResultAttrs(resultAttrs);
  if (!spec.ignoredFields.empty()) {
    SmallVector<StringRef> names(spec.ignoredFields.begin(),
                                 spec.ignoredFields.end());
    func->setAttr(kIgnoredFieldsAttr, builder.getStrArrayAttr(names));
  }
  if (!spec.remarks.empty()) {
    SmallVector<StringRef> remarks(spec.remarks.begin(), spec.remarks.end());
    func->setAttr(kRemarksAttr, builder.getStrArrayAttr(remarks));
  }
  Block *entry = func.addEntryBlock();
  for (auto [tensor, argument] : llvm::zip(signature, entry->getArguments()))
    arguments[tensor.name] = argument;
  return func;
}

moe::RoutingAttr LayerBuilder::getRouting() {
  if (spec.entry == Entry::Ids)
    return {};
  const RoutingSpec &routing = spec.routing;
  // Without groups the group score is unused and keeps its default, so that
  // equal layers give equal IR.
  moe::GroupScore groupScore = routing.numGroups > 1
                                   ? toDialect(routing.groupScore)
                                   : moe::GroupScore::Max;
  moe::Softmax softmax = routing.score == Score::Softmax ? moe::Softmax::All
                         : routing.weight == RouteWeight::Softmax
                             ? moe::Softmax::Selected
                             : moe::Softmax::None;
  // Neutral values are left out.
  auto getFloat = [&](double value, double neutral) {
    return value == neutral ? FloatAttr() : builder.getF32FloatAttr(value);
  };
  return moe::RoutingAttr::get(
      builder.getContext(), spec.topK, toDialect(routing.select),
      routing.numGroups, routing.topkGroups, groupScore, softmax,
      routing.renormalize, getFloat(routing.renormalizeEpsilon, 0.0),
      getFloat(routing.scale, 1.0), toDialect(routing.nonfinite));
}

moe::WeightLayoutAttr LayerBuilder::getLayout() {
  if (!spec.isGated())
    return {};
  return moe::WeightLayoutAttr::get(builder.getContext(),
                                    toDialect(spec.gateUpOrder));
}

Type LayerBuilder::getStorage(StorageType storage) {
  switch (storage) {
  case StorageType::Fp8E4M3:
    return builder.getType<Float8E4M3FNType>();
  case StorageType::Fp8E5M2:
    return builder.getType<Float8E5M2Type>();
  case StorageType::Fp4E2M1:
    return builder.getType<Float4E2M1FNType>();
  case StorageType::NF4:
    return builder.getType<moe::NF4Type>();
  case StorageType::Int8:
    return builder.getI8Type();
  case StorageType::Int4:
    return builder.getIntegerType(4);
  }
  llvm_unreachable("every storage is listed");
}

moe::QuantAttr LayerBuilder::getQuant(const OperandQuantization &operand,
                                      bool isActivation) {
  SmallVector<int64_t, 2> block;
  if (operand.blockColumns)
    block = {operand.blockRows, operand.blockColumns};
  bool isPaired = getElementBits(operand.storage) < 8;
  Type scale = isActivation ? Type(builder.getF32Type())
                            : getElementType(getTensorType(operand.scale));
  return moe::QuantAttr::get(
      builder.getContext(), getStorage(operand.storage), scale,
      toDialect(operand.granularity), block, operand.hasZeroPoint,
      /*dynamic=*/isActivation && !operand.isStatic,
      isPaired ? moe::Packing::Pairs : moe::Packing::None,
      operand.hasGlobalScale ? Type(builder.getF32Type()) : Type(),
      /*power_of_two=*/isActivation && operand.scale == ScaleType::E8M0,
      operand.hasMinimum);
}

moe::ProductQuantAttr LayerBuilder::getProductQuant(
    const std::optional<QuantizationSpec> &quantization) {
  if (!quantization)
    return {};
  moe::QuantAttr activation;
  if (quantization->activation)
    activation = getQuant(*quantization->activation, /*isActivation=*/true);
  return moe::ProductQuantAttr::get(
      builder.getContext(),
      getQuant(quantization->weight, /*isActivation=*/false), activation);
}

LayerBuilder::Quants LayerBuilder::getQuants() {
  SmallVector<NamedAttribute> products;
  SetVector<moe::ProductQuantAttr> kinds;
  for (StringRef weight : spec.getExpertWeights()) {
    moe::ProductQuantAttr quant = getProductQuant(spec.getQuantization(weight));
    kinds.insert(quant);
    // The op calls the shared expert's weights shared_w13 and shared_w2.
    auto [experts, product] = weight.split('.');
    StringRef prefix = experts == "experts" ? "" : "shared_";
    if (quant)
      products.push_back(builder.getNamedAttr((prefix + product).str(), quant));
  }
  if (kinds.size() > 1)
    return {{}, {}, builder.getDictionaryAttr(products)};
  moe::ProductQuantAttr all = kinds.front();
  return all ? Quants{all.getWeight(), all.getActivation(), {}} : Quants();
}

moe::PlacementAttr LayerBuilder::getPlacement() {
  if (!spec.placement || !spec.placement->localExperts)
    return {};
  return moe::PlacementAttr::get(builder.getContext(), spec.numExperts,
                                 *spec.placement->localExperts);
}

moe::MeshAttr LayerBuilder::getMesh() {
  if (!spec.parallel)
    return {};
  return moe::MeshAttr::get(
      builder.getContext(), spec.parallel->dp, spec.parallel->pcp,
      spec.parallel->tp,
      spec.parallel->hasWholeExperts() ? spec.getNumPhysicalExperts() : 0,
      spec.parallel->sp);
}

FloatAttr LayerBuilder::getSharedScale() {
  if (!spec.sharedExperts || spec.sharedExperts->scale == 1.0)
    return {};
  return builder.getF32FloatAttr(float(spec.sharedExperts->scale));
}

moe::LayerOp LayerBuilder::buildLayer(func::FuncOp func) {
  Quants quants = getQuants();
  ArrayRef<Type> results = func.getResultTypes();
  auto takeResult = [&](bool isThere) {
    if (!isThere)
      return Type();
    Type type = results.front();
    results = results.drop_front();
    return type;
  };
  Type output = takeResult(true), ids = takeResult(spec.recordIds.has_value()),
       weights = takeResult(spec.recordIds.has_value()),
       offsets = takeResult(spec.recordLoad);
  return moe::LayerOp::create(
      builder, loc, output, ids, weights, offsets,
      /*hidden=*/get("hidden_states"),
      /*hidden_scale=*/get("hidden_states_scale"),
      /*gate_hidden=*/get("gate.hidden"),
      /*gate_weight=*/get("gate.weight"),
      /*gate_bias=*/get("gate.bias"), /*router_logits=*/get("router_logits"),
      /*topk_ids=*/get("topk_ids"), /*topk_weights=*/get("topk_weights"),
      /*selection_bias=*/get("gate.selection_bias"),
      /*expert_scale=*/get("gate.expert_scale"),
      /*input_ids=*/get("input_ids"), /*hash_table=*/get("gate.hash_table"),
      /*w13=*/get("experts.w13"),
      /*w13_columns=*/get("experts.w13_columns"),
      /*w13_bias=*/get("experts.w13_bias"),
      /*w13_scale=*/get("experts.w13_scale"),
      /*w13_zero_point=*/getZeros("experts.w13"),
      /*w13_global_scale=*/get("experts.w13_global_scale"),
      /*w13_input_scale=*/get("experts.w13_input_scale"),
      /*w2=*/get("experts.w2"), /*w2_bias=*/get("experts.w2_bias"),
      /*w2_scale=*/get("experts.w2_scale"),
      /*w2_zero_point=*/getZeros("experts.w2"),
      /*w2_global_scale=*/get("experts.w2_global_scale"),
      /*w2_input_scale=*/get("experts.w2_input_scale"),
      /*shared_w13=*/get("shared_experts.w13"),
      /*shared_w13_columns=*/get("shared_experts.w13_columns"),
      /*shared_w13_bias=*/get("shared_experts.w13_bias"),
      /*shared_w13_scale=*/get("shared_experts.w13_scale"),
      /*shared_w13_zero_point=*/getZeros("shared_experts.w13"),
      /*shared_w13_global_scale=*/get("shared_experts.w13_global_scale"),
      /*shared_w13_input_scale=*/get("shared_experts.w13_input_scale"),
      /*shared_w2=*/get("shared_experts.w2"),
      /*shared_w2_bias=*/get("shared_experts.w2_bias"),
      /*shared_w2_scale=*/get("shared_experts.w2_scale"),
      /*shared_w2_zero_point=*/getZeros("shared_experts.w2"),
      /*shared_w2_global_scale=*/get("shared_experts.w2_global_scale"),
      /*shared_w2_input_scale=*/get("shared_experts.w2_input_scale"),
      /*shared_gate=*/get("shared_experts.gate"),
      /*shared_gate_bias=*/get("shared_experts.gate_bias"),
      /*output_bias=*/get("output_bias"),
      /*latent_down=*/get("latent.down"), /*latent_up=*/get("latent.up"),
      /*latent_in_norm=*/get("norms.latent_in"),
      /*experts_norm=*/get("norms.expert"),
      /*latent_out_norm=*/get("norms.latent_out"),
      /*adapter_ids=*/get("adapter_ids"), /*lora_gate_a=*/get("lora.gate_a"),
      /*lora_up_a=*/get("lora.up_a"), /*lora_gate_b=*/get("lora.gate_b"),
      /*lora_up_b=*/get("lora.up_b"), /*lora_down_a=*/get("lora.down_a"),
      /*lora_down_b=*/get("lora.down_b"),
      /*num_valid_tokens=*/get("num_valid_tokens"),
      /*local_ids=*/get("placement.local_ids"),
      /*is_padding=*/get("is_padding"),
      /*physical_ids=*/get("replicas.physical_ids"),
      /*replica_counts=*/get("replicas.counts"), getRouting(), getLayout(),
      quants.weight, quants.activation, quants.byProduct,
      /*format=*/moe::ActivationFormatAttr(), getMesh(), getPlacement(),
      getActivationParams(builder.getContext(), spec), getNorms(),
      getSharedScale(),
      /*num_zero_experts=*/static_cast<uint64_t>(spec.numZeroExperts),
      /*weight_on_input=*/spec.routing.weightOnInput,
      /*batch_invariant=*/spec.batchInvariant,
      /*unreduced=*/spec.output == OutputRows::Slots,
      /*max_tokens=*/static_cast<uint64_t>(spec.maxTokens));
}

DictionaryAttr LayerBuilder::getNorms() {
  NamedAttrList norms;
  auto add = [&](StringRef name, const std::optional<NormSpec> &norm) {
    if (norm)
      norms.append(name, moe::NormAttr::get(
                             builder.getContext(),
                             builder.getF32FloatAttr(float(norm->epsilon)),
                             norm->offset == 0
                                 ? FloatAttr()
                                 : builder.getF32FloatAttr(float(norm->offset)),
                             norm->weightFirst));
  };
  add("latent_in_norm", spec.norms.latentIn);
  add("experts_norm", spec.norms.expert);
  add("latent_out_norm", spec.norms.latentOut);
  return norms.empty() ? DictionaryAttr()
                       : norms.getDictionary(builder.getContext());
}

OwningOpRef<ModuleOp> LayerBuilder::build() {
  OwningOpRef<ModuleOp> module = ModuleOp::create(loc);
  func::FuncOp func = buildFunction();
  module->push_back(func);
  builder.setInsertionPointToStart(&func.front());
  moe::LayerOp layer = buildLayer(func);
  if (spec.entry != Entry::Ids) {
    buildScoreRegion(layer.getScore(), spec.routing);
    buildWeightRegion(layer.getWeight(), spec.routing.weight);
  }
  buildActivationRegion(layer.getActivation(), spec.activation);
  if (spec.sharedExperts && spec.sharedExperts->activation)
    buildActivationRegion(layer.getSharedActivation(),
                          *spec.sharedExperts->activation, kSharedPrefix);
  func::ReturnOp::create(builder, loc, layer.getResults());
  if (failed(verify(*module)))
    return nullptr;
  return module;
}

} // namespace

OwningOpRef<ModuleOp> buildLayer(MLIRContext &context, const LayerSpec &spec) {
  context.loadDialect<func::FuncDialect, arith::ArithDialect, math::MathDialect,
                      moe::MoeDialect>();
  return LayerBuilder(context, spec).build();
}

} // namespace moec
