//===- BatchHalves.cpp - halves of a batch ----------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "BatchHalves.h"
#include "moert/Workspace.h"

#include <algorithm>
#include <numeric>

namespace moert {

/// Whether the tensor is passed with each call.
static bool isOfCall(const TensorDecl &tensor) {
  return tensor.role == TensorRole::Input || tensor.role == TensorRole::Output;
}

Status checkHalves(const Plan &plan) {
  for (const TensorDecl &tensor : plan.tensors) {
    if (!isOfCall(tensor) ||
        (!tensor.shape.empty() && tensor.shape[0].dependsOnTokens()))
      continue;
    std::string remedy =
        tensor.role == TensorRole::Input
            ? " (is_padding, of padding_mask, has a value for each token)"
            : "";
    return invalidArgument(std::string(tensorRoleName(tensor.role)) + " '" +
                           tensor.name +
                           "' belongs to the whole batch and has no dimension "
                           "of tokens to split; compile the layer without it" +
                           remedy + ", or run without micro-batches");
  }
  return Status::ok();
}

/// The number of rows whose multiples have an aligned size in bytes, for every
/// input and output.
static int64_t findRowMultiple(const Plan &plan) {
  int64_t multiple = 1;
  for (const TensorDecl &tensor : plan.tensors) {
    if (!isOfCall(tensor))
      continue;
    int64_t rowBits = dtypeBits(tensor.dtype);
    for (size_t i = 1; i < tensor.shape.size(); ++i)
      if (Result<int64_t> size = tensor.shape[i].evaluate(/*tokens=*/0))
        rowBits *= *size;
    // Alignments are powers of two, so the largest serves all.
    multiple = std::max(multiple, tensor.alignment /
                                      std::gcd(tensor.alignment, rowBits / 8));
  }
  return multiple;
}

BatchHalves splitBatch(const Plan &plan, int64_t tokens) {
  int64_t ranks = plan.mesh.tokenRanks(), own = tokens / ranks;
  int64_t multiple = findRowMultiple(plan), half = own - own / 2;
  int64_t first = std::min(own, (half + multiple - 1) / multiple * multiple);
  return {first * ranks, (own - first) * ranks};
}

Result<bool> mayRunBeside(const Plan &plan, int64_t tokens) {
  for (int64_t half : splitBatch(plan, tokens)) {
    int64_t variant = plan.findVariant(half);
    if (variant < 0)
      return internalError("no variant for " + std::to_string(half) +
                           " tokens");
    for (const Step &step : plan.variants[static_cast<size_t>(variant)].steps) {
      if (step.kind != Step::Kind::Launch ||
          !plan.kernels[step.kernel].resident)
        continue;
      Result<int64_t> grid = plan.kernels[step.kernel].grid.evaluate(half);
      if (!grid)
        return grid.status();
      if (*grid > 0)
        return false;
    }
  }
  return true;
}

Result<int64_t> halvesWorkspaceBytes(const Plan &plan, int64_t tokens) {
  int64_t ranks = plan.mesh.tokenRanks(), own = tokens / ranks;
  // The first half grows with its batch; the second gets the rest, at most
  // half.
  Result<int64_t> first =
      workspaceBytes(plan, splitBatch(plan, own * ranks)[0]);
  Result<int64_t> second = workspaceBytes(plan, own / 2 * ranks);
  if (!first || !second)
    return first ? second : first;
  int64_t both;
  if (__builtin_add_overflow(*first, *second, &both))
    return outOfRange("workspace for two micro-batches of " +
                      std::to_string(tokens) +
                      " tokens: more than 2^63 bytes; run without "
                      "micro-batches");
  return both;
}

} // namespace moert
