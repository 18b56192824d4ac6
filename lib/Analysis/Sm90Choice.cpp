//===- Sm90Choice.cpp - configs of the schedules sm90.* ---------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Sm90Choice.h"

#include "Gemv.h"
#include "Sm90Cost.h"
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

/// Bodies that may go together, fewest first: few for few rows, whose code is
/// short, and more where experts get different numbers of rows.
ArrayRef<ArrayRef<int64_t>> getLadders() {
  static constexpr int64_t l0[] = {8}, l1[] = {16}, l2[] = {32}, l3[] = {48},
                           l4[] = {64}, l5[] = {80}, l6[] = {96}, l7[] = {112},
                           l8[] = {128}, l9[] = {144}, l10[] = {152},
                           l11[] = {160}, l12[] = {176}, l13[] = {192},
                           l14[] = {256}, l15[] = {8, 16}, l16[] = {16, 32},
                           l17[] = {32, 64}, l18[] = {16, 32, 64},
                           l19[] = {8, 24, 48}, l20[] = {64, 128},
                           l21[] = {80, 160}, l22[] = {128, 256},
                           l23[] = {32, 64, 96}, l24[] = {32, 96, 128},
                           l25[] = {48, 96, 144}, l26[] = {64, 128, 192},
                           l27[] = {32, 64, 96, 128},
                           l28[] = {40, 80, 120, 160},
                           l29[] = {16, 32, 64, 96, 128},
                           l30[] = {32, 64, 96, 128, 160},
                           l31[] = {64, 128, 192, 256},
                           l32[] = {48, 80, 112, 128, 144, 160};
  static const ArrayRef<int64_t> all[] = {
      l0,  l1,  l2,  l3,  l4,  l5,  l6,  l7,  l8,  l9,  l10,
      l11, l12, l13, l14, l15, l16, l17, l18, l19, l20, l21,
      l22, l23, l24, l25, l26, l27, l28, l29, l30, l31, l32};
  return all;
}

/// Why ptxas would take over a second for the bodies, which all have an
/// epilogue of their own; empty if it does not.
std::string takesLong(tile::ContractOp op, const Contract &shape) {
  constexpr int64_t mostLines = 6000, perColumns = 128;
  int64_t rows =
      std::accumulate(shape.bodies.begin(), shape.bodies.end(), int64_t(0));
  // A thread has a result of every two rows and 128 columns.
  int64_t lines = rows * shape.n * estimateEpilogue(op) / (2 * perColumns);
  if (lines <= mostLines)
    return {};
  return "bodies have epilogues of about " + std::to_string(lines) +
         " lines together, which take ptxas over a second; at most " +
         std::to_string(mostLines) + " are tried";
}

/// Why registers would not suffice; empty if they do, as ptxas has been seen to
/// find.
std::string spills(const Contract &shape) {
  constexpr int64_t highest = 192;
  if (shape.mapRows || shape.getMaxBody() <= highest)
    return {};
  return "bodies up to " + std::to_string(shape.getMaxBody()) +
         " leave too few registers where rows are copied without maps; at "
         "most " +
         std::to_string(highest) + " is tried";
}

/// With as many stages as fit.
tile::ConfigAttr makeConfig(tile::ContractOp op, int64_t n,
                            ArrayRef<int64_t> bodies, bool mapRows,
                            int64_t mostStages) {
  constexpr int64_t leastStages = 3;
  int64_t elementBytes =
      cast<MemRefType>(op.getWeight().getType()).getElementTypeBitWidth() / 8;
  for (int64_t stages = mostStages;; --stages) {
    auto config = tile::ConfigAttr::get(
        op->getContext(), "sm90.contract", /*m=*/0, n,
        Contract::kStepBytes / elementBytes, /*panel=*/0, /*lanes=*/0,
        /*rows=*/0, stages, bodies, mapRows);
    if (stages == leastStages ||
        Contract(op, config).getSharedBytes() <= moert::kMaxShared)
      return config;
  }
}

/// Where the number of rows is not known: columns of a CTA, and its bodies, the
/// widest and the most that ptxas needs less than a second for.
std::pair<int64_t, ArrayRef<int64_t>> chooseTile(tile::ContractOp op) {
  static constexpr int64_t all[] = {16, 32, 64, 96, 128};
  static constexpr int64_t some[] = {32, 96, 128};
  static constexpr int64_t one[] = {128};
  // Of e4m3, the sums of a step take registers too.
  static constexpr int64_t lower[] = {16, 32, 64, 112}, lowest[] = {32, 112};
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
  if (op.getInputScale()) {
    int64_t n = op.getLayout() ? narrow : wide;
    return {n, fits(n, lower) ? ArrayRef<int64_t>(lower) : lowest};
  }
  for (ArrayRef<int64_t> bodies : {ArrayRef<int64_t>(all), {some}, {one}})
    for (int64_t n : {wide, narrow})
      if ((n == narrow || !op.getLayout()) && fits(n, bodies))
        return {n, bodies};
  return {narrow, one};
}

} // namespace

std::vector<Candidate> sm90::getContractCandidates(Operation *op,
                                                   const Target &) {
  auto contract = cast<tile::ContractOp>(op);
  std::vector<Candidate> candidates;
  if (cast<MemRefType>(contract.getWeight().getType())
          .getElementTypeBitWidth() > 16)
    return candidates;
  constexpr int64_t mostStages = 16;
  constexpr int64_t weightRows[] = {64, 128, 256};
  constexpr double pricePerBody = 0.001;
  bool mapRows = !contract.getSource() && isBuffer(contract.getInput());
  int64_t planes = contract.getLayout() ? 2 : 1;
  for (int64_t rows : weightRows)
    for (ArrayRef<int64_t> bodies : getLadders()) {
      Candidate &candidate = candidates.emplace_back();
      candidate.price = pricePerBody * double(bodies.size());
      candidate.config =
          makeConfig(contract, rows / planes, bodies, mapRows, mostStages);
      Contract shape(contract, candidate.config);
      candidate.whyNot = takesLong(contract, shape);
      if (candidate.whyNot.empty())
        candidate.whyNot = spills(shape);
    }
  llvm::append_range(candidates, sm80::getGemvCandidates(contract));
  return candidates;
}

tile::ConfigAttr sm90::chooseContract(Operation *op, const Target &target) {
  auto contract = cast<tile::ContractOp>(op);
  auto kernel = op->getParentOfType<tile::KernelOp>();
  if (tile::LoadAttr load = kernel.getLoadAttr()) {
    const Schedule *schedule = findSchedule(target, "sm90.contract");
    for (const Candidate &candidate :
         enumerateCandidates(op, *schedule, target, load))
      if (candidate.whyNot.empty() &&
          candidate.config.getSchedule() == schedule->name)
        return candidate.config;
  }
  auto [n, bodies] = chooseTile(contract);
  bool mapRows = !contract.getSource() && isBuffer(contract.getInput());
  constexpr int64_t mostStages = 8;
  return makeConfig(contract, n, bodies, mapRows, mostStages);
}
