//===- OperandChecker.h - shapes against a formula --------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Checks of shapes and element types, shared by the verifiers of the levels moe
// (tensors) and tile (memrefs), so that their messages read alike.
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_DIALECT_MOE_OPERANDCHECKER_H
#define MOEC_DIALECT_MOE_OPERANDCHECKER_H

#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Operation.h"

namespace moec::moe {

/// One dimension of an expected shape.
struct Dim {
  /// Any static size above 0.
  static constexpr int64_t kAny = -1;
  /// Known only at run time: `?`.
  static constexpr int64_t kRunTime = mlir::ShapedType::kDynamic;

  /// Name of the dimension in messages.
  llvm::StringRef meaning;
  int64_t size = kAny;
};

/// The dimension of tokens, `?` in every type.
inline Dim tokensDim() { return {"tokens", Dim::kRunTime}; }
/// The dimension of positions, tokens * top_k; `?` in every type.
inline Dim positionsDim() { return {"positions", Dim::kRunTime}; }

/// Reports errors in the operands and results of one op. An absent optional
/// operand (a null value) is legal.
class OperandChecker {
public:
  explicit OperandChecker(mlir::Operation *op) : op(op) {}

  /// Checks the rank and each dimension of a ranked tensor or a memref. A
  /// memref must be row-major, without gaps unless `mayHaveGaps`.
  llvm::LogicalResult checkShape(llvm::StringRef name, mlir::Value value,
                                 llvm::ArrayRef<Dim> dims,
                                 bool mayHaveGaps = false) const;

  /// Checks the element type; `why` names the source of the expected one.
  llvm::LogicalResult checkElement(llvm::StringRef name, mlir::Value value,
                                   mlir::Type expected,
                                   const llvm::Twine &why) const;

  /// Checks that `num_valid_tokens` has one element.
  llvm::LogicalResult checkNumValidTokens(mlir::Value value) const {
    return checkShape("num_valid_tokens", value, {{"1", 1}});
  }

  mlir::InFlightDiagnostic error(const llvm::Twine &message) const {
    return op->emitOpError(message);
  }

private:
  mlir::Operation *op;
};

/// The name of an operand of a list in messages.
inline std::string nameOf(llvm::StringRef list, size_t index) {
  return (list + "[" + llvm::Twine(index) + "]").str();
}

/// Size of a dimension of a ranked tensor or a memref.
int64_t getDim(mlir::Value value, unsigned index);
mlir::Type getElementType(mlir::Value value);

} // namespace moec::moe

#endif // MOEC_DIALECT_MOE_OPERANDCHECKER_H
