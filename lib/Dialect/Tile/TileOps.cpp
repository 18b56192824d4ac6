//===- TileOps.cpp - verifiers of kernels and phases ------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "TensorMaps.h"
#include "moec/Dialect/Moe/PipelineShapes.h"
#include "moec/Dialect/Moe/QuantLayout.h"
#include "moec/Dialect/Moe/ScalarRegion.h"
#include "moec/Dialect/Plan/KernelSyntax.h"
#include "moec/Dialect/Plan/PackedMemRef.h"
#include "moec/Dialect/Tile/Exchange.h"

#include <limits>

using namespace mlir;
using namespace moec;
using namespace moec::tile;

//===----------------------------------------------------------------------===//
// Kernels
//===----------------------------------------------------------------------===//

void KernelOp::build(OpBuilder &builder, OperationState &state, StringRef name,
                     FunctionType type) {
  plan::buildKernel<KernelOp>(builder, state, name, type);
}

ParseResult KernelOp::parse(OpAsmParser &parser, OperationState &result) {
  return plan::parseKernel<KernelOp>(parser, result);
}

void KernelOp::print(OpAsmPrinter &printer) {
  plan::printKernel(printer, *this);
}

void KernelOp::setForm(bool independent, bool ahead, bool resident, bool late) {
  int64_t registers = getFormAttr() ? getFormAttr().getRegisters() : 0;
  int64_t cluster = getFormAttr() ? getFormAttr().getCluster() : 0;
  auto form = KernelFormAttr::get(getContext(), independent, ahead, resident,
                                  late, registers, cluster);
  bool isPlain =
      form == KernelFormAttr::get(getContext(), false, false, false, false,
                                  /*registers=*/0, /*cluster=*/0);
  setFormAttr(isPlain ? KernelFormAttr() : form);
}

void KernelOp::getAsmBlockArgumentNames(Region &body,
                                        OpAsmSetValueNameFn setName) {
  // Called for kernels that are not verified yet, too.
  if (!body.empty() && body.getNumArguments() > 0 &&
      body.getArguments().back().getType().isInteger(64))
    setName(body.getArguments().back(), "tokens");
  if (body.getNumArguments() > 1 &&
      body.getArguments().drop_back().back().getType().isInteger(64))
    setName(body.getArguments().drop_back().back(), "first_column");
}

Value KernelOp::getFirstColumn() {
  auto arguments = getBody().getArguments().drop_back();
  if (arguments.empty() || !arguments.back().getType().isInteger(64))
    return nullptr;
  return arguments.back();
}

int64_t KernelOp::getPrivateRowsOf(Value argument) {
  auto number = cast<BlockArgument>(argument).getArgNumber();
  std::optional<ArrayRef<int64_t>> rows = getPrivateRows();
  return rows && number < rows->size() ? (*rows)[number] : 0;
}

/// Verifies the columns of a phase in a kernel that is launched for some
/// columns at a time.
static LogicalResult verifyColumns(KernelOp kernel, Operation &op) {
  auto check = [&](auto phase, Value columns) -> LogicalResult {
    if (phase.getFirstColumn() != kernel.getFirstColumn() ||
        bool(phase.getFirstColumn()) != phase.getNumColumns().has_value())
      return phase.emitOpError("needs both 'first_column' and 'num_columns', "
                               "or neither; 'first_column' must be the "
                               "kernel's argument before the token count");
    if (!phase.getNumColumns())
      return success();
    auto type = cast<MemRefType>(columns.getType());
    int64_t count = *phase.getNumColumns();
    if (count < 1 || type.getRank() != 2 || type.getDimSize(1) % count != 0)
      return phase.emitOpError("has num_columns = ")
             << count << " of " << type
             << "; give a divisor of the number of columns";
    return success();
  };
  if (auto gemm = dyn_cast<GemmOp>(op))
    return check(gemm, gemm.getResult());
  if (auto exchange = dyn_cast<ExchangeOp>(op))
    return check(exchange, exchange.getIns().front());
  if (kernel.getFirstColumn())
    return op.emitOpError("is in a kernel with a first column; only gemms and "
                          "exchanges compute some columns");
  return success();
}

static LogicalResult verifySignature(KernelOp kernel) {
  if (!kernel.getResultTypes().empty())
    return kernel.emitOpError(
        "has results; a kernel writes to memrefs: make them arguments");
  ArrayRef<Type> types = kernel.getArgumentTypes();
  if (types.empty() || !types.back().isSignlessInteger(64))
    return kernel.emitOpError(
        "must have the token count, an i64, as its last argument");
  types = types.drop_back();
  if (!types.empty() && types.back().isSignlessInteger(64))
    types = types.drop_back();
  for (auto [index, type] : llvm::enumerate(types)) {
    auto memref = dyn_cast<MemRefType>(type);
    if (!memref)
      return kernel.emitOpError("argument ")
             << index << " is " << type
             << "; a kernel takes ranked memrefs, then the first column if a "
                "launch computes some columns, then the token count";
    if (failed(plan::verifyPackedMemRef(kernel, "argument " + Twine(index),
                                        memref)))
      return failure();
  }
  return success();
}

/// Verifies that rows of a CTA's own are those of memrefs.
static LogicalResult verifyPrivateRows(KernelOp kernel) {
  ArrayRef<int64_t> all = kernel.getPrivateRows().value_or(ArrayRef<int64_t>());
  ArrayRef<Type> types = kernel.getArgumentTypes();
  for (auto [number, rows] : llvm::enumerate(all)) {
    auto type =
        number < types.size() ? dyn_cast<MemRefType>(types[number]) : nullptr;
    if (rows < 0 || !type ||
        (rows && !type.isDynamicDim(0) && type.getDimSize(0) != rows))
      return kernel.emitOpError("has private_rows[")
             << number << "] = " << rows
             << "; give the rows of a memref argument, or 0";
  }
  return success();
}

/// Verifies that `op` is a phase of `kernel`.
static LogicalResult verifyPhase(KernelOp kernel, Operation &op) {
  if (!isa<TopKOp, CountSlotsOp, SortByExpertOp, GemmOp, PrepackOp, PlaceIdsOp,
           RowMapOp, RmsNormOp, LoraShrinkOp, LoraUpdateOp, TensorScaleOp,
           QuantizeOp, GatherRowsOp, GatherReduceOp, ExchangeOp, RouteRowsOp,
           PackRowsOp, SumPackedRowsOp>(op))
    return op.emitOpError("is not allowed in a 'tile.kernel'; its body holds "
                          "phases (tile ops on memrefs) and a 'tile.return'");
  if (op.getOperand(0) != kernel.getTokens())
    return op.emitOpError("must take the kernel's last argument as 'tokens'");
  if (kernel.getGrid() && !op.getAttr("config"))
    return op.emitOpError("has no 'config', but its kernel has a 'grid', which "
                          "follows from it; run 'tile-assign-config' or remove "
                          "the 'grid'");
  return verifyColumns(kernel, op);
}

/// Refuses an attribute of an older moec, which would be ignored otherwise.
static LogicalResult refuseAttribute(Operation *op, StringRef name,
                                     const Twine &instead) {
  if (!op->hasAttr(name))
    return success();
  return op->emitOpError("has '")
         << name << "' as a separate attribute; give " << instead;
}

LogicalResult KernelOp::verify() {
  for (StringRef name : {"independent", "ahead", "resident"})
    if (failed(refuseAttribute(
            *this, name, "form = #tile.kernel_form<" + name + " = true>")))
      return failure();
  if (failed(verifySignature(*this)))
    return failure();
  if (!getBody().hasOneBlock())
    return emitOpError("must have one block: phases and a 'tile.return'");
  if (failed(verifyPrivateRows(*this)))
    return failure();
  return verifyTensorMaps(*this);
}

LogicalResult KernelOp::verifyRegions() {
  for (Operation &op : getBody().front())
    if (!isa<ReturnOp>(op) && failed(verifyPhase(*this, op)))
      return failure();
  Operation &first = getBody().front().front();
  if (getAhead() &&
      (!isa<QuantizeOp>(first) || isa<ReturnOp>(first.getNextNode())))
    return emitOpError("is 'ahead', which needs a 'tile.quantize' as its first "
                       "phase and other phases after it; remove 'ahead'");
  return success();
}

//===----------------------------------------------------------------------===//
// Phases
//===----------------------------------------------------------------------===//

/// Verifies that a phase does not read memory that it writes, since its CTAs
/// run in any order.
static LogicalResult verifySeparate(Operation *op, ValueRange outs) {
  for (auto [index, out] : llvm::enumerate(outs))
    if (llvm::count(op->getOperands(), out) != 1)
      return op->emitOpError("has outs[")
             << index << "] also among its other operands; a phase must not "
             << "read or write one memref twice";
  return success();
}

LogicalResult TopKOp::verify() {
  if (failed(moe::verifyRoute(*this, moe::RouteOperands(*this))))
    return failure();
  SmallVector<Value> outs{getIds(), getWeights()};
  if (getRecordedIds())
    outs.push_back(getRecordedIds());
  return verifySeparate(*this, outs);
}
LogicalResult TopKOp::verifyRegions() {
  if (failed(moe::verifyScalarBody(*this, getScore(), "score")) ||
      failed(moe::verifyScalarBody(*this, getKey(), "key")))
    return failure();
  return moe::verifyScalarBody(*this, getWeight(), "weight");
}

/// Verifies the experts; returns the number of local ones.
static FailureOr<int64_t>
verifyExperts(Operation *op, int64_t numExperts,
              std::optional<ArrayRef<int64_t>> local) {
  auto emitError = [&] { return op->emitOpError(); };
  if (failed(
          moe::verifyNumExperts(emitError, numExperts, /*numZeroExperts=*/0)))
    return failure();
  if (!local)
    return numExperts;
  if (failed(moe::verifyLocalExperts(emitError, numExperts, *local)))
    return failure();
  return local->size();
}

/// Verifies the counts that `tile.count_slots` writes and a
/// `tile.sort_by_expert` reads.
static LogicalResult verifyCounts(Operation *op, Value counts,
                                  int64_t chunkTokens, int64_t numLocal) {
  if (chunkTokens < 1)
    return op->emitOpError("'chunk_tokens' is ")
           << chunkTokens << "; give 1 or more tokens";
  moe::OperandChecker check(op);
  return check.checkShape("counts", counts,
                          {{"chunks"}, {"(local experts)", numLocal}});
}

LogicalResult CountSlotsOp::verify() {
  FailureOr<int64_t> numLocal =
      verifyExperts(*this, getNumExperts(), getLocalExperts());
  moe::OperandChecker check(*this);
  if (failed(numLocal) ||
      failed(
          check.checkShape("ids", getIds(), {moe::tokensDim(), {"top_k"}})) ||
      failed(check.checkNumValidTokens(getNumValidTokens())) ||
      failed(verifyCounts(*this, getCounts(), getChunkTokens(), *numLocal)))
    return failure();
  return verifySeparate(*this, getCounts());
}

LogicalResult SortByExpertOp::verify() {
  if (failed(moe::verifyPermute(*this, moe::PermuteOperands(*this))))
    return failure();
  if (static_cast<bool>(getCounts()) != getChunkTokens().has_value())
    return emitOpError(
        "has only one of 'counts' and 'chunk_tokens'; give both or neither");
  int64_t numLocal = moe::getDim(getOffsets(), 0) - 1;
  if (getCounts() &&
      failed(verifyCounts(*this, getCounts(), *getChunkTokens(), numLocal)))
    return failure();
  SmallVector<Value> outs{getOffsets(), getPosition(), getSource(),
                          getRowWeight()};
  if (getCounter()) {
    outs.push_back(getCounter());
    moe::OperandChecker check(*this);
    if (failed(check.checkShape("counter", getCounter(), {{"1", 1}})))
      return failure();
  }
  return verifySeparate(*this, outs);
}

/// Verifies the counters of a gemm that waits for a phase before it, and of its
/// dynamic tile scheduler.
static LogicalResult verifyCounters(GemmOp op) {
  for (auto [name, counter] :
       {std::pair<StringRef, Value>{"signals", op.getSignals()},
        {"awaits", op.getAwaits()},
        {"tile_counter", op.getTileCounter()},
        {"cleared", op.getCleared()}}) {
    moe::OperandChecker check(op);
    if (counter && failed(check.checkShape(name, counter, {{"1", 1}})))
      return failure();
  }
  // The last gemm of a kernel signals by the counter that it awaits.
  if (op.getSignals() && op.getAwaits() && op.getSignals() != op.getAwaits())
    return op.emitOpError("has 'signals' and 'awaits'; a gemm is either the "
                          "first or the second of its kernel");
  if (op.getTileCounter() && !op.getOffsets())
    return op.emitOpError(
        "has 'tile_counter', which needs a grouped gemm; give 'offsets' too");
  // A quantization before the gemm, and sums behind it, count in the tile
  // scheduler's counter.
  auto isOther = [&](Value counter) {
    return counter && counter != op.getTileCounter();
  };
  if (op.getTileCounter() &&
      (isOther(op.getSignals()) || isOther(op.getAwaits())))
    return op.emitOpError(
        "has 'tile_counter' and 'signals' or 'awaits'; joined "
        "gemms take tiles in a fixed order");
  return success();
}

/// Verifies the ids that offsets come from.
static LogicalResult verifyIds(GemmOp op) {
  if (!op.getIds()) {
    if (op.getNumExperts() || op.getLocalExperts())
      return op.emitOpError(
          "has 'num_experts' or 'local_experts', which belong "
          "to 'ids'; give 'ids' too");
    return success();
  }
  if (!op.getOffsets() || !op.getNumExperts())
    return op.emitOpError("has 'ids'; give 'num_experts' and the 'offsets' "
                          "made from the ids too");
  FailureOr<int64_t> local =
      verifyExperts(op, *op.getNumExperts(), op.getLocalExperts());
  if (failed(local))
    return failure();
  int64_t groups = cast<MemRefType>(op.getWeight().getType()).getDimSize(0);
  if (*local != groups)
    return op.emitOpError("has 'ids' of ")
           << *local << " local experts, but " << groups << " groups";
  moe::OperandChecker check(op);
  return check.checkShape("ids", op.getIds(), {moe::tokensDim(), {"top_k"}});
}

/// Verifies the quantization of results.
static LogicalResult verifyQuantized(GemmOp op) {
  auto result = cast<MemRefType>(op.getResult().getType());
  Type element = result.getElementType();
  bool isGiven = static_cast<bool>(op.getResultTensorScale());
  if (!op.getResultScale() && !isGiven) {
    if (isa<Float8E4M3FNType>(element) || element.isInteger(8))
      return op.emitOpError("has a result of ")
             << element << ", which needs a scale; give "
             << "'result_scale' or 'result_tensor_scale'";
    if (op.getRoundedTo() || op.getResultQuant())
      return op.emitOpError("has 'rounded_to' or 'result_quant', which belong "
                            "to 'result_scale'; give 'result_scale' too");
    return success();
  }
  if (op.getResultScale() && isGiven)
    return op.emitOpError(
        "has 'result_scale' and 'result_tensor_scale'; give the first for a "
        "dynamic scale, or the second for a given one");
  StringRef name = isGiven ? "result_tensor_scale" : "result_scale";
  moe::QuantAttr quant = op.getResultQuantAttr();
  bool isKept = isGiven && quant && moe::areKeptAsBF16(quant);
  if (!isa<Float8E4M3FNType>(element) && !(isGiven && element.isInteger(8)) &&
      !isKept)
    return op.emitOpError("has '")
           << name << "' and a result of " << element
           << "; make the result f8E4M3FN" << (isGiven ? " or i8" : "");
  if (!op.getRoundedTo() || !isa<BFloat16Type, Float16Type>(*op.getRoundedTo()))
    return op.emitOpError("has '")
           << name
           << "'; give 'rounded_to', the type (bf16 or f16) that results are "
              "rounded to before quantization";
  if (!op.getOffsets())
    return op.emitOpError("has '")
           << name
           << "', which needs a gemm with 'offsets'; quantize other results by "
              "a 'tile.quantize'";
  moe::OperandChecker check(op);
  if (isGiven) {
    if (!quant || moe::getMemoryType(quant) != element || quant.getDynamic() ||
        quant.getGranularity() != moe::Granularity::Tensor)
      return op.emitOpError(
                 "has 'result_tensor_scale'; give a static 'result_quant' of "
                 "granularity 'tensor' that stores ")
             << element;
    return check.checkShape("result_tensor_scale", op.getResultTensorScale(),
                            {{"(scales of a tensor)", 1}});
  }
  if (!quant || quant.getStorage() != element || !quant.getDynamic())
    return op.emitOpError(
               "has 'result_scale'; give a dynamic 'result_quant' that stores ")
           << element;
  moe::Dim groups{"(scales of a row)",
                  moe::getNumScaleColumns(quant, result.getDimSize(1))};
  return check.checkShape("result_scale", op.getResultScale(),
                          {moe::positionsDim(), groups});
}

// Defaults of `group_rows`.
static constexpr int64_t kFewestRows = 1;
static constexpr int64_t kMaxRows = std::numeric_limits<int64_t>::max();

static std::optional<uint64_t> boundUnless(int64_t none, int64_t rows) {
  return rows == none ? std::nullopt : std::optional<uint64_t>(rows);
}

std::optional<uint64_t> GemmOp::getMinGroupRows() {
  return getGroupRows() ? boundUnless(kFewestRows, getGroupRowsAttr().getMin())
                        : std::nullopt;
}

std::optional<uint64_t> GemmOp::getMaxGroupRows() {
  return getGroupRows() ? boundUnless(kMaxRows, getGroupRowsAttr().getMax())
                        : std::nullopt;
}

void GemmOp::setMinGroupRows(int64_t rows) {
  GroupRowsAttr old = getGroupRowsAttr();
  setGroupRowsAttr(
      GroupRowsAttr::get(getContext(), rows, old ? old.getMax() : kMaxRows));
}

void GemmOp::setMaxGroupRows(int64_t rows) {
  GroupRowsAttr old = getGroupRowsAttr();
  setGroupRowsAttr(
      GroupRowsAttr::get(getContext(), old ? old.getMin() : kFewestRows, rows));
}

/// Verifies `group_rows`, the bounds on the gemm's groups.
static LogicalResult verifyGroups(GemmOp op) {
  for (StringRef end : {"min", "max"})
    if (failed(refuseAttribute(op, (end + "_group_rows").str(),
                               "group_rows = #tile.group_rows<" + end +
                                   " = ...>")))
      return failure();
  if (op.getGroupRows() && !op.getOffsets())
    return op.emitOpError(
        "has 'group_rows', but no groups; give 'offsets' too");
  return success();
}

LogicalResult GemmOp::verify() {
  moe::MatmulOperands operands(*this);
  operands.quantizesInput = getQuantizesInput();
  if (failed(moe::verifyMatmul(*this, operands)) || failed(verifyIds(*this)) ||
      failed(verifyCounters(*this)) || failed(verifyQuantized(*this)) ||
      failed(verifyGroups(*this)))
    return failure();
  SmallVector<Value> outs{getResult()};
  for (Value out : {getResultScale(), getCleared()})
    if (out)
      outs.push_back(out);
  return verifySeparate(*this, outs);
}
LogicalResult GemmOp::verifyRegions() {
  return moe::verifyScalarBody(*this, getEpilogue(), "epilogue");
}

LogicalResult PrepackOp::verify() {
  if (failed(moe::verifyPrepack(*this, moe::PrepackOperands(*this))))
    return failure();
  return verifySeparate(*this, {getPacked(), getPackedScale(), getRowScale()});
}

LogicalResult PlaceIdsOp::verify() {
  if (failed(moe::verifyPlaceIds(*this, moe::PlaceIdsOperands(*this))))
    return failure();
  return verifySeparate(*this, getResult());
}

LogicalResult RowMapOp::verify() {
  if (failed(moe::verifyRowMap(*this, moe::RowMapOperands(*this))))
    return failure();
  return verifySeparate(*this, getResult());
}
LogicalResult RowMapOp::verifyRegions() {
  return moe::verifyScalarBody(*this, getBody(), "body");
}

LogicalResult RmsNormOp::verify() {
  if (failed(moe::verifyRmsNorm(*this, moe::RmsNormOperands(*this))))
    return failure();
  return verifySeparate(*this, getResult());
}

LogicalResult LoraShrinkOp::verify() {
  if (failed(moe::verifyLoraShrink(*this, moe::LoraShrinkOperands(*this))))
    return failure();
  SmallVector<Value> outs{getResult(), getAdapter()};
  if (getSignals()) {
    outs.push_back(getSignals());
    moe::OperandChecker check(*this);
    if (failed(check.checkShape("signals", getSignals(), {{"1", 1}})))
      return failure();
  }
  return verifySeparate(*this, outs);
}

LogicalResult LoraUpdateOp::verify() {
  if (failed(moe::verifyLoraUpdate(*this, moe::LoraUpdateOperands(*this))))
    return failure();
  return verifySeparate(*this, getResults());
}

LogicalResult TensorScaleOp::verify() {
  if (failed(moe::verifyTensorScale(*this, moe::TensorScaleOperands(*this))))
    return failure();
  return verifySeparate(*this, getScale());
}

LogicalResult QuantizeOp::verify() {
  if (failed(moe::verifyQuantize(*this, moe::QuantizeOperands(*this))))
    return failure();
  SmallVector<Value> outs{getQuantized()};
  if (getScale())
    outs.push_back(getScale());
  return verifySeparate(*this, outs);
}

LogicalResult GatherRowsOp::verify() {
  if (getInputs().empty() || getInputs().size() != getResults().size())
    return emitOpError("has ")
           << getInputs().size() << " ins and " << getResults().size()
           << " outs; give one or more ins and as many outs";
  for (auto [input, result] : llvm::zip(getInputs(), getResults()))
    if (failed(moe::verifyGatherRows(*this, {input, getOffsets(), getSource(),
                                             getColumns(), result, getTopK()})))
      return failure();
  return verifySeparate(*this, getResults());
}

LogicalResult GatherReduceOp::verify() {
  if (failed(moe::verifyUnpermute(*this, moe::UnpermuteOperands(*this))))
    return failure();
  moe::OperandChecker check(*this);
  if (getAwaits() &&
      failed(check.checkShape("awaits", getAwaits(), {{"1", 1}})))
    return failure();
  return verifySeparate(*this, getResult());
}
