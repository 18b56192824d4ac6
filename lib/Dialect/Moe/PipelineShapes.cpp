//===- PipelineShapes.cpp - operand rules of the pipeline ops ---*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/Dialect/Moe/PipelineShapes.h"

#include "moec/Dialect/Moe/PrepackedFormat.h"
#include "moec/Dialect/Moe/Prepacking.h"
#include "moec/Dialect/Moe/QuantLayout.h"
#include "moec/Dialect/Moe/ScalarRegion.h"
#include "moec/Support/IdTypes.h"
#include "llvm/Support/MathExtras.h"

#include <limits>

using namespace mlir;

namespace moec::moe {

//===----------------------------------------------------------------------===//
// Routing
//===----------------------------------------------------------------------===//

/// Whether the groups of the attribute fit `numRouted` experts.
static LogicalResult verifyGroups(const OperandChecker &check,
                                  RoutingAttr routing, int64_t numRouted) {
  int64_t topK = routing.getTopK(), numGroups = routing.getNumGroups();
  if (topK > numRouted)
    return check.error("'top_k' is ") << topK << ", but there are only "
                                      << numRouted << " experts to choose from";
  if (numGroups == 1)
    return success();
  if (numRouted % numGroups != 0)
    return check.error("'num_groups' is ")
           << numGroups << ", which must divide the number of experts, "
           << numRouted;
  int64_t groupSize = numRouted / numGroups;
  int64_t candidates = routing.getTopkGroups() * groupSize;
  if (routing.getSelect() != Select::TopK)
    return success();
  if (topK > candidates)
    return check.error("'top_k' is ")
           << topK << ", but the selected groups ('topk_groups' = "
           << routing.getTopkGroups() << ") have only " << candidates
           << " experts";
  if (routing.getGroupScore() == GroupScore::Top2Sum && groupSize < 2)
    return check.error("'group_score' is 'top2_sum', but groups have only 1 "
                       "expert; write 'max' or fewer groups");
  return success();
}

LogicalResult verifyRoutingOperands(const OperandChecker &check,
                                    RoutingAttr routing, int64_t numRouted,
                                    Value selectionBias, Value expertScale,
                                    Value inputIds, Value hashTable,
                                    Region &score, Region &key,
                                    Region &weight) {
  if (failed(verifyGroups(check, routing, numRouted)))
    return failure();
  StringRef select = stringifySelect(routing.getSelect());
  bool isHash = routing.getSelect() == Select::Hash;
  bool isMixer = routing.getSelect() == Select::SparseMixer;
  if (isHash != bool(inputIds) || isHash != bool(hashTable))
    return check.error(
        isHash ? "needs 'input_ids' and 'hash_table' with select 'hash'"
               : "takes 'input_ids' and 'hash_table' with select 'hash' only");
  if (selectionBias && (isHash || isMixer))
    return check.error("takes no 'selection_bias' with select '")
           << select << "', which compares no keys";
  if (isMixer && (!score.empty() || !weight.empty()))
    return check.error("takes no region 'score' or 'weight' with select "
                       "'sparsemixer', which defines the weights itself");
  if (!key.empty() && (isHash || isMixer))
    return check.error("takes no region 'key' with select '")
           << select << "', which compares no keys";
  Dim experts{"num_routed", numRouted};
  if (failed(check.checkShape("selection_bias", selectionBias, {experts})) ||
      failed(check.checkShape("expert_scale", expertScale, {experts})) ||
      failed(check.checkShape("input_ids", inputIds, {tokensDim()})) ||
      failed(check.checkShape("hash_table", hashTable,
                              {{"vocabulary"}, {"top_k", routing.getTopK()}})))
    return failure();
  return success();
}

LogicalResult verifyKeyArguments(Operation *op, Region &key,
                                 Value selectionBias) {
  if (key.empty())
    return success();
  SmallVector<std::string> arguments{"score"};
  if (selectionBias)
    arguments.push_back("selection_bias");
  return verifyScalarArguments(op, key, "key", arguments);
}

LogicalResult verifyRoutedIds(OperandChecker &check, RoutingAttr routing,
                              int64_t numRouted, bool hasPadding, Value given,
                              Value recorded) {
  Select select = routing.getSelect();
  if (given && (select == Select::Hash || select == Select::SparseMixer))
    return check.error("takes no ids to replay with select '")
           << stringifySelect(select)
           << (select == Select::Hash
                   ? "', whose table gives the same ids again"
                   : "', whose weights follow from its own selection");
  for (Value ids : {given, recorded}) {
    if (!ids)
      continue;
    // Rows of padding are not replayed.
    bool hasNone = ids == recorded && (hasPadding || select == Select::Hash);
    Type type = getElementTypeOrSelf(ids.getType());
    int64_t most = getMostRouted(type.getIntOrFloatBitWidth(), hasNone);
    if (numRouted > most)
      return check.error("has ids of ")
             << type << ", which can name " << most << " experts"
             << (hasNone ? " beside -1" : "") << ", and routes to " << numRouted
             << "; give ids of more bits";
  }
  return success();
}

LogicalResult verifyRoute(Operation *op, const RouteOperands &o) {
  OperandChecker check(op);
  if (failed(
          check.checkShape("logits", o.logits, {tokensDim(), {"num_routed"}})))
    return failure();
  Dim topK{"top_k", o.routing.getTopK()};
  if (failed(verifyRoutingOperands(check, o.routing, getDim(o.logits, 1),
                                   o.selectionBias, o.expertScale, o.inputIds,
                                   o.hashTable, o.score, o.key, o.weight)) ||
      failed(check.checkNumValidTokens(o.numValidTokens)) ||
      failed(check.checkShape("is_padding", o.isPadding, {tokensDim()})) ||
      failed(check.checkShape("ids", o.ids, {tokensDim(), topK})) ||
      failed(check.checkShape("weights", o.weights, {tokensDim(), topK})) ||
      failed(check.checkShape("given", o.givenIds, {tokensDim(), topK})) ||
      failed(check.checkShape("record", o.recordedIds, {tokensDim(), topK})) ||
      failed(verifyRoutedIds(check, o.routing, getDim(o.logits, 1),
                             o.numValidTokens || o.isPadding, o.givenIds,
                             o.recordedIds)))
    return failure();
  if (!o.score.empty() &&
      failed(verifyScalarArguments(op, o.score, "score", {"logit"})))
    return failure();
  if (failed(verifyKeyArguments(op, o.key, o.selectionBias)))
    return failure();
  if (!o.weight.empty() &&
      failed(verifyScalarArguments(op, o.weight, "weight", {"score"})))
    return failure();
  return success();
}

//===----------------------------------------------------------------------===//
// Permutation
//===----------------------------------------------------------------------===//

LogicalResult verifyNumExperts(function_ref<InFlightDiagnostic()> emitError,
                               int64_t numExperts, int64_t numZeroExperts) {
  constexpr int64_t max = std::numeric_limits<int32_t>::max();
  if (numExperts < 1 || numExperts > max)
    return emitError() << "'num_experts' is " << numExperts << "; 1 to " << max
                       << " is accepted";
  if (numZeroExperts < 0 || numZeroExperts > max - numExperts)
    return emitError() << "'num_zero_experts' is " << numZeroExperts
                       << "; 0 to " << max - numExperts
                       << " is accepted, so that ids fit 32 bits";
  return success();
}

LogicalResult verifyLocalExperts(function_ref<InFlightDiagnostic()> emitError,
                                 int64_t numExperts, ArrayRef<int64_t> local) {
  if (local.empty())
    return emitError() << "local experts must name at least one expert";
  llvm::SmallDenseSet<int64_t, 16> seen;
  for (int64_t id : local) {
    if (id < 0 || id >= numExperts)
      return emitError() << "local expert " << id
                         << " is out of range; ids are 0 to " << numExperts - 1;
    if (!seen.insert(id).second)
      return emitError() << "local expert " << id
                         << " is named twice; name each expert once";
  }
  return success();
}

LogicalResult verifyPermute(Operation *op, const PermuteOperands &o) {
  OperandChecker check(op);
  auto emitError = [&] { return op->emitOpError(); };
  if (failed(verifyNumExperts(emitError, o.numExperts, o.numZeroExperts)))
    return failure();
  int64_t numLocal = o.numExperts;
  if (o.localExperts) {
    if (failed(verifyLocalExperts(emitError, o.numExperts, *o.localExperts)))
      return failure();
    numLocal = o.localExperts->size();
  }
  if (failed(check.checkShape("ids", o.ids, {tokensDim(), {"top_k"}})))
    return failure();
  Dim topK{"top_k", getDim(o.ids, 1)};
  if (failed(check.checkShape("weights", o.weights, {tokensDim(), topK})) ||
      failed(check.checkNumValidTokens(o.numValidTokens)) ||
      failed(check.checkShape("offsets", o.offsets,
                              {{"(local experts + 1)", numLocal + 1}})) ||
      failed(check.checkShape("position", o.position, {tokensDim(), topK})) ||
      failed(check.checkShape("source", o.source, {positionsDim()})) ||
      failed(check.checkShape("row_weight", o.rowWeight,
                              {positionsDim(), {"1", 1}})))
    return failure();
  return success();
}

/// A row for each token, or one for all.
static LogicalResult checkAddend(OperandChecker &check, Value addend,
                                 Dim width) {
  if (addend && cast<ShapedType>(addend.getType()).getRank() == 1)
    return check.checkShape("addend", addend, {width});
  return check.checkShape("addend", addend, {tokensDim(), width});
}

LogicalResult verifyUnpermute(Operation *op, const UnpermuteOperands &o) {
  OperandChecker check(op);
  if (bool(o.identity) != bool(o.identityWeights))
    return check.error("takes 'identity' and 'identity_weights' together");
  if (o.unreduced && (o.fromUnreduced || o.identity || o.addend))
    return check.error("adds nothing with 'unreduced', so it takes neither "
                       "'from_unreduced' nor 'identity' nor 'addend'");
  if (failed(check.checkShape(
          "rows", o.rows,
          {o.fromUnreduced ? tokensDim() : positionsDim(), {"width"}})) ||
      failed(
          check.checkShape("position", o.position, {tokensDim(), {"top_k"}})) ||
      failed(check.checkShape("result", o.result, {tokensDim(), {"width"}})))
    return failure();
  Dim topK{"top_k", getDim(o.position, 1)};
  Dim width{"width", getDim(o.fromUnreduced ? o.result : o.rows, 1)};
  Dim slots{"top_k * width", topK.size * width.size};
  if (o.fromUnreduced &&
      failed(check.checkShape("rows", o.rows, {tokensDim(), slots})))
    return failure();
  if (o.unreduced)
    width = slots;
  if (failed(check.checkShape("identity", o.identity, {tokensDim(), width})) ||
      failed(check.checkShape("identity_weights", o.identityWeights,
                              {tokensDim(), topK})) ||
      failed(checkAddend(check, o.addend, width)) ||
      failed(check.checkNumValidTokens(o.numValidTokens)) ||
      failed(check.checkShape("result", o.result, {tokensDim(), width})))
    return failure();
  Type element = getElementType(o.rows);
  StringRef why = "like 'rows'";
  if (failed(check.checkElement("identity", o.identity, element, why)) ||
      failed(check.checkElement("addend", o.addend, element, why)) ||
      failed(check.checkElement("result", o.result, element, why)))
    return failure();
  return success();
}

//===----------------------------------------------------------------------===//
// Products and maps
//===----------------------------------------------------------------------===//

/// Names of an epilogue's arguments, in order.
static SmallVector<std::string> getEpilogueArguments(const MatmulOperands &o) {
  SmallVector<std::string> names;
  auto add = [&](const std::string &name) {
    if (o.isPaired()) {
      names.push_back(name + ".gate");
      names.push_back(name + ".up");
    } else {
      names.push_back(name);
    }
  };
  add("acc");
  for (size_t i = 0; i < o.rows.size(); ++i)
    names.push_back(nameOf("rows", i));
  for (size_t i = 0; i < o.columns.size(); ++i)
    add(nameOf("columns", i));
  for (size_t i = 0; i < o.elementwise.size(); ++i)
    names.push_back(nameOf("elementwise", i));
  for (size_t i = 0; i < o.matrices.size(); ++i)
    names.push_back(nameOf("b", i));
  return names;
}

static LogicalResult verifyEpilogue(const OperandChecker &check, Operation *op,
                                    const MatmulOperands &o) {
  if (!o.epilogue.empty())
    return verifyScalarArguments(op, o.epilogue, "epilogue",
                                 getEpilogueArguments(o));
  if (o.isPaired())
    return check.error("has a 'layout', hence two accumulators; add an "
                       "epilogue that combines them into one value");
  if (!o.rows.empty() || !o.columns.empty() || !o.elementwise.empty() ||
      !o.matrices.empty())
    return check.error("has operands 'rows', 'columns', 'elementwise' or 'b', "
                       "but no epilogue that reads them; add one");
  return success();
}

/// Verifies one operand of a gemm: its element type and the shape of its scales
/// against its quant.
static LogicalResult verifyQuantized(const OperandChecker &check,
                                     StringRef name, Value operand,
                                     QuantAttr quant, Value scale,
                                     ArrayRef<Dim> scaleShape) {
  Type element = getElementType(operand);
  bool isStored = !isa<Float32Type, BFloat16Type, Float16Type>(element);
  std::string attribute = (name + "_quant").str();
  if (!quant) {
    if (scale)
      return check.error(
          "takes '" + name + "_scale' with '" + attribute +
          "' only, which describes the scales; add it, or remove the scales");
    if (isStored)
      return check.error("has '" + name + "' of ")
             << element << ", which needs '" << attribute << "'; add "
             << attribute << " = #moe.quant<...> and the scales";
    return success();
  }
  if (getMemoryType(quant) != element)
    return check.error("has '" + attribute + "' that stores ")
           << getMemoryType(quant) << ", but '" << name << "' has elements of "
           << element;
  if (!scale)
    return check.error("has '" + attribute + "'; give '" + name +
                       "_scale' too");
  std::string scaleName = (name + "_scale").str();
  Type scaleType =
      isPrepacked(quant.getPacking()) ? getMemoryType(quant) : quant.getScale();
  return failure(
      failed(check.checkElement(scaleName, scale, scaleType,
                                "as required by '" + attribute + "'")) ||
      failed(check.checkShape(scaleName, scale, scaleShape)));
}

/// Verifies an input that the gemm quantizes. One scale of all rows is given;
/// others are computed.
static LogicalResult verifyQuantizedByGemm(const OperandChecker &check,
                                           const MatmulOperands &o,
                                           ArrayRef<Dim> scaleShape) {
  constexpr StringLiteral name = "quantizes_input";
  if (Type element = getElementType(o.input);
      !isa<BFloat16Type, Float16Type>(element))
    return check.error("has '" + name + "' and 'input' of ")
           << element << "; make the input bf16 or f16";
  bool isGiven =
      o.inputQuant && o.inputQuant.getGranularity() == Granularity::Tensor;
  if (!o.inputQuant || areKeptAsBF16(o.inputQuant) ||
      (!isGiven && !o.inputQuant.getDynamic()))
    return check.error("has '" + name +
                       "'; give an 'input_quant' of granularity 'tensor', or a "
                       "dynamic one, without 'packing'");
  if (isGiven != bool(o.inputScale))
    return check.error("takes '" + name +
                       "' with 'input_scale' if and only if 'input_quant' has "
                       "one scale for all rows; the gemm computes others");
  return check.checkShape("input_scale", o.inputScale, scaleShape);
}

static LogicalResult verifyQuantization(const OperandChecker &check,
                                        const MatmulOperands &o,
                                        ArrayRef<Dim> group) {
  int64_t k = getDim(o.input, 1), n = getDim(o.weight, group.size());
  bool hasPrepackedLayout =
      o.weightQuant && isPrepacked(o.weightQuant.getPacking());
  SmallVector<Dim> input, weight, globalScale;
  if (o.strategy && !o.inputQuant && !o.weightQuant)
    return check.error("has 'strategy' without quantized operands; remove it");
  if (o.inputQuant && areTimesScales(o.inputQuant))
    return check.error("has 'input_quant' with 'packing = bf16' in groups, "
                       "whose values include their scales already; remove it");
  if (o.inputQuant) {
    switch (o.inputQuant.getGranularity()) {
    case Granularity::Channel:
    case Granularity::Block:
      return check.error("has 'input_quant' of granularity '")
             << stringifyGranularity(o.inputQuant.getGranularity())
             << "'; give 'group', 'token' or 'tensor'";
    case Granularity::Tensor:
      input = {{"1", 1}};
      break;
    case Granularity::Token:
    case Granularity::Group:
      bool readsPositions = o.offsets && !o.source;
      input = {readsPositions ? positionsDim() : tokensDim(),
               {"(scales of a row)", getNumScaleColumns(o.inputQuant, k)}};
      break;
    }
  }
  if (o.weightQuant) {
    if (o.weightQuant.getDynamic())
      return check.error("has a dynamic 'weight_quant', but weights are "
                         "quantized in advance; remove 'dynamic'");
    if (areKeptAsBF16(o.weightQuant))
      return check.error("has 'weight_quant' with 'packing = bf16', which only "
                         "inputs may have; remove it");
    if (hasPrepackedLayout) {
      Type element = getElementType(o.input);
      Packing packing = o.weightQuant.getPacking();
      if (getPrepacking(element) != packing)
        return check.error("has 'weight_quant' in 'packing = ")
               << stringifyPacking(packing)
               << "', which is prepacked for inputs of "
               << (packing == Packing::PrepackedF16    ? "f16"
                   : packing == Packing::PrepackedE4M3 ? "f8E4M3FN"
                                                       : "bf16")
               << ", but 'input' has elements of " << element;
    }
    weight = SmallVector<Dim>(group);
    if (hasPrepackedLayout)
      weight.append({{"n", n},
                     {"(bytes of a row's scales)",
                      PrepackedFormat(o.weightQuant).getRowBytes(k)}});
    else
      weight.append(
          {{"(scales along n)", getNumScaleRows(o.weightQuant, n, o.layout)},
           {"(scales along k)", getNumScaleColumns(o.weightQuant, k)}});
    globalScale = SmallVector<Dim>(group);
    globalScale.push_back({"(scales of a matrix)",
                           getNumSecondScales(o.weightQuant, n, o.layout)});
  }
  auto checkPart = [&](StringRef name, Value value, bool isNeeded,
                       ArrayRef<Dim> dims) -> LogicalResult {
    if (bool(value) != isNeeded)
      return check.error("takes '")
             << name << "' if and only if 'weight_quant' requires it";
    return check.checkShape(name, value, dims);
  };
  bool hasZeroPoint =
      o.weightQuant && hasZeros(o.weightQuant) && !hasPrepackedLayout;
  bool hasGlobalScale = o.weightQuant && o.weightQuant.getSecondScale();
  if (failed(checkPart("weight_zero_point", o.weightZeroPoint, hasZeroPoint,
                       weight)) ||
      failed(checkPart("weight_global_scale", o.weightGlobalScale,
                       hasGlobalScale, globalScale)) ||
      (hasZeroPoint &&
       failed(check.checkElement("weight_zero_point", o.weightZeroPoint,
                                 getZeroType(o.weightQuant),
                                 "as required by 'weight_quant'"))))
    return failure();
  LogicalResult isInputValid =
      o.quantizesInput ? verifyQuantizedByGemm(check, o, input)
                       : verifyQuantized(check, "input", o.input, o.inputQuant,
                                         o.inputScale, input);
  return failure(failed(isInputValid) ||
                 failed(verifyQuantized(check, "weight", o.weight,
                                        o.weightQuant, o.weightScale, weight)));
}

LogicalResult verifyMatmul(Operation *op, const MatmulOperands &o) {
  OperandChecker check(op);
  bool isGrouped = bool(o.offsets);
  if (!isGrouped && o.source)
    return check.error("takes 'source' with 'offsets' only; a dense gemm reads "
                       "its rows in order");
  if (isGrouped && o.numValidTokens)
    return check.error("takes 'num_valid_tokens' without 'offsets' only; "
                       "offsets already cover only valid rows");

  SmallVector<Dim> group, weight;
  if (isGrouped) {
    if (failed(check.checkShape("offsets", o.offsets, {{"(groups + 1)"}})))
      return failure();
    if (getDim(o.offsets, 0) < 2)
      return check.error("'offsets' must have at least 2 entries: the begin "
                         "and the end of one group");
    group.push_back({"groups", getDim(o.offsets, 0) - 1});
  }
  StringRef rowsMeaning = isGrouped && !o.source ? "positions" : "tokens";
  if (failed(check.checkShape("input", o.input,
                              {{rowsMeaning, Dim::kRunTime}, {"k"}})))
    return failure();
  weight = group;
  weight.append(
      {{"n"}, {"k", getRowLength(o.weightQuant, getDim(o.input, 1))}});
  if (failed(
          check.checkShape("weight", o.weight, weight, /*mayHaveGaps=*/true)) ||
      failed(check.checkShape("source", o.source, {positionsDim()})) ||
      failed(check.checkNumValidTokens(o.numValidTokens)))
    return failure();

  int64_t n = getDim(o.weight, group.size());
  if (o.isPaired() && n % 2 != 0)
    return check.error("has a 'layout', so the rows of 'weight' must be pairs "
                       "(gate, up), but there are ")
           << n;
  if (failed(verifyQuantization(check, o, group)))
    return failure();
  // Quantized operands are dequantized; others have equal types.
  if (!o.inputQuant && !o.weightQuant &&
      failed(check.checkElement("weight", o.weight, getElementType(o.input),
                                "like 'input'")))
    return failure();
  Dim row = isGrouped ? positionsDim() : tokensDim();
  Dim resultColumns{o.isPaired() ? "(n / 2)" : "n", o.isPaired() ? n / 2 : n};
  if (failed(check.checkShape("result", o.result, {row, resultColumns})))
    return failure();
  for (auto [i, value] : llvm::enumerate(o.rows)) {
    SmallVector<Dim> shape{row};
    if (!getElementType(value).isInteger())
      shape.push_back({"1", 1});
    if (failed(check.checkShape(nameOf("rows", i), value, shape)))
      return failure();
  }
  SmallVector<Dim> column = group;
  column.push_back({"n", n});
  for (auto [i, value] : llvm::enumerate(o.columns))
    if (failed(check.checkShape(nameOf("columns", i), value, column)))
      return failure();
  for (auto [i, value] : llvm::enumerate(o.elementwise))
    if (failed(check.checkShape(nameOf("elementwise", i), value,
                                {row, resultColumns})))
      return failure();
  if (failed(verifyLoraExpand(op, o, isGrouped ? group.front().size : 0,
                              resultColumns.size)))
    return failure();
  return verifyEpilogue(check, op, o);
}

LogicalResult verifyPlaceIds(Operation *op, const PlaceIdsOperands &o) {
  OperandChecker check(op);
  if (failed(check.checkShape("ids", o.ids, {tokensDim(), {"top_k"}})) ||
      failed(check.checkShape("result", o.result,
                              {tokensDim(), {"top_k", getDim(o.ids, 1)}})))
    return failure();
  if (!o.table && !o.numValidTokens && !o.isPadding && !o.zeroExperts)
    return op->emitOpError("changes nothing; give a 'table', "
                           "'num_valid_tokens', 'is_padding' or "
                           "'zero_experts'");
  if (o.zeroExperts) {
    if (o.table && !o.replicaCounts)
      return op->emitOpError(
          "has 'zero_experts', which turns the result into positions, and a "
          "'table', which gives ids; give one of them");
    ArrayRef<int64_t> numbers = *o.zeroExperts;
    size_t expected = o.table ? 3 : 2;
    if (numbers.size() != expected)
      return op->emitOpError("has ")
             << numbers.size()
             << " numbers in 'zero_experts'; give the numbers of experts"
             << (o.table ? ", zero experts and physical experts"
                         : " and zero experts");
    auto emitError = [&] { return op->emitOpError(); };
    if (failed(verifyNumExperts(emitError, numbers.front(), numbers[1])) ||
        (o.table &&
         failed(verifyNumExperts(emitError, numbers.back(), numbers[1]))))
      return failure();
    if (o.table && numbers.front() != getDim(o.table, 0))
      return op->emitOpError("has 'zero_experts' behind ")
             << numbers.front() << " experts and a 'table' of "
             << getDim(o.table, 0) << "; give the table's number";
  }
  if (o.replicaCounts && !o.table)
    return op->emitOpError(
        "takes 'replica_counts' with a 'table' only, which maps the replicas");
  SmallVector<Dim> places{{"num_experts"}};
  if (o.replicaCounts)
    places.push_back({"max_replicas"});
  if (failed(check.checkShape("table", o.table, places)) ||
      failed(check.checkShape("is_padding", o.isPadding, {tokensDim()})) ||
      (o.replicaCounts &&
       failed(check.checkShape("replica_counts", o.replicaCounts,
                               {{"num_experts", getDim(o.table, 0)}}))))
    return failure();
  return success(!o.numValidTokens ||
                 succeeded(check.checkShape("num_valid_tokens",
                                            o.numValidTokens, {{"ranks"}})));
}

LogicalResult verifyGatherRows(Operation *op, const GatherRowsOperands &o) {
  if (bool(o.offsets) != bool(o.source) ||
      bool(o.offsets) != o.topK.has_value())
    return op->emitOpError("takes 'offsets', 'source' and the attribute "
                           "'top_k' together: there are at most tokens * "
                           "top_k positions");
  if (!o.offsets && !o.columns)
    return op->emitOpError("defines no order; give 'offsets' and 'source' for "
                           "an order of rows, or 'columns'");
  if (o.topK && *o.topK < 1)
    return op->emitOpError("'top_k' is ") << *o.topK << "; give at least 1";
  OperandChecker check(op);
  Dim width{"width", getDim(o.input, 1)};
  if (failed(check.checkShape("offsets", o.offsets, {{"(groups + 1)"}})) ||
      failed(check.checkShape("source", o.source, {positionsDim()})))
    return failure();
  if (o.offsets && getDim(o.offsets, 0) < 2)
    return op->emitOpError("'offsets' must have at least 2 entries: the begin "
                           "and the end of one group");
  Dim groups{"groups", o.offsets ? getDim(o.offsets, 0) - 1 : 1};
  if (failed(check.checkShape("columns", o.columns, {groups, width})))
    return failure();
  if (getElementType(o.input) != getElementType(o.result))
    return op->emitOpError("copies ")
           << o.input.getType() << " to " << o.result.getType()
           << "; give both the same element type";
  return failure(
      failed(check.checkShape("ins", o.input, {tokensDim(), {"width"}})) ||
      failed(
          check.checkShape("outs", o.result,
                           {o.offsets ? positionsDim() : tokensDim(), width})));
}

LogicalResult verifyRowMap(Operation *op, const RowMapOperands &o) {
  OperandChecker check(op);
  if (failed(check.checkShape("input", o.input, {tokensDim(), {"width"}})) ||
      failed(check.checkNumValidTokens(o.numValidTokens)) ||
      failed(check.checkShape("result", o.result,
                              {tokensDim(), {"width", getDim(o.input, 1)}})) ||
      failed(check.checkElement("result", o.result, getElementType(o.input),
                                "like 'input'")))
    return failure();
  SmallVector<std::string> arguments{"x"};
  for (auto [i, value] : llvm::enumerate(o.rows)) {
    arguments.push_back(nameOf("rows", i));
    if (failed(
            check.checkShape(arguments.back(), value, {tokensDim(), {"1", 1}})))
      return failure();
  }
  for (auto [i, value] : llvm::enumerate(o.elementwise)) {
    arguments.push_back(nameOf("elementwise", i));
    if (failed(check.checkShape(arguments.back(), value,
                                {tokensDim(), {"width", getDim(o.input, 1)}})))
      return failure();
  }
  return verifyScalarArguments(op, o.body, "body", arguments);
}

} // namespace moec::moe
