//===- ValuesTest.cpp - tests of typed values -------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// A test emits ops to a function and compares their text.

#include "KernelBuilder/KernelEmitter.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/Matchers.h"
#include "gtest/gtest.h"

using namespace mlir;
using namespace moec;

namespace {

class ValuesTest : public ::testing::Test {
protected:
  ValuesTest() {
    context.loadDialect<arith::ArithDialect, func::FuncDialect,
                        math::MathDialect, scf::SCFDialect, tile::TileDialect,
                        vector::VectorDialect>();
    OpBuilder builder(&context);
    module = ModuleOp::create(builder.getUnknownLoc());
    builder.setInsertionPointToStart(module->getBody());
    Type i32 = builder.getI32Type(), f32 = builder.getF32Type();
    Type i1 = builder.getI1Type(), i64 = builder.getI64Type();
    // The first argument is the number of tokens.
    Type types[] = {i32,
                    i32,
                    f32,
                    f32,
                    i1,
                    i1,
                    builder.getIndexType(),
                    i64,
                    builder.getI8Type(),
                    VectorType::get(4, i32),
                    VectorType::get(4, f32)};
    auto kernel = tile::KernelOp::create(builder, builder.getUnknownLoc(), "k",
                                         builder.getFunctionType(i32, {}));
    func = func::FuncOp::create(builder, builder.getUnknownLoc(), "f",
                                builder.getFunctionType(types, {}));
    func.addEntryBlock();
    emitter.emplace(func, kernel, /*cta=*/func.getArgument(6));
    set(x, 0), set(y, 1), set(f, 2), set(g, 3), set(flag, 4), set(other, 5);
    set(index, 6), set(wide, 7), set(byte, 8), set(integers, 9);
    set(floats, 10);
    takeOps();
  }

  /// The text of the emitted ops, without integer constants, whose names say
  /// their value. Erases the ops.
  std::string takeOps() {
    std::string text, kept;
    llvm::raw_string_ostream stream(text);
    func->print(stream, OpPrintingFlags().assumeVerified());
    SmallVector<StringRef> lines;
    StringRef(text).trim().split(lines, '\n');
    for (StringRef line : ArrayRef(lines).drop_front().drop_back())
      if (!line.contains("= arith.constant") || line.contains("%cst"))
        kept += line.trim().str() + "\n";
    Block &body = func.getBody().front();
    while (!body.empty())
      body.back().erase();
    return kept;
  }
  /// Compares the ops that the argument's evaluation has emitted.
  void expectOps(Value /*result*/, const std::string &ops) {
    EXPECT_EQ(takeOps(), ops.empty() ? ops : ops + "\n");
  }

  MLIRContext context;
  OwningOpRef<ModuleOp> module;
  func::FuncOp func;
  std::optional<KernelEmitter> emitter;
  I32 x, y, integers;
  F32 f, g, floats;
  Flag flag, other;
  Index index;
  I64 wide;
  IntegerValue<int8_t> byte;

private:
  template <typename T>
  void set(T &value, unsigned argument) {
    value = {emitter->b, func.getArgument(argument)};
  }
};

/// A state with each kind of member.
struct State {
  I32 count;
  std::tuple<F32, SmallVector<F32>> sums;
  auto fields() { return std::tie(count, sums); }
};

} // namespace

TEST_F(ValuesTest, IntegerArithmetic) {
  expectOps(x + y, "%0 = arith.addi %arg0, %arg1 : i32");
  expectOps(x - 1, "%0 = arith.subi %arg0, %c1_i32 : i32");
  expectOps(7 - x, "%0 = arith.subi %c7_i32, %arg0 : i32");
  expectOps(index * 3, "%0 = arith.muli %arg6, %c3 : index");
  expectOps(wide << 2, "%0 = arith.shli %arg7, %c2_i64 : i64");
  expectOps(x & 255, "%0 = arith.andi %arg0, %c255_i32 : i32");
  expectOps(x | y, "%0 = arith.ori %arg0, %arg1 : i32");
  expectOps(x ^ y, "%0 = arith.xori %arg0, %arg1 : i32");
  expectOps(~x, "%0 = arith.xori %arg0, %c-1_i32 : i32");
  expectOps(-x, "%0 = arith.subi %c0_i32, %arg0 : i32");
  expectOps(x + 0, "");
  expectOps(x * 1, "");
  expectOps(integers + 1, "%cst = arith.constant dense<1> : vector<4xi32>\n"
                          "%0 = arith.addi %arg9, %cst : vector<4xi32>");
}

TEST_F(ValuesTest, DivisionIsUnsigned) {
  expectOps(x / y, "%0 = arith.divui %arg0, %arg1 : i32");
  expectOps(x % 8, "%0 = arith.remui %arg0, %c8_i32 : i32");
  expectOps(x >> 3, "%0 = arith.shrui %arg0, %c3_i32 : i32");
  expectOps(x.shiftRightSigned(3), "%0 = arith.shrsi %arg0, %c3_i32 : i32");
  expectOps(divideUp(x, 8), "%0 = arith.addi %arg0, %c7_i32 : i32\n"
                            "%1 = arith.divui %0, %c8_i32 : i32");
  expectOps(divideUp(index, index), "%0 = arith.addi %arg6, %arg6 : index\n"
                                    "%1 = arith.subi %0, %c1 : index\n"
                                    "%2 = arith.divui %1, %arg6 : index");
  llvm::APInt quotient;
  ASSERT_TRUE(matchPattern(emitter->i32(-2) / 2, m_ConstantInt(&quotient)));
  EXPECT_EQ(quotient, 0x7FFFFFFF);
}

TEST_F(ValuesTest, ComparisonsAreSigned) {
  expectOps(x < y, "%0 = arith.cmpi slt, %arg0, %arg1 : i32");
  expectOps(x <= 5, "%0 = arith.cmpi sle, %arg0, %c5_i32 : i32");
  expectOps(x > y, "%0 = arith.cmpi sgt, %arg0, %arg1 : i32");
  expectOps(x >= y, "%0 = arith.cmpi sge, %arg0, %arg1 : i32");
  expectOps(x == 0, "%0 = arith.cmpi eq, %arg0, %c0_i32 : i32");
  expectOps(x != y, "%0 = arith.cmpi ne, %arg0, %arg1 : i32");
  expectOps(x.isBelow(4), "%0 = arith.cmpi ult, %arg0, %c4_i32 : i32");
  expectOps(min(x, y), "%0 = arith.minsi %arg0, %arg1 : i32");
  expectOps(max(index, 2), "%0 = arith.maxsi %arg6, %c2 : index");
}

TEST_F(ValuesTest, Conversions) {
  expectOps(x.toIndex(), "%0 = arith.index_cast %arg0 : i32 to index");
  expectOps(x.toI64(), "%0 = arith.extui %arg0 : i32 to i64");
  expectOps(x.toF32(), "%0 = arith.sitofp %arg0 : i32 to f32");
  expectOps(x.lowBits(16), "%0 = arith.trunci %arg0 : i32 to i16");
  expectOps(index.toI32(), "%0 = arith.index_cast %arg6 : index to i32");
  expectOps(wide.toI32(), "%0 = arith.trunci %arg7 : i64 to i32");
  expectOps(byte.widened(), "%0 = arith.extui %arg8 : i8 to i32");
  expectOps(flag.toI32(), "%0 = arith.extui %arg4 : i1 to i32");
  expectOps(f.toI32(), "%0 = arith.fptosi %arg2 : f32 to i32");
  expectOps(f.bits(), "%0 = arith.bitcast %arg2 : f32 to i32");
  expectOps(F32::fromBits(integers),
            "%0 = arith.bitcast %arg9 : vector<4xi32> to vector<4xf32>");
}

TEST_F(ValuesTest, Floats) {
  expectOps(f + g, "%0 = arith.addf %arg2, %arg3 : f32");
  expectOps(f - 2.0, "%cst = arith.constant 2.000000e+00 : f32\n"
                     "%0 = arith.subf %arg2, %cst : f32");
  expectOps(2.0 / f, "%cst = arith.constant 2.000000e+00 : f32\n"
                     "%0 = arith.divf %cst, %arg2 : f32");
  expectOps(floats * 0.5,
            "%cst = arith.constant dense<5.000000e-01> : vector<4xf32>\n"
            "%0 = arith.mulf %arg10, %cst : vector<4xf32>");
  expectOps(-f, "%0 = arith.negf %arg2 : f32");
  expectOps(f.abs(), "%0 = math.absf %arg2 : f32");
  expectOps(fma(f, g, f), "%0 = math.fma %arg2, %arg3, %arg2 : f32");
  // NaN is not less than, equal to or greater than anything.
  expectOps(f < g, "%0 = arith.cmpf olt, %arg2, %arg3 : f32");
  expectOps(f <= g, "%0 = arith.cmpf ole, %arg2, %arg3 : f32");
  expectOps(f > g, "%0 = arith.cmpf ogt, %arg2, %arg3 : f32");
  expectOps(f >= g, "%0 = arith.cmpf oge, %arg2, %arg3 : f32");
  expectOps(f == g, "%0 = arith.cmpf oeq, %arg2, %arg3 : f32");
  expectOps(f.isNumber(), "%0 = arith.cmpf ord, %arg2, %arg2 : f32");
}

TEST_F(ValuesTest, FlagsAndSelect) {
  expectOps(flag & other, "%0 = arith.andi %arg4, %arg5 : i1");
  expectOps(flag | other, "%0 = arith.ori %arg4, %arg5 : i1");
  expectOps(~flag, "%0 = arith.xori %arg4, %true : i1");
  expectOps(select(flag, x, y), "%0 = arith.select %arg4, %arg0, %arg1 : i32");
  expectOps(select(flag, index, 3),
            "%0 = arith.select %arg4, %arg6, %c3 : index");
  expectOps(select(flag, f, g), "%0 = arith.select %arg4, %arg2, %arg3 : f32");
  EXPECT_TRUE(Flag().isNull());
  EXPECT_FALSE(flag.isNull());
}

TEST_F(ValuesTest, Vectors) {
  expectOps(floats.element(2), "%0 = vector.extract %arg10[2] : f32 from "
                               "vector<4xf32>");
  expectOps(makeVector<I32>(emitter->b, {x, y}),
            "%0 = vector.from_elements %arg0, %arg1 : vector<2xi32>");
}

TEST_F(ValuesTest, LoopsCarryStates) {
  auto body = [&](Index i, State state) {
    auto &[sum, sums] = state.sums;
    state.count = state.count + i.toI32();
    std::swap(sum, sums.front());
    return state;
  };
  State last = emitter->loop(index, index * 2, 4, State{x, {f, {g}}}, body);
  auto &[sum, sums] = last.sums;
  expectOps(
      select(last.count < y, sum, sums.front()),
      "%0 = arith.muli %arg6, %c2 : index\n"
      "%1:3 = scf.for %arg11 = %arg6 to %0 step %c4 iter_args(%arg12 = %arg0, "
      "%arg13 = %arg2, %arg14 = %arg3) -> (i32, f32, f32) {\n"
      "%4 = arith.index_cast %arg11 : index to i32\n"
      "%5 = arith.addi %arg12, %4 : i32\n"
      "scf.yield %5, %arg14, %arg13 : i32, f32, f32\n"
      "}\n"
      "%2 = arith.cmpi slt, %1#0, %arg1 : i32\n"
      "%3 = arith.select %2, %1#1, %1#2 : f32");
}

TEST_F(ValuesTest, WhileLoopsCarryStates) {
  auto goesOn = [&](std::tuple<I32, F32> &state) {
    return std::get<0>(state) < y;
  };
  auto body = [&](std::tuple<I32, F32> state) {
    auto [count, sum] = state;
    return std::tuple(count + 1, sum + g);
  };
  auto [count, sum] = emitter->whileLoop(std::tuple(x, f), goesOn, body);
  expectOps(select(flag, sum, g),
            "%0:2 = scf.while (%arg11 = %arg0, %arg12 = %arg2) : (i32, f32) -> "
            "(i32, f32) {\n"
            "%2 = arith.cmpi slt, %arg11, %arg1 : i32\n"
            "scf.condition(%2) %arg11, %arg12 : i32, f32\n"
            "} do {\n"
            "^bb0(%arg11: i32, %arg12: f32):\n"
            "%2 = arith.addi %arg11, %c1_i32 : i32\n"
            "%3 = arith.addf %arg12, %arg3 : f32\n"
            "scf.yield %2, %3 : i32, f32\n"
            "}\n"
            "%1 = arith.select %arg4, %0#1, %arg3 : f32");
}

TEST_F(ValuesTest, ChooseTakesStates) {
  State chosen = emitter->choose(
      flag, [&] { return State{x + 1, {f, {g, f}}}; },
      [&] { return State{y, {g, {f, g}}}; });
  expectOps(chosen.count * y,
            "%0:4 = scf.if %arg4 -> (i32, f32, f32, f32) {\n"
            "%2 = arith.addi %arg0, %c1_i32 : i32\n"
            "scf.yield %2, %arg2, %arg3, %arg2 : i32, f32, f32, f32\n"
            "} else {\n"
            "scf.yield %arg1, %arg3, %arg2, %arg3 : i32, f32, f32, f32\n"
            "}\n"
            "%1 = arith.muli %0#0, %arg1 : i32");
  EXPECT_EQ(std::get<1>(chosen.sums).size(), 2u);
}

TEST_F(ValuesTest, ChooseOfOneValue) {
  F32 chosen = emitter->choose(~flag, [&] { return f; }, [&] { return g; });
  expectOps(chosen, "%0 = arith.xori %arg4, %true : i1\n"
                    "%1 = scf.if %0 -> (f32) {\n"
                    "scf.yield %arg2 : f32\n"
                    "} else {\n"
                    "scf.yield %arg3 : f32\n"
                    "}");
}
