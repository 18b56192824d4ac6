//===- InlinePtx.cpp - machine instructions without an op -------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "InlinePtx.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"

using namespace mlir;
using namespace moec;

/// Null without a result type.
static Value createAsm(ImplicitLocOpBuilder &b, Type result,
                       ValueRange operands, StringRef text,
                       StringRef constraints) {
  auto op = LLVM::InlineAsmOp::create(
      b, result, operands, text, constraints, /*has_side_effects=*/true,
      /*is_align_stack=*/false, LLVM::TailCallKind::None,
      LLVM::AsmDialectAttr(), /*operand_attrs=*/ArrayAttr());
  return result ? op.getResult(0) : Value();
}

/// `constraint`: the register class of all values.
static SmallVector<Value> tie(ImplicitLocOpBuilder &b, ValueRange values,
                              StringRef constraint) {
  // Output i uses the register of input i.
  std::string constraints;
  for (size_t i = 0; i < values.size(); ++i)
    constraints += (i ? ",=" : "=") + constraint.str();
  for (size_t i = 0; i < values.size(); ++i)
    constraints += "," + std::to_string(i);
  auto type = LLVM::LLVMStructType::getLiteral(
      b.getContext(), SmallVector<Type>(values.getTypes()));
  Value tied = createAsm(b, type, values, /*text=*/"", constraints);
  SmallVector<Value> results;
  for (int64_t i = 0, end = values.size(); i < end; ++i)
    results.push_back(LLVM::ExtractValueOp::create(b, tied, i));
  return results;
}

SmallVector<Value> moec::tieSums(ImplicitLocOpBuilder &b, ValueRange sums) {
  return tie(b, sums, "f");
}

SmallVector<Value> moec::tieWords(ImplicitLocOpBuilder &b, ValueRange words) {
  return tie(b, words, "r");
}

SmallVector<Value> moec::tieNumbers(ImplicitLocOpBuilder &b,
                                    ValueRange numbers) {
  return tie(b, numbers, "l");
}

Value moec::tieAddress(ImplicitLocOpBuilder &b, Value address) {
  return tie(b, address, "l").front();
}

Value moec::multiplyE4M3(ImplicitLocOpBuilder &b, ValueRange old, Value a,
                         Value c, Value keeps) {
  size_t count = old.size();
  std::string registers, constraints;
  auto name = [](size_t i) { return "$" + std::to_string(i); };
  for (size_t i = 0; i < count; ++i) {
    registers += (i ? ", " : "") + name(i);
    constraints += "=f,";
  }
  for (size_t i = 0; i < count; ++i)
    constraints += std::to_string(i) + ",";
  std::string text =
      "{\n.reg .pred p;\nsetp.ne.b32 p, " + name(2 * count + 2) +
      ", 0;\nwgmma.fence.sync.aligned;\nwgmma.mma_async.sync.aligned.m64n" +
      std::to_string(2 * count) + "k32.f32.e4m3.e4m3 {" + registers + "}, " +
      name(2 * count) + ", " + name(2 * count + 1) + ", p, 1, 1;\n}\n";
  SmallVector<Value> operands(old);
  operands.append({a, c, keeps});
  auto type = LLVM::LLVMStructType::getLiteral(
      b.getContext(), SmallVector<Type>(count, b.getF32Type()));
  return createAsm(b, type, operands, text, constraints + "l,l,r");
}

Value moec::multiplyFragments(ImplicitLocOpBuilder &b, Type element,
                              ValueRange old, ValueRange a, Value c,
                              Value keeps) {
  size_t count = old.size();
  auto name = [](size_t i) { return "$" + std::to_string(i); };
  auto list = [&](size_t first, size_t size) {
    std::string text;
    for (size_t i = first; i < first + size; ++i)
      text += (i > first ? ", " : "") + name(i);
    return "{" + text + "}";
  };
  std::string constraints;
  for (size_t i = 0; i < count; ++i)
    constraints += "=f,";
  for (size_t i = 0; i < count; ++i)
    constraints += std::to_string(i) + ",";
  for (size_t i = 0; i < a.size(); ++i)
    constraints += "r,";
  bool areBytes = element.getIntOrFloatBitWidth() == 8;
  std::string type = areBytes ? "e4m3" : element.isF16() ? "f16" : "bf16";
  // Only rows of 16-bit elements have flags for transposition.
  std::string form = (areBytes ? "k32.f32." : "k16.f32.") + type + "." + type;
  // LLVM may still move registers to the start of a chain.
  std::string begin =
      keeps ? name(2 * count + a.size() + 1) + ", 0;\nwgmma.fence.sync.aligned;"
            : "1, 0;";
  std::string text = "{\n.reg .pred p;\nsetp.ne.b32 p, " + begin +
                     "\nwgmma.mma_async.sync.aligned.m64n" +
                     std::to_string(2 * count) + form + " " + list(0, count) +
                     ", " + list(2 * count, a.size()) + ", " +
                     name(2 * count + a.size()) + ", p, 1, 1" +
                     (areBytes ? "" : ", 0") + ";\n}\n";
  SmallVector<Value> operands(old);
  llvm::append_range(operands, a);
  operands.push_back(c);
  constraints += "l";
  if (keeps) {
    operands.push_back(keeps);
    constraints += ",r";
  }
  auto sums = LLVM::LLVMStructType::getLiteral(
      b.getContext(), SmallVector<Type>(count, b.getF32Type()));
  return createAsm(b, sums, operands, text, constraints);
}

void moec::multiplyScaledBlocks(ImplicitLocOpBuilder &b, Value sums, Value a,
                                Value c, Value instruction, Value keeps,
                                Value scaleA, Value scaleC) {
  createAsm(b, /*result=*/Type(),
            {sums, a, c, instruction, scaleA, scaleC, keeps},
            "tcgen05.mma.cta_group::1.kind::mxf8f6f4.block_scale.scale_vec::1X "
            "[$0], $1, $2, $3, [$4], [$5], $6;",
            "r,l,l,r,r,r,b");
}

void moec::storeAsync(ImplicitLocOpBuilder &b, Value to, I32 word,
                      Value barrier) {
  createAsm(b, /*result=*/Type(), {to, word, barrier},
            "st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [$0], "
            "$1, [$2];",
            "l,r,l,~{memory}");
}

void moec::storeAsync(ImplicitLocOpBuilder &b, Value to, ArrayRef<Value> words,
                      Value barrier) {
  SmallVector<Value> operands{to};
  llvm::append_range(operands, words);
  operands.push_back(barrier);
  createAsm(b, /*result=*/Type(), operands,
            "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 "
            "[$0], {$1, $2, $3, $4}, [$5];",
            words.front().getType().isF32() ? "l,f,f,f,f,l,~{memory}"
                                            : "l,r,r,r,r,l,~{memory}");
}

I32 moec::readThread(ImplicitLocOpBuilder &b) {
  return {b, createAsm(b, b.getI32Type(), /*operands=*/{},
                       "mov.u32 $0, %tid.x;", "=r")};
}

void moec::endApart(ImplicitLocOpBuilder &b) {
  createAsm(b, /*result=*/Type(), /*operands=*/{}, /*text=*/"",
            /*constraints=*/"");
}

void moec::renewMemory(ImplicitLocOpBuilder &b, ValueRange addresses) {
  std::string constraints;
  for (size_t i = 0; i < addresses.size(); ++i)
    constraints += "l,";
  createAsm(b, /*result=*/Type(), addresses, /*text=*/"",
            constraints + "~{memory}");
}
