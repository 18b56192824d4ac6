//===- QuantizeShapes.cpp - rules of ops that quantize ----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/Dialect/Moe/PipelineShapes.h"
#include "moec/Dialect/Moe/PrepackedFormat.h"
#include "moec/Dialect/Moe/Prepacking.h"
#include "moec/Dialect/Moe/QuantLayout.h"

using namespace mlir;

namespace moec::moe {

/// Verifies `offsets` and `top_k` of an op whose rows are positions.
static LogicalResult verifyPositions(const OperandChecker &check, Value offsets,
                                     std::optional<int64_t> topK) {
  if (bool(offsets) != topK.has_value())
    return check.error("takes 'offsets' and the attribute 'top_k' together: "
                       "there are at most tokens * top_k positions");
  if (topK && *topK < 1)
    return check.error("'top_k' is ") << *topK << "; at least 1 is accepted";
  if (failed(check.checkShape("offsets", offsets, {{"(groups + 1)"}})))
    return failure();
  if (offsets && getDim(offsets, 0) < 2)
    return check.error("'offsets' must have at least 2 entries: the begin "
                       "and the end of one group");
  return success();
}

/// Whether ops quantize rows to this storage: e4m3 or signed 8-bit integers.
static bool isStoredByOps(QuantAttr quant) {
  return !quant.getZeroPoint() && (isa<Float8E4M3FNType>(quant.getStorage()) ||
                                   quant.getStorage().isInteger(8));
}

LogicalResult verifyTensorScale(Operation *op, const TensorScaleOperands &o) {
  OperandChecker check(op);
  if (!o.quant.getDynamic() || !o.quant.getScale().isF32() ||
      !isStoredByOps(o.quant) ||
      o.quant.getGranularity() != Granularity::Tensor)
    return check.error("'quant' is ")
           << o.quant
           << "; a dynamic quantization of granularity 'tensor' to f8E4M3FN or "
              "i8 with an f32 scale is accepted";
  if (failed(verifyPositions(check, o.offsets, o.topK)) ||
      failed(check.checkNumValidTokens(o.numValidTokens)) ||
      failed(check.checkShape("is_padding", o.isPadding, {tokensDim()})))
    return failure();
  if (o.offsets && (o.numValidTokens || o.isPadding))
    return check.error("takes 'num_valid_tokens' and 'is_padding' without "
                       "'offsets' only; offsets already cover only valid rows");
  Dim row = o.offsets ? positionsDim() : tokensDim();
  return failure(failed(check.checkShape("input", o.input, {row, {"width"}})) ||
                 failed(check.checkShape("scale", o.scale, {{"1", 1}})));
}

LogicalResult verifyQuantize(Operation *op, const QuantizeOperands &o) {
  OperandChecker check(op);
  Granularity granularity = o.quant.getGranularity();
  bool isByRow =
      granularity == Granularity::Group || granularity == Granularity::Token;
  bool isGiven = granularity == Granularity::Tensor && !o.quant.getDynamic();
  if (!o.quant.getScale().isF32() || !isStoredByOps(o.quant) ||
      !(isGiven || (isByRow && o.quant.getDynamic())))
    return check.error("'quant' is ")
           << o.quant
           << "; accepted are f32 scales, dynamic of granularity 'group' or "
              "'token', or static of granularity 'tensor' with the scale in "
              "'tensor_scale' (compute a dynamic one with a 'tensor_scale' op)";
  if (isGiven != bool(o.tensorScale))
    return check.error(
        "takes 'tensor_scale' if and only if 'quant' has granularity 'tensor'");
  bool makesScales = !isGiven && !areTimesScales(o.quant);
  if (makesScales != bool(o.scale))
    return check.error(
        "has a 'scale' result if and only if 'quant' is dynamic, except with "
        "'packing = bf16' in groups, whose values include their scales");
  if (failed(check.checkShape("tensor_scale", o.tensorScale, {{"1", 1}})))
    return failure();
  if (getMemoryType(o.quant) != getElementType(o.quantized))
    return check.error("'quant' stores ")
           << getMemoryType(o.quant) << ", but 'quantized' has elements of "
           << getElementType(o.quantized);
  if (failed(verifyPositions(check, o.offsets, o.topK)))
    return failure();
  Dim row = o.offsets ? positionsDim() : tokensDim();
  if (failed(check.checkShape("input", o.input, {row, {"width"}})))
    return failure();
  int64_t width = getDim(o.input, 1);
  Dim groups{"(scales of a row)", getNumScaleColumns(o.quant, width)};
  return failure(failed(check.checkShape("quantized", o.quantized,
                                         {row, {"width", width}})) ||
                 failed(check.checkShape("scale", o.scale, {row, groups})));
}

LogicalResult verifyRmsNorm(Operation *op, const RmsNormOperands &o) {
  OperandChecker check(op);
  if (failed(verifyPositions(check, o.offsets, o.topK)))
    return failure();
  Dim row = o.offsets ? positionsDim() : tokensDim();
  if (failed(check.checkShape("input", o.input, {row, {"width"}})))
    return failure();
  Dim width{"width", getDim(o.input, 1)};
  return failure(
      failed(check.checkShape("weight", o.weight, {width})) ||
      failed(check.checkElement("weight", o.weight, getElementType(o.input),
                                "like 'input'")) ||
      failed(check.checkShape("rows", o.rows, {row, {"1", 1}})) ||
      failed(check.checkShape("result", o.result, {row, width})) ||
      failed(check.checkElement("result", o.result, getElementType(o.input),
                                "like 'input'")));
}

LogicalResult verifyPrepack(Operation *op, const PrepackOperands &o) {
  OperandChecker check(op);
  if (std::string reason = whyNotPrepacked(o.quant, o.packing); !reason.empty())
    return check.error("'quant' is ")
           << o.quant << ", which cannot be prepacked: " << reason;
  auto type = cast<ShapedType>(o.weight.getType());
  if (type.getRank() < 2)
    return check.error("'weight' must have at least two dimensions");
  ArrayRef<int64_t> shape = type.getShape();
  int64_t n = shape.end()[-2], k = getRowWidth(o.quant, shape.back());
  if (std::string reason = whyNotPrepacked(n, k); !reason.empty())
    return check.error("cannot prepack 'weight': ") << reason;
  if (bool(o.zeroPoint) != hasZeros(o.quant) ||
      bool(o.globalScale) != bool(o.quant.getSecondScale()))
    return check.error("takes 'zero_point' and 'global_scale' if and only if "
                       "'quant' requires them");
  SmallVector<Dim> matrix;
  if (type.getRank() > 2)
    matrix.push_back({"matrices", shape.front()});
  SmallVector<Dim> values = matrix, scales = matrix, packedScales = matrix,
                   rows = matrix, globalScales = matrix;
  values.append({{"n", n}, {"(bytes of a row)", shape.back()}});
  scales.append({{"(scales along n)", getNumScaleRows(o.quant, n, o.layout)},
                 {"(scales of a row)", getNumScaleColumns(o.quant, k)}});
  PrepackedFormat format(getPrepacked(o.quant, o.packing));
  packedScales.append(
      {{"n", n}, {"(bytes of a row's scales)", format.getRowBytes(k)}});
  rows.push_back({"n", n});
  globalScales.push_back(
      {"(scales of a matrix)", getNumSecondScales(o.quant, n, o.layout)});
  return failure(
      failed(check.checkElement("weight", o.weight, getMemoryType(o.quant),
                                "as required by 'quant'")) ||
      failed(check.checkShape("weight", o.weight, values,
                              /*mayHaveGaps=*/true)) ||
      failed(check.checkShape("packed", o.packed, values)) ||
      failed(check.checkShape("scale", o.scale, scales)) ||
      failed(check.checkShape("zero_point", o.zeroPoint, scales)) ||
      (o.zeroPoint && failed(check.checkElement("zero_point", o.zeroPoint,
                                                getZeroType(o.quant),
                                                "as required by 'quant'"))) ||
      failed(check.checkShape("global_scale", o.globalScale, globalScales)) ||
      failed(check.checkShape("packed_scale", o.packedScale, packedScales)) ||
      failed(check.checkElement("scale", o.scale, o.quant.getScale(),
                                "as required by 'quant'")) ||
      failed(check.checkShape("row_scale", o.rowScale, rows)));
}

} // namespace moec::moe
