//===- Workspace.h - layout of workspace tensors ----------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOERT_WORKSPACE_H
#define MOERT_WORKSPACE_H

#include "moert/Plan.h"

#include <cstdint>
#include <vector>

namespace moert {

/// Alignment of slots and of the workspace, in bytes.
inline constexpr int64_t kWorkspaceAlignment = 256;

/// Bytes of a tensor as an expression of the token count.
Expr tensorBytes(const TensorDecl &tensor);

/// Bytes of the workspace as an expression of the token count, valid within
/// `variant`: the sum over slots of the largest member that the variant uses.
Expr variantWorkspaceBytes(const Plan &plan, const Variant &variant);

/// Bytes that serve every call of up to `tokens` tokens: the maximum over all
/// counts up to it, since sizes are not always monotone; `budget` as in
/// Expr::maxOver.
Result<int64_t> workspaceBytes(const Plan &plan, int64_t tokens,
                               int64_t *budget = nullptr);

/// Offsets of all tensors at one token count.
struct WorkspaceLayout {
  /// Per plan tensor; -1 for a tensor outside the workspace, or not used by the
  /// variant.
  std::vector<int64_t> offsets;
  int64_t bytes = 0;
};

Result<WorkspaceLayout> layoutWorkspace(const Plan &plan,
                                        const Variant &variant, int64_t tokens);

} // namespace moert

#endif // MOERT_WORKSPACE_H
