//===- Variants.cpp - the token ranges of a plan ----------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Variants.h"

using namespace mlir;
using namespace moec;

using FirstTokens = function_ref<std::optional<int64_t>(plan::LaunchOp)>;

/// Splits the variant once; returns whether it did.
static bool splitVariant(plan::VariantOp variant, FirstTokens firstTokens) {
  for (auto launch : variant.getBody().getOps<plan::LaunchOp>()) {
    std::optional<int64_t> first = firstTokens(launch);
    if (!first || *first <= static_cast<int64_t>(variant.getMinTokens()) ||
        *first > static_cast<int64_t>(variant.getMaxTokens()))
      continue;
    OpBuilder builder(variant->getContext());
    builder.setInsertionPointAfter(variant);
    cast<plan::VariantOp>(builder.clone(*variant)).setMinTokens(*first);
    variant.setMaxTokens(*first - 1);
    return true;
  }
  return false;
}

void moec::splitVariants(ModuleOp module, FirstTokens firstTokens) {
  SmallVector<plan::VariantOp> variants;
  module.walk([&](plan::VariantOp variant) { variants.push_back(variant); });
  // Both parts may be split again, by other launches.
  while (!variants.empty()) {
    plan::VariantOp variant = variants.pop_back_val();
    if (splitVariant(variant, firstTokens))
      variants.append({variant, cast<plan::VariantOp>(variant->getNextNode())});
  }
}
