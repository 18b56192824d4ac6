//===- LayerFunction.h - a function of pipeline ops as kernels --*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_CONVERSION_MOETOPLAN_LAYERFUNCTION_H
#define MOEC_LIB_CONVERSION_MOETOPLAN_LAYERFUNCTION_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "moec/Dialect/Moe/Moe.h"
#include "moert/Expr.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/SetVector.h"

namespace moec {

/// Pipeline ops that become one kernel.
struct KernelGroup {
  llvm::SmallVector<mlir::Operation *, 2> ops;
  /// Values that the ops read from outside the group, each once, in order of
  /// use.
  llvm::SetVector<mlir::Value> ins;
  /// Every result of the ops.
  llvm::SmallVector<mlir::Value, 6> outs;
  /// Whether it runs once before all runs, to prepack weights.
  bool prepares() const { return llvm::isa<moe::PrepackOp>(ops.front()); }
  /// Whether it is a collective and not a kernel.
  bool isCollective() const {
    return llvm::isa<moe::DispatchOp, moe::CombineOp>(ops.front());
  }
  /// Base of the symbol; made unique when the kernel is created.
  std::string name;
  /// The token count that is passed to its kernel.
  moert::Expr tokens;
};

/// A function of pipeline ops, verified and divided into kernels.
class LayerFunction {
public:
  /// Whether `func` has ops of the moe dialect, so that it must be converted.
  static bool holdsLayer(mlir::func::FuncOp func);

  /// Verifies `func` and fills this object; reports ops that cannot be lowered
  /// at their location.
  mlir::LogicalResult analyze(mlir::func::FuncOp func);

  mlir::func::FuncOp getFunc() const { return func; }
  llvm::ArrayRef<KernelGroup> getGroups() const { return groups; }
  /// The function's results.
  mlir::ValueRange getReturned() const {
    return func->getRegion(0).front().getTerminator()->getOperands();
  }
  int64_t getMaxTokens() const { return maxTokens; }
  /// The mesh of ranks that run it; null for one rank.
  moe::MeshAttr getMesh() const { return mesh; }

  /// The number of rows of a value whose first dimension is dynamic.
  const moert::Expr &getRows(mlir::Value value) const {
    return rows.find(value)->second;
  }

  /// The group that computes `value` in a run, or -1 for arguments of the
  /// function and prepared values.
  int64_t getProducer(mlir::Value value) const {
    auto it = producers.find(value);
    return it == producers.end() ? -1 : it->second;
  }

private:
  mlir::LogicalResult checkArguments();
  mlir::FailureOr<moert::Expr> readRows(mlir::BlockArgument arg);
  mlir::LogicalResult checkResults();
  mlir::LogicalResult checkOps();
  mlir::LogicalResult checkWeights(moe::PrepackOp op);
  mlir::LogicalResult checkMesh(mlir::Operation &op);
  void inferRows(mlir::Operation &op);
  /// Operands that are read together have as many rows.
  mlir::LogicalResult checkRows(mlir::Operation &op) const;
  void formGroups();

  mlir::func::FuncOp func;
  int64_t maxTokens = 0;
  llvm::SmallVector<mlir::Operation *> ops;
  llvm::SmallVector<KernelGroup, 0> groups;
  moe::MeshAttr mesh;
  /// Tokens of a rank, and of its group of ranks.
  moert::Expr ownTokens, groupTokens;
  llvm::DenseMap<mlir::Value, moert::Expr> rows;
  /// The tokens that the rows of a value belong to.
  llvm::DenseMap<mlir::Value, moert::Expr> rowTokens;
  llvm::DenseMap<mlir::Value, int64_t> producers;
};

} // namespace moec

#endif // MOEC_LIB_CONVERSION_MOETOPLAN_LAYERFUNCTION_H
