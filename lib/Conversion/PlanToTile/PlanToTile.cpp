//===- PlanToTile.cpp - kernels on tensors to kernels on memrefs *- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Lowering of plan.kernel to tile.kernel, one phase per op. Formulas are
// unchanged, and scalar regions are cloned. A phase stores its results to
// memory at once, so that each value of a kernel is one of the kernel's
// results.
//
//===----------------------------------------------------------------------===//

#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/IR/IRMapping.h"
#include "moec/Conversion/Passes.h"
#include "moec/Dialect/Names.h"
#include "moec/Dialect/Plan/PackedMemRef.h"
#include "moec/Dialect/Tile/Tile.h"
#include "llvm/ADT/TypeSwitch.h"

namespace moec {
#define GEN_PASS_DEF_CONVERTPLANTOTILEPASS
#include "moec/Conversion/Passes.h.inc"
} // namespace moec

using namespace mlir;
using namespace moec;

namespace {

/// Clones a scalar region and terminates it with tile.yield.
void cloneScalarRegion(Region &from, Region &to) {
  IRMapping mapping;
  from.cloneInto(&to, mapping);
  if (to.empty())
    return;
  auto yield = cast<moe::YieldOp>(to.front().getTerminator());
  OpBuilder builder(yield);
  tile::YieldOp::create(builder, yield.getLoc(), yield.getValue());
  yield.erase();
}

/// Creates the tile.kernel of one plan.kernel.
class KernelConverter {
public:
  explicit KernelConverter(plan::KernelOp kernel)
      : kernel(kernel), builder(kernel) {}

  LogicalResult run() {
    createKernel();
    if (failed(mapResults()))
      return failure();
    for (Operation &op : kernel.getBody().front().without_terminator())
      if (failed(convert(op)))
        return failure();
    tile::ReturnOp::create(builder, kernel.getLoc());
    kernel.erase();
    return success();
  }

private:
  void createKernel() {
    SmallVector<Type> inputs;
    auto add = [&](Type type, bool isStrided) {
      auto tensor = cast<RankedTensorType>(type);
      inputs.push_back(isStrided ? plan::getStridedMemRef(tensor)
                                 : MemRefType::get(tensor.getShape(),
                                                   tensor.getElementType()));
    };
    for (auto [i, type] : llvm::enumerate(kernel.getArgumentTypes()))
      add(type, kernel.getArgAttr(i, kStridedAttr) != nullptr);
    for (Type type : kernel.getResultTypes())
      add(type, /*isStrided=*/false);
    inputs.push_back(builder.getI64Type());
    tileKernel =
        tile::KernelOp::create(builder, kernel.getLoc(), kernel.getSymName(),
                               builder.getFunctionType(inputs, {}));
    builder.setInsertionPointToStart(&tileKernel.getBody().front());
    tokens = tileKernel.getBody().front().getArguments().back();
    for (auto [from, to] :
         llvm::zip(kernel.getBody().front().getArguments(),
                   tileKernel.getBody().front().getArguments()))
      memory[from] = to;
  }

  LogicalResult mapResults() {
    auto ret = cast<plan::ReturnOp>(kernel.getBody().front().getTerminator());
    auto outs = tileKernel.getBody().front().getArguments().drop_front(
        kernel.getArgumentTypes().size());
    for (auto [value, out] : llvm::zip(ret.getValues(), outs)) {
      if (!value.getDefiningOp())
        return ret.emitOpError("returns an argument of the kernel; a result "
                               "must be written by a phase");
      if (!memory.try_emplace(value, out).second)
        return ret.emitOpError(
            "returns one value twice; return each value once");
    }
    return success();
  }

  LogicalResult convert(Operation &op) {
    for (Value result : op.getResults())
      if (!memory.contains(result))
        return op.emitOpError(
            "has a result that the kernel does not return; return it, since a "
            "phase writes memory that the plan provides");
    Operation *phase =
        TypeSwitch<Operation *, Operation *>(&op)
            .Case<moe::RouteOp, moe::PermuteOp, moe::GroupedMatmulOp,
                  moe::PrepackOp, moe::PlaceIdsOp, moe::GatherRowsOp,
                  moe::RowMapOp, moe::RmsNormOp, moe::LoraShrinkOp,
                  moe::TensorScaleOp, moe::QuantizeOp, moe::UnpermuteOp>(
                [&](auto source) { return create(source); })
            .Default([](Operation *) { return nullptr; });
    if (!phase)
      return op.emitOpError(
          "has no phase at level tile; a plan.kernel holds only moe.route, "
          "moe.permute, moe.grouped_matmul, moe.prepack, moe.place_ids, "
          "moe.gather_rows, moe.row_map, moe.rms_norm, moe.lora_shrink, "
          "moe.tensor_scale, moe.quantize and "
          "moe.unpermute");
    if (Attribute name = op.getAttr(kNameAttr))
      phase->setAttr(kNameAttr, name);
    return success();
  }

  Value get(Value value) { return value ? memory.lookup(value) : Value(); }
  SmallVector<Value> get(ValueRange values) {
    return llvm::map_to_vector(values, [&](Value v) { return get(v); });
  }

  Operation *create(moe::RouteOp op) {
    auto phase = tile::TopKOp::create(
        builder, op.getLoc(), tokens, get(op.getLogits()),
        get(op.getSelectionBias()), get(op.getExpertScale()),
        get(op.getInputIds()), get(op.getHashTable()),
        get(op.getNumValidTokens()), get(op.getIsPadding()),
        get(op.getGivenIds()), get(op.getIds()), get(op.getWeights()),
        get(op.getRecordedIds()), op.getRoutingAttr(), tile::ConfigAttr());
    cloneScalarRegion(op.getScore(), phase.getScore());
    cloneScalarRegion(op.getKey(), phase.getKey());
    cloneScalarRegion(op.getWeight(), phase.getWeight());
    return phase;
  }

  Operation *create(moe::PermuteOp op) {
    return tile::SortByExpertOp::create(
        builder, op.getLoc(), tokens, get(op.getIds()), get(op.getWeights()),
        get(op.getNumValidTokens()), /*counts=*/Value(), get(op.getOffsets()),
        get(op.getPosition()), get(op.getSource()), get(op.getRowWeight()),
        /*counter=*/Value(), op.getNumExpertsAttr(), op.getNumZeroExpertsAttr(),
        op.getLocalExpertsAttr(), /*chunk_tokens=*/IntegerAttr(),
        tile::ConfigAttr());
  }

  Operation *create(moe::GroupedMatmulOp op) {
    auto phase = tile::GemmOp::create(
        builder, op.getLoc(), tokens, get(op.getInput()), get(op.getWeight()),
        get(op.getInputScale()), get(op.getWeightScale()),
        get(op.getWeightZeroPoint()), get(op.getWeightGlobalScale()),
        get(op.getOffsets()), get(op.getSource()), /*ids=*/Value(),
        get(op.getNumValidTokens()),
        /*signals=*/Value(), /*awaits=*/Value(), /*tileCounter=*/Value(),
        /*cleared=*/Value(), /*first_column=*/Value(), get(op.getRowOperands()),
        get(op.getColumnOperands()), get(op.getElementwiseOperands()),
        get(op.getShrunk()), get(op.getAdapters()), get(op.getMatrices()),
        /*result_tensor_scale=*/Value(), get(op.getResult()),
        /*result_scale=*/Value(), op.getLayoutAttr(), op.getInputQuantAttr(),
        op.getWeightQuantAttr(), op.getStrategyAttr(),
        /*quantizes_input=*/UnitAttr(), /*result_quant=*/moe::QuantAttr(),
        /*rounded_to=*/TypeAttr(), /*num_experts=*/IntegerAttr(),
        /*local_experts=*/DenseI64ArrayAttr(),
        /*group_rows=*/tile::GroupRowsAttr(), /*num_columns=*/IntegerAttr(),
        tile::SumOrderAttr(), tile::ConfigAttr());
    cloneScalarRegion(op.getEpilogue(), phase.getEpilogue());
    return phase;
  }

  Operation *create(moe::PrepackOp op) {
    return tile::PrepackOp::create(
        builder, op.getLoc(), tokens, get(op.getWeight()), get(op.getScale()),
        get(op.getZeroPoint()), get(op.getGlobalScale()), get(op.getPacked()),
        get(op.getPackedScale()), get(op.getRowScale()), op.getLayoutAttr(),
        op.getQuantAttr(), op.getPackingAttr(), tile::ConfigAttr());
  }

  Operation *create(moe::PlaceIdsOp op) {
    return tile::PlaceIdsOp::create(
        builder, op.getLoc(), tokens, get(op.getIds()), get(op.getTable()),
        get(op.getReplicaCounts()), get(op.getNumValidTokens()),
        get(op.getIsPadding()), get(op.getResult()), op.getZeroExpertsAttr(),
        tile::ConfigAttr());
  }

  Operation *create(moe::GatherRowsOp op) {
    return tile::GatherRowsOp::create(
        builder, op.getLoc(), tokens, get(op.getInput()), get(op.getOffsets()),
        get(op.getSource()), get(op.getColumns()), get(op.getResult()),
        op.getTopKAttr(), tile::ConfigAttr());
  }

  Operation *create(moe::RowMapOp op) {
    auto phase = tile::RowMapOp::create(
        builder, op.getLoc(), tokens, get(op.getInput()),
        get(op.getNumValidTokens()), get(op.getRowOperands()),
        get(op.getElementwiseOperands()), get(op.getResult()),
        tile::ConfigAttr());
    cloneScalarRegion(op.getBody(), phase.getBody());
    return phase;
  }

  Operation *create(moe::RmsNormOp op) {
    return tile::RmsNormOp::create(
        builder, op.getLoc(), tokens, get(op.getInput()), get(op.getWeight()),
        get(op.getRowWeight()), get(op.getOffsets()), get(op.getResult()),
        op.getTopKAttr(), op.getNormAttr(), tile::ConfigAttr());
  }

  Operation *create(moe::LoraShrinkOp op) {
    return tile::LoraShrinkOp::create(
        builder, op.getLoc(), tokens, get(op.getInput()), get(op.getMatrices()),
        get(op.getOffsets()), get(op.getSource()), get(op.getAdapterIds()),
        get(op.getResult()), get(op.getAdapter()), /*signals=*/Value(),
        op.getGather(), op.getTopK(), tile::ConfigAttr());
  }

  Operation *create(moe::TensorScaleOp op) {
    return tile::TensorScaleOp::create(
        builder, op.getLoc(), tokens, get(op.getInput()), get(op.getOffsets()),
        get(op.getNumValidTokens()), get(op.getIsPadding()), get(op.getScale()),
        op.getTopKAttr(), op.getQuantAttr(), tile::ConfigAttr());
  }

  Operation *create(moe::QuantizeOp op) {
    return tile::QuantizeOp::create(
        builder, op.getLoc(), tokens, get(op.getInput()), get(op.getOffsets()),
        get(op.getTensorScale()), get(op.getQuantized()), get(op.getScale()),
        op.getTopKAttr(), op.getQuantAttr(), tile::ConfigAttr());
  }

  Operation *create(moe::UnpermuteOp op) {
    return tile::GatherReduceOp::create(
        builder, op.getLoc(), tokens, get(op.getRows()), get(op.getPosition()),
        get(op.getIdentity()), get(op.getIdentityWeights()),
        get(op.getAddend()), get(op.getNumValidTokens()), /*awaits=*/Value(),
        get(op.getResult()), op.getUnreducedAttr(), op.getFromUnreducedAttr(),
        tile::ConfigAttr());
  }

  plan::KernelOp kernel;
  OpBuilder builder;
  tile::KernelOp tileKernel;
  Value tokens;
  DenseMap<Value, Value> memory;
};

struct ConvertPlanToTile
    : moec::impl::ConvertPlanToTilePassBase<ConvertPlanToTile> {
  void runOnOperation() override {
    for (auto kernel :
         llvm::make_early_inc_range(getOperation().getOps<plan::KernelOp>()))
      if (failed(KernelConverter(kernel).run()))
        return signalPassFailure();
  }
};

} // namespace
