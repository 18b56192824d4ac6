//===- QuantizeShapes.cpp - rules of ops that quantize ----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/Dialect/Moe/Fragments.h"
#include "moec/Dialect/Moe/PipelineShapes.h"
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
           << "; dynamic ones of granularity 'tensor' that store f8E4M3FN or "
              "i8 with an f32 scale are accepted";
  if (failed(verifyPositions(check, o.offsets, o.topK)) ||
      failed(check.checkNumValidTokens(o.numValidTokens)) ||
      failed(check.checkShape("is_padding", o.isPadding, {tokensDim()})))
    return failure();
  if (o.offsets && (o.numValidTokens || o.isPadding))
    return check.error("takes 'num_valid_tokens' and 'is_padding' without "
                       "'offsets' only; offsets count valid rows already");
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
           << "; dynamic ones with f32 scales of granularity 'group' or "
              "'token' are accepted, and those of granularity 'tensor' that "
              "are not dynamic, whose scale 'tensor_scale' is (of "
              "'tensor_scale' ops, where it has to be found)";
  if (isGiven != bool(o.tensorScale))
    return check.error("takes 'tensor_scale' with a 'quant' of granularity "
                       "'tensor', and only then");
  bool makesScales = !isGiven && !areTimesScales(o.quant);
  if (makesScales != bool(o.scale))
    return check.error("makes scales with a dynamic 'quant', and only then, "
                       "but those of groups that 'packing = bf16' has in the "
                       "numbers");
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

LogicalResult verifyRepack(Operation *op, const RepackOperands &o) {
  OperandChecker check(op);
  if (std::string reason = Fragments::whyNot(o.quant, o.packing);
      !reason.empty())
    return check.error("'quant' is ")
           << o.quant << ", which has no order of fragments: " << reason;
  auto type = cast<ShapedType>(o.weight.getType());
  if (type.getRank() < 2)
    return check.error("'weight' must have rows and contracted elements");
  ArrayRef<int64_t> shape = type.getShape();
  int64_t n = shape.end()[-2], k = getRowWidth(o.quant, shape.back());
  if (std::string reason = Fragments::whyNot(n, k); !reason.empty())
    return check.error("cannot pack 'weight': ") << reason;
  if (bool(o.zeroPoint) != hasZeros(o.quant) ||
      bool(o.globalScale) != bool(o.quant.getSecondScale()))
    return check.error("takes 'zero_point' and 'global_scale' where 'quant' "
                       "says so, and only there");
  SmallVector<Dim> matrix;
  if (type.getRank() > 2)
    matrix.push_back({"matrices", shape.front()});
  SmallVector<Dim> codes = matrix, scales = matrix, packedScales = matrix,
                   rows = matrix, globalScales = matrix;
  codes.append({{"n", n}, {"(bytes of a row's codes)", shape.back()}});
  scales.append({{"(scales along n)", getNumScaleRows(o.quant, n, o.layout)},
                 {"(scales of a row)", getNumScaleColumns(o.quant, k)}});
  Fragments format(Fragments::getQuant(o.quant, o.packing));
  packedScales.append(
      {{"n", n}, {"(bytes of a row's scales)", format.getRowBytes(k)}});
  rows.push_back({"n", n});
  globalScales.push_back(
      {"(scales of a matrix)", getNumSecondScales(o.quant, n, o.layout)});
  return failure(
      failed(check.checkElement("weight", o.weight, getMemoryType(o.quant),
                                "as 'quant' says")) ||
      failed(check.checkShape("weight", o.weight, codes,
                              /*mayHaveGaps=*/true)) ||
      failed(check.checkShape("packed", o.packed, codes)) ||
      failed(check.checkShape("scale", o.scale, scales)) ||
      failed(check.checkShape("zero_point", o.zeroPoint, scales)) ||
      (o.zeroPoint &&
       failed(check.checkElement("zero_point", o.zeroPoint,
                                 getZeroType(o.quant), "as 'quant' says"))) ||
      failed(check.checkShape("global_scale", o.globalScale, globalScales)) ||
      failed(check.checkShape("packed_scale", o.packedScale, packedScales)) ||
      failed(check.checkElement("scale", o.scale, o.quant.getScale(),
                                "as 'quant' says")) ||
      failed(check.checkShape("row_scale", o.rowScale, rows)));
}

} // namespace moec::moe
