//===- RegionEvaluator.cpp - runs a scalar region on floats -----*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/Interpreter/RegionEvaluator.h"

#include "moec/Interpreter/Tensor.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/Matchers.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/StringSwitch.h"

#include <cmath>
#include <optional>

using namespace mlir;
using namespace moert;

namespace moec::interpreter {

using Opcode = RegionEvaluator::Opcode;
using Instruction = RegionEvaluator::Instruction;

/// Ops with the operands of their instruction.
static std::optional<Opcode> plainOpcode(StringRef name) {
  return llvm::StringSwitch<std::optional<Opcode>>(name)
      .Case("arith.addf", Opcode::Add)
      .Case("arith.subf", Opcode::Sub)
      .Case("arith.mulf", Opcode::Mul)
      .Case("arith.divf", Opcode::Div)
      .Case("arith.negf", Opcode::Neg)
      .Case("arith.maximumf", Opcode::Maximum)
      .Case("arith.minimumf", Opcode::Minimum)
      .Case("arith.maxnumf", Opcode::MaxNum)
      .Case("arith.minnumf", Opcode::MinNum)
      .Case("arith.remf", Opcode::Rem)
      .Case("arith.cmpf", Opcode::Compare)
      .Case("arith.select", Opcode::Select)
      .Case("arith.andi", Opcode::And)
      .Case("arith.ori", Opcode::Or)
      .Case("arith.xori", Opcode::Xor)
      .Case("math.absf", Opcode::Abs)
      .Case("math.ceil", Opcode::Ceil)
      .Case("math.copysign", Opcode::CopySign)
      .Case("math.cos", Opcode::Cos)
      .Case("math.erf", Opcode::Erf)
      .Case("math.exp", Opcode::Exp)
      .Case("math.exp2", Opcode::Exp2)
      .Case("math.expm1", Opcode::ExpM1)
      .Case("math.floor", Opcode::Floor)
      .Case("math.fma", Opcode::Fma)
      .Case("math.isfinite", Opcode::IsFinite)
      .Case("math.isinf", Opcode::IsInf)
      .Case("math.isnan", Opcode::IsNaN)
      .Case("math.log", Opcode::Log)
      .Case("math.log1p", Opcode::Log1p)
      .Case("math.log2", Opcode::Log2)
      .Case("math.powf", Opcode::Pow)
      .Case("math.roundeven", Opcode::RoundEven)
      .Case("math.rsqrt", Opcode::Rsqrt)
      .Case("math.sin", Opcode::Sin)
      .Case("math.sqrt", Opcode::Sqrt)
      .Case("math.tanh", Opcode::Tanh)
      .Case("math.trunc", Opcode::Trunc)
      .Default(std::nullopt);
}

class RegionCompiler {
public:
  Result<RegionEvaluator> compile(Region &region) {
    if (!region.hasOneBlock())
      return invalidArgument("a scalar region must have one block");
    Block &block = region.front();
    for (BlockArgument argument : block.getArguments()) {
      if (Status status = checkType(argument); !status)
        return status;
      newRegister(argument, 0.0f);
    }
    result.argumentCount = block.getNumArguments();
    for (Operation &op : block.without_terminator())
      if (Status status = compileOp(op); !status)
        return status;
    Operation *terminator = block.getTerminator();
    if (terminator->getNumOperands() != 1)
      return invalidArgument("a scalar region yields one value, '" +
                             terminator->getName().getStringRef().str() +
                             "' has " +
                             std::to_string(terminator->getNumOperands()));
    Result<uint16_t> yielded = use(terminator->getOperand(0));
    if (!yielded)
      return yielded.status();
    result.resultRegister = *yielded;
    return std::move(result);
  }

private:
  static Status unsupported(Operation &op, const char *why) {
    return invalidArgument("the interpreter does not run '" +
                           op.getName().getStringRef().str() +
                           "' in a scalar region" + why);
  }

  /// bf16 and f16 values live between a truncf and an extf.
  static Status checkType(Value value) {
    Type type = value.getType();
    if (type.isF32() || type.isBF16() || type.isF16() || type.isInteger(1))
      return Status::ok();
    return invalidArgument("a value of a scalar region is neither f32, bf16, "
                           "f16 nor i1");
  }

  uint16_t newRegister(Value value, float initial) {
    uint16_t index = result.registers.size();
    result.registers.push_back(initial);
    registerOf[value] = index;
    return index;
  }

  /// The register of an operand; a constant gets one at its first use.
  Result<uint16_t> use(Value value) {
    auto it = registerOf.find(value);
    if (it != registerOf.end())
      return it->second;
    Attribute constant;
    if (matchPattern(value, m_Constant(&constant))) {
      if (auto number = dyn_cast<FloatAttr>(constant))
        return newRegister(value, number.getValue().convertToDouble());
      if (auto truth = dyn_cast<IntegerAttr>(constant);
          truth && truth.getType().isInteger(1))
        return newRegister(value, truth.getValue().isZero() ? 0.0f : 1.0f);
    }
    return invalidArgument(
        "a scalar region uses a value that is neither its own "
        "nor a constant");
  }

  Status compileOp(Operation &op) {
    if (isa<arith::ConstantOp>(op))
      return Status::ok();
    Instruction instruction{};
    StringRef name = op.getName().getStringRef();
    bool onF32 = true;
    if (std::optional<Opcode> opcode = plainOpcode(name)) {
      instruction.opcode = *opcode;
    } else if (isa<arith::TruncFOp>(op)) {
      onF32 = false;
      instruction.opcode = op.getResult(0).getType().isBF16()
                               ? Opcode::RoundBF16
                               : Opcode::RoundF16;
    } else if (isa<arith::ExtFOp, arith::UIToFPOp>(op)) {
      // Registers hold the extended value already, and 0 or 1 for an i1.
      Result<uint16_t> operand = use(op.getOperand(0));
      if (!operand)
        return operand.status();
      registerOf[op.getResult(0)] = *operand;
      return Status::ok();
    } else {
      return unsupported(op, "; write it with the ops that "
                             "docs/howto/add-an-op.md lists for kernels");
    }
    if (auto compare = dyn_cast<arith::CmpFOp>(op))
      instruction.predicate = static_cast<uint8_t>(compare.getPredicate());
    for (Value value : llvm::concat<Value>(llvm::to_vector(op.getOperands()),
                                           llvm::to_vector(op.getResults()))) {
      if (Status status = checkType(value); !status)
        return status.withContext(name.str());
      Type type = value.getType();
      if (onF32 && !type.isF32() && !type.isInteger(1))
        return unsupported(op, " on values that are not f32; extend them "
                               "first");
    }
    for (auto [i, operand] : llvm::enumerate(op.getOperands())) {
      Result<uint16_t> index = use(operand);
      if (!index)
        return index.status();
      instruction.operands[i] = *index;
    }
    if (result.registers.size() >= UINT16_MAX)
      return invalidArgument("a scalar region has more than 65534 values");
    instruction.result = newRegister(op.getResult(0), 0.0f);
    result.code.push_back(instruction);
    return Status::ok();
  }

  RegionEvaluator result;
  llvm::DenseMap<Value, uint16_t> registerOf;
};

Result<RegionEvaluator> RegionEvaluator::compile(Region &region) {
  if (!region.empty())
    return RegionCompiler().compile(region);
  RegionEvaluator identity;
  identity.registers.push_back(0.0f);
  return identity;
}

//===----------------------------------------------------------------------===//
// Evaluation
//===----------------------------------------------------------------------===//

/// minimumf and maximumf: NaN wins, and -0 is less than +0.
static float minimum(float a, float b) {
  if (std::isnan(a) || std::isnan(b))
    return std::isnan(a) ? a : b;
  if (a == b)
    return std::signbit(a) ? a : b;
  return a < b ? a : b;
}

static float maximum(float a, float b) { return -minimum(-a, -b); }

static bool compare(uint8_t predicate, float a, float b) {
  bool unordered = std::isnan(a) || std::isnan(b);
  switch (static_cast<arith::CmpFPredicate>(predicate)) {
  case arith::CmpFPredicate::AlwaysFalse:
    return false;
  case arith::CmpFPredicate::OEQ:
    return a == b;
  case arith::CmpFPredicate::OGT:
    return a > b;
  case arith::CmpFPredicate::OGE:
    return a >= b;
  case arith::CmpFPredicate::OLT:
    return a < b;
  case arith::CmpFPredicate::OLE:
    return a <= b;
  case arith::CmpFPredicate::ONE:
    return !unordered && a != b;
  case arith::CmpFPredicate::ORD:
    return !unordered;
  case arith::CmpFPredicate::UEQ:
    return unordered || a == b;
  case arith::CmpFPredicate::UGT:
    return !(a <= b);
  case arith::CmpFPredicate::UGE:
    return !(a < b);
  case arith::CmpFPredicate::ULT:
    return !(a >= b);
  case arith::CmpFPredicate::ULE:
    return !(a > b);
  case arith::CmpFPredicate::UNE:
    return a != b;
  case arith::CmpFPredicate::UNO:
    return unordered;
  case arith::CmpFPredicate::AlwaysTrue:
    return true;
  }
  llvm_unreachable("all predicates are listed");
}

static float apply(const Instruction &instruction, float a, float b, float c) {
  // Functions are computed in double and rounded once.
  double x = a;
  switch (instruction.opcode) {
  case Opcode::Add:
    return a + b;
  case Opcode::Sub:
    return a - b;
  case Opcode::Mul:
    return a * b;
  case Opcode::Div:
    return a / b;
  case Opcode::Neg:
    return -a;
  case Opcode::Maximum:
    return maximum(a, b);
  case Opcode::Minimum:
    return minimum(a, b);
  case Opcode::MaxNum:
    return std::fmax(a, b);
  case Opcode::MinNum:
    return std::fmin(a, b);
  case Opcode::Rem:
    return std::fmod(a, b);
  case Opcode::Compare:
    return compare(instruction.predicate, a, b);
  case Opcode::Select:
    return a != 0 ? b : c;
  case Opcode::And:
    return a != 0 && b != 0;
  case Opcode::Or:
    return a != 0 || b != 0;
  case Opcode::Xor:
    return (a != 0) != (b != 0);
  case Opcode::Abs:
    return std::fabs(a);
  case Opcode::Ceil:
    return std::ceil(a);
  case Opcode::CopySign:
    return std::copysign(a, b);
  case Opcode::Cos:
    return std::cos(x);
  case Opcode::Erf:
    return std::erf(x);
  case Opcode::Exp:
    return std::exp(x);
  case Opcode::Exp2:
    return std::exp2(x);
  case Opcode::ExpM1:
    return std::expm1(x);
  case Opcode::Floor:
    return std::floor(a);
  case Opcode::Fma:
    return std::fma(a, b, c);
  case Opcode::IsFinite:
    return std::isfinite(a);
  case Opcode::IsInf:
    return std::isinf(a);
  case Opcode::IsNaN:
    return std::isnan(a);
  case Opcode::Log:
    return std::log(x);
  case Opcode::Log1p:
    return std::log1p(x);
  case Opcode::Log2:
    return std::log2(x);
  case Opcode::Pow:
    return std::pow(x, double(b));
  case Opcode::RoundBF16:
    return roundTo(DType::BF16, a);
  case Opcode::RoundF16:
    return roundTo(DType::F16, a);
  case Opcode::RoundEven:
    return std::nearbyint(a);
  case Opcode::Rsqrt:
    return 1.0 / std::sqrt(x);
  case Opcode::Sin:
    return std::sin(x);
  case Opcode::Sqrt:
    return std::sqrt(a);
  case Opcode::Tanh:
    return std::tanh(x);
  case Opcode::Trunc:
    return std::trunc(a);
  }
  llvm_unreachable("all opcodes are listed");
}

float RegionEvaluator::evaluate(ArrayRef<float> arguments) {
  if (isIdentity())
    return arguments[0];
  std::copy_n(arguments.begin(), argumentCount, registers.begin());
  for (const Instruction &instruction : code)
    registers[instruction.result] = apply(
        instruction, registers[instruction.operands[0]],
        registers[instruction.operands[1]], registers[instruction.operands[2]]);
  return registers[resultRegister];
}

} // namespace moec::interpreter
