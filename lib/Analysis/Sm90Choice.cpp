//===- Sm90Choice.cpp - configs of the schedules sm90.* ---------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Sm90Choice.h"

#include "moec/Analysis/Sm90.h"
#include "moert/Plan.h"

#include <numeric>

using namespace mlir;
using namespace moec;
using namespace moec::sm90;

namespace {

/// Whether the argument is a buffer of the workspace in every launch: maps of
/// what the caller brings would have to be made at every call.
bool isBuffer(Value argument) {
  auto kernel = cast<tile::KernelOp>(argument.getParentBlock()->getParentOp());
  auto module = kernel->getParentOfType<ModuleOp>();
  bool isLaunched = false, isAlwaysBuffer = true;
  module.walk([&](plan::LaunchOp launch) {
    if (launch.getKernel() != kernel.getSymName())
      return;
    SmallVector<Value> operands(launch.getIns());
    llvm::append_range(operands, launch.getOuts());
    Value operand = operands[cast<BlockArgument>(argument).getArgNumber()];
    isLaunched = true;
    isAlwaysBuffer &= isa_and_nonnull<plan::BufferOp>(operand.getDefiningOp());
  });
  return isLaunched && isAlwaysBuffer;
}

/// About how many lines of PTX one result takes in the epilogue.
int64_t estimateEpilogue(tile::ContractOp op) {
  constexpr int64_t store = 6, expanded = 30, division = 4, element = 10;
  constexpr int64_t perRowOrColumn = 2;
  int64_t lines = store + element * op.getElementwiseOperands().size() +
                  perRowOrColumn * (op.getRowOperands().size() +
                                    op.getColumnOperands().size());
  op.getEpilogue().walk([&](Operation *inner) {
    if (isa_and_nonnull<math::MathDialect>(inner->getDialect()))
      lines += expanded;
    else if (isa<arith::DivFOp>(inner))
      lines += division;
    else if (!inner->hasTrait<OpTrait::ConstantLike>() &&
             !inner->hasTrait<OpTrait::IsTerminator>())
      ++lines;
  });
  return lines;
}

/// Columns of a CTA, and its bodies: the widest and the most that ptxas needs
/// less than a second for. Each body has an epilogue for all its results.
std::pair<int64_t, ArrayRef<int64_t>> chooseTile(tile::ContractOp op) {
  static constexpr int64_t all[] = {16, 32, 64, 96, 128};
  static constexpr int64_t some[] = {32, 96, 128};
  static constexpr int64_t one[] = {128};
  constexpr int64_t mostLines = 6000, narrow = 128, wide = 256;
  int64_t lines = estimateEpilogue(op);
  // A thread has a result of every two rows and 128 columns.
  auto fits = [&](int64_t n, ArrayRef<int64_t> bodies) {
    int64_t rows = std::accumulate(bodies.begin(), bodies.end(), int64_t(0));
    return rows / 2 * (n / narrow) * lines <= mostLines;
  };
  // A product with few columns, such as a router's, gets low tiles: there are
  // few CTAs.
  constexpr int64_t fewColumns = 1024;
  auto result = cast<MemRefType>(op.getResult().getType());
  if (!op.getOffsets() && result.getDimSize(1) <= fewColumns)
    return {narrow, ArrayRef<int64_t>(all).take_front(2)};
  for (ArrayRef<int64_t> bodies : {ArrayRef<int64_t>(all), {some}, {one}})
    for (int64_t n : {wide, narrow})
      if ((n == narrow || !op.getLayout()) && fits(n, bodies))
        return {n, bodies};
  return {narrow, one};
}

} // namespace

/// As many stages as fit.
tile::ConfigAttr sm90::chooseContract(Operation *op, const Target &) {
  auto contract = cast<tile::ContractOp>(op);
  auto [n, bodies] = chooseTile(contract);
  bool mapRows = !contract.getSource() && isBuffer(contract.getInput());
  constexpr int64_t mostStages = 8;
  for (int64_t stages = mostStages;; --stages) {
    auto config = tile::ConfigAttr::get(
        op->getContext(), "sm90.contract", /*m=*/0, n, /*k=*/64, /*panel=*/0,
        /*lanes=*/0, /*rows=*/0, stages, bodies, mapRows);
    if (stages == 4 ||
        Contract(contract, config).getSharedBytes() <= moert::kMaxShared)
      return config;
  }
}
