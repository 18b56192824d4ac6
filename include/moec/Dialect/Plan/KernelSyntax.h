//===- KernelSyntax.h - what kernel symbols have in common ------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// `plan.kernel` and `tile.kernel` are functions by interface: built, parsed
// and printed alike.
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_DIALECT_PLAN_KERNELSYNTAX_H
#define MOEC_DIALECT_PLAN_KERNELSYNTAX_H

#include "mlir/IR/Builders.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/IR/SymbolTable.h"
#include "mlir/Interfaces/FunctionImplementation.h"

namespace moec::plan {

/// Fills `state` with a symbol, a type and a body of one block.
template <typename KernelTy>
void buildKernel(mlir::OpBuilder &builder, mlir::OperationState &state,
                 llvm::StringRef name, mlir::FunctionType type) {
  state.addAttribute(mlir::SymbolTable::getSymbolAttrName(),
                     builder.getStringAttr(name));
  state.addAttribute(KernelTy::getFunctionTypeAttrName(state.name),
                     mlir::TypeAttr::get(type));
  auto *body = new mlir::Block();
  for (mlir::Type input : type.getInputs())
    body->addArgument(input, state.location);
  state.addRegion()->push_back(body);
}

template <typename KernelTy>
mlir::ParseResult parseKernel(mlir::OpAsmParser &parser,
                              mlir::OperationState &result) {
  auto getType = [](mlir::Builder &builder, llvm::ArrayRef<mlir::Type> inputs,
                    llvm::ArrayRef<mlir::Type> results,
                    mlir::function_interface_impl::VariadicFlag,
                    std::string &) {
    return builder.getFunctionType(inputs, results);
  };
  return mlir::function_interface_impl::parseFunctionOp(
      parser, result, /*allowVariadic=*/false,
      KernelTy::getFunctionTypeAttrName(result.name), getType,
      KernelTy::getArgAttrsAttrName(result.name),
      KernelTy::getResAttrsAttrName(result.name));
}

template <typename KernelTy>
void printKernel(mlir::OpAsmPrinter &printer, KernelTy kernel) {
  mlir::function_interface_impl::printFunctionOp(
      printer, kernel, /*isVariadic=*/false, kernel.getFunctionTypeAttrName(),
      kernel.getArgAttrsAttrName(), kernel.getResAttrsAttrName());
}

} // namespace moec::plan

#endif // MOEC_DIALECT_PLAN_KERNELSYNTAX_H
