//===- RegionEvaluator.h - runs a scalar region on floats -------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_INTERPRETER_REGIONEVALUATOR_H
#define MOEC_INTERPRETER_REGIONEVALUATOR_H

#include "moert/Status.h"

#include "mlir/IR/Region.h"
#include "llvm/ADT/ArrayRef.h"

#include <cstdint>
#include <vector>

namespace moec::interpreter {

/// A scalar region (score, weight, activation, epilogue) as instructions on
/// float registers. Every op is evaluated in f32: arith ops by IEEE 754, math
/// functions in double and rounded once. An i1 is 0 or 1.
class RegionEvaluator {
public:
  /// An empty region yields its first argument. Fails with the name of an
  /// unknown op.
  static moert::Result<RegionEvaluator> compile(mlir::Region &region);

  /// Number of arguments of the region; 0 for an empty region, which takes any
  /// number.
  size_t numArguments() const { return argumentCount; }
  bool isIdentity() const { return code.empty() && resultRegister == 0; }

  /// The yielded value. Not thread-safe, since the registers are members.
  float evaluate(llvm::ArrayRef<float> arguments);

  enum class Opcode : uint8_t {
    Add,
    Sub,
    Mul,
    Div,
    Rem,
    Neg,
    Maximum,
    Minimum,
    MaxNum,
    MinNum,
    Compare,
    Select,
    And,
    Or,
    Xor,
    Abs,
    Ceil,
    CopySign,
    Cos,
    Erf,
    Exp,
    Exp2,
    ExpM1,
    Floor,
    Fma,
    IsFinite,
    IsInf,
    IsNaN,
    Log,
    Log1p,
    Log2,
    Pow,
    RoundBF16,
    RoundF16,
    RoundEven,
    Rsqrt,
    Sin,
    Sqrt,
    Tanh,
    Trunc,
  };

  struct Instruction {
    Opcode opcode;
    /// The predicate of Compare, in arith's numbering.
    uint8_t predicate = 0;
    uint16_t result = 0;
    uint16_t operands[3] = {0, 0, 0};
  };

private:
  friend class RegionCompiler;

  size_t argumentCount = 0;
  uint16_t resultRegister = 0;
  std::vector<Instruction> code;
  /// Arguments, then constants (set once), then results.
  std::vector<float> registers;
};

} // namespace moec::interpreter

#endif // MOEC_INTERPRETER_REGIONEVALUATOR_H
