//===- MoeLayerOp.cpp - the layer op and its verifier -----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/Dialect/Moe/Moe.h"
#include "moec/Dialect/Moe/PipelineShapes.h"
#include "moec/Dialect/Moe/PrepackedFormat.h"
#include "moec/Dialect/Moe/QuantLayout.h"
#include "moec/Dialect/Moe/ScalarRegion.h"
#include "llvm/ADT/StringSet.h"

#include <limits>

using namespace mlir;
using namespace moec::moe;

//===----------------------------------------------------------------------===//
// Sizes
//===----------------------------------------------------------------------===//

int64_t LayerOp::getNumLocalExperts() { return getDim(getW13(), 0); }

int64_t LayerOp::getNumExperts() {
  return getPhysicalIds() ? getDim(getPhysicalIds(), 0)
                          : getNumPhysicalExperts();
}

int64_t LayerOp::getNumPhysicalExperts() {
  if (getPlacement())
    return getPlacement()->getNumExperts();
  if (getMesh() && getMesh()->getNumExperts() > 0)
    return getMesh()->getNumExperts();
  return getNumLocalExperts();
}

bool LayerOp::hasSharedSoftmax() {
  return getSharedGate() && getDim(getSharedGate(), 0) == 2;
}

int64_t LayerOp::getNumRouted() {
  return getNumExperts() + static_cast<int64_t>(getNumZeroExperts());
}

int64_t LayerOp::getTopK() {
  return hasEntryIds() ? getDim(getTopkIds(), 1) : getRouting()->getTopK();
}

int64_t LayerOp::getHiddenSize() { return getDim(getHidden(), 1); }

bool LayerOp::isInputQuantized() {
  ProductQuantAttr quant = getProductQuant("w13");
  return quant && quant.getActivation() &&
         getElementTypeOrSelf(getHidden()) ==
             quant.getActivation().getStorage();
}

int64_t LayerOp::getExpertWidth() {
  return getLatentDown() ? getDim(getLatentDown(), 0) : getHiddenSize();
}

int64_t LayerOp::getIntermediateSize() {
  int64_t rows = getDim(getW13(), 1);
  return isGated() ? rows / 2 : rows;
}

ProductQuantAttr LayerOp::getProductQuant(StringRef weight) {
  if (DictionaryAttr quants = getQuantsAttr())
    return dyn_cast_if_present<ProductQuantAttr>(quants.get(weight));
  if (!getWeightQuantAttr())
    return {};
  return ProductQuantAttr::get(getContext(), getWeightQuantAttr(),
                               getActivationQuantAttr());
}

NormAttr LayerOp::getNorm(StringRef weight) {
  DictionaryAttr norms = getNormsAttr();
  return norms ? dyn_cast_if_present<NormAttr>(norms.get(weight)) : NormAttr();
}

//===----------------------------------------------------------------------===//
// Verifier
//===----------------------------------------------------------------------===//

namespace {

/// The rules of `moe.layer`. Later rules rely on earlier ones: the regions'
/// arguments, then the experts' shapes, then the rest.
class LayerVerifier {
public:
  explicit LayerVerifier(LayerOp op) : op(op), check(op) {}

  LogicalResult verify() {
    return failure(failed(verifyAttributes()) || failed(verifyActivation()) ||
                   failed(verifyExperts()) || failed(verifyLora()) ||
                   failed(verifyEntry()) || failed(verifyRouting()) ||
                   failed(verifyReplicas()) || failed(verifyRecords()) ||
                   failed(verifyShared()) || failed(verifyQuantization()) ||
                   failed(verifyLimits()));
  }

private:
  using Shape = ArrayRef<Dim>;

  LogicalResult verifyAttributes();
  LogicalResult verifyActivation();
  LogicalResult verifyExperts();
  LogicalResult verifyInput();
  LogicalResult verifyNorms(Dim width);
  LogicalResult verifyOutputBias(Dim hidden);
  LogicalResult verifyLora();
  LogicalResult verifyEntry();
  LogicalResult verifyNoRouting();
  LogicalResult verifyRouting();
  LogicalResult verifyReplicas();
  LogicalResult verifyRecords();
  LogicalResult verifyShared();
  LogicalResult verifyQuantization();
  LogicalResult verifyMesh();
  LogicalResult verifyQuants();
  LogicalResult verifyProductQuant(ProductQuantAttr quant);
  /// One of the four weights with the operands of its quantization.
  struct QuantizedWeight {
    StringRef name;
    /// Whether it is a weight of a first gemm, with gate and up rows.
    bool isFirst;
    Value weight, scale, zeroPoint, globalScale, inputScale;
  };
  SmallVector<QuantizedWeight, 4> getWeights();
  LogicalResult verifyInputScale(ProductQuantAttr quant,
                                 const QuantizedWeight &w);
  LogicalResult verifyScales(QuantAttr quant, const QuantizedWeight &w);
  LogicalResult verifyLimits();

  /// An optional operand of layer dtype.
  LogicalResult checkData(StringRef name, Value value, Shape dims) {
    if (failed(check.checkShape(name, value, dims)))
      return failure();
    return check.checkElement(name, value, getElementType(op.getOutput()),
                              "like the output");
  }

  /// A weight, which may be quantized.
  LogicalResult checkWeight(StringRef name, Value value, Shape dims) {
    ProductQuantAttr product = op.getProductQuant(name);
    if (!product)
      return checkData(name, value, dims);
    QuantAttr quant = product.getWeight();
    // Convert a known row width to elements in memory.
    SmallVector<Dim> stored(dims);
    if (stored.back().size > 0)
      stored.back().size = getRowLength(quant, stored.back().size);
    if (failed(check.checkShape(name, value, stored)))
      return failure();
    return check.checkElement(name, value, getMemoryType(quant),
                              "as required by " + nameQuant("weight"));
  }

  /// The name, for messages, of the attribute that quantizes `operand`.
  std::string nameQuant(StringRef operand) {
    if (op.getQuants())
      return ("'" + operand + "' of 'quants'").str();
    return ("'" + operand + "_quant'").str();
  }

  LayerOp op;
  OperandChecker check;
};

LogicalResult LayerVerifier::verifyAttributes() {
  if (auto format = op.getFormat();
      format && format->getFormat() != Format::Standard)
    return check.error("'format' is '")
           << stringifyFormat(format->getFormat())
           << "'; only 'standard' is supported: remove 'format'";
  return failure(failed(verifyMesh()) || failed(verifyQuants()));
}

LogicalResult LayerVerifier::verifyMesh() {
  std::optional<MeshAttr> mesh = op.getMesh();
  bool placesIds = mesh && mesh->getNumExperts() > 0;
  if (placesIds != bool(op.getLocalIds()))
    return check.error(
        "takes 'local_ids' if and only if 'mesh' has 'num_experts'");
  if (!mesh)
    return success();
  if (op.getPlacement())
    return check.error("has 'mesh' and 'placement'; with a mesh, 'local_ids' "
                       "defines the experts of a rank: remove 'placement'");
  if (!placesIds)
    return success();
  if (int64_t here = op.getNumLocalExperts();
      mesh->getNumExperts() > here * mesh->getNumRanks())
    return check.error("has ")
           << here << " experts in 'w13' on each of " << mesh->getNumRanks()
           << " ranks, fewer than the 'num_experts' of 'mesh', "
           << mesh->getNumExperts()
           << "; give each rank more experts, or reduce 'num_experts'";
  return check.checkShape("local_ids", op.getLocalIds(),
                          {{"num_experts", mesh->getNumExperts()}});
}

LogicalResult LayerVerifier::verifyActivation() {
  Region &region = op.getActivation();
  if (region.empty())
    return check.error("needs a region 'activation'");
  unsigned count = region.getNumArguments();
  if (count != 1 && count != 2)
    return check.error("region 'activation' must take (gate, up) or (x), each "
                       "f32, but takes ")
           << count << " arguments";
  SmallVector<std::string> arguments;
  if (op.isGated())
    arguments = {"gate", "up"};
  else
    arguments = {"x"};
  if (failed(verifyScalarArguments(op, region, "activation", arguments)))
    return failure();
  if (op.isGated() && !op.getLayout())
    return check.error("needs 'layout' to find the gate and up rows of 'w13'; "
                       "write 'layout = #moe.weight_layout<order = gate_up>'");
  if (!op.isGated() && op.getLayout())
    return check.error("'layout' has no meaning with an activation of one "
                       "argument, which has no gate; remove it");
  DictionaryAttr params = op.getActivationParamsAttr();
  for (NamedAttribute entry :
       params ? params.getValue() : ArrayRef<NamedAttribute>()) {
    auto value = dyn_cast<FloatAttr>(entry.getValue());
    if (!value || !value.getType().isF32())
      return check.error("entry '")
             << entry.getName().getValue() << "' of 'activation_params' is "
             << entry.getValue() << ", but must be a number like '1.0 : f32'";
  }
  return success();
}

/// Verifies hidden states that the caller has quantized.
LogicalResult LayerVerifier::verifyInput() {
  if (!op.isInputQuantized()) {
    if (op.getHiddenScale())
      return check.error("takes 'hidden_scale' only with 'hidden' of the "
                         "storage type of the activations of 'w13'; remove it");
    if (!isa<FloatType>(getElementType(op.getHidden())) ||
        getElementType(op.getHidden()).getIntOrFloatBitWidth() < 16)
      return check.error("'hidden' is of ")
             << getElementType(op.getHidden())
             << ", but the activations of 'w13' are not quantized to it; give "
                "f32, bf16 or f16";
    return success();
  }
  StringRef extra = !op.hasEntryIds()        ? "a router; give it 'ids'"
                    : op.getSharedW13()      ? "a shared expert; remove it"
                    : op.getLatentDown()     ? "'latent_down'; remove it"
                    : op.getW13Columns()     ? "'w13_columns'; remove it"
                    : op.getWeightOnInput()  ? "'weight_on_input'; remove it"
                    : op.getNumZeroExperts() ? "zero experts; remove them"
                                             : "";
  if (!extra.empty())
    return check.error("has quantized rows as 'hidden', which do not go with ")
           << extra;
  QuantAttr quant = op.getProductQuant("w13").getActivation();
  if (bool(op.getHiddenScale()) != quant.getDynamic())
    return check.error(quant.getDynamic()
                           ? "has quantized rows as 'hidden'; give their "
                             "'hidden_scale'"
                           : "has the static scale 'w13_input_scale' for "
                             "'hidden'; remove 'hidden_scale'");
  SmallVector<Dim> dims{{"1", 1}};
  if (quant.getGranularity() != Granularity::Tensor)
    dims = {
        tokensDim(),
        {"(scales of a row)", getNumScaleColumns(quant, op.getHiddenSize())}};
  return failure(
      failed(check.checkShape("hidden_scale", op.getHiddenScale(), dims)) ||
      failed(check.checkElement("hidden_scale", op.getHiddenScale(),
                                quant.getScale(), "the scale of activations")));
}

LogicalResult LayerVerifier::verifyNorms(Dim width) {
  std::pair<StringRef, Value> norms[] = {
      {"latent_in_norm", op.getLatentInNorm()},
      {"experts_norm", op.getExpertsNorm()},
      {"latent_out_norm", op.getLatentOutNorm()}};
  for (auto [name, weight] : norms) {
    if (bool(weight) != bool(op.getNorm(name)))
      return check.error("takes '" + name +
                         "' if and only if 'norms' has a #moe.norm<...> of "
                         "this name");
    if (weight && !op.getLatentDown() && name != "experts_norm")
      return check.error("takes '" + name +
                         "' beside 'latent_down' and 'latent_up' only");
    if (failed(checkData(name, weight, {width})))
      return failure();
  }
  DictionaryAttr entries = op.getNormsAttr();
  if (!entries)
    return success();
  for (NamedAttribute entry : entries)
    if (llvm::none_of(norms, [&](const auto &norm) {
          return norm.first == entry.getName();
        }))
      return check.error("has 'norms' with '" + entry.getName().getValue() +
                         "'; the operands are 'latent_in_norm', "
                         "'experts_norm' and 'latent_out_norm'");
  return success();
}

LogicalResult LayerVerifier::verifyExperts() {
  if (failed(check.checkShape("hidden", op.getHidden(),
                              {tokensDim(), {"hidden_size"}})))
    return failure();
  if (failed(verifyInput()))
    return failure();
  auto outputType = cast<RankedTensorType>(op.getHidden().getType());
  if (op.isInputQuantized())
    outputType = outputType.clone(getElementType(op.getOutput()));
  if (op.getUnreduced())
    outputType = outputType.clone(
        {ShapedType::kDynamic, op.getTopK() * op.getHiddenSize()});
  if (op.getOutput().getType() != outputType)
    return check.error("the output must have the type ")
           << outputType
           << (op.getUnreduced() ? " of the slots' rows" : " of 'hidden'")
           << ", not " << op.getOutput().getType();
  if (bool(op.getLatentDown()) != bool(op.getLatentUp()))
    return check.error("takes 'latent_down' and 'latent_up' together");
  Dim hidden{"hidden_size", op.getHiddenSize()};
  if (failed(checkData("latent_down", op.getLatentDown(),
                       {{"latent_size"}, hidden})))
    return failure();
  Dim width{op.getLatentDown() ? "latent_size" : "hidden_size",
            op.getExpertWidth()};
  if (failed(checkData("latent_up", op.getLatentUp(), {hidden, width})) ||
      failed(verifyNorms(width)))
    return failure();

  Dim experts{"num_experts"};
  if (std::optional<PlacementAttr> placement = op.getPlacement())
    experts = {"local experts", int64_t(placement->getLocal().size())};
  StringRef rowsName =
      op.isGated() ? "(2 * intermediate_size)" : "intermediate_size";
  if (failed(checkWeight("w13", op.getW13(), {experts, {rowsName}, width})))
    return failure();
  experts.size = op.getNumLocalExperts();
  Dim rows{rowsName, getDim(op.getW13(), 1)};
  if (op.isGated() && rows.size % 2 != 0)
    return check.error("'w13' has ")
           << rows.size << " rows; with a gate they must be pairs (gate, up)";
  Dim intermediate{"intermediate_size", op.getIntermediateSize()};
  return failure(
      failed(check.checkShape("w13_columns", op.getW13Columns(),
                              {experts, width})) ||
      failed(checkWeight("w2", op.getW2(), {experts, width, intermediate})) ||
      failed(checkData("w13_bias", op.getW13Bias(), {experts, rows})) ||
      failed(checkData("w2_bias", op.getW2Bias(), {experts, width})) ||
      failed(verifyOutputBias(hidden)));
}

LogicalResult LayerVerifier::verifyOutputBias(Dim hidden) {
  if (!op.getOutputBias())
    return success();
  StringRef other = op.getSharedW13()    ? "a shared expert"
                    : op.getLatentDown() ? "'latent_down'"
                    : op.getUnreduced()  ? "'unreduced'"
                    : op.getIsPadding()  ? "'is_padding'"
                    : op.getMesh() && op.getMesh()->getNumRanks() > 1
                        ? "a 'mesh' of several ranks"
                        : "";
  if (!other.empty())
    return check.error("has 'output_bias', which does not go with ")
           << other << "; remove one of them";
  return checkData("output_bias", op.getOutputBias(), {hidden});
}

LogicalResult LayerVerifier::verifyLora() {
  std::pair<StringRef, Value> matrices[] = {
      {"lora_gate_a", op.getLoraGateA()}, {"lora_gate_b", op.getLoraGateB()},
      {"lora_up_a", op.getLoraUpA()},     {"lora_up_b", op.getLoraUpB()},
      {"lora_down_a", op.getLoraDownA()}, {"lora_down_b", op.getLoraDownB()}};
  for (auto [name, matrix] : matrices) {
    bool isNeeded =
        op.getAdapterIds() && (op.isGated() || !name.starts_with("lora_gate"));
    if (isNeeded && !matrix)
      return check.error("has 'adapter_ids', but no '" + name + "'; give it");
    if (matrix && !isNeeded)
      return check.error("has '" + name + "', but ")
             << (op.getAdapterIds() ? "an activation without a gate"
                                    : "no 'adapter_ids'")
             << "; remove it";
  }
  if (!op.getAdapterIds())
    return success();
  if (op.isInputQuantized())
    return check.error("has quantized rows as 'hidden', which 'lora_up_a' "
                       "cannot read; remove 'adapter_ids' and the adapters");
  Dim adapters{"adapters"}, experts{"num_experts", op.getNumLocalExperts()},
      rank{"rank"};
  Dim width{op.getLatentDown() ? "latent_size" : "hidden_size",
            op.getExpertWidth()};
  Dim intermediate{"intermediate_size", op.getIntermediateSize()};
  if (failed(
          check.checkShape("adapter_ids", op.getAdapterIds(), {tokensDim()})) ||
      failed(checkData("lora_up_a", op.getLoraUpA(),
                       {adapters, experts, rank, width})))
    return failure();
  adapters.size = getDim(op.getLoraUpA(), 0);
  rank.size = getDim(op.getLoraUpA(), 2);
  for (auto [name, matrix] : matrices) {
    bool isDown = name.starts_with("lora_down");
    Dim in = isDown ? intermediate : width, out = isDown ? width : intermediate;
    bool isFirst = name.ends_with("_a");
    if (failed(checkData(
            name, matrix,
            {adapters, experts, isFirst ? rank : out, isFirst ? in : rank})))
      return failure();
  }
  return success();
}

LogicalResult LayerVerifier::verifyEntry() {
  auto emitError = [&] { return op.emitOpError(); };
  if (failed(verifyNumExperts(emitError, op.getNumExperts(),
                              op.getNumZeroExperts())))
    return failure();
  if (op.hasEntryIds() && !op.getTopkIds())
    return check.error("takes 'ids' and 'weights' together");
  if (op.getTopkIds() && !op.hasEntryIds() && !op.getGateWeight() &&
      !op.getRouterLogits())
    return check.error("takes 'ids' together with 'weights', or with 'gate' or "
                       "'logits', which weigh them");
  int numEntries = bool(op.getGateWeight()) + bool(op.getRouterLogits()) +
                   bool(op.getTopkWeights());
  if (numEntries != 1)
    return check.error("needs exactly one of 'gate', 'logits' and 'ids', but "
                       "has ")
           << numEntries;
  if (op.hasEntryIds() && !getElementTypeOrSelf(op.getTopkIds()).isInteger(32))
    return check.error("takes 'ids' of i32 beside 'weights'");
  if (op.getGateBias() && !op.getGateWeight())
    return check.error("takes 'gate_bias' with 'gate' only; router logits "
                       "include the bias already");
  Dim routed{"num_routed", op.getNumRouted()};
  Dim gateRows = routed;
  // A weight in f32 is the sum of two values of the layer's dtype.
  if (op.getGateWeight() && !op.getGateBias() && !op.getGateHidden() &&
      getDim(op.getGateWeight(), 0) == 2 * op.getNumRouted())
    gateRows = {"(2 * num_routed)", 2 * op.getNumRouted()};
  if (op.getGateHidden() && !op.getGateWeight())
    return check.error("takes 'gate_hidden' with 'gate' only");
  Dim hidden{"hidden_size", op.getHiddenSize()};
  if (failed(checkData("gate_hidden", op.getGateHidden(),
                       {{"gate_hidden_size"}, hidden})))
    return failure();
  Dim gateColumns = hidden;
  if (op.getGateHidden())
    gateColumns = {"gate_hidden_size", getDim(op.getGateHidden(), 0)};
  if (failed(checkData("gate", op.getGateWeight(), {gateRows, gateColumns})) ||
      failed(check.checkShape("gate_bias", op.getGateBias(), {routed})) ||
      failed(check.checkShape("logits", op.getRouterLogits(),
                              {tokensDim(), routed})) ||
      failed(
          check.checkShape("ids", op.getTopkIds(), {tokensDim(), {"top_k"}})))
    return failure();
  if (!op.hasEntryIds())
    return success();
  int64_t topK = op.getTopK();
  if (topK > op.getNumRouted())
    return check.error("'ids' has ")
           << topK << " experts per token, but there are only "
           << op.getNumRouted() << " experts";
  return check.checkShape("weights", op.getTopkWeights(),
                          {tokensDim(), {"top_k", topK}});
}

/// The entry `ids` excludes all other operands and attributes of routing.
LogicalResult LayerVerifier::verifyNoRouting() {
  StringRef extra = op.getRouting()           ? "attribute 'routing'"
                    : op.getSelectionBias()   ? "operand 'selection_bias'"
                    : op.getExpertScale()     ? "operand 'expert_scale'"
                    : op.getInputIds()        ? "operand 'input_ids'"
                    : op.getHashTable()       ? "operand 'hash_table'"
                    : !op.getScore().empty()  ? "region 'score'"
                    : !op.getKey().empty()    ? "region 'key'"
                    : !op.getWeight().empty() ? "region 'weight'"
                                              : "";
  if (extra.empty())
    return success();
  return check.error("has the entry 'ids', which replaces routing; remove the ")
         << extra;
}

LogicalResult LayerVerifier::verifyRouting() {
  if (op.hasEntryIds())
    return verifyNoRouting();
  if (!op.getRouting())
    return check.error("needs 'routing' with the entries 'gate' and 'logits'; "
                       "write 'routing = #moe.routing<top_k = ...>'");
  if (!op.getScore().empty() &&
      failed(verifyScalarArguments(op, op.getScore(), "score", {"logit"})))
    return failure();
  if (failed(verifyKeyArguments(op, op.getKey(), op.getSelectionBias())))
    return failure();
  if (!op.getWeight().empty() &&
      failed(verifyScalarArguments(op, op.getWeight(), "weight", {"score"})))
    return failure();
  if (failed(check.checkShape("ids", op.getTopkIds(),
                              {tokensDim(), {"top_k", op.getTopK()}})) ||
      failed(verifyRoutedIds(check, *op.getRouting(), op.getNumRouted(),
                             op.getNumValidTokens() || op.getIsPadding(),
                             op.getTopkIds(), op.getRecordedIds())))
    return failure();
  return verifyRoutingOperands(check, *op.getRouting(), op.getNumRouted(),
                               op.getSelectionBias(), op.getExpertScale(),
                               op.getInputIds(), op.getHashTable(),
                               op.getScore(), op.getKey(), op.getWeight());
}

/// Verifies the replicas of logical experts.
LogicalResult LayerVerifier::verifyReplicas() {
  if (bool(op.getPhysicalIds()) != bool(op.getReplicaCounts()))
    return check.error("takes 'physical_ids' and 'replica_counts' together");
  if (!op.getPhysicalIds())
    return success();
  Dim experts{"num_experts", op.getNumExperts()};
  return failure(failed(check.checkShape("physical_ids", op.getPhysicalIds(),
                                         {experts, {"max_replicas"}})) ||
                 failed(check.checkShape("replica_counts",
                                         op.getReplicaCounts(), {experts})));
}

/// Verifies the results other than the output.
LogicalResult LayerVerifier::verifyRecords() {
  if (op.getRecordedIds() && op.getTopkIds())
    return check.error("takes 'ids' and has a 'record', which would only "
                       "return the caller's ids: remove the 'record'");
  Dim topK{"top_k", op.getTopK()};
  return failure(failed(check.checkShape("record", op.getRecordedIds(),
                                         {tokensDim(), topK})) ||
                 failed(check.checkShape("record", op.getRecordedWeights(),
                                         {tokensDim(), topK})) ||
                 failed(check.checkShape(
                     "load", op.getExpertOffsets(),
                     {{"(local experts + 1)", op.getNumLocalExperts() + 1}})));
}

LogicalResult LayerVerifier::verifyShared() {
  if (bool(op.getSharedW13()) != bool(op.getSharedW2()))
    return check.error("takes 'shared_w13' and 'shared_w2' together");
  if (op.getSharedGateBias() && !op.getSharedGate())
    return check.error("takes 'shared_gate_bias' with 'shared_gate' only");
  if (!op.getSharedW13()) {
    if (op.getSharedGate() || op.getSharedW13Columns() ||
        op.getSharedW13Bias() || op.getSharedW2Bias())
      return check.error("takes 'shared_gate', 'shared_w13_columns' and the "
                         "shared expert's biases with 'shared_w13' and "
                         "'shared_w2' only");
    if (op.getSharedScaleAttr() || !op.getSharedActivation().empty())
      return check.error("takes 'shared_scale' and 'shared_activation' with "
                         "'shared_w13' and 'shared_w2' only");
    return success();
  }
  if (Region &region = op.getSharedActivation(); !region.empty()) {
    SmallVector<std::string> arguments = {"x"};
    if (op.isGated())
      arguments = {"gate", "up"};
    if (failed(
            verifyScalarArguments(op, region, "shared_activation", arguments)))
      return failure();
  }
  Dim hidden{"hidden_size", op.getHiddenSize()};
  StringRef rowsName = op.isGated() ? "(2 * shared intermediate_size)"
                                    : "shared intermediate_size";
  if (failed(
          checkWeight("shared_w13", op.getSharedW13(), {{rowsName}, hidden})))
    return failure();
  int64_t rows = getDim(op.getSharedW13(), 0);
  if (op.isGated() && rows % 2 != 0)
    return check.error("'shared_w13' has ")
           << rows << " rows; with a gate they must be pairs (gate, up)";
  Dim intermediate{"shared intermediate_size", op.isGated() ? rows / 2 : rows};
  // Two rows: a softmax of the routed sum and the shared expert.
  Dim gateRows{"1", 1};
  if (op.hasSharedSoftmax()) {
    gateRows = {"2", 2};
    if (op.getWeightOnInput())
      return check.error("takes 'shared_gate' of two rows, which weighs the "
                         "experts' rows, without 'weight_on_input' only");
  }
  return failure(
      failed(check.checkShape("shared_w13_columns", op.getSharedW13Columns(),
                              {{"1", 1}, hidden})) ||
      failed(
          checkWeight("shared_w2", op.getSharedW2(), {hidden, intermediate})) ||
      failed(checkData("shared_w13_bias", op.getSharedW13Bias(),
                       {{rowsName, rows}})) ||
      failed(checkData("shared_w2_bias", op.getSharedW2Bias(), {hidden})) ||
      failed(
          checkData("shared_gate", op.getSharedGate(), {gateRows, hidden})) ||
      failed(check.checkShape("shared_gate_bias", op.getSharedGateBias(),
                              {gateRows})));
}

//===----------------------------------------------------------------------===//
// Quantization
//===----------------------------------------------------------------------===//

LogicalResult LayerVerifier::verifyQuantization() {
  if (op.getActivationQuant() && !op.getWeightQuant())
    return check.error("'activation_quant' needs 'weight_quant': activations "
                       "are quantized only for gemms with quantized weights");
  for (const QuantizedWeight &weight : getWeights()) {
    ProductQuantAttr quant = op.getProductQuant(weight.name);
    if (quant && failed(verifyProductQuant(quant)))
      return failure();
    if (failed(verifyInputScale(quant, weight)))
      return failure();
    if (quant && failed(verifyScales(quant.getWeight(), weight)))
      return failure();
    if (quant || !(weight.scale || weight.zeroPoint || weight.globalScale))
      continue;
    if (op.getQuants())
      return check.error("has scales of '")
             << weight.name << "', but 'quants' has no '" << weight.name
             << "' that describes them; write '" << weight.name
             << " = #moe.product_quant<...>'";
    return check.error(
        "has scales of weights, but no 'weight_quant' that describes them; "
        "write 'weight_quant = #moe.quant<...>'");
  }
  return success();
}

/// Verifies `quants`, which the shapes of weights depend on.
LogicalResult LayerVerifier::verifyQuants() {
  if (!op.getQuants())
    return success();
  if (op.getWeightQuant() || op.getActivationQuant())
    return check.error("has 'quants' beside 'weight_quant' or "
                       "'activation_quant'; keep 'quants' or the other two");
  for (NamedAttribute entry : op.getQuantsAttr()) {
    StringRef name = entry.getName().getValue();
    if (llvm::none_of(getWeights(), [&](const QuantizedWeight &w) {
          return w.weight && w.name == name;
        }))
      return check.error("entry '")
             << name
             << "' of 'quants' is not a weight of this layer; the names "
             << "are 'w13', 'w2', and with a shared expert 'shared_w13' and "
                "'shared_w2'";
    if (!isa<ProductQuantAttr>(entry.getValue()))
      return check.error("entry '")
             << name << "' of 'quants' is " << entry.getValue()
             << ", but must be a '#moe.product_quant<...>'";
  }
  return success();
}

LogicalResult LayerVerifier::verifyProductQuant(ProductQuantAttr quant) {
  QuantAttr weight = quant.getWeight(), activation = quant.getActivation();
  if (activation && !activation.getDynamic() &&
      activation.getGranularity() != Granularity::Tensor)
    return check.error(nameQuant("activation") + " is of granularity '")
           << stringifyGranularity(activation.getGranularity())
           << "' and needs 'dynamic = true'; only granularity 'tensor' can "
              "have a given scale";
  if (weight.getDynamic() || weight.getGranularity() == Granularity::Token)
    return check.error(nameQuant("weight") +
                       " must not be 'dynamic' or of granularity 'token'; "
                       "weights are quantized in advance");
  if (isPrepacked(weight.getPacking()))
    return check.error(nameQuant("weight") + " has 'packing = ")
           << stringifyPacking(weight.getPacking())
           << "', which only 'moe-legalize-quant' produces; write 'packing = "
              "pairs'";
  if (activation && areKeptAsBF16(activation))
    return check.error(nameQuant("activation"))
           << " has 'packing = bf16', which only 'moe-legalize-quant' sets; "
              "remove it";
  return success();
}

/// Verifies the static scale of the gemm's input.
LogicalResult LayerVerifier::verifyInputScale(ProductQuantAttr quant,
                                              const QuantizedWeight &w) {
  QuantAttr activation = quant ? quant.getActivation() : QuantAttr();
  bool isNeeded = activation && !activation.getDynamic() && w.weight;
  std::string scaleName = (w.name + "_input_scale").str();
  std::string attribute = nameQuant("activation");
  if (isNeeded && !w.inputScale)
    return check.error("has an " + attribute + " that is not dynamic; give '")
           << scaleName << "', the scale of the inputs of '" << w.name << "'";
  if (!isNeeded && w.inputScale)
    return check.error("takes '")
           << scaleName << "' only with '" << w.name << "' and a static "
           << attribute << "; remove it, or 'dynamic'";
  return check.checkShape(scaleName, w.inputScale, {{"1", 1}});
}

SmallVector<LayerVerifier::QuantizedWeight, 4> LayerVerifier::getWeights() {
  return {{"w13", true, op.getW13(), op.getW13Scale(), op.getW13ZeroPoint(),
           op.getW13GlobalScale(), op.getW13InputScale()},
          {"w2", false, op.getW2(), op.getW2Scale(), op.getW2ZeroPoint(),
           op.getW2GlobalScale(), op.getW2InputScale()},
          {"shared_w13", true, op.getSharedW13(), op.getSharedW13Scale(),
           op.getSharedW13ZeroPoint(), op.getSharedW13GlobalScale(),
           op.getSharedW13InputScale()},
          {"shared_w2", false, op.getSharedW2(), op.getSharedW2Scale(),
           op.getSharedW2ZeroPoint(), op.getSharedW2GlobalScale(),
           op.getSharedW2InputScale()}};
}

/// Verifies that a weight has exactly the operands that `quant` requires.
LogicalResult LayerVerifier::verifyScales(QuantAttr quant,
                                          const QuantizedWeight &w) {
  auto checkPresence = [&](StringRef suffix, Value value, bool isNeeded,
                           StringRef with) -> LogicalResult {
    if (bool(value) == (isNeeded && w.weight))
      return success();
    return check.error("takes '") << w.name << "' and '" << w.name << suffix
                                  << "' together with " << with;
  };
  std::string attribute = nameQuant("weight");
  if (failed(checkPresence("_scale", w.scale, true, attribute)) ||
      failed(checkPresence("_zero_point", w.zeroPoint, hasZeros(quant),
                           "the 'zero_point' or 'minimum' of " + attribute)) ||
      failed(checkPresence("_global_scale", w.globalScale,
                           bool(quant.getSecondScale()),
                           "the 'second_scale' of " + attribute)))
    return failure();
  if (!w.weight)
    return success();
  auto type = cast<ShapedType>(w.weight.getType());
  int64_t rows = type.getShape().end()[-2],
          columns = getRowWidth(quant, type.getShape().back());
  if (quant.getGranularity() == Granularity::Group &&
      columns % quant.getBlock()[1] != 0)
    return check.error("'")
           << w.name << "' has rows of " << columns
           << " elements, which must be a multiple of the group of "
           << quant.getBlock()[1];
  SmallVector<Dim> dims;
  if (type.getRank() == 3)
    dims.push_back({"num_experts", type.getDimSize(0)});
  SmallVector<Dim> globalDims = dims;
  WeightLayoutAttr layout = w.isFirst ? op.getLayoutAttr() : WeightLayoutAttr();
  dims.push_back({"(scales along rows)", getNumScaleRows(quant, rows, layout)});
  dims.push_back({"(scales of a row)", getNumScaleColumns(quant, columns)});
  globalDims.push_back(
      {"(scales of a matrix)", getNumSecondScales(quant, rows, layout)});
  std::string scale = (w.name + "_scale").str();
  std::string zero = (w.name + "_zero_point").str();
  return failure(failed(check.checkShape(scale, w.scale, dims)) ||
                 failed(check.checkElement(scale, w.scale, quant.getScale(),
                                           "the scale of " + attribute)) ||
                 failed(check.checkShape(zero, w.zeroPoint, dims)) ||
                 failed(check.checkElement(zero, w.zeroPoint,
                                           getZeroType(quant), attribute)) ||
                 failed(check.checkShape((w.name + "_global_scale").str(),
                                         w.globalScale, globalDims)));
}

//===----------------------------------------------------------------------===//
// Limits
//===----------------------------------------------------------------------===//

LogicalResult LayerVerifier::verifyLimits() {
  int64_t maxTokens = op.getMaxTokens(), topK = op.getTopK();
  // Positions of slots are i32.
  int64_t limit = std::numeric_limits<int32_t>::max() / topK;
  if (maxTokens < 1 || maxTokens > limit)
    return check.error("'max_tokens' is ")
           << maxTokens << "; 1 to " << limit
           << " is accepted with top_k = " << topK
           << ", so that positions fit 32 bits";
  if (op.getWeightOnInput() && topK != 1)
    return check.error("'weight_on_input' needs one expert per token, but "
                       "top_k is ")
           << topK;
  if (failed(check.checkShape("is_padding", op.getIsPadding(), {tokensDim()})))
    return failure();
  return check.checkNumValidTokens(op.getNumValidTokens());
}

} // namespace

LogicalResult LayerOp::verify() { return LayerVerifier(*this).verify(); }

LogicalResult LayerOp::verifyRegions() {
  if (failed(verifyScalarBody(*this, getScore(), "score")) ||
      failed(verifyScalarBody(*this, getKey(), "key")) ||
      failed(verifyScalarBody(*this, getWeight(), "weight")) ||
      failed(verifyScalarBody(*this, getActivation(), "activation")) ||
      failed(
          verifyScalarBody(*this, getSharedActivation(), "shared_activation")))
    return failure();
  llvm::StringSet<> read;
  for (Region *region : {&getActivation(), &getSharedActivation()})
    region->walk([&](ParamOp param) { read.insert(param.getName()); });
  DictionaryAttr params = getActivationParamsAttr();
  for (NamedAttribute entry :
       params ? params.getValue() : ArrayRef<NamedAttribute>())
    if (!read.contains(entry.getName().getValue()))
      return emitOpError("entry '")
             << entry.getName().getValue()
             << "' of 'activation_params' is never read; read it by "
                "'moe.param' or remove it";
  return success();
}
