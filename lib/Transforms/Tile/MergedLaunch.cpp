//===- MergedLaunch.cpp - two launches as one -------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "MergedLaunch.h"

#include "mlir/IR/IRMapping.h"

using namespace mlir;
using namespace moec;

MergedLaunch::MergedLaunch(plan::LaunchOp first, plan::LaunchOp second,
                           ValueRange outs)
    : first(first), second(second), ins(first.getIns()), outs(first.getOuts()) {
  for (Value out : llvm::concat<Value>(second.getOuts(), outs))
    if (!llvm::is_contained(this->outs, out))
      this->outs.push_back(out);
  for (Value in : second.getIns())
    if (!llvm::is_contained(ins, in) && !llvm::is_contained(this->outs, in))
      ins.push_back(in);
}

Value MergedLaunch::getArgument(tile::KernelOp kernel, Value passed) const {
  SmallVector<Value> all(ins);
  llvm::append_range(all, outs);
  return kernel.getArgument(llvm::find(all, passed) - all.begin());
}

tile::KernelOp MergedLaunch::makeKernel(SymbolTable &symbols) const {
  tile::KernelOp one = getKernel(first, symbols),
                 other = getKernel(second, symbols);
  OpBuilder builder(one);
  SmallVector<Type> types = llvm::to_vector(ValueRange(ins).getTypes());
  llvm::append_range(types, ValueRange(outs).getTypes());
  types.push_back(builder.getI64Type());
  auto kernel = tile::KernelOp::create(
      builder, one.getLoc(),
      (one.getSymName() + "_" + other.getSymName()).str(),
      builder.getFunctionType(types, {}));
  symbols.insert(kernel, one->getIterator());
  builder.setInsertionPointToStart(&kernel.getBody().front());
  for (plan::LaunchOp launch : {first, second}) {
    tile::KernelOp old = getKernel(launch, symbols);
    IRMapping mapping;
    mapping.map(old.getTokens(), kernel.getTokens());
    for (auto [argument, operand] :
         llvm::zip(old.getBody().getArguments(), getOperands(launch)))
      mapping.map(argument, getArgument(kernel, operand));
    for (Operation &phase : old.getBody().front().without_terminator())
      builder.clone(phase, mapping);
  }
  tile::ReturnOp::create(builder, kernel.getLoc());
  return kernel;
}

void MergedLaunch::separate() {
  for (Value in : first.getIns()) {
    auto buffer = in.getDefiningOp<plan::BufferOp>();
    if (!buffer || !buffer.getSlot())
      continue;
    for (Value out : second.getOuts())
      if (auto other = out.getDefiningOp<plan::BufferOp>();
          other && other.getSlot() == buffer.getSlot())
        buffer.setSlot(makeSlot(first->getParentOfType<plan::ProgramOp>()));
  }
}

void MergedLaunch::replaceBy(tile::KernelOp kernel) {
  separate();
  OpBuilder builder(first);
  plan::LaunchOp::create(builder, first.getLoc(), kernel.getSymName(),
                         first.getStream(), ins, outs, first.getDependent(),
                         /*tokens=*/{}, /*columns=*/{});
  first->erase();
  second->erase();
}
