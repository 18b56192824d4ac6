//===- Launches.cpp - what launches of a plan run and pass ------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Launches.h"

#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace moec;

tile::KernelOp moec::getKernel(plan::LaunchOp launch, SymbolTable &symbols) {
  return symbols.lookup<tile::KernelOp>(launch.getKernel());
}

tile::GemmOp moec::getProduct(tile::KernelOp kernel) {
  return cast<tile::GemmOp>(kernel.getBody().front().front());
}

SmallVector<plan::LaunchOp> moec::getVariantLaunches(ModuleOp module) {
  SmallVector<plan::LaunchOp> launches;
  module.walk([&](plan::LaunchOp launch) {
    if (isa<plan::VariantOp>(launch->getParentOp()))
      launches.push_back(launch);
  });
  return launches;
}

SmallVector<plan::LaunchOp> moec::findDependent(plan::VariantOp variant) {
  // Streams whose latest step is a launch.
  llvm::DenseSet<int64_t> launching;
  SmallVector<plan::LaunchOp> dependent;
  for (Operation &op : variant.getBody().front())
    llvm::TypeSwitch<Operation *>(&op)
        .Case([&](plan::LaunchOp launch) {
          if (!launching.insert(launch.getStream()).second)
            dependent.push_back(launch);
        })
        .Case<plan::CollectiveOp, plan::RecordOp, plan::WaitOp>(
            [&](auto step) { launching.erase(step.getStream()); });
  return dependent;
}

SmallVector<Value> moec::getOperands(plan::LaunchOp launch) {
  SmallVector<Value> operands(launch.getIns());
  llvm::append_range(operands, launch.getOuts());
  return operands;
}

Value moec::getPassed(plan::LaunchOp launch, Value argument) {
  return argument
             ? getOperands(launch)[cast<BlockArgument>(argument).getArgNumber()]
             : Value();
}

plan::LaunchOp moec::findWriter(plan::LaunchOp launch, Value value) {
  for (Operation *op = launch->getPrevNode(); op; op = op->getPrevNode())
    if (auto before = dyn_cast<plan::LaunchOp>(op);
        before && llvm::is_contained(before.getOuts(), value))
      return before;
  return nullptr;
}

/// Whether two tensors of a plan may overlap.
static bool mayOverlap(Value a, Value b) {
  if (a == b)
    return true;
  auto buffer = a.getDefiningOp<plan::BufferOp>();
  auto other = b.getDefiningOp<plan::BufferOp>();
  if (buffer && other)
    return !buffer.getSlot() || !other.getSlot() ||
           *buffer.getSlot() == *other.getSlot();
  return !buffer && !other;
}

static bool mayOverlap(ValueRange some, ValueRange others) {
  return llvm::any_of(some, [&](Value a) {
    return llvm::any_of(others, [&](Value b) { return mayOverlap(a, b); });
  });
}

bool moec::isIndependent(ValueRange ins, ValueRange outs,
                         plan::LaunchOp other) {
  return !mayOverlap(ins, other.getOuts()) &&
         !mayOverlap(outs, other.getIns()) &&
         !mayOverlap(outs, other.getOuts());
}

int64_t moec::makeSlot(plan::ProgramOp program) {
  int64_t next = 0;
  for (auto buffer : program.getBody().getOps<plan::BufferOp>())
    if (buffer.getSlot())
      next = std::max<int64_t>(next, *buffer.getSlot() + 1);
  return next;
}

Value moec::addBuffer(plan::ProgramOp program, Location loc, Type type,
                      StringRef name) {
  plan::BufferOp last;
  for (auto buffer : program.getBody().getOps<plan::BufferOp>())
    last = buffer;
  OpBuilder builder(program.getContext());
  IntegerAttr slot;
  if (last.getSlot())
    slot = builder.getI64IntegerAttr(makeSlot(program));
  builder.setInsertionPointAfter(last);
  return plan::BufferOp::create(builder, loc, type, name, plan::ExprAttr(),
                                slot);
}

StringRef moec::getName(Value memory) {
  return memory.getDefiningOp()->getAttrOfType<StringAttr>("name").getValue();
}

/// A name that no tensor or buffer of the program has.
static std::string makeUnique(plan::ProgramOp program, std::string first) {
  llvm::StringSet<> names;
  for (auto buffer : program.getBody().getOps<plan::BufferOp>())
    names.insert(getName(buffer));
  for (auto tensor : program.getBody().getOps<plan::TensorOp>())
    names.insert(getName(tensor));
  std::string name = first;
  for (int64_t number = 2; names.contains(name); ++number)
    name = first + "_" + std::to_string(number);
  return name;
}

Value moec::addRows(plan::ProgramOp program, Location loc, Type type,
                    const Twine &name, int64_t topK) {
  Operation *last = nullptr;
  for (auto tensor : program.getBody().getOps<plan::TensorOp>())
    last = tensor;
  for (auto buffer : program.getBody().getOps<plan::BufferOp>())
    if (last->isBeforeInBlock(buffer))
      last = buffer;
  OpBuilder builder(program.getContext());
  builder.setInsertionPointAfter(last);
  moert::Expr size = moert::Expr::tokens() * moert::Expr(topK);
  return plan::BufferOp::create(
      builder, loc, type, makeUnique(program, name.str()),
      plan::ExprAttr::get(program.getContext(), size.str()), IntegerAttr());
}

Value moec::getCounter(plan::LaunchOp ranking, SymbolTable &symbols) {
  auto rank = getPhase<tile::SortByExpertOp>(ranking, symbols);
  if (rank.getCounter())
    return getPassed(ranking, rank.getCounter());
  auto kernel = cast<tile::KernelOp>(rank->getParentOp());
  auto program = ranking->getParentOfType<plan::ProgramOp>();
  auto type = MemRefType::get(1, IntegerType::get(rank.getContext(), 32));
  Value counter = addBuffer(program, ranking.getLoc(), type,
                            (ranking.getKernel() + "_counter").str());
  unsigned number = kernel.getBody().getNumArguments() - 1;
  (void)kernel.insertArgument(number, type, DictionaryAttr(), rank.getLoc());
  program.walk([&](plan::LaunchOp launch) {
    if (launch.getKernel() == kernel.getSymName())
      launch.getOutsMutable().append(counter);
  });
  rank.getCounterMutable().assign(kernel.getArgument(number));
  return counter;
}
