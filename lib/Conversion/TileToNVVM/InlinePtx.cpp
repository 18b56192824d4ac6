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

SmallVector<Value> moec::tieSums(ImplicitLocOpBuilder &b, ValueRange sums) {
  // Each output takes the place of the input of the same number.
  std::string constraints;
  for (size_t i = 0; i < sums.size(); ++i)
    constraints += i ? ",=f" : "=f";
  for (size_t i = 0; i < sums.size(); ++i)
    constraints += "," + std::to_string(i);
  auto type = LLVM::LLVMStructType::getLiteral(
      b.getContext(), SmallVector<Type>(sums.size(), b.getF32Type()));
  Value tied = LLVM::InlineAsmOp::create(
                   b, type, sums, /*asm_string=*/"", constraints,
                   /*has_side_effects=*/true, /*is_align_stack=*/false,
                   LLVM::TailCallKind::None, LLVM::AsmDialectAttr(),
                   /*operand_attrs=*/ArrayAttr())
                   .getResult(0);
  SmallVector<Value> results;
  for (int64_t i = 0, end = sums.size(); i < end; ++i)
    results.push_back(LLVM::ExtractValueOp::create(b, tied, i));
  return results;
}

Value moec::tieNumber(ImplicitLocOpBuilder &b, Value number) {
  return LLVM::InlineAsmOp::create(b, number.getType(), number,
                                   /*asm_string=*/"", /*constraints=*/"=r,0",
                                   /*has_side_effects=*/true,
                                   /*is_align_stack=*/false,
                                   LLVM::TailCallKind::None,
                                   LLVM::AsmDialectAttr(),
                                   /*operand_attrs=*/ArrayAttr())
      .getResult(0);
}

void moec::endApart(ImplicitLocOpBuilder &b) {
  LLVM::InlineAsmOp::create(b, /*res=*/Type(), /*operands=*/ValueRange(),
                            /*asm_string=*/"", /*constraints=*/"",
                            /*has_side_effects=*/true,
                            /*is_align_stack=*/false, LLVM::TailCallKind::None,
                            LLVM::AsmDialectAttr(),
                            /*operand_attrs=*/ArrayAttr());
}

void moec::renewMemory(ImplicitLocOpBuilder &b, ValueRange addresses) {
  std::string constraints;
  for (size_t i = 0; i < addresses.size(); ++i)
    constraints += "l,";
  LLVM::InlineAsmOp::create(b, /*res=*/Type(), addresses, /*asm_string=*/"",
                            constraints + "~{memory}",
                            /*has_side_effects=*/true,
                            /*is_align_stack=*/false, LLVM::TailCallKind::None,
                            LLVM::AsmDialectAttr(),
                            /*operand_attrs=*/ArrayAttr());
}
