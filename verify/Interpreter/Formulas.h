//===- Formulas.h - the formula of each coarse op, on tensors ---*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// The formulas of coarse ops; a moe op and its tile op share one. Float tensors
// are f32, bf16, f16, e4m3, e8m0 or i8; index tensors are i32. Indices from
// tensors are checked, so that a wrong pass causes an error instead of a crash.

#ifndef MOEC_VERIFY_INTERPRETER_FORMULAS_H
#define MOEC_VERIFY_INTERPRETER_FORMULAS_H

#include "moec/Dialect/Moe/Moe.h"
#include "moec/Interpreter/RegionEvaluator.h"
#include "moec/Interpreter/Tensor.h"

#include <limits>
#include <optional>

namespace moec::interpreter {

using OptionalRef = std::optional<TensorRef>;

/// Bounds on the rows of an op's groups; other groups are neither read nor
/// written.
struct GroupRows {
  int64_t min = 0, max = std::numeric_limits<int64_t>::max();

  bool contains(int64_t rows) const { return rows >= min && rows <= max; }
};

/// moe.route and tile.top_k.
struct RouteArguments {
  int64_t tokens = 0;
  TensorRef logits;
  OptionalRef selectionBias, expertScale, inputIds, hashTable, numValidTokens,
      isPadding, givenIds;
  TensorRef ids, weights;
  OptionalRef recordedIds;
};
/// `key` is null if keys are sums of values and biases.
moert::Status route(const RouteArguments &arguments, moe::RoutingAttr routing,
                    RegionEvaluator &score, RegionEvaluator *key,
                    RegionEvaluator &weight);

/// moe.permute and tile.sort_by_expert.
struct PermuteArguments {
  int64_t tokens = 0;
  TensorRef ids, weights;
  OptionalRef numValidTokens;
  TensorRef offsets, position, source, rowWeight;
  int64_t numExperts = 0;
  int64_t numZeroExperts = 0;
  std::optional<llvm::ArrayRef<int64_t>> localExperts;
  /// Counts of tile.count_slots, which are checked, and its `chunk_tokens`.
  OptionalRef counts;
  int64_t chunkTokens = 0;
};
moert::Status permute(const PermuteArguments &arguments);

/// tile.count_slots.
struct CountSlotsArguments {
  int64_t tokens = 0;
  TensorRef ids;
  OptionalRef numValidTokens;
  TensorRef counts;
  int64_t numExperts = 0;
  int64_t chunkTokens = 0;
  std::optional<llvm::ArrayRef<int64_t>> localExperts;
};
moert::Status countSlots(const CountSlotsArguments &arguments);

/// moe.grouped_matmul and tile.gemm. Sums are computed and scaled in
/// double, and rounded to f32 once.
struct MatmulArguments {
  /// Rows of a dense gemm.
  int64_t tokens = 0;
  TensorRef input, weight;
  OptionalRef inputScale, weightScale, weightZeroPoint, weightGlobalScale;
  OptionalRef offsets, source, numValidTokens;
  llvm::SmallVector<TensorRef> rowOperands, columnOperands, elementwiseOperands;
  /// Operands of a LoRA update.
  OptionalRef shrunk, adapters;
  llvm::SmallVector<TensorRef> matrices;
  TensorRef result;
  /// Null for operands that are not quantized.
  moe::QuantAttr inputQuant, weightQuant;
  moe::WeightLayoutAttr layout;
  GroupRows groupRows;
};
moert::Status groupedMatmul(const MatmulArguments &arguments,
                            RegionEvaluator &epilogue);

/// moe.prepack and tile.prepack; results may share memory with the operands.
struct PrepackArguments {
  TensorRef weight, scale;
  OptionalRef zeroPoint, globalScale;
  TensorRef packed, packedScale, rowScale;
  moe::QuantAttr quant;
  moe::Packing packing;
  moe::WeightLayoutAttr layout;
};
moert::Status repack(const PrepackArguments &arguments);

/// moe.row_map and tile.row_map.
struct RowMapArguments {
  int64_t tokens = 0;
  TensorRef input;
  OptionalRef numValidTokens;
  llvm::SmallVector<TensorRef> rowOperands, elementwiseOperands;
  TensorRef result;
};
moert::Status rowMap(const RowMapArguments &arguments, RegionEvaluator &body);

/// moe.rms_norm and tile.rms_norm.
struct RmsNormArguments {
  /// Rows of the input; with `offsets` those up to the last one count.
  int64_t rows = 0;
  TensorRef input, weight;
  OptionalRef rowWeight, offsets;
  moe::NormAttr norm;
  TensorRef result;
};
moert::Status rmsNorm(RmsNormArguments arguments);

/// moe.lora_shrink and tile.lora_shrink.
struct LoraShrinkArguments {
  TensorRef input;
  llvm::SmallVector<TensorRef> matrices;
  TensorRef offsets, source, adapterIds;
  /// Whether rows of the input are those of tokens.
  bool gathers = false;
  TensorRef result, adapter;
};
moert::Status shrinkLora(const LoraShrinkArguments &arguments);

/// tile.lora_update.
struct LoraUpdateArguments {
  TensorRef input;
  llvm::SmallVector<TensorRef> first, second, results;
  TensorRef offsets, source, adapterIds;
  bool gathers = false;
};
moert::Status updateLora(const LoraUpdateArguments &arguments);

/// Row n of an adapter's matrix for a group, times x.
float multiplyAdapter(const TensorRef &matrix, int64_t adapter, int64_t group,
                      int64_t n, llvm::ArrayRef<float> x);

/// moe.place_ids and tile.place_ids.
struct PlaceIdsArguments {
  int64_t tokens = 0;
  TensorRef ids;
  OptionalRef table, replicaCounts, numValidTokens, isPadding;
  /// The first zero expert, and their number.
  std::optional<llvm::ArrayRef<int64_t>> zeroExperts;
  TensorRef result;
};
moert::Status placeIds(const PlaceIdsArguments &arguments);

/// Rows to quantize, or to compute a scale of.
struct QuantizedRows {
  /// Rows of the input; without `offsets` the valid ones.
  int64_t rows = 0;
  TensorRef input;
  OptionalRef offsets;
  moe::QuantAttr quant;
};

/// moe.tensor_scale and tile.tensor_scale.
struct TensorScaleArguments : QuantizedRows {
  OptionalRef numValidTokens, isPadding;
  TensorRef scale;
};
moert::Status tensorScale(const TensorScaleArguments &arguments);

/// moe.quantize and tile.quantize, with the bits of docs/use/layers.md. Exactly
/// one of `scale` and `tensorScale` is present.
struct QuantizeArguments : QuantizedRows {
  OptionalRef tensorScale;
  TensorRef quantized;
  OptionalRef scale;
  GroupRows groupRows;
};
moert::Status quantize(const QuantizeArguments &arguments);

/// moe.gather_rows, and one tensor of tile.gather_rows.
struct GatherRowsArguments {
  /// Most positions; without offsets, tokens.
  int64_t positions = 0;
  TensorRef input, result;
  OptionalRef offsets, source, columns;
};
moert::Status gatherRows(const GatherRowsArguments &arguments);

/// moe.unpermute and tile.gather_reduce.
struct UnpermuteArguments {
  int64_t tokens = 0;
  TensorRef rows, position;
  OptionalRef identity, identityWeights, addend, numValidTokens;
  TensorRef result;
  bool unreduced = false, fromUnreduced = false;

  /// Whether the addend is a row for all tokens.
  bool hasBias() const { return addend && addend->shape.size() == 1; }
};
moert::Status unpermute(const UnpermuteArguments &arguments);

/// Whether a token is padding by an optional mask.
bool isPaddingRow(const OptionalRef &isPadding, int64_t token);

/// The number of valid tokens by an optional `num_valid_tokens`, 0 to `tokens`.
int64_t validTokens(const OptionalRef &numValidTokens, int64_t tokens);

/// Fails unless dimension 0 of `tensor` is at least `rows`.
moert::Status checkRows(const char *name, const TensorRef &tensor,
                        int64_t rows);

} // namespace moec::interpreter

#endif // MOEC_VERIFY_INTERPRETER_FORMULAS_H
