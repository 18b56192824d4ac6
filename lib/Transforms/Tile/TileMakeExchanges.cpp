//===- TileMakeExchanges.cpp - kernels of collectives -----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "LaunchShape.h"
#include "Launches.h"
#include "PassInputs.h"
#include "moec/Analysis/Exchange.h"
#include "moec/Analysis/Sm80.h"
#include "moec/Dialect/SlotSums.h"
#include "moec/Transforms/Passes.h"
#include "moert/PeerHeap.h"

#include "mlir/Pass/PassManager.h"
#include "llvm/ADT/TypeSwitch.h"

namespace moec {
#define GEN_PASS_DEF_TILEMAKEEXCHANGESPASS
#include "moec/Transforms/Passes.h.inc"
} // namespace moec

using namespace mlir;
using namespace moec;

/// The step behind a launch on its stream.
static Operation *getNextOnStream(plan::LaunchOp launch) {
  auto isOnStream = [&](auto step) {
    return step.getStream() == launch.getStream();
  };
  for (Operation *op = launch->getNextNode(); op; op = op->getNextNode())
    if (llvm::TypeSwitch<Operation *, bool>(op)
            .Case<plan::LaunchOp, plan::CollectiveOp, plan::RecordOp,
                  plan::WaitOp>(isOnStream)
            .Default([](Operation *) { return false; }))
      return op;
  return nullptr;
}

/// Whether steps between a launch and a later one of its variant leave what it
/// reads as it is.
static bool isKept(plan::LaunchOp launch, Operation *until) {
  for (Operation *op = launch->getNextNode(); op != until;
       op = op->getNextNode()) {
    ValueRange outs;
    if (auto other = dyn_cast<plan::LaunchOp>(op))
      outs = other.getOuts();
    else if (auto collective = dyn_cast<plan::CollectiveOp>(op))
      outs = collective.getOuts();
    if (llvm::any_of(outs, [&](Value out) {
          return llvm::is_contained(launch.getIns(), out);
        }))
      return false;
  }
  return true;
}

/// The sums that the kernel of a collective may make itself: its one input is
/// all that a launch before it on its stream makes, by a gather_reduce alone,
/// and nobody else reads it.
static SlotSums findSums(plan::CollectiveOp collective, SymbolTable &symbols) {
  if (collective.getKind() == plan::CollectiveKind::AllGather ||
      collective.getIns().size() != 1)
    return {};
  Value sums = collective.getIns().front();
  if (!sums.getDefiningOp<plan::BufferOp>())
    return {};
  plan::LaunchOp launch;
  for (Operation *user : sums.getUsers()) {
    if (user == collective || user->getBlock() != collective->getBlock())
      continue;
    auto made = dyn_cast<plan::LaunchOp>(user);
    if (launch || !made || !llvm::is_contained(made.getOuts(), sums))
      return {};
    launch = made;
  }
  if (!launch || !launch->isBeforeInBlock(collective) ||
      launch.getOuts().size() != 1 ||
      launch.getStream() != collective.getStream() ||
      isa_and_nonnull<plan::LaunchOp>(getNextOnStream(launch)) ||
      !isKept(launch, collective))
    return {};
  auto phase = getPhase<tile::GatherReduceOp>(launch, symbols);
  if (!phase || phase.getIdentity())
    return {};
  auto pass = [&](Value argument) {
    return argument ? getPassed(launch, argument) : Value();
  };
  SlotSums found = {pass(phase.getRows()), pass(phase.getPosition()),
                    pass(phase.getAddend()), pass(phase.getNumValidTokens())};
  // A warp asks for the slots of a row at once.
  if (cast<MemRefType>(found.position.getType()).getDimSize(1) > sm80::kWarp)
    return {};
  return found;
}

namespace {

class ExchangeMaker {
public:
  ExchangeMaker(ModuleOp module, const PassInputs &inputs)
      : module(module), target(inputs.target), forced(inputs.forced),
        symbols(module) {}

  /// Programs of which buffers are read by later steps than before.
  ArrayRef<plan::ProgramOp> getChanged() const { return changed.getArrayRef(); }

  /// Fails where the schedule does not take what it chose itself.
  LogicalResult make(plan::CollectiveOp collective) {
    auto program = collective->getParentOfType<plan::ProgramOp>();
    plan::MeshAttr mesh = program.getMeshAttr();
    int64_t ranks =
        collective.getAxis() == plan::Axis::Dp ? mesh.getDp() : mesh.getTp();
    std::optional<moert::Expr> rows = getExchangedRows(collective);
    if (!rows || ranks < 2 || ranks > moert::PeerHeap::kMaxRanks)
      return success();
    addSums(collective, program);
    SmallVector<Type> types(collective.getIns().getTypes());
    llvm::append_range(types, collective.getOuts().getTypes());
    SmallVector<Value> read = collective.getRead();
    for (Value value : ArrayRef(read).drop_front(collective.getIns().size()))
      types.push_back(value.getType());
    auto heap = MemRefType::get(ShapedType::kDynamic,
                                IntegerType::get(module.getContext(), 64));
    types.append(ranks, heap);
    types.push_back(heap.getElementType());
    auto type = FunctionType::get(module.getContext(), types, {});
    // The runtime has one answer per kernel to how many rows there are.
    Made *same = llvm::find_if(made, [&](Made &other) {
      return other.kernel.getFunctionType() == type &&
             other.name == getExchangeName(collective) && other.rows == *rows &&
             other.owned == collective.getOwnedAttr() &&
             other.expertsPerOwner == collective.getExpertsPerOwnerAttr() &&
             other.sums == getSums(collective);
    });
    if (same == made.end()) {
      FailureOr<tile::KernelOp> kernel =
          makeKernel(collective, type, unsigned(ranks));
      if (failed(kernel))
        return failure();
      made.push_back({*kernel, getExchangeName(collective), *rows,
                      collective.getOwnedAttr(),
                      collective.getExpertsPerOwnerAttr(),
                      getSums(collective)});
      same = &made.back();
    }
    collective->setAttr(kExchangeKernelAttr,
                        FlatSymbolRefAttr::get(same->kernel));
    return success();
  }

private:
  struct Made {
    tile::KernelOp kernel;
    /// Of kind and axis.
    std::string name;
    moert::Expr rows;
    DenseI64ArrayAttr owned;
    IntegerAttr expertsPerOwner;
    std::array<bool, 4> sums;
  };

  /// Which operands of SlotSums there are.
  static std::array<bool, 4> getSums(plan::CollectiveOp collective) {
    return {bool(collective.getRows()), bool(collective.getPosition()),
            bool(collective.getAddend()), bool(collective.getNumValidTokens())};
  }

  void addSums(plan::CollectiveOp collective, plan::ProgramOp program) {
    SlotSums sums = findSums(collective, symbols);
    if (!sums.rows)
      return;
    changed.insert(program);
    collective.getRowsMutable().assign(sums.rows);
    collective.getPositionMutable().assign(sums.position);
    if (sums.addend)
      collective.getAddendMutable().assign(sums.addend);
    if (sums.numValidTokens)
      collective.getNumValidTokensMutable().assign(sums.numValidTokens);
  }

  FailureOr<tile::KernelOp> makeKernel(plan::CollectiveOp collective,
                                       FunctionType type, unsigned ranks) {
    OpBuilder builder(module.getContext());
    Location loc = collective.getLoc();
    std::string name =
        plan::stringifyCollectiveKind(collective.getKind()).str();
    auto kernel = tile::KernelOp::create(builder, loc, name, type);
    symbols.insert(kernel);
    kernel.setResident(true);
    Block &body = kernel.getBody().front();
    builder.setInsertionPointToStart(&body);
    ValueRange rest = body.getArguments();
    auto take = [&](size_t count) {
      ValueRange taken = rest.take_front(count);
      rest = rest.drop_front(count);
      return taken;
    };
    size_t pairs = collective.getIns().size();
    ValueRange ins = take(pairs), outs = take(pairs);
    ValueRange ids = take(collective.getIds().size());
    auto takeIf = [&](Value given) {
      return given ? take(1).front() : Value();
    };
    Value owners = takeIf(collective.getOwners());
    Value rows = takeIf(collective.getRows());
    Value position = takeIf(collective.getPosition());
    Value addend = takeIf(collective.getAddend());
    Value numValidTokens = takeIf(collective.getNumValidTokens());
    ValueRange heaps = take(ranks);
    auto exchange = tile::ExchangeOp::create(
        builder, loc, collective.getKindAttr(), rest.front(), ins, outs, owners,
        ids, collective.getOwnedAttr(), collective.getExpertsPerOwnerAttr(),
        rows, position, addend, numValidTokens, heaps, tile::ConfigAttr());
    tile::ReturnOp::create(builder, loc);
    for (const Schedule *schedule : getSchedulesFor(target, exchange)) {
      tile::ConfigAttr config = schedule->choose(exchange, target);
      for (const ForcedConfig &given : forced)
        if (given.isFor(kernel) ||
            given.isFor(getExchangeName(collective), nullptr)) {
          llvm::Expected<tile::ConfigAttr> applied = given.apply(config);
          if (!applied)
            return exchange.emitOpError()
                   << llvm::toString(applied.takeError());
          config = *applied;
        }
      std::string reason = schedule->whyIllegal(exchange, config, target);
      if (!reason.empty())
        return exchange.emitOpError("cannot run as ")
               << config << ": " << reason;
      exchange.setConfigAttr(config);
      setLaunchShape(kernel, target);
      return kernel;
    }
    return exchange.emitOpError("has no schedule on the target ")
           << target.name;
  }

  ModuleOp module;
  const Target &target;
  ArrayRef<ForcedConfig> forced;
  SymbolTable symbols;
  SmallVector<Made> made;
  llvm::SetVector<plan::ProgramOp> changed;
};

struct TileMakeExchanges
    : moec::impl::TileMakeExchangesPassBase<TileMakeExchanges> {
  using TileMakeExchangesPassBase::TileMakeExchangesPassBase;

  void runOnOperation() override {
    std::optional<PassInputs> inputs = PassInputs::read(
        getOperation(), "tile-make-exchanges", target, /*part=*/"", configs);
    if (!inputs)
      return signalPassFailure();
    if (!inputs->target.isGpu())
      return;
    SmallVector<plan::CollectiveOp> collectives;
    getOperation().walk(
        [&](plan::CollectiveOp op) { collectives.push_back(op); });
    ExchangeMaker maker(getOperation(), *inputs);
    for (plan::CollectiveOp collective : collectives)
      if (failed(maker.make(collective)))
        return signalPassFailure();
    OpPassManager slots(plan::ProgramOp::getOperationName());
    slots.addPass(createPlanAssignSlotsPass());
    for (plan::ProgramOp program : maker.getChanged())
      if (failed(runPipeline(slots, program)))
        return signalPassFailure();
  }
};

} // namespace
