//===- Names.h - discardable attributes between the levels ------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_DIALECT_NAMES_H
#define MOEC_DIALECT_NAMES_H

#include "mlir/IR/Operation.h"
#include "llvm/ADT/StringRef.h"

#include <string>

namespace moec {

/// On arguments and results of a layer's function: the canonical tensor name.
/// On pipeline ops: an array of one name per result.
inline constexpr llvm::StringLiteral kNameAttr = "moe.name";
/// On arguments of a layer's function: "input" or "weight".
inline constexpr llvm::StringLiteral kRoleAttr = "moe.role";
/// On arguments of a layer's function and of plan kernels, a unit attribute: a
/// weight that may be bound with gaps between its rows.
inline constexpr llvm::StringLiteral kStridedAttr = "moe.strided";
/// On inputs of a layer's function over ranks whose rows are not the rank's
/// own: "all" for those of all ranks, "group" for those of its group.
inline constexpr llvm::StringLiteral kRowsAttr = "moe.rows";
/// On inputs and results of a layer's function over ranks that are partials:
/// an array of the axes over which a moe.combine sums them, as in ["dp"].
inline constexpr llvm::StringLiteral kPartialAttr = "moe.partial";
/// On the function whose layers were decomposed: the bound of the token count.
inline constexpr llvm::StringLiteral kMaxTokensAttr = "moe.max_tokens";
/// On a function: the bits of a row must not depend on other rows.
inline constexpr llvm::StringLiteral kBatchInvariantAttr =
    "moe.batch_invariant";
/// On the function whose layers were decomposed: the ranks that run it, a
/// `#moe.mesh`.
inline constexpr llvm::StringLiteral kMeshAttr = "moe.mesh";
/// On a layer's function: the keys of the config.json that the user asked to
/// ignore, an array of strings.
inline constexpr llvm::StringLiteral kIgnoredFieldsAttr = "moe.ignored_fields";

/// The ids that a router chose or was given, where `topk_ids` is a tensor of
/// the caller with ids of another type.
inline constexpr llvm::StringLiteral kChosenIds = "chosen_ids";

/// The name of result `index` of `op`, or "" if `op` has none.
inline llvm::StringRef getResultName(mlir::Operation *op, unsigned index) {
  auto names = op->getAttrOfType<mlir::ArrayAttr>(kNameAttr);
  if (!names || index >= names.size())
    return {};
  auto name = llvm::dyn_cast<mlir::StringAttr>(names[index]);
  return name ? name.getValue() : llvm::StringRef();
}

} // namespace moec

#endif // MOEC_DIALECT_NAMES_H
