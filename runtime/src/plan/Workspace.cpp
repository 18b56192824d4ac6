//===- Workspace.cpp - layout of workspace tensors --------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moert/Workspace.h"

#include <algorithm>

namespace moert {

Expr tensorBytes(const TensorDecl &tensor) {
  Expr inner = 1;
  for (size_t i = 1; i < tensor.shape.size(); ++i)
    inner = inner * tensor.shape[i];
  Expr rows = tensor.shape.empty() ? Expr(1) : tensor.shape[0];
  int64_t bits = dtypeBits(tensor.dtype);
  if (bits % 8 == 0)
    return rows * (inner * (bits / 8));
  return Expr::ceilDiv(rows * (inner * bits), 8);
}

/// The workspace tensors that a variant's launches use, per slot.
static std::vector<std::vector<size_t>> slotMembers(const Plan &plan,
                                                    const Variant &variant) {
  std::vector<bool> used(plan.tensors.size());
  for (const Step &step : variant.steps)
    for (const Argument &arg : step.args)
      if (arg.kind == Argument::Kind::Tensor)
        used[arg.tensor] = true;
  std::vector<std::vector<size_t>> members(plan.numSlots);
  for (size_t i = 0; i < plan.tensors.size(); ++i)
    if (used[i] && plan.tensors[i].role == TensorRole::Workspace)
      members[plan.tensors[i].slot].push_back(i);
  return members;
}

Expr variantWorkspaceBytes(const Plan &plan, const Variant &variant) {
  Expr total = 0;
  for (const std::vector<size_t> &members : slotMembers(plan, variant)) {
    Expr slot = 0;
    for (size_t i = 0; i < members.size(); ++i) {
      Expr bytes = tensorBytes(plan.tensors[members[i]]);
      slot = i == 0 ? bytes : Expr::max(slot, bytes);
    }
    total = total + Expr::roundUp(slot, kWorkspaceAlignment);
  }
  return total;
}

Result<int64_t> workspaceBytes(const Plan &plan, int64_t tokens,
                               int64_t *budget) {
  if (tokens < 0 || tokens > plan.maxTokens)
    return outOfRange("workspace for " + std::to_string(tokens) +
                      " tokens: 0 to max_tokens = " +
                      std::to_string(plan.maxTokens) + " are accepted");
  int64_t most = 0;
  for (const Variant &variant : plan.variants) {
    if (variant.minTokens > tokens)
      break;
    Result<int64_t> bytes =
        variantWorkspaceBytes(plan, variant)
            .maxOver(variant.minTokens, std::min(variant.maxTokens, tokens),
                     budget);
    if (!bytes)
      return bytes.status().withContext("workspace");
    most = std::max(most, *bytes);
  }
  return most;
}

Result<WorkspaceLayout>
layoutWorkspace(const Plan &plan, const Variant &variant, int64_t tokens) {
  WorkspaceLayout layout;
  layout.offsets.assign(plan.tensors.size(), -1);
  for (const std::vector<size_t> &members : slotMembers(plan, variant)) {
    int64_t slotBytes = 0;
    for (size_t tensor : members) {
      Result<int64_t> bytes =
          tensorBytes(plan.tensors[tensor]).evaluate(tokens);
      if (!bytes)
        return bytes.status().withContext("size of workspace tensor '" +
                                          plan.tensors[tensor].name + "'");
      slotBytes = std::max(slotBytes, *bytes);
      layout.offsets[tensor] = layout.bytes;
    }
    Result<int64_t> next =
        Expr::add(layout.bytes, Expr::roundUp(slotBytes, kWorkspaceAlignment))
            .evaluate(tokens);
    if (!next)
      return next.status().withContext("size of the workspace");
    layout.bytes = *next;
  }
  return layout;
}

} // namespace moert
