//===- MoeToPlan.cpp - pipeline ops to launches over buffers ----*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "LayerFunction.h"
#include "StreamSchedule.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/Matchers.h"
#include "moec/Conversion/Passes.h"
#include "moec/Dialect/Names.h"
#include "moec/Dialect/Plan/PackedMemRef.h"
#include "moec/Dialect/Plan/Plan.h"
#include "llvm/ADT/StringSet.h"

namespace moec {
#define GEN_PASS_DEF_CONVERTMOETOPLANPASS
#include "moec/Conversion/Passes.h.inc"
} // namespace moec

using namespace mlir;
using namespace moec;

namespace {

/// Creates the program and the kernels of one function.
class ProgramEmitter {
public:
  ProgramEmitter(const LayerFunction &layer, SymbolTable &symbols)
      : layer(layer), symbols(symbols), loc(layer.getFunc().getLoc()),
        builder(layer.getFunc().getContext()) {}

  void run() {
    func::FuncOp func = layer.getFunc();
    builder.setInsertionPointAfter(func);
    plan::MeshAttr mesh;
    if (moe::MeshAttr ranks = layer.getMesh(); ranks && ranks.getNumRanks() > 1)
      mesh = plan::MeshAttr::get(builder.getContext(), ranks.getNumGroups(),
                                 ranks.getTp(), ranks.getSp());
    program = plan::ProgramOp::create(builder, loc, func.getName(),
                                      layer.getMaxTokens(), mesh,
                                      func->hasAttr(kBatchInvariantAttr),
                                      /*sum_orders=*/DictionaryAttr());
    builder.setInsertionPointAfter(program);
    for (const KernelGroup &group : layer.getGroups())
      kernels.push_back(group.isCollective() ? StringAttr()
                                             : emitKernel(group));
    builder.setInsertionPointToStart(&program.getBody().emplaceBlock());
    emitTensors();
    emitBuffers();
    auto prepare = plan::PrepareOp::create(builder, loc);
    {
      OpBuilder::InsertionGuard guard(builder);
      builder.setInsertionPointToStart(&prepare.getBody().emplaceBlock());
      for (auto [i, group] : llvm::enumerate(layer.getGroups()))
        if (group.prepares())
          emitLaunch(i, /*stream=*/0);
    }
    auto variant =
        plan::VariantOp::create(builder, loc, 0, layer.getMaxTokens());
    builder.setInsertionPointToStart(&variant.getBody().emplaceBlock());
    for (const ScheduledStep &step : scheduleStreams(layer))
      emitStep(step);
  }

private:
  /// Whether `value` is a weight whose rows may have gaps between them.
  bool isStrided(Value value) const {
    auto argument = dyn_cast<BlockArgument>(value);
    return argument &&
           layer.getFunc().getArgAttr(argument.getArgNumber(), kStridedAttr);
  }

  MemRefType toMemRef(Value value) const {
    auto type = cast<RankedTensorType>(value.getType());
    return isStrided(value)
               ? plan::getStridedMemRef(type)
               : MemRefType::get(type.getShape(), type.getElementType());
  }

  plan::ExprAttr getRows(Value value) {
    auto type = cast<RankedTensorType>(value.getType());
    if (type.getRank() == 0 || !type.isDynamicDim(0))
      return {};
    return plan::ExprAttr::get(builder.getContext(),
                               layer.getRows(value).str());
  }

  StringAttr emitKernel(const KernelGroup &group) {
    SmallVector<Type> ins, outs;
    for (Value in : group.ins)
      ins.push_back(in.getType());
    for (Value out : group.outs)
      outs.push_back(out.getType());
    Location kernelLoc = group.ops.front()->getLoc();
    auto kernel = plan::KernelOp::create(builder, kernelLoc, group.name,
                                         builder.getFunctionType(ins, outs));
    for (auto [i, in] : llvm::enumerate(group.ins))
      if (isStrided(in))
        kernel.setArgAttr(i, kStridedAttr, builder.getUnitAttr());
    // The function is erased later, so that its name is still in use here.
    StringAttr symbol = symbols.insert(kernel);
    OpBuilder::InsertionGuard guard(builder);
    builder.setInsertionPointToStart(&kernel.getBody().front());
    IRMapping mapping;
    mapping.map(group.ins.getArrayRef(), kernel.getBody().getArguments());
    for (Operation *op : group.ops)
      builder.clone(*op, mapping);
    SmallVector<Value> results;
    for (Value out : group.outs)
      results.push_back(mapping.lookup(out));
    plan::ReturnOp::create(builder, kernelLoc, results);
    builder.setInsertionPointAfter(kernel);
    return symbol;
  }

  void emitTensors() {
    func::FuncOp func = layer.getFunc();
    auto emit = [&](Value value, StringAttr name, plan::Role role) {
      memory[value] = plan::TensorOp::create(
          builder, value.getLoc(), toMemRef(value), name, role, getRows(value),
          /*in_place=*/StringAttr());
      names.insert(name.getValue());
    };
    for (BlockArgument arg : func.getArguments()) {
      unsigned index = arg.getArgNumber();
      auto role = func.getArgAttrOfType<StringAttr>(index, kRoleAttr);
      emit(arg, func.getArgAttrOfType<StringAttr>(index, kNameAttr),
           role.getValue() == "weight" ? plan::Role::Weight
                                       : plan::Role::Input);
    }
    for (auto [index, value] : llvm::enumerate(layer.getReturned()))
      emit(value, func.getResultAttrOfType<StringAttr>(index, kNameAttr),
           plan::Role::Output);
  }

  /// Declares the tensors that are prepared from weights before all runs.
  void emitPrepared(const KernelGroup &group) {
    for (Value out : group.outs) {
      Operation *op = out.getDefiningOp();
      StringRef name = getResultName(op, cast<OpResult>(out).getResultNumber());
      memory[out] = plan::TensorOp::create(
          builder, op->getLoc(), toMemRef(out),
          uniqueName(name.empty() ? op->getName().stripDialect() : name),
          plan::Role::Prepared, /*rows=*/plan::ExprAttr(),
          /*in_place=*/StringAttr());
    }
  }

  void emitBuffers() {
    for (const KernelGroup &group : layer.getGroups())
      if (group.prepares())
        emitPrepared(group);
    for (const KernelGroup &group : layer.getGroups())
      for (Value out : group.outs) {
        if (memory.contains(out))
          continue;
        Operation *op = out.getDefiningOp();
        StringRef name =
            getResultName(op, cast<OpResult>(out).getResultNumber());
        memory[out] = plan::BufferOp::create(
            builder, op->getLoc(), toMemRef(out),
            uniqueName(name.empty() ? op->getName().stripDialect() : name),
            getRows(out), IntegerAttr());
      }
  }

  StringAttr uniqueName(StringRef base) {
    std::string name = base.str();
    for (int suffix = 1; !names.insert(name).second; ++suffix)
      name = (base + "_" + Twine(suffix)).str();
    return builder.getStringAttr(name);
  }

  void emitStep(const ScheduledStep &step) {
    if (step.kind == ScheduledStep::Kind::Record) {
      plan::RecordOp::create(builder, loc, step.index, step.stream);
      return;
    }
    if (step.kind == ScheduledStep::Kind::Wait) {
      plan::WaitOp::create(builder, loc, step.index, step.stream);
      return;
    }
    emitLaunch(step.index, step.stream);
  }

  void emitLaunch(int64_t index, int64_t stream) {
    const KernelGroup &group = layer.getGroups()[index];
    if (group.isCollective())
      return emitCollective(group.ops.front(), stream);
    plan::ExprAttr tokens;
    if (group.tokens != moert::Expr::tokens())
      tokens = plan::ExprAttr::get(builder.getContext(), group.tokens.str());
    plan::LaunchOp::create(builder, group.ops.front()->getLoc(),
                           FlatSymbolRefAttr::get(kernels[index]),
                           builder.getI64IntegerAttr(stream),
                           toMemory(group.ins.getArrayRef()),
                           toMemory(group.outs),
                           /*dependent=*/UnitAttr(), tokens,
                           /*columns=*/DenseI64ArrayAttr());
  }

  SmallVector<Value> toMemory(ValueRange values) const {
    return llvm::map_to_vector(
        values, [&](Value value) { return memory.lookup(value); });
  }

  void emitCollective(Operation *op, int64_t stream) {
    auto kind = plan::CollectiveKind::AllGather;
    moe::Axis axis;
    ValueRange inputs, ids;
    Value destinations;
    DenseI64ArrayAttr routed;
    IntegerAttr expertsPerRank;
    if (auto dispatch = dyn_cast<moe::DispatchOp>(op)) {
      axis = dispatch.getAxis();
      inputs = dispatch.getInputs();
      destinations = dispatch.getDestinations();
      ids = dispatch.getIds();
      routed = dispatch.getRoutedAttr();
      expertsPerRank = dispatch.getExpertsPerRankAttr();
    } else {
      auto combine = cast<moe::CombineOp>(op);
      axis = combine.getAxis();
      kind = combine.scatters() ? plan::CollectiveKind::ReduceScatter
                                : plan::CollectiveKind::AllReduce;
      inputs = combine->getOperands().take_front();
      destinations = combine.getDestinations();
      ids = combine.getIds();
      expertsPerRank = combine.getExpertsPerRankAttr();
      if (destinations)
        routed = builder.getDenseI64ArrayAttr({0});
    }
    MLIRContext *context = builder.getContext();
    // Both enums of axes have the same values (PlanDataTest).
    plan::CollectiveOp::create(
        builder, op->getLoc(), plan::CollectiveKindAttr::get(context, kind),
        plan::AxisAttr::get(context, static_cast<plan::Axis>(axis)),
        builder.getI64IntegerAttr(stream), toMemory(inputs),
        toMemory(op->getResults()),
        destinations ? memory.lookup(destinations) : Value(), toMemory(ids),
        routed, expertsPerRank, /*rows=*/Value(),
        /*position=*/Value(), /*addend=*/Value(), /*num_valid_tokens=*/Value(),
        /*unquantized=*/Value(), /*quantized=*/DenseI64ArrayAttr(),
        /*columns=*/DenseI64ArrayAttr());
  }

  const LayerFunction &layer;
  SymbolTable &symbols;
  Location loc;
  OpBuilder builder;
  plan::ProgramOp program;
  SmallVector<StringAttr> kernels;
  DenseMap<Value, Value> memory;
  llvm::StringSet<> names;
};

struct ConvertMoeToPlan
    : moec::impl::ConvertMoeToPlanPassBase<ConvertMoeToPlan> {
  void runOnOperation() override {
    SymbolTable symbols(getOperation());
    SmallVector<func::FuncOp> funcs;
    for (auto func : getOperation().getOps<func::FuncOp>())
      if (LayerFunction::holdsLayer(func))
        funcs.push_back(func);
    for (func::FuncOp func : funcs) {
      LayerFunction layer;
      if (failed(layer.analyze(func)))
        return signalPassFailure();
      ProgramEmitter(layer, symbols).run();
      func.erase();
    }
  }
};

} // namespace
