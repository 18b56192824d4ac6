//===- PipelineShapes.h - operand rules of the pipeline ops -----*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Operand rules of the pipeline ops, shared by the op on tensors (`moe`) and
// the op on memrefs (`tile`) with equal names and formulas. Both verifiers fill
// these structs.
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_DIALECT_MOE_PIPELINESHAPES_H
#define MOEC_DIALECT_MOE_PIPELINESHAPES_H

#include "moec/Dialect/Moe/Moe.h"
#include "moec/Dialect/Moe/OperandChecker.h"

namespace moec::moe {

/// `moe.route`, `tile.top_k`.
struct RouteOperands {
  template <typename OpTy>
  explicit RouteOperands(OpTy op)
      : logits(op.getLogits()), selectionBias(op.getSelectionBias()),
        expertScale(op.getExpertScale()), inputIds(op.getInputIds()),
        hashTable(op.getHashTable()), numValidTokens(op.getNumValidTokens()),
        isPadding(op.getIsPadding()), givenIds(op.getGivenIds()),
        ids(op.getIds()), weights(op.getWeights()),
        recordedIds(op.getRecordedIds()), routing(op.getRouting()),
        score(op.getScore()), weight(op.getWeight()), key(op.getKey()) {}

  mlir::Value logits, selectionBias, expertScale, inputIds, hashTable,
      numValidTokens, isPadding, givenIds, ids, weights, recordedIds;
  RoutingAttr routing;
  mlir::Region &score, &weight, &key;
};
llvm::LogicalResult verifyRoute(mlir::Operation *op, const RouteOperands &o);
/// Verifies that replayed ids (`given`) and recorded ones can name all routed
/// experts, and that the routing can take ids. Either may be null. With
/// `hasPadding`, the ids of some rows are -1.
llvm::LogicalResult verifyRoutedIds(OperandChecker &check, RoutingAttr routing,
                                    int64_t numRouted, bool hasPadding,
                                    mlir::Value given, mlir::Value recorded);

/// `moe.permute`, `tile.sort_by_expert`.
struct PermuteOperands {
  template <typename OpTy>
  explicit PermuteOperands(OpTy op)
      : ids(op.getIds()), weights(op.getWeights()),
        numValidTokens(op.getNumValidTokens()), offsets(op.getOffsets()),
        position(op.getPosition()), source(op.getSource()),
        rowWeight(op.getRowWeight()), numExperts(op.getNumExperts()),
        numZeroExperts(op.getNumZeroExperts()),
        localExperts(op.getLocalExperts()) {}

  mlir::Value ids, weights, numValidTokens, offsets, position, source,
      rowWeight;
  int64_t numExperts, numZeroExperts;
  std::optional<llvm::ArrayRef<int64_t>> localExperts;
};
llvm::LogicalResult verifyPermute(mlir::Operation *op,
                                  const PermuteOperands &o);

/// `moe.grouped_matmul`, `tile.gemm`.
struct MatmulOperands {
  template <typename OpTy>
  explicit MatmulOperands(OpTy op)
      : input(op.getInput()), weight(op.getWeight()),
        inputScale(op.getInputScale()), weightScale(op.getWeightScale()),
        weightZeroPoint(op.getWeightZeroPoint()),
        weightGlobalScale(op.getWeightGlobalScale()),
        inputQuant(op.getInputQuantAttr()),
        weightQuant(op.getWeightQuantAttr()), strategy(op.getStrategyAttr()),
        offsets(op.getOffsets()), source(op.getSource()),
        numValidTokens(op.getNumValidTokens()), result(op.getResult()),
        rows(op.getRowOperands()), columns(op.getColumnOperands()),
        elementwise(op.getElementwiseOperands()), shrunk(op.getShrunk()),
        adapters(op.getAdapters()), matrices(op.getMatrices()),
        layout(op.getLayoutAttr()), epilogue(op.getEpilogue()) {}

  /// Whether columns are pairs (gate, up).
  bool isPaired() const { return bool(layout); }

  mlir::Value input, weight, inputScale, weightScale, weightZeroPoint,
      weightGlobalScale;
  QuantAttr inputQuant, weightQuant;
  StrategyAttr strategy;
  /// The gemm quantizes the input by `inputQuant`.
  bool quantizesInput = false;
  mlir::Value offsets, source, numValidTokens, result;
  mlir::ValueRange rows, columns, elementwise;
  /// Operands of a LoRA update.
  mlir::Value shrunk, adapters;
  mlir::ValueRange matrices;
  WeightLayoutAttr layout;
  mlir::Region &epilogue;
};
llvm::LogicalResult verifyMatmul(mlir::Operation *op, const MatmulOperands &o);

/// `moe.prepack`, `tile.prepack`.
struct PrepackOperands {
  template <typename OpTy>
  explicit PrepackOperands(OpTy op)
      : weight(op.getWeight()), scale(op.getScale()),
        zeroPoint(op.getZeroPoint()), globalScale(op.getGlobalScale()),
        packed(op.getPacked()), packedScale(op.getPackedScale()),
        rowScale(op.getRowScale()), layout(op.getLayoutAttr()),
        quant(op.getQuantAttr()), packing(op.getPacking()) {}

  mlir::Value weight, scale, zeroPoint, globalScale, packed, packedScale,
      rowScale;
  WeightLayoutAttr layout;
  QuantAttr quant;
  Packing packing;
};
llvm::LogicalResult verifyPrepack(mlir::Operation *op,
                                  const PrepackOperands &o);

/// `moe.place_ids`, `tile.place_ids`.
struct PlaceIdsOperands {
  template <typename OpTy>
  explicit PlaceIdsOperands(OpTy op)
      : ids(op.getIds()), table(op.getTable()),
        replicaCounts(op.getReplicaCounts()),
        numValidTokens(op.getNumValidTokens()), isPadding(op.getIsPadding()),
        result(op.getResult()), zeroExperts(op.getZeroExperts()) {}

  mlir::Value ids, table, replicaCounts, numValidTokens, isPadding, result;
  std::optional<llvm::ArrayRef<int64_t>> zeroExperts;
};
llvm::LogicalResult verifyPlaceIds(mlir::Operation *op,
                                   const PlaceIdsOperands &o);

/// `moe.gather_rows`, and each input and result of `tile.gather_rows`.
struct GatherRowsOperands {
  mlir::Value input, offsets, source, columns, result;
  std::optional<int64_t> topK;
};
llvm::LogicalResult verifyGatherRows(mlir::Operation *op,
                                     const GatherRowsOperands &o);

/// `moe.row_map`, `tile.row_map`.
struct RowMapOperands {
  template <typename OpTy>
  explicit RowMapOperands(OpTy op)
      : input(op.getInput()), numValidTokens(op.getNumValidTokens()),
        result(op.getResult()), rows(op.getRowOperands()),
        elementwise(op.getElementwiseOperands()), body(op.getBody()) {}

  mlir::Value input, numValidTokens, result;
  mlir::ValueRange rows, elementwise;
  mlir::Region &body;
};
llvm::LogicalResult verifyRowMap(mlir::Operation *op, const RowMapOperands &o);

/// `moe.rms_norm`, `tile.rms_norm`.
struct RmsNormOperands {
  template <typename OpTy>
  explicit RmsNormOperands(OpTy op)
      : input(op.getInput()), weight(op.getWeight()), rows(op.getRowWeight()),
        offsets(op.getOffsets()), result(op.getResult()), topK(op.getTopK()) {}

  mlir::Value input, weight, rows, offsets, result;
  std::optional<int64_t> topK;
};
llvm::LogicalResult verifyRmsNorm(mlir::Operation *op,
                                  const RmsNormOperands &o);

/// `moe.lora_shrink`, `tile.lora_shrink`.
struct LoraShrinkOperands {
  template <typename OpTy>
  explicit LoraShrinkOperands(OpTy op)
      : input(op.getInput()), offsets(op.getOffsets()), source(op.getSource()),
        adapterIds(op.getAdapterIds()), result(op.getResult()),
        adapter(op.getAdapter()), matrices(op.getMatrices()),
        topK(static_cast<int64_t>(op.getTopK())), gathers(op.getGather()) {}

  mlir::Value input, offsets, source, adapterIds, result, adapter;
  mlir::ValueRange matrices;
  int64_t topK;
  bool gathers;
};
llvm::LogicalResult verifyLoraShrink(mlir::Operation *op,
                                     const LoraShrinkOperands &o);

/// `tile.lora_update`.
struct LoraUpdateOperands {
  template <typename OpTy>
  explicit LoraUpdateOperands(OpTy op)
      : input(op.getInput()), offsets(op.getOffsets()), source(op.getSource()),
        adapterIds(op.getAdapterIds()), first(op.getMatrices()),
        second(op.getSecond()), results(op.getResults()),
        topK(static_cast<int64_t>(op.getTopK())), gathers(op.getGather()) {}

  mlir::Value input, offsets, source, adapterIds;
  mlir::ValueRange first, second, results;
  int64_t topK;
  bool gathers;
};
llvm::LogicalResult verifyLoraUpdate(mlir::Operation *op,
                                     const LoraUpdateOperands &o);

/// The operands of a gemm that adds LoRA updates to `columns` result columns of
/// `groups` groups; 0 for a dense gemm.
llvm::LogicalResult verifyLoraExpand(mlir::Operation *op,
                                     const MatmulOperands &o, int64_t groups,
                                     int64_t columns);

/// `moe.tensor_scale`, `tile.tensor_scale`.
struct TensorScaleOperands {
  template <typename OpTy>
  explicit TensorScaleOperands(OpTy op)
      : input(op.getInput()), offsets(op.getOffsets()),
        numValidTokens(op.getNumValidTokens()), isPadding(op.getIsPadding()),
        scale(op.getScale()), topK(op.getTopK()), quant(op.getQuantAttr()) {}

  mlir::Value input, offsets, numValidTokens, isPadding, scale;
  std::optional<int64_t> topK;
  QuantAttr quant;
};
llvm::LogicalResult verifyTensorScale(mlir::Operation *op,
                                      const TensorScaleOperands &o);

/// `moe.quantize`, `tile.quantize`.
struct QuantizeOperands {
  template <typename OpTy>
  explicit QuantizeOperands(OpTy op)
      : input(op.getInput()), offsets(op.getOffsets()),
        tensorScale(op.getTensorScale()), quantized(op.getQuantized()),
        scale(op.getScale()), topK(op.getTopK()), quant(op.getQuantAttr()) {}

  mlir::Value input, offsets, tensorScale, quantized, scale;
  std::optional<int64_t> topK;
  QuantAttr quant;
};
llvm::LogicalResult verifyQuantize(mlir::Operation *op,
                                   const QuantizeOperands &o);

/// `moe.unpermute`, `tile.gather_reduce`.
struct UnpermuteOperands {
  template <typename OpTy>
  explicit UnpermuteOperands(OpTy op)
      : rows(op.getRows()), position(op.getPosition()),
        identity(op.getIdentity()), identityWeights(op.getIdentityWeights()),
        addend(op.getAddend()), numValidTokens(op.getNumValidTokens()),
        result(op.getResult()), unreduced(op.getUnreduced()),
        fromUnreduced(op.getFromUnreduced()) {}

  mlir::Value rows, position, identity, identityWeights, addend, numValidTokens,
      result;
  bool unreduced, fromUnreduced;
};
llvm::LogicalResult verifyUnpermute(mlir::Operation *op,
                                    const UnpermuteOperands &o);

/// Verifies the operands that a routing attribute requires; also for
/// `moe.layer`, whose entries differ.
llvm::LogicalResult
verifyRoutingOperands(const OperandChecker &check, RoutingAttr routing,
                      int64_t numRouted, mlir::Value selectionBias,
                      mlir::Value expertScale, mlir::Value inputIds,
                      mlir::Value hashTable, mlir::Region &score,
                      mlir::Region &key, mlir::Region &weight);

/// Verifies the arguments of a `key` region: a score, and a bias if present; an
/// empty region is legal.
llvm::LogicalResult verifyKeyArguments(mlir::Operation *op, mlir::Region &key,
                                       mlir::Value selectionBias);

/// Verifies that `numExperts` (at least 1) plus `numZeroExperts` (at least 0)
/// fits i32, the type of expert ids.
llvm::LogicalResult
verifyNumExperts(llvm::function_ref<mlir::InFlightDiagnostic()> emitError,
                 int64_t numExperts, int64_t numZeroExperts);

/// Verifies global expert ids: at least one, in range, distinct.
llvm::LogicalResult
verifyLocalExperts(llvm::function_ref<mlir::InFlightDiagnostic()> emitError,
                   int64_t numExperts, llvm::ArrayRef<int64_t> local);

} // namespace moec::moe

#endif // MOEC_DIALECT_MOE_PIPELINESHAPES_H
