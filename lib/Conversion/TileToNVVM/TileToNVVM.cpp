//===- TileToNVVM.cpp - tile kernels to code of one GPU thread --*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "KernelBuilder/KernelEmitter.h"
#include "KernelBuilder/Phase.h"
#include "KernelBuilder/ThreadEmitter.h"
#include "Schedules/Interface/Emit.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "moec/Conversion/Passes.h"
#include "moec/Schedules/LaunchShape.h"
#include "moec/Schedules/Rewrites/FollowPhase.h"
#include "moec/Schedules/Rewrites/RunPhases.h"
#include "moert/GpuTarget.h"

namespace moec {
#define GEN_PASS_DEF_CONVERTTILETONVVMPASS
#include "moec/Conversion/Passes.h.inc"
} // namespace moec

using namespace mlir;
using namespace moec;

namespace {

/// The emission of each schedule, in the order of `getGpuSchedules`.
using Emission = LogicalResult (*)(Operation *phase, KernelBody body);
constexpr Emission kEmissions[] = {
#define MOEC_GPU_SCHEDULE(NAME, TARGETS) emit##NAME,
#define MOEC_GPU_CHOICE(NAME, CODE, TARGETS) emit##CODE,
#include "moec/Schedules/Schedules.def"
};

class KernelConverter {
public:
  KernelConverter(tile::KernelOp kernel, const Target &target)
      : kernel(kernel), target(target) {}

  LogicalResult run() {
    FailureOr<SmallVector<Operation *>> phases = getPhases();
    if (failed(phases))
      return failure();
    for (Operation *phase : *phases) {
      if (failed(check(phase)))
        return failure();
      relaxEpilogue(phase);
    }
    if (failed(checkFollowing(*phases)))
      return failure();
    SmallVector<Operation *> runners = getRunners(*phases);
    if (failed(checkLaunch()))
      return failure();
    func::FuncOp func = makeFunction();
    auto end = OpBuilder::atBlockEnd(&func.getBody().front());
    KernelBody body{func, kernel, kernel.getBlockAttr().getInt(), target};
    if (kernel.getPrivateRows())
      makePrivateMemory(body);
    if (waitsFirst(runners))
      ThreadEmitter(func, kernel, body.threads).waitForLaunchBefore();
    for (Operation *phase : runners) {
      if (phase != runners.front())
        separate(end, phase);
      if (failed(getEmission(phase)(phase, body)))
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
  /// The schedule that the phase's config names; null if there is none.
  const Schedule *findSchedule(Operation *phase) {
    auto config = phase->getAttrOfType<tile::ConfigAttr>("config");
    return config ? moec::findSchedule(target, config.getSchedule()) : nullptr;
  }

  /// The emission for a phase whose config has been checked.
  Emission getEmission(Operation *phase) {
    ArrayRef<const Schedule *> all = getGpuSchedules();
    return kEmissions[llvm::find(all, findSchedule(phase)) - all.begin()];
  }

  /// The phase whose code runs this one and the one before it; null if each has
  /// its own code, or if this one cannot come after the other.
  Operation *findRunner(Operation *phase) {
    const Schedule *schedule = findSchedule(phase);
    const auto *runs = schedule ? schedule->as<RunsPhases>() : nullptr;
    return runs ? runs->findRunner(phase->getPrevNode(), phase) : nullptr;
  }

  /// Whether a phase may come after the one before it.
  bool mayFollow(Operation *phase) {
    const Schedule *schedule = findSchedule(phase);
    return findRunner(phase) || (schedule && schedule->as<FollowsPhase>());
  }

  /// Phases that are emitted: all but those that the code of others runs.
  SmallVector<Operation *> getRunners(ArrayRef<Operation *> phases) {
    SmallVector<Operation *> runners{phases.front()};
    for (Operation *phase : phases.drop_front()) {
      Operation *runner = findRunner(phase);
      if (!runner)
        runners.push_back(phase);
      else if (runner == phase)
        runners.back() = phase;
    }
    return runners;
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
    auto gemm = dyn_cast<tile::GemmOp>(phase);
    if (!gemm ||
        getElementTypeOrSelf(gemm.getResult()).getIntOrFloatBitWidth() > 16)
      return;
    gemm.getEpilogue().walk([](Operation *op) {
      if (isa<math::ExpOp, math::TanhOp, math::ErfOp, arith::DivFOp>(op))
        cast<arith::ArithFastMathInterface>(op)->setAttr(
            "fastmath", arith::FastMathFlagsAttr::get(
                            op->getContext(), arith::FastMathFlags::afn));
    });
  }

  /// Fails with a diagnostic on a config that its schedule does not accept.
  LogicalResult check(Operation *phase) {
    auto config = phase->getAttrOfType<tile::ConfigAttr>("config");
    const Schedule *schedule = findSchedule(phase);
    if (!schedule || schedule->opName != phase->getName().getStringRef()) {
      // The first schedule is the default.
      auto known = getSchedulesFor(target, phase);
      if (known.empty())
        return phase->emitOpError("is not a phase that a GPU can run");
      (void)requireConfig(phase, config, known.front()->name);
      return failure();
    }
    std::string reason = schedule->whyIllegal(phase, config, target);
    if (!reason.empty())
      return phase->emitOpError("cannot run as ") << config << ": " << reason;
    return success();
  }

  /// Whether each CTA may go on from phase to phase without waiting for others.
  LogicalResult checkFollowing(ArrayRef<Operation *> phases) {
    for (auto [first, second] :
         llvm::zip(phases.drop_back(), phases.drop_front())) {
      const auto *follows = findSchedule(second)->as<FollowsPhase>();
      std::string reason =
          follows ? follows->whyApart(first, second, kernel.getLoadAttr()) : "";
      if (!reason.empty())
        return second->emitOpError(
                   "cannot follow the phase before it in one kernel: ")
               << reason << "; or run tile-split-phases";
    }
    return success();
  }

  /// Whether later phases wait for the launch before, so that the first one has
  /// to as well.
  bool waitsFirst(ArrayRef<Operation *> phases) {
    auto gpu = moert::GpuTarget::parse(target.name);
    return gpu && gpu->hasDependentLaunches() && phases.size() > 1 &&
           isIndependent(phases[1]) && !kernel.getAhead();
  }

  /// Whether a phase reads no result of the one that it follows.
  bool isIndependent(Operation *phase) {
    const auto *follows = findSchedule(phase)->as<FollowsPhase>();
    return follows && follows->isIndependent();
  }

  /// Emits the barrier before a phase that follows another. It ends the part
  /// that runs ahead if the phase is independent. A sort in each CTA's own
  /// memory has a barrier itself, behind which it only reads that memory.
  void separate(OpBuilder &b, Operation *phase) {
    auto sort = dyn_cast_or_null<tile::SortByExpertOp>(phase->getPrevNode());
    if (sort && kernel.getPrivateRowsOf(sort.getOffsets()))
      return;
    NVVM::Barrier0Op::create(b, phase->getLoc())
        ->setAttr(isIndependent(phase) ? kEndsAheadAttr : kBetweenPhasesAttr,
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
             << ", as its config requires; run tile-assign-config";
    if (getTensorMaps() != shape.tensorMaps)
      return kernel.emitOpError("must have the tensor_maps that its config "
                                "requires; run tile-assign-config");
    return success();
  }

  /// Shared memory for arguments of which each CTA has rows of its own.
  void makePrivateMemory(const KernelBody &body) {
    ThreadEmitter emitter(body.func, kernel, body.threads);
    for (BlockArgument argument : kernel.getBody().getArguments()) {
      int64_t rows = kernel.getPrivateRowsOf(argument);
      if (!rows)
        continue;
      auto type = cast<MemRefType>(argument.getType());
      SmallVector<int64_t> shape(type.getShape());
      shape.front() = rows;
      emitter.scratch(shape, type.getElementType())
          .getDefiningOp()
          ->setAttr(kPrivateAttr,
                    emitter.b.getI64IntegerAttr(argument.getArgNumber()));
    }
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
          << target << "' is not a GPU; accepted are " << listGpuTargets();
      return signalPassFailure();
    }
    for (auto kernel :
         llvm::make_early_inc_range(getOperation().getOps<tile::KernelOp>()))
      if (failed(KernelConverter(kernel, *gpu).run()))
        return signalPassFailure();
  }
};

} // namespace
