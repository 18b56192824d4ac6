//===- TileToNVVM.cpp - tile kernels to code of one GPU thread --*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "../Emission/KernelEmitter.h"
#include "../Emission/Phase.h"
#include "Emit.h"
#include "ThreadEmitter.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "moec/Analysis/LaunchShape.h"
#include "moec/Analysis/Rewrites/FollowPhase.h"
#include "moec/Analysis/Rewrites/JoinProducts.h"
#include "moec/Analysis/Rewrites/QuantizeInputs.h"
#include "moec/Conversion/Passes.h"
#include "moert/GpuTarget.h"

namespace moec {
#define GEN_PASS_DEF_CONVERTTILETONVVMPASS
#include "moec/Conversion/Passes.h.inc"
} // namespace moec

using namespace mlir;
using namespace moec;

namespace {

/// A row of the table of emission functions.
struct Emission {
  llvm::StringLiteral schedule;
  LogicalResult (*emit)(Operation *phase, KernelBody body);
};

constexpr Emission kEmissions[] = {
    {"sm100.contract", emitSm100Contract},
    {"sm90.contract", emitSm90Contract},
    {"sm90.repack", emitSm90Repack},
    {"sm80.contract", emitSm80Contract},
    {"sm80.gemv", emitSm80Gemv},
    {"sm80.top_k", emitSm80TopK},
    {"sm80.count_slots", emitSm80CountSlots},
    {"sm80.rank", emitSm80Rank},
    {"sm80.place_ids", emitSm80PlaceIds},
    {"sm80.row_map", emitSm80RowMap},
    {"sm80.tensor_scale", emitSm80TensorScale},
    {"sm80.quantize", emitSm80Quantize},
    {"sm80.gather_rows", emitSm80GatherRows},
    {"sm80.gather_reduce", emitSm80GatherReduce},
    {"sm80.exchange", emitSm80Exchange},
    {"sm80.route_rows", emitSm80RouteRows},
    {"sm80.pack_rows", emitSm80PackRows},
    {"sm80.sum_packed_rows", emitSm80SumPackedRows},
};

class KernelConverter {
public:
  KernelConverter(tile::KernelOp kernel, const Target &target)
      : kernel(kernel), target(target) {}

  LogicalResult run() {
    FailureOr<SmallVector<Operation *>> phases = getPhases();
    if (failed(phases))
      return failure();
    SmallVector<const Emission *> emissions;
    for (Operation *phase : *phases) {
      emissions.push_back(check(phase));
      if (!emissions.back())
        return failure();
      relaxEpilogue(phase);
    }
    // The schedule of the gemm emits phases that it awaits: joined gemms are
    // emitted by the first, a quantization by its gemm.
    if (isa<tile::ContractOp>(phases->back())) {
      size_t first = isa<tile::ContractOp>(phases->front()) ? 0 : 1;
      *phases = {(*phases)[first]};
      emissions = {emissions[first]};
    } else if (failed(checkFollowing(*phases)))
      return failure();
    if (failed(checkLaunch()))
      return failure();
    func::FuncOp func = makeFunction();
    auto end = OpBuilder::atBlockEnd(&func.getBody().front());
    KernelBody body{func, kernel, kernel.getBlockAttr().getInt(), target};
    if (waitsFirst(*phases))
      ThreadEmitter(func, kernel, body.threads).waitForLaunchBefore();
    for (auto [phase, emission] : llvm::zip(*phases, emissions)) {
      if (phase != phases->front())
        separate(end, phase);
      if (failed(emission->emit(phase, body)))
        return failure();
      end.setInsertionPointToEnd(&func.getBody().front());
    }
    func::ReturnOp::create(end, kernel.getLoc());
    if (failed(expandMath(func, /*onGpu=*/true)))
      return failure();
    kernel.erase();
    return success();
  }

private:
  /// Whether a phase may follow others: a gemm that awaits another gemm or a
  /// quantization, or a phase whose schedule can follow others.
  bool mayFollow(Operation *phase) {
    auto config = phase->getAttrOfType<tile::ConfigAttr>("config");
    const Schedule *schedule =
        config ? findSchedule(target, config.getSchedule()) : nullptr;
    auto product = dyn_cast<tile::ContractOp>(phase);
    if (schedule && product)
      return product.getAwaits() &&
             (isa<tile::ContractOp>(phase->getPrevNode())
                  ? schedule->as<JoinsProducts>() != nullptr
                  : isa<tile::QuantizeOp>(phase->getPrevNode()) &&
                        schedule->as<QuantizesInputs>());
    return schedule && schedule->as<FollowsPhase>();
  }

  /// The phases of the kernel, each of which may follow the one before.
  FailureOr<SmallVector<Operation *>> getPhases() {
    SmallVector<Operation *> phases;
    for (Operation &phase : kernel.getBody().front().without_terminator())
      phases.push_back(&phase);
    if (phases.size() > 1 &&
        llvm::all_of(ArrayRef<Operation *>(phases).drop_front(),
                     [&](Operation *phase) { return mayFollow(phase); }))
      return phases;
    FailureOr<Operation *> phase = getOnlyPhase(kernel);
    if (failed(phase))
      return failure();
    return SmallVector<Operation *>{*phase};
  }

  /// Allows the GPU's approximations for values that are rounded to 16 bits:
  /// powers of 2 within 2 ulp of f32, reciprocals within 1, and flushing of
  /// numbers below the normal range to 0.
  static void relaxEpilogue(Operation *phase) {
    auto contract = dyn_cast<tile::ContractOp>(phase);
    if (!contract ||
        getElementTypeOrSelf(contract.getResult()).getIntOrFloatBitWidth() > 16)
      return;
    contract.getEpilogue().walk([](Operation *op) {
      if (isa<math::ExpOp, math::TanhOp, math::ErfOp, arith::DivFOp>(op))
        cast<arith::ArithFastMathInterface>(op)->setAttr(
            "fastmath", arith::FastMathFlagsAttr::get(
                            op->getContext(), arith::FastMathFlags::afn));
    });
  }

  /// The emission for a config that its schedule accepts; null after a
  /// diagnostic.
  const Emission *check(Operation *phase) {
    auto config = phase->getAttrOfType<tile::ConfigAttr>("config");
    const Schedule *schedule =
        config ? findSchedule(target, config.getSchedule()) : nullptr;
    if (!schedule || schedule->opName != phase->getName().getStringRef()) {
      // The first schedule is the default.
      auto known = getSchedulesFor(target, phase);
      if (known.empty())
        phase->emitOpError("is not a phase that a GPU can run");
      else
        (void)requireConfig(phase, config, known.front()->name);
      return nullptr;
    }
    std::string reason = schedule->whyIllegal(phase, config, target);
    if (!reason.empty()) {
      phase->emitOpError("cannot run as ") << config << ": " << reason;
      return nullptr;
    }
    for (const Emission &emission : kEmissions)
      if (emission.schedule == config.getSchedule())
        return &emission;
    llvm_unreachable("every schedule of GPUs has an emission");
  }

  /// Whether each CTA may go on from phase to phase without waiting for others.
  LogicalResult checkFollowing(ArrayRef<Operation *> phases) {
    for (auto [first, second] :
         llvm::zip(phases.drop_back(), phases.drop_front())) {
      auto config = second->getAttrOfType<tile::ConfigAttr>("config");
      const Schedule *schedule = findSchedule(target, config.getSchedule());
      std::string reason = schedule->as<FollowsPhase>()->whyApart(
          first, second, kernel.getLoadAttr());
      if (!reason.empty())
        return second->emitOpError("cannot follow in one kernel: ")
               << reason << "; or run tile-split-phases";
    }
    return success();
  }

  /// Whether later phases wait for the launch before, so that the first one has
  /// to as well.
  bool waitsFirst(ArrayRef<Operation *> phases) {
    auto gpu = moert::GpuTarget::parse(target.name);
    return gpu && gpu->hasDependentLaunches() && phases.size() > 1 &&
           isa<tile::QuantizeOp>(phases.front()) && !kernel.getAhead();
  }

  /// Emits the barrier before a phase that follows another. After a
  /// quantization it ends the part that runs ahead, because the phase reads
  /// none of the quantized rows.
  void separate(OpBuilder &b, Operation *phase) {
    bool isAhead = isa<tile::QuantizeOp>(phase->getPrevNode());
    NVVM::Barrier0Op::create(b, phase->getLoc())
        ->setAttr(isAhead ? kEndsAheadAttr : kBetweenPhasesAttr,
                  b.getUnitAttr());
  }

  /// Whether the kernel's launch parameters match its configs.
  LogicalResult checkLaunch() {
    LaunchShape shape = getLaunchShape(kernel, target);
    auto isSet = [](IntegerAttr attribute, int64_t value) {
      return attribute && attribute.getInt() == value;
    };
    if (!isSet(kernel.getBlockAttr(), shape.block) ||
        !isSet(kernel.getSharedAttr(), shape.shared))
      return kernel.emitOpError("must have block = ")
             << shape.block << " and shared = " << shape.shared
             << ", which follow from its config; run tile-assign-config";
    if (getTensorMaps() != shape.tensorMaps)
      return kernel.emitOpError("must have the tensor_maps that follow from "
                                "its config; run tile-assign-config");
    return success();
  }

  SmallVector<tile::TensorMapAttr> getTensorMaps() {
    if (!kernel.getTensorMaps())
      return {};
    return llvm::to_vector(
        kernel.getTensorMaps()->getAsRange<tile::TensorMapAttr>());
  }

  /// Arguments: the kernel's, then the address of each tensor map.
  func::FuncOp makeFunction() {
    OpBuilder builder(kernel);
    SmallVector<Type> arguments(kernel.getArgumentTypes());
    arguments.append(getTensorMaps().size(),
                     LLVM::LLVMPointerType::get(kernel.getContext()));
    auto func = func::FuncOp::create(builder, kernel.getLoc(), kernel.getName(),
                                     builder.getFunctionType(arguments, {}));
    func->setAttr("moec.kernel", builder.getUnitAttr());
    func->setAttr("moec.block", kernel.getBlockAttr());
    if (kernel.getForm())
      func->setAttr(kFormAttr, kernel.getFormAttr());
    func.addEntryBlock();
    return func;
  }

  tile::KernelOp kernel;
  const Target &target;
};

struct ConvertTileToNVVM
    : moec::impl::ConvertTileToNVVMPassBase<ConvertTileToNVVM> {
  using ConvertTileToNVVMPassBase::ConvertTileToNVVMPassBase;

  void runOnOperation() override {
    std::optional<Target> gpu = Target::find(target);
    if (!gpu || !gpu->isGpu()) {
      getOperation().emitError("convert-tile-to-nvvm: target '")
          << target << "' is no GPU; accepted are sm_80, sm_90a, sm_100a";
      return signalPassFailure();
    }
    for (auto kernel :
         llvm::make_early_inc_range(getOperation().getOps<tile::KernelOp>()))
      if (failed(KernelConverter(kernel, *gpu).run()))
        return signalPassFailure();
  }
};

} // namespace
