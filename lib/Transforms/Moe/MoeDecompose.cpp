//===- MoeDecompose.cpp - a layer becomes pipeline ops ----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Rewrites moe.layer into pipeline ops, in the order and with the rounding
// points of docs/use/layers.md: f32 is rounded to each result type.
//
//===----------------------------------------------------------------------===//

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"
#include "moec/Dialect/Moe/QuantLayout.h"
#include "moec/Dialect/Names.h"
#include "moec/Transforms/Passes.h"

namespace moec {
#define GEN_PASS_DEF_MOEDECOMPOSEPASS
#include "moec/Transforms/Passes.h.inc"
} // namespace moec

using namespace mlir;
using namespace moec;
using namespace moec::moe;

namespace {

/// The arguments of an epilogue region, in order.
struct EpilogueArgs {
  /// One, or gate and up.
  ValueRange accumulators;
  ValueRange rows;
  /// For each column operand, one value per accumulator.
  ValueRange columns;
  ValueRange elementwise;
  /// The updates by adapters: one value per accumulator, or none.
  ValueRange updates;
};

using EpilogueBuilder =
    function_ref<Value(ImplicitLocOpBuilder &, const EpilogueArgs &)>;

/// The operands of a grouped_matmul, by name.
struct Product {
  explicit Product(Value weight, ProductQuantAttr quant = {}, Value scale = {},
                   Value zeroPoint = {}, Value globalScale = {})
      : weight(weight), quant(quant), weightScale(scale),
        weightZeroPoint(zeroPoint), weightGlobalScale(globalScale) {}

  Value input, weight;
  /// Quantization of the operands by the layer; null for none.
  ProductQuantAttr quant;
  /// Scales of quantized operands; zero points and global scales of weights.
  Value inputScale, weightScale, weightZeroPoint, weightGlobalScale;
  QuantAttr inputQuant, weightQuant;
  Value offsets, source, numValidTokens;
  SmallVector<Value, 1> rows, columns, elementwise;
  /// Operands of a LoRA update.
  Value shrunk, adapters;
  SmallVector<Value, 2> matrices;
  WeightLayoutAttr layout;
};

/// Checks that gemms support the storage types of the layer.
LogicalResult checkStorage(LayerOp layer) {
  auto check = [&](StringRef name, QuantAttr quant) -> LogicalResult {
    if (!quant || !isa<Float8E5M2Type>(quant.getStorage()))
      return success();
    return layer.emitOpError("has '")
           << name << "' = " << quant
           << ", which no gemm supports; f8E4M3FN, f4E2M1FN, code books, i8, "
              "i4 and unquantized weights are supported";
  };
  if (failed(check("weight_quant", layer.getWeightQuantAttr())) ||
      failed(check("activation_quant", layer.getActivationQuantAttr())))
    return failure();
  DictionaryAttr quants = layer.getQuantsAttr();
  for (NamedAttribute entry :
       quants ? quants.getValue() : ArrayRef<NamedAttribute>()) {
    auto quant = cast<ProductQuantAttr>(entry.getValue());
    StringRef name = entry.getName().getValue();
    if (failed(check(name, quant.getWeight())) ||
        failed(check(name, quant.getActivation())))
      return failure();
  }
  return success();
}

/// Replaces each moe.param by the constant that it names.
void resolveParams(LayerOp layer) {
  layer.walk([&](ParamOp param) {
    OpBuilder builder(param);
    auto value =
        cast<FloatAttr>(layer.getActivationParamsAttr().get(param.getName()));
    param.replaceAllUsesWith(
        arith::ConstantOp::create(builder, param.getLoc(), value).getResult());
    param.erase();
  });
}

/// Rewrites one layer; the builder stands before it.
class LayerDecomposer {
public:
  explicit LayerDecomposer(LayerOp layer)
      : layer(layer), b(layer.getLoc(), layer),
        dtype(cast<RankedTensorType>(layer.getOutput().getType())
                  .getElementType()) {}

  void run();

private:
  RankedTensorType tensorOf(ArrayRef<int64_t> shape, Type element) {
    return RankedTensorType::get(shape, element);
  }
  void setNames(Operation *op, ArrayRef<StringRef> names) {
    op->setAttr(kNameAttr, b.getStrArrayAttr(names));
  }

  Value product(const Product &p, RankedTensorType type, StringRef name,
                EpilogueBuilder epilogue);
  Value inlineActivation(Region &region, ImplicitLocOpBuilder &builder,
                         ValueRange args);

  void setInput(Product &p, Value input, Value givenScale, Value ofTokens = {});
  void setQuantizedInput(Product &p);
  static QuantAttr getTensorQuant(QuantAttr quant);
  QuantizeOp quantize(Value input, QuantAttr quant, Value tensorScale,
                      Value offsets);
  Value findTensorScale(Value input, QuantAttr quant, Value offsets);

  Value getRouterInput();
  void route();
  void makeSharedGate();
  void weighSum();
  void permute();
  /// Whether the rows of the experts are multiplied by the tokens' weights.
  bool weighsRows() {
    return !layer.getWeightOnInput() && !layer.getUnreduced();
  }
  Value normalize(Value input, Value weight, NormAttr norm, StringRef name,
                  bool slots = false);
  void makeExpertInput();
  void adapt(Product &p, Value input, bool gathers, ArrayRef<Value> first,
             ArrayRef<Value> second, ArrayRef<StringRef> names);
  Value runExperts();
  Value runSharedExpert();
  void reduce(Value expertRows, Value shared);

  /// The numbers of tokens and of positions are known only at run time.
  static constexpr int64_t kTokens = ShapedType::kDynamic;
  static constexpr int64_t kPositions = ShapedType::kDynamic;

  LayerOp layer;
  ImplicitLocOpBuilder b;
  Type dtype;
  Value ids, weights;
  /// Weights of the slots' rows: with a softmax of the routed sum and the
  /// shared expert, `weights` times the share of the sum.
  Value slotWeights;
  /// The factor of the shared expert's rows; null if there is none.
  Value sharedGate;
  /// The ids in the type of the layer's record.
  Value recordedIds;
  Value offsets, position, source, rowWeight;
  /// Input of the routed experts: without and with the weight on it.
  Value latentInput, expertInput;
  /// Existing quantizations by input, quant and given scale: the hidden states
  /// feed two gemms.
  DenseMap<std::tuple<Value, QuantAttr, Value>, QuantizeOp> quantized;
};

Value sigmoid(ImplicitLocOpBuilder &b, Value x) {
  Value one = arith::ConstantOp::create(b, b.getF32FloatAttr(1.0f));
  Value exponential = math::ExpOp::create(b, arith::NegFOp::create(b, x));
  return arith::DivFOp::create(b, one,
                               arith::AddFOp::create(b, one, exponential));
}

/// x if `condition`, else 0, whatever x is.
Value zeroIf(ImplicitLocOpBuilder &b, Value condition, Value x) {
  Value zero = arith::ConstantOp::create(b, b.getF32FloatAttr(0.0f));
  Value isSet =
      arith::CmpFOp::create(b, arith::CmpFPredicate::ONE, condition, zero);
  return arith::SelectOp::create(b, isSet, zero, x);
}

/// An epilogue that returns its accumulator, without a region.
constexpr std::nullptr_t kNoEpilogue = nullptr;

Value LayerDecomposer::product(const Product &p, RankedTensorType type,
                               StringRef name, EpilogueBuilder epilogue) {
  auto op = GroupedMatmulOp::create(
      b, type, p.input, p.weight, p.inputScale, p.weightScale,
      p.weightZeroPoint, p.weightGlobalScale, p.offsets, p.source,
      p.numValidTokens, p.rows, p.columns, p.elementwise, p.shrunk, p.adapters,
      p.matrices, p.layout, p.inputQuant, p.weightQuant,
      /*strategy=*/StrategyAttr());
  setNames(op, name);
  if (!epilogue)
    return op.getResult();
  unsigned numAccumulators = p.layout ? 2 : 1;
  unsigned numArgs = numAccumulators + p.rows.size() +
                     p.columns.size() * numAccumulators + p.elementwise.size() +
                     p.matrices.size();
  OpBuilder::InsertionGuard guard(b);
  Block *block = b.createBlock(&op.getEpilogue(), {},
                               SmallVector<Type>(numArgs, b.getF32Type()),
                               SmallVector<Location>(numArgs, b.getLoc()));
  ValueRange rest = block->getArguments();
  auto take = [&](size_t count) {
    ValueRange head = rest.take_front(count);
    rest = rest.drop_front(count);
    return head;
  };
  EpilogueArgs args;
  args.accumulators = take(numAccumulators);
  args.rows = take(p.rows.size());
  args.columns = take(p.columns.size() * numAccumulators);
  args.elementwise = take(p.elementwise.size());
  args.updates = take(p.matrices.size());
  YieldOp::create(b, epilogue(b, args));
  return op.getResult();
}

Value LayerDecomposer::inlineActivation(Region &region,
                                        ImplicitLocOpBuilder &builder,
                                        ValueRange args) {
  Block &body = region.front();
  IRMapping mapping;
  mapping.map(body.getArguments(), args);
  for (Operation &op : body.without_terminator())
    builder.clone(op, mapping);
  return mapping.lookupOrDefault(
      cast<YieldOp>(body.getTerminator()).getValue());
}

/// The name of the tensor.
static StringRef getTensorName(Value tensor) {
  Operation *producer = tensor.getDefiningOp();
  StringRef name = producer ? getResultName(producer, 0) : StringRef();
  return name.empty() ? "hidden" : name;
}

/// The scale shared by all rows of `input`, which are positions with `offsets`.
Value LayerDecomposer::findTensorScale(Value input, QuantAttr quant,
                                       Value offsets) {
  auto op = TensorScaleOp::create(
      b, tensorOf({1}, b.getF32Type()), input, offsets,
      offsets ? Value() : layer.getNumValidTokens(),
      offsets ? Value() : layer.getIsPadding(),
      offsets ? b.getI64IntegerAttr(layer.getTopK()) : IntegerAttr(), quant);
  setNames(op, StringRef((getTensorName(input) + "_scale").str()));
  return op.getScale();
}

/// The form of a quantization whose one scale is an operand.
QuantAttr LayerDecomposer::getTensorQuant(QuantAttr quant) {
  return QuantAttr::get(quant.getContext(), quant.getStorage(),
                        quant.getScale(), Granularity::Tensor, /*block=*/{},
                        /*zero_point=*/false, /*dynamic=*/false, Packing::None,
                        /*second_scale=*/Type(), /*power_of_two=*/false,
                        /*minimum=*/false);
}

/// Makes the caller's quantized rows the rows of `p`.
void LayerDecomposer::setQuantizedInput(Product &p) {
  QuantAttr quant = p.quant.getActivation();
  p.input = layer.getHidden();
  p.inputScale = layer.getHiddenScale() ? layer.getHiddenScale()
                                        : layer.getW13InputScale();
  p.inputQuant = quant.getGranularity() == Granularity::Tensor
                     ? getTensorQuant(quant)
                     : quant;
  p.weightQuant = p.quant.getWeight();
}

/// Quantizes the rows of `input` by `quant`; with `tensorScale` if they share
/// one, static or dynamic.
QuantizeOp LayerDecomposer::quantize(Value input, QuantAttr quant,
                                     Value tensorScale, Value offsets) {
  auto type = cast<RankedTensorType>(input.getType());
  Type scaleType;
  SmallVector<std::string, 2> names{
      (getTensorName(input) + "_quantized").str()};
  if (tensorScale) {
    quant = getTensorQuant(quant);
  } else {
    scaleType = tensorOf(
        {type.getDimSize(0), getNumScaleColumns(quant, type.getDimSize(1))},
        quant.getScale());
    names.push_back((getTensorName(input) + "_scale").str());
  }
  auto op = QuantizeOp::create(
      b, type.clone(quant.getStorage()), scaleType, input, offsets, tensorScale,
      offsets ? b.getI64IntegerAttr(layer.getTopK()) : IntegerAttr(), quant);
  setNames(op, SmallVector<StringRef>(names.begin(), names.end()));
  return op;
}

/// Makes `input` the rows of `p`, whose weight and offsets are set. Quantizes
/// them if the gemm has an activation quant, with `givenScale` unless that is
/// null. Rows that a gemm with offsets reads in order are positions; those past
/// the last offset do not count. A scale shared by all rows is that of the
/// tokens' rows, which are `ofTokens` if `input` has them in another order.
void LayerDecomposer::setInput(Product &p, Value input, Value givenScale,
                               Value ofTokens) {
  p.input = input;
  if (!p.quant)
    return;
  p.weightQuant = p.quant.getWeight();
  QuantAttr quant = p.quant.getActivation();
  if (!quant)
    return;
  QuantizeOp &op = quantized[{input, quant, givenScale}];
  if (!op) {
    Value offsets = p.offsets && !p.source ? p.offsets : Value();
    Value scale = givenScale;
    if (!scale && quant.getGranularity() == Granularity::Tensor)
      scale = ofTokens ? findTensorScale(ofTokens, quant, /*offsets=*/Value())
                       : findTensorScale(input, quant, offsets);
    op = quantize(input, quant, scale, offsets);
  }
  p.input = op.getQuantized();
  p.inputScale = op.getScale() ? Value(op.getScale()) : op.getTensorScale();
  p.inputQuant = op.getQuantAttr();
}

/// The input of the router's last gemm.
Value LayerDecomposer::getRouterInput() {
  if (!layer.getGateHidden())
    return layer.getHidden();
  Product p(layer.getGateHidden());
  p.input = layer.getHidden();
  auto weight = cast<RankedTensorType>(p.weight.getType());
  return product(p, tensorOf({kTokens, weight.getDimSize(0)}, dtype),
                 "router_hidden",
                 [](ImplicitLocOpBuilder &b, const EpilogueArgs &args) {
                   return Value(math::TanhOp::create(b, args.accumulators[0]));
                 });
}

void LayerDecomposer::route() {
  if (layer.hasEntryIds()) {
    ids = layer.getTopkIds();
    weights = layer.getTopkWeights();
    return;
  }
  Value logits = layer.getRouterLogits();
  if (!logits) {
    Product p(layer.getGateWeight());
    p.input = getRouterInput();
    auto addBias = [](ImplicitLocOpBuilder &b,
                      const EpilogueArgs &args) -> Value {
      return arith::AddFOp::create(b, args.accumulators[0], args.columns[0]);
    };
    auto type = tensorOf({kTokens, layer.getNumRouted()}, b.getF32Type());
    if (Value bias = layer.getGateBias()) {
      p.columns.push_back(bias);
      logits = product(p, type, "router_logits", addBias);
    } else if (cast<RankedTensorType>(p.weight.getType()).getDimSize(0) !=
               layer.getNumRouted()) {
      // Two values per element, whose sum is the weight.
      p.layout = WeightLayoutAttr::get(b.getContext(), GateUpOrder::GateUp);
      logits = product(p, type, "router_logits",
                       [](ImplicitLocOpBuilder &b, const EpilogueArgs &args) {
                         return Value(arith::AddFOp::create(
                             b, args.accumulators[0], args.accumulators[1]));
                       });
    } else {
      logits = product(p, type, "router_logits", kNoEpilogue);
    }
  }
  int64_t topK = layer.getTopK();
  Type idsType = tensorOf({kTokens, topK}, b.getI32Type());
  // Ids of 32 bits are recorded as the other ops read them.
  Value recorded = layer.getRecordedIds();
  bool isNarrow = recorded && recorded.getType() != idsType;
  auto op = RouteOp::create(
      b, idsType, tensorOf({kTokens, topK}, b.getF32Type()),
      isNarrow ? recorded.getType() : Type(), logits, layer.getSelectionBias(),
      layer.getExpertScale(), layer.getInputIds(), layer.getHashTable(),
      layer.getNumValidTokens(), layer.getIsPadding(), layer.getTopkIds(),
      layer.getRoutingAttr());
  if (isNarrow)
    setNames(op, {kChosenIds, "topk_weights", "topk_ids"});
  else
    setNames(op,
             {layer.getTopkIds() ? kChosenIds : "topk_ids", "topk_weights"});
  recordedIds = isNarrow ? op.getRecordedIds() : op.getIds();
  IRMapping mapping;
  layer.getScore().cloneInto(&op.getScore(), mapping);
  layer.getKey().cloneInto(&op.getKey(), mapping);
  layer.getWeight().cloneInto(&op.getWeight(), mapping);
  ids = op.getIds();
  weights = op.getWeights();
}

/// Finds the factor of the shared expert's rows.
void LayerDecomposer::makeSharedGate() {
  Product p(layer.getSharedGate());
  p.input = layer.getHidden();
  if (Value bias = layer.getSharedGateBias())
    p.columns.push_back(bias);
  // The accumulators of the routed sum and of the shared expert are a pair.
  if (layer.hasSharedSoftmax())
    p.layout = WeightLayoutAttr::get(b.getContext(), GateUpOrder::GateUp);
  sharedGate =
      product(p, tensorOf({kTokens, 1}, b.getF32Type()), "shared_gate",
              [](ImplicitLocOpBuilder &b, const EpilogueArgs &args) {
                SmallVector<Value, 2> sums(args.accumulators);
                for (auto [sum, bias] : llvm::zip(sums, args.columns))
                  sum = arith::AddFOp::create(b, sum, bias);
                if (sums.size() == 2)
                  return sigmoid(b, arith::SubFOp::create(b, sums[1], sums[0]));
                return sigmoid(b, sums[0]);
              });
}

/// Multiplies the weights by the share of the experts' sum, if it has one.
void LayerDecomposer::weighSum() {
  slotWeights = weights;
  if (!layer.hasSharedSoftmax())
    return;
  makeSharedGate();
  auto op = RowMapOp::create(b, weights.getType(), weights,
                             /*num_valid_tokens=*/Value(), sharedGate,
                             /*elementwise_operands=*/ValueRange());
  setNames(op, {"routed_weights"});
  OpBuilder::InsertionGuard guard(b);
  Type f32 = b.getF32Type();
  Block *block =
      b.createBlock(&op.getBody(), {}, {f32, f32}, {b.getLoc(), b.getLoc()});
  Value one = arith::ConstantOp::create(b, b.getF32FloatAttr(1.0f));
  Value share = arith::SubFOp::create(b, one, block->getArgument(1));
  YieldOp::create(b, arith::MulFOp::create(b, block->getArgument(0), share));
  slotWeights = op.getResult();
}

void LayerDecomposer::permute() {
  DenseI64ArrayAttr local;
  if (PlacementAttr placement = layer.getPlacementAttr())
    local = b.getDenseI64ArrayAttr(placement.getLocal());
  Value placed = ids;
  int64_t numExperts = layer.getNumPhysicalExperts();
  // The router has excluded padding already.
  Value isPadding = layer.hasEntryIds() ? layer.getIsPadding() : Value();
  auto place = [&](Value table, Value counts, Value isPadding, StringRef name) {
    DenseI64ArrayAttr zeroExperts;
    if (auto number = static_cast<int64_t>(layer.getNumZeroExperts());
        counts && number > 0)
      zeroExperts = b.getDenseI64ArrayAttr(
          {static_cast<int64_t>(layer.getNumExperts()), number, numExperts});
    auto op = PlaceIdsOp::create(b, ids.getType(), placed, table, counts,
                                 /*num_valid_tokens=*/Value(), isPadding,
                                 zeroExperts);
    setNames(op, {name});
    placed = op.getResult();
  };
  // Padding is known for a rank's own rows; the replica of a token depends on
  // its row among those of all ranks.
  bool isSpread = layer.getMesh() && layer.getMesh()->getNumRanks() > 1;
  if (isPadding && (isSpread || !layer.getPhysicalIds())) {
    place(/*table=*/Value(), /*counts=*/Value(), isPadding, "placed_ids");
    isPadding = {};
  }
  if (layer.getPhysicalIds())
    place(layer.getPhysicalIds(), layer.getReplicaCounts(), isPadding,
          isSpread ? "physical_ids" : "placed_ids");
  if (Value table = layer.getLocalIds()) {
    place(table, /*counts=*/Value(), /*isPadding=*/Value(), "local_ids");
    numExperts = layer.getNumLocalExperts();
  }
  int64_t topK = layer.getTopK();
  auto op = PermuteOp::create(
      b, tensorOf({layer.getNumLocalExperts() + 1}, b.getI32Type()),
      tensorOf({kTokens, topK}, b.getI32Type()),
      tensorOf({kPositions}, b.getI32Type()),
      tensorOf({kPositions, 1}, b.getF32Type()), placed, slotWeights,
      layer.getNumValidTokens(), b.getI64IntegerAttr(numExperts),
      b.getI64IntegerAttr(layer.getNumZeroExperts()), local);
  setNames(op, {"expert_offsets", "position", "source", "row_weight"});
  offsets = op.getOffsets();
  position = op.getPosition();
  source = op.getSource();
  rowWeight = op.getRowWeight();
}

/// A norm of rows of tokens, or with `slots` of the experts' rows, which it
/// multiplies by their weights.
Value LayerDecomposer::normalize(Value input, Value weight, NormAttr norm,
                                 StringRef name, bool slots) {
  bool takesWeights = slots && weighsRows();
  auto op = RmsNormOp::create(
      b, input.getType(), input, weight, takesWeights ? rowWeight : Value(),
      slots ? offsets : Value(),
      slots ? b.getI64IntegerAttr(layer.getTopK()) : IntegerAttr(), norm);
  setNames(op, {name});
  return op.getResult();
}

void LayerDecomposer::makeExpertInput() {
  latentInput = layer.getHidden();
  if (layer.getLatentDown()) {
    Product p(layer.getLatentDown());
    p.input = layer.getHidden();
    latentInput = product(p, tensorOf({kTokens, layer.getExpertWidth()}, dtype),
                          "latent_in", kNoEpilogue);
  }
  if (Value weight = layer.getLatentInNorm())
    latentInput = normalize(latentInput, weight,
                            layer.getNorm("latent_in_norm"), "latent_in_norm");
  expertInput = latentInput;
  if (!layer.getWeightOnInput())
    return;
  auto op = RowMapOp::create(b, latentInput.getType(), latentInput,
                             /*num_valid_tokens=*/Value(), weights,
                             /*elementwise_operands=*/ValueRange());
  setNames(op, {"weighted_input"});
  OpBuilder::InsertionGuard guard(b);
  Type f32 = b.getF32Type();
  Block *block =
      b.createBlock(&op.getBody(), {}, {f32, f32}, {b.getLoc(), b.getLoc()});
  YieldOp::create(b, arith::MulFOp::create(b, block->getArgument(0),
                                           block->getArgument(1)));
  expertInput = op.getResult();
}

/// Makes `p` add what the adapters make of the rows `input`. `names` are those
/// of the shrunk rows and of their adapters.
void LayerDecomposer::adapt(Product &p, Value input, bool gathers,
                            ArrayRef<Value> first, ArrayRef<Value> second,
                            ArrayRef<StringRef> names) {
  int64_t rank = cast<RankedTensorType>(first.front().getType()).getDimSize(2);
  auto op = LoraShrinkOp::create(
      b, tensorOf({kPositions, rank * int64_t(first.size())}, b.getF32Type()),
      tensorOf({kPositions, 1}, b.getI32Type()), input, first, offsets, source,
      layer.getAdapterIds(), gathers, static_cast<uint64_t>(layer.getTopK()));
  setNames(op, names);
  p.shrunk = op.getResult();
  p.adapters = op.getAdapter();
  p.matrices.append(second.begin(), second.end());
}

/// The sums of a gemm with their biases and LoRA updates.
static SmallVector<Value, 2> addAll(ImplicitLocOpBuilder &b,
                                    const EpilogueArgs &args) {
  SmallVector<Value, 2> sums(args.accumulators);
  for (ValueRange addends : {args.columns, args.updates})
    for (auto [sum, addend] : llvm::zip(sums, addends))
      sum = arith::AddFOp::create(b, sum, addend);
  return sums;
}

Value LayerDecomposer::runExperts() {
  Product first(layer.getW13(), layer.getProductQuant("w13"),
                layer.getW13Scale(), layer.getW13ZeroPoint(),
                layer.getW13GlobalScale());
  first.offsets = offsets;
  Value input = expertInput;
  if (Value columns = layer.getW13Columns()) {
    auto ordered = GatherRowsOp::create(
        b, tensorOf({kPositions, layer.getExpertWidth()}, dtype), input,
        offsets, source, columns, b.getI64IntegerAttr(layer.getTopK()));
    setNames(ordered, {"ordered_input"});
    input = ordered.getResult();
  } else {
    first.source = source;
  }
  if (layer.isInputQuantized())
    setQuantizedInput(first);
  else
    setInput(first, input, layer.getW13InputScale(), expertInput);
  first.layout = layer.getLayoutAttr();
  if (layer.getW13Bias())
    first.columns.push_back(layer.getW13Bias());
  if (layer.getAdapterIds()) {
    SmallVector<Value, 2> a{layer.getLoraUpA()}, second{layer.getLoraUpB()};
    if (layer.isGated()) {
      a.insert(a.begin(), layer.getLoraGateA());
      second.insert(second.begin(), layer.getLoraGateB());
    }
    adapt(first, expertInput, /*gathers=*/true, a, second,
          {"lora_in", "lora_in_adapter"});
  }
  Value hidden = product(
      first, tensorOf({kPositions, layer.getIntermediateSize()}, dtype),
      "experts_hidden",
      [&](ImplicitLocOpBuilder &b, const EpilogueArgs &args) -> Value {
        return inlineActivation(layer.getActivation(), b, addAll(b, args));
      });

  Product second(layer.getW2(), layer.getProductQuant("w2"), layer.getW2Scale(),
                 layer.getW2ZeroPoint(), layer.getW2GlobalScale());
  second.offsets = offsets;
  setInput(second, hidden, layer.getW2InputScale());
  if (weighsRows() && !layer.getExpertsNorm())
    second.rows.push_back(rowWeight);
  if (layer.getW2Bias())
    second.columns.push_back(layer.getW2Bias());
  if (layer.getAdapterIds())
    adapt(second, hidden, /*gathers=*/false, {layer.getLoraDownA()},
          {layer.getLoraDownB()}, {"lora_hidden", "lora_hidden_adapter"});
  auto finish = [](ImplicitLocOpBuilder &b, const EpilogueArgs &args) -> Value {
    Value y = addAll(b, args).front();
    if (!args.rows.empty())
      y = arith::MulFOp::create(b, y, args.rows[0]);
    return y;
  };
  auto type = tensorOf({kPositions, layer.getExpertWidth()}, dtype);
  Value out =
      second.rows.empty() && second.columns.empty() && second.matrices.empty()
          ? product(second, type, "experts_out", kNoEpilogue)
          : product(second, type, "experts_out", finish);
  if (Value weight = layer.getExpertsNorm())
    out = normalize(out, weight, layer.getNorm("experts_norm"), "experts_norm",
                    /*slots=*/true);
  return out;
}

Value LayerDecomposer::runSharedExpert() {
  if (!layer.getSharedW13())
    return {};
  if (layer.getSharedGate() && !sharedGate)
    makeSharedGate();
  Value gate = sharedGate;
  int64_t sharedSize =
      cast<RankedTensorType>(layer.getSharedW13().getType()).getDimSize(0) /
      (layer.isGated() ? 2 : 1);
  Product first(layer.getSharedW13(), layer.getProductQuant("shared_w13"),
                layer.getSharedW13Scale(), layer.getSharedW13ZeroPoint(),
                layer.getSharedW13GlobalScale());
  Value input = layer.getHidden();
  if (Value columns = layer.getSharedW13Columns()) {
    auto ordered = GatherRowsOp::create(b, input.getType(), input,
                                        /*offsets=*/Value(), /*source=*/Value(),
                                        columns, /*top_k=*/IntegerAttr());
    setNames(ordered, {"shared_input"});
    input = ordered.getResult();
  }
  setInput(first, input, layer.getSharedW13InputScale(), layer.getHidden());
  first.layout = layer.getLayoutAttr();
  if (layer.getSharedW13Bias())
    first.columns.push_back(layer.getSharedW13Bias());
  Region &activation = layer.getSharedActivation().empty()
                           ? layer.getActivation()
                           : layer.getSharedActivation();
  Value hidden =
      product(first, tensorOf({kTokens, sharedSize}, dtype), "shared_hidden",
              [&](ImplicitLocOpBuilder &b, const EpilogueArgs &args) {
                return inlineActivation(activation, b, addAll(b, args));
              });
  Product second(layer.getSharedW2(), layer.getProductQuant("shared_w2"),
                 layer.getSharedW2Scale(), layer.getSharedW2ZeroPoint(),
                 layer.getSharedW2GlobalScale());
  setInput(second, hidden, layer.getSharedW2InputScale());
  auto type = tensorOf({kTokens, layer.getHiddenSize()}, dtype);
  FloatAttr scale = layer.getSharedScaleAttr();
  // With a latent width the last gemm excludes padding.
  Value isPadding = layer.getLatentUp() ? Value() : layer.getIsPadding();
  if (Value bias = layer.getSharedW2Bias())
    second.columns.push_back(bias);
  if (!gate && !scale && !isPadding && second.columns.empty())
    return product(second, type, "shared_out", kNoEpilogue);
  if (gate)
    second.rows.push_back(gate);
  if (isPadding)
    second.rows.push_back(isPadding);
  return product(
      second, type, "shared_out",
      [&](ImplicitLocOpBuilder &b, const EpilogueArgs &args) -> Value {
        Value out = addAll(b, args).front();
        if (gate)
          out = arith::MulFOp::create(b, out, args.rows[0]);
        if (scale)
          out = arith::MulFOp::create(b, out,
                                      arith::ConstantOp::create(b, scale));
        return isPadding ? zeroIf(b, args.rows.back(), out) : out;
      });
}

void LayerDecomposer::reduce(Value expertRows, Value shared) {
  bool latent = static_cast<bool>(layer.getLatentUp());
  bool hasZeroExperts = layer.getNumZeroExperts() > 0;
  bool isUnreduced = layer.getUnreduced();
  int64_t width = layer.getExpertWidth();
  auto sum = UnpermuteOp::create(
      b,
      tensorOf({kTokens, isUnreduced ? layer.getTopK() * width : width}, dtype),
      expertRows, position, hasZeroExperts ? latentInput : Value(),
      hasZeroExperts ? slotWeights : Value(),
      latent   ? Value()
      : shared ? shared
               : layer.getOutputBias(),
      // Slots of invalid rows have no position.
      isUnreduced ? Value() : layer.getNumValidTokens(), isUnreduced,
      /*from_unreduced=*/false);
  setNames(sum, {latent ? "routed_out" : "output"});
  Value output = sum.getResult();
  if (latent) {
    if (Value weight = layer.getLatentOutNorm())
      output = normalize(output, weight, layer.getNorm("latent_out_norm"),
                         "latent_out_norm");
    Product p(layer.getLatentUp());
    p.input = output;
    p.numValidTokens = layer.getNumValidTokens();
    auto type = cast<RankedTensorType>(layer.getOutput().getType());
    auto finish = [](ImplicitLocOpBuilder &b,
                     const EpilogueArgs &args) -> Value {
      Value sum = args.accumulators[0];
      if (!args.elementwise.empty())
        sum = arith::AddFOp::create(b, sum, args.elementwise[0]);
      return args.rows.empty() ? sum : zeroIf(b, args.rows[0], sum);
    };
    if (shared)
      p.elementwise.push_back(shared);
    if (Value isPadding = layer.getIsPadding())
      p.rows.push_back(isPadding);
    if (shared || !p.rows.empty())
      output = product(p, type, "output", finish);
    else
      output = product(p, type, "output", kNoEpilogue);
  }
  layer.getOutput().replaceAllUsesWith(output);
}

void LayerDecomposer::run() {
  route();
  weighSum();
  permute();
  makeExpertInput();
  Value rows = runExperts();
  Value shared = runSharedExpert();
  reduce(rows, shared);
  if (Value recorded = layer.getRecordedIds()) {
    recorded.replaceAllUsesWith(recordedIds);
    layer.getRecordedWeights().replaceAllUsesWith(weights);
  }
  if (Value load = layer.getExpertOffsets())
    load.replaceAllUsesWith(offsets);
  layer.erase();
}

struct MoeDecompose : moec::impl::MoeDecomposePassBase<MoeDecompose> {
  void runOnOperation() override {
    func::FuncOp func = getOperation();
    SmallVector<LayerOp> layers;
    func.walk([&](LayerOp layer) { layers.push_back(layer); });
    for (LayerOp layer : layers) {
      if (failed(checkStorage(layer)) || failed(checkMaxTokens(func, layer)) ||
          failed(checkMesh(func, layer)))
        return signalPassFailure();
      resolveParams(layer);
      LayerDecomposer(layer).run();
    }
  }

  /// The mesh becomes a property of the whole function, too.
  static LogicalResult checkMesh(func::FuncOp func, LayerOp layer) {
    auto before = func->getAttrOfType<MeshAttr>(kMeshAttr);
    if (before && before != layer.getMeshAttr())
      return layer.emitOpError("does not have the mesh ")
             << before << " of function @" << func.getName()
             << "; give all its layers the same mesh";
    if (layer.getMeshAttr())
      func->setAttr(kMeshAttr, layer.getMeshAttr());
    return success();
  }

  /// The bound and batch invariance become properties of the whole function.
  static LogicalResult checkMaxTokens(func::FuncOp func, LayerOp layer) {
    auto before = func->getAttrOfType<IntegerAttr>(kMaxTokensAttr);
    if (before && before != layer.getMaxTokensAttr())
      return layer.emitOpError("has max_tokens = ")
             << layer.getMaxTokens() << ", but function @" << func.getName()
             << " is bounded by " << before.getInt()
             << " tokens; give all its layers the same bound";
    func->setAttr(kMaxTokensAttr, layer.getMaxTokensAttr());
    if (layer.getBatchInvariant())
      func->setAttr(kBatchInvariantAttr, UnitAttr::get(func.getContext()));
    return success();
  }
};

} // namespace
