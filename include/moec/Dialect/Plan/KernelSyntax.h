//===- KernelSyntax.h - syntax of kernel symbols ----------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Builder, parser and printer shared by `plan.kernel` and `tile.kernel`, which
// are functions by interface.
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

/// Parses a function whose value names are local to the kernel. MLIR's parser
/// of functions shares names between kernels: one kernel could name a value of
/// the next, and if the next then fails to parse, MLIR writes to freed memory.
template <typename KernelTy>
mlir::ParseResult parseKernel(mlir::OpAsmParser &parser,
                              mlir::OperationState &result) {
  mlir::StringAttr name;
  llvm::SmallVector<mlir::OpAsmParser::Argument> arguments;
  llvm::SmallVector<mlir::Type> resultTypes;
  llvm::SmallVector<mlir::DictionaryAttr> resultAttrs;
  bool isVariadic = false;
  (void)mlir::impl::parseOptionalVisibilityKeyword(parser, result.attributes);
  if (parser.parseSymbolName(name, mlir::SymbolTable::getSymbolAttrName(),
                             result.attributes) ||
      mlir::function_interface_impl::parseFunctionSignatureWithArguments(
          parser, /*allowVariadic=*/false, arguments, isVariadic, resultTypes,
          resultAttrs) ||
      parser.parseOptionalAttrDictWithKeyword(result.attributes))
    return mlir::failure();
  llvm::SmallVector<mlir::Type> types;
  for (const mlir::OpAsmParser::Argument &argument : arguments)
    types.push_back(argument.type);
  mlir::Builder &builder = parser.getBuilder();
  result.attributes.set(
      KernelTy::getFunctionTypeAttrName(result.name),
      mlir::TypeAttr::get(builder.getFunctionType(types, resultTypes)));
  mlir::call_interface_impl::addArgAndResultAttrs(
      builder, result, arguments, resultAttrs,
      KernelTy::getArgAttrsAttrName(result.name),
      KernelTy::getResAttrsAttrName(result.name));
  return parser.parseRegion(*result.addRegion(), arguments,
                            /*enableNameShadowing=*/true);
}

template <typename KernelTy>
void printKernel(mlir::OpAsmPrinter &printer, KernelTy kernel) {
  mlir::function_interface_impl::printFunctionOp(
      printer, kernel, /*isVariadic=*/false, kernel.getFunctionTypeAttrName(),
      kernel.getArgAttrsAttrName(), kernel.getResAttrsAttrName());
}

} // namespace moec::plan

#endif // MOEC_DIALECT_PLAN_KERNELSYNTAX_H
