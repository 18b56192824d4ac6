//===- MoeAttrs.cpp - verifiers of the moe attributes -----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/Dialect/Moe/CodeBook.h"
#include "moec/Dialect/Moe/Moe.h"
#include "moec/Dialect/Moe/PipelineShapes.h"
#include "moec/Dialect/Moe/PrepackedFormat.h"
#include "moec/Dialect/Moe/Prepacking.h"
#include "moec/Dialect/Moe/QuantLayout.h"

#include <cmath>

using namespace mlir;
using namespace moec::moe;

using EmitError = function_ref<InFlightDiagnostic()>;

//===----------------------------------------------------------------------===//
// Routing
//===----------------------------------------------------------------------===//

/// An f32 number, or absent.
static LogicalResult verifyFactor(EmitError emitError, StringRef name,
                                  FloatAttr value) {
  if (!value)
    return success();
  if (!value.getType().isF32())
    return emitError() << "'" << name << "' must be f32, not "
                       << value.getType() << "; write '" << name
                       << " = 1.0 : f32'";
  if (!std::isfinite(value.getValueAsDouble()))
    return emitError() << "'" << name << "' must be a finite number";
  return success();
}

static LogicalResult verifyGroupCounts(EmitError emitError, Select select,
                                       int64_t topK, int64_t numGroups,
                                       int64_t topkGroups) {
  if (numGroups < 1)
    return emitError() << "'num_groups' is " << numGroups
                       << "; at least 1 (no groups) is accepted";
  if (topkGroups < 1 || topkGroups > numGroups)
    return emitError() << "'topk_groups' is " << topkGroups
                       << "; 1 to 'num_groups' = " << numGroups
                       << " is accepted";
  if (numGroups == 1 || select == Select::TopK)
    return success();
  if (select != Select::PerGroup)
    return emitError() << "'num_groups' has no meaning with select '"
                       << stringifySelect(select) << "'; remove it";
  if (topK % numGroups != 0)
    return emitError() << "'top_k' is " << topK
                       << ", which must be a multiple of 'num_groups' = "
                       << numGroups << " with select 'per_group'";
  if (topkGroups != 1)
    return emitError() << "'topk_groups' has no meaning with select "
                          "'per_group', where every group contributes; "
                          "remove it";
  return success();
}

static LogicalResult verifySparseMixer(EmitError emitError, int64_t topK,
                                       Softmax softmax, NonFinite nonfinite) {
  if (topK != 2)
    return emitError() << "'top_k' is " << topK
                       << ", but select 'sparsemixer' chooses 2 experts";
  if (softmax != Softmax::None)
    return emitError() << "'softmax' must be 'none' with select 'sparsemixer', "
                          "which defines its own softmax";
  if (nonfinite != NonFinite::NegInf)
    return emitError() << "'nonfinite' must be 'neg_inf' with select "
                          "'sparsemixer'";
  return success();
}

LogicalResult NormAttr::verify(EmitError emitError, FloatAttr epsilon,
                               FloatAttr offset, bool /*weightFirst*/) {
  if (failed(verifyFactor(emitError, "epsilon", epsilon)) ||
      failed(verifyFactor(emitError, "offset", offset)))
    return failure();
  if (epsilon.getValueAsDouble() <= 0)
    return emitError() << "'epsilon' must be greater than 0, so that rows of "
                          "zeros stay zeros";
  return success();
}

LogicalResult RoutingAttr::verify(EmitError emitError, int64_t topK,
                                  Select select, int64_t numGroups,
                                  int64_t topkGroups, GroupScore /*groupScore*/,
                                  Softmax softmax, bool renormalize,
                                  FloatAttr renormalizeEpsilon, FloatAttr scale,
                                  NonFinite nonfinite) {
  if (topK < 1)
    return emitError() << "'top_k' is " << topK << "; at least 1 is accepted";
  if (failed(verifyGroupCounts(emitError, select, topK, numGroups, topkGroups)))
    return failure();
  if (select == Select::SparseMixer &&
      failed(verifySparseMixer(emitError, topK, softmax, nonfinite)))
    return failure();
  if (failed(
          verifyFactor(emitError, "renormalize_epsilon", renormalizeEpsilon)) ||
      failed(verifyFactor(emitError, "scale", scale)))
    return failure();
  if (!renormalizeEpsilon)
    return success();
  if (!renormalize)
    return emitError() << "'renormalize_epsilon' has no meaning without "
                          "'renormalize = true'";
  if (renormalizeEpsilon.getValueAsDouble() < 0)
    return emitError() << "'renormalize_epsilon' must not be negative";
  return success();
}

//===----------------------------------------------------------------------===//
// Quantization
//===----------------------------------------------------------------------===//

static LogicalResult verifyBlock(EmitError emitError, Granularity granularity,
                                 ArrayRef<int64_t> block) {
  bool isBlock = granularity == Granularity::Block;
  if (!isBlock && granularity != Granularity::Group) {
    if (block.empty())
      return success();
    return emitError() << "'block' has no meaning with granularity '"
                       << stringifyGranularity(granularity) << "'; remove it";
  }
  bool isPositive = llvm::all_of(block, [](int64_t size) { return size > 0; });
  if (block.size() != 2 || !isPositive)
    return emitError() << "granularity '" << stringifyGranularity(granularity)
                       << "' needs 'block = [rows, contracted]' with two sizes "
                          "above 0";
  if (!isBlock && block[0] != 1)
    return emitError() << "a 'group' lies in one row; write 'block = [1, "
                       << block[1] << "]', or granularity 'block'";
  return success();
}

LogicalResult QuantAttr::verify(EmitError emitError, Type storage, Type scale,
                                Granularity granularity,
                                ArrayRef<int64_t> block, bool zeroPoint,
                                bool dynamic, Packing packing, Type secondScale,
                                bool powerOfTwo, bool minimum) {
  bool isInteger = storage.isSignlessInteger(8) || storage.isSignlessInteger(4);
  if (!isInteger &&
      !isa<Float8E4M3FNType, Float8E5M2Type, Float4E2M1FNType>(storage) &&
      !isCodeBook(storage))
    return emitError() << "'storage' is " << storage
                       << "; f8E4M3FN, f8E5M2, f4E2M1FN, !moe.nf4, "
                          "!moe.code_book, i8 and i4 are accepted";
  if (!isa<Float32Type, BFloat16Type, Float16Type, Float8E8M0FNUType,
           Float8E4M3FNType>(scale))
    return emitError()
           << "'scale' is " << scale
           << "; f32, bf16, f16, f8E8M0FNU and f8E4M3FN are accepted";
  if (failed(verifyBlock(emitError, granularity, block)))
    return failure();
  if (zeroPoint && !isInteger)
    return emitError() << "'zero_point' belongs to integer storage; remove it "
                          "for "
                       << storage;
  bool isOfNumbers = isa<Float32Type, BFloat16Type, Float16Type>(scale);
  bool hasMinima = isInteger && isOfNumbers && !zeroPoint && !dynamic &&
                   (!secondScale || isPrepacked(packing)) &&
                   granularity == Granularity::Group;
  if (minimum && !hasMinima)
    return emitError()
           << "'minimum' needs weights of i8 or i4 in groups, with scales of "
              "f32, bf16 or f16, without zero points and, unless prepacked, "
              "without second scales; remove it";
  bool isOfWeights =
      granularity == Granularity::Channel || granularity == Granularity::Block;
  if (dynamic && isOfWeights)
    return emitError() << "'dynamic' is for activations, which have no "
                          "granularity '"
                       << stringifyGranularity(granularity)
                       << "'; write 'tensor', 'token' or 'group'";
  bool isPowerOfGroup = dynamic && granularity == Granularity::Group &&
                        isa<Float8E4M3FNType, Float8E5M2Type>(storage) &&
                        scale.isF32();
  if (powerOfTwo && !isPowerOfGroup)
    return emitError() << "'power_of_two' needs dynamic f32 scales in groups "
                          "of an 8-bit float; remove it, or write 'dynamic = "
                          "true' and 'granularity = group'";
  constexpr int64_t halfByte = 4;
  bool isHalfByte = getElementBits(storage) == halfByte;
  if (packing == Packing::Pairs && !isHalfByte)
    return emitError() << "'packing' is '" << stringifyPacking(packing)
                       << "', which needs 4-bit elements, but 'storage' is "
                       << storage << "; remove it";
  if (packing == Packing::None && isHalfByte)
    return emitError()
           << "'storage' is " << storage
           << ", which has two elements per byte; write 'packing = pairs'";
  bool isOfRows = granularity == Granularity::Token ||
                  granularity == Granularity::Tensor || powerOfTwo;
  bool areQuantized =
      isa<Float8E4M3FNType>(storage) || (storage.isInteger(8) && !zeroPoint);
  if (packing == Packing::BF16 && (!isOfRows || !areQuantized || secondScale))
    return emitError() << "'packing = bf16' needs f8E4M3FN, or i8 without zero "
                          "points, with scales of granularity 'token' or "
                          "'tensor' or powers of two; remove it";
  if (isPrepacked(packing)) {
    if (!secondScale)
      return emitError()
             << "'packing' is '" << stringifyPacking(packing)
             << "', which has a factor per row; write 'second_scale = f32'";
    std::string reason = whyNotPrepacked(storage, scale, granularity,
                                         block.empty() ? 0 : block[1],
                                         zeroPoint || minimum, packing);
    if (!reason.empty())
      return emitError() << "'packing' is '" << stringifyPacking(packing)
                         << "', but " << reason
                         << (isHalfByte ? "; write 'packing = pairs'"
                                        : "; remove it");
  }
  if (!secondScale)
    return success();
  if (!secondScale.isF32())
    return emitError() << "'second_scale' is " << secondScale
                       << "; f32 is accepted";
  if (!isPrepacked(packing) && granularity != Granularity::Group &&
      granularity != Granularity::Block)
    return emitError() << "'second_scale' is a factor of the scales of groups "
                          "or blocks, but granularity '"
                       << stringifyGranularity(granularity)
                       << "' has one scale per row or tensor; remove it";
  return success();
}

//===----------------------------------------------------------------------===//
// Activations in flight, ranks
//===----------------------------------------------------------------------===//

LogicalResult ActivationFormatAttr::verify(EmitError emitError, Format format,
                                           int64_t alignment) {
  if (alignment < 1)
    return emitError() << "'alignment' is " << alignment
                       << "; at least 1 row is accepted";
  if (alignment != 1 && format != Format::Contiguous)
    return emitError() << "'alignment' has no meaning with format '"
                       << stringifyFormat(format)
                       << "'; remove it or write 'contiguous'";
  return success();
}

LogicalResult MeshAttr::verify(EmitError emitError, int64_t dp, int64_t pcp,
                               int64_t tp, int64_t numExperts, bool sp) {
  // No product of sizes overflows below this limit, and no machine reaches it.
  constexpr int64_t kMost = int64_t(1) << 16;
  for (auto [name, size] : {std::pair{"dp", dp}, {"pcp", pcp}, {"tp", tp}})
    if (size < 1 || size > kMost)
      return emitError() << "'" << name << "' is " << size << "; give 1 to "
                         << kMost;
  if (dp * pcp > kMost)
    return emitError() << "'dp' * 'pcp' is " << dp * pcp << "; give 1 to "
                       << kMost;
  if (numExperts < 0)
    return emitError() << "'num_experts' is " << numExperts
                       << "; give the number of experts of the whole layer, or "
                          "0 for a slice of every expert on each rank";
  if (sp && tp == 1)
    return emitError() << "'sp' splits a group's tokens among its ranks, but "
                          "'tp' is 1; increase 'tp', or remove 'sp'";
  return success();
}

LogicalResult PlacementAttr::verify(EmitError emitError, int64_t numExperts,
                                    ArrayRef<int64_t> local) {
  if (failed(verifyNumExperts(emitError, numExperts, /*numZeroExperts=*/0)))
    return failure();
  return verifyLocalExperts(emitError, numExperts, local);
}
