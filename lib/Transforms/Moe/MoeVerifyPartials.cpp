//===- MoeVerifyPartials.cpp - sums over ranks, and whose ids ---*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// Verifies partials and id spaces in one walk from the arguments to the
// results: a function of pipeline ops has one block.

#include "PartialRegion.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "moec/Dialect/Moe/Moe.h"
#include "moec/Dialect/Names.h"
#include "moec/Transforms/Passes.h"
#include "llvm/ADT/TypeSwitch.h"

namespace moec {
#define GEN_PASS_DEF_MOEVERIFYPARTIALSPASS
#include "moec/Transforms/Passes.h.inc"
} // namespace moec

using namespace mlir;
using namespace moec;
using namespace moec::moe;

namespace {

/// The experts that ids count.
enum class IdSpace {
  None,     ///< no ids of experts
  Logical,  ///< experts of the layer
  Physical, ///< replicas of the layer
  Local,    ///< a rank's own
};

struct State {
  /// Axes over which the value is a partial.
  Axes partial;
  /// The last reduction of the value, by axis.
  CombineOp combined[2];
  /// The op that added zero experts to it; null if none has.
  UnpermuteOp zeros;
  IdSpace ids = IdSpace::None;
};

StringRef getIdWords(IdSpace space) {
  switch (space) {
  case IdSpace::None:
    return "no ids";
  case IdSpace::Logical:
    return "ids of the layer's experts";
  case IdSpace::Physical:
    return "ids of replicas";
  case IdSpace::Local:
    return "ids of a rank's own experts";
  }
  llvm_unreachable("every space is listed");
}

class PartialVerifier {
public:
  PartialVerifier(func::FuncOp func, MeshAttr mesh) : func(func), mesh(mesh) {
    for (Axis axis : {Axis::Dp, Axis::Tp})
      if (mesh.getSize(axis) > 1)
        all.insert(axis);
  }

  LogicalResult run() {
    for (BlockArgument argument : func.getArguments()) {
      State &state = states[argument];
      if (getName(argument) == "topk_ids")
        state.ids = IdSpace::Logical;
      Attribute given = func.getArgAttr(argument.getArgNumber(), kPartialAttr);
      if (failed(
              readPartial(given, "argument " + quote(argument), state.partial)))
        return failure();
    }
    for (Operation &op : func.getBody().front())
      if (failed(visit(op)))
        return failure();
    return success();
  }

private:
  /// Reads the axes of `moe.partial` on an argument or result.
  LogicalResult readPartial(Attribute given, const Twine &where, Axes &axes);
  LogicalResult visit(Operation &op);
  LogicalResult visit(RouteOp op);
  LogicalResult visit(PlaceIdsOp op);
  LogicalResult visit(PermuteOp op);
  LogicalResult visit(GroupedMatmulOp op);
  LogicalResult visit(RowMapOp op);
  LogicalResult visit(RmsNormOp op);
  LogicalResult visit(LoraShrinkOp op);
  LogicalResult visit(UnpermuteOp op);
  LogicalResult visit(DispatchOp op);
  LogicalResult visit(CombineOp op);
  LogicalResult visit(func::ReturnOp op);

  /// The name of an argument or a result.
  StringRef getName(Value value) const {
    if (auto result = dyn_cast<OpResult>(value))
      return getResultName(result.getOwner(), result.getResultNumber());
    func::FuncOp function = func;
    auto name = function.getArgAttrOfType<StringAttr>(
        cast<BlockArgument>(value).getArgNumber(), kNameAttr);
    return name ? name.getValue() : StringRef();
  }
  /// Whether an argument of the function has the rows of all ranks.
  bool hasAllRows(Value value) const {
    auto argument = dyn_cast<BlockArgument>(value);
    func::FuncOp function = func;
    auto rows = argument ? function.getArgAttrOfType<StringAttr>(
                               argument.getArgNumber(), kRowsAttr)
                         : StringAttr();
    return rows && rows.getValue() == "all";
  }
  std::string quote(Value value) const {
    StringRef name = getName(value);
    return name.empty() ? "a value without a name" : ("'" + name + "'").str();
  }
  /// "'x', a part of a sum over tp,".
  std::string describePart(Value value) const {
    return quote(value) + ", a partial over " +
           states.lookup(value).partial.str() + ",";
  }

  /// Axes over which gemms or sums with a weight are partials.
  Axes getSplit(Value weight) const;
  LogicalResult requireWhole(Operation *op, ValueRange values,
                             StringRef remedy);
  LogicalResult requireAlike(Operation *op, Value part, Value addend);
  LogicalResult requireIds(Operation *op, Value ids, ArrayRef<IdSpace> accepted,
                           StringRef remedy);
  LogicalResult requireDestinations(Operation *op, Axis axis, ValueRange ids);
  LogicalResult requireReadByDestinations(DispatchOp op, int64_t number);
  /// Computes the state of a scalar region's result from its inputs.
  LogicalResult passRegion(Operation *op, Region &region,
                           ArrayRef<RegionInput> inputs, Value result);
  void passCombined(Value from, Value to) {
    State &state = states[to];
    State given = states.lookup(from);
    for (size_t i = 0; i < std::size(state.combined); ++i)
      if (given.combined[i])
        state.combined[i] = given.combined[i];
    if (given.zeros)
      state.zeros = given.zeros;
  }

  func::FuncOp func;
  MeshAttr mesh;
  /// Axes with several ranks.
  Axes all;
  DenseMap<Value, State> states;
};

constexpr StringLiteral kCombineAhead = "put a moe.combine before it";

} // namespace

LogicalResult PartialVerifier::readPartial(Attribute given, const Twine &where,
                                           Axes &axes) {
  if (!given)
    return success();
  auto names = dyn_cast<ArrayAttr>(given);
  for (Attribute each : names ? names.getValue() : ArrayRef<Attribute>(given)) {
    auto name = dyn_cast<StringAttr>(each);
    std::optional<Axis> axis =
        name ? symbolizeAxis(name.getValue()) : std::optional<Axis>();
    if (!axis || !all.contains(*axis))
      return func.emitOpError()
             << where << " has " << kPartialAttr << " = " << given
             << "; give an array of axes of the mesh with several ranks, such "
                "as [\"dp\"]";
    axes.insert(*axis);
  }
  return success();
}

Axes PartialVerifier::getSplit(Value weight) const {
  while (auto repack = weight.getDefiningOp<PrepackOp>())
    weight = repack.getWeight();
  StringRef name = getName(weight);
  if (name == "experts.w2" || name == "experts.w2_bias" ||
      name == "lora.down_a")
    return all;
  Axes tp;
  if ((name == "shared_experts.w2" || name == "shared_experts.w2_bias") &&
      all.contains(Axis::Tp))
    tp.insert(Axis::Tp);
  return tp;
}

LogicalResult PartialVerifier::requireWhole(Operation *op, ValueRange values,
                                            StringRef remedy) {
  for (Value value : values)
    if (!states.lookup(value).partial.empty())
      return op->emitOpError("takes ")
             << describePart(value) << " where a reduced value is needed; "
             << remedy;
  return success();
}

/// Two values that are added must be partials over equal axes.
LogicalResult PartialVerifier::requireAlike(Operation *op, Value part,
                                            Value addend) {
  Axes first = states.lookup(part).partial,
       second = states.lookup(addend).partial;
  if (first == second)
    return success();
  auto describe = [&](Value value, Axes axes) {
    return axes.empty() ? quote(value) + ", which is reduced,"
                        : describePart(value);
  };
  return op->emitOpError("adds ")
         << describe(addend, second) << " to " << describe(part, first)
         << " so one of them would be counted once per rank; combine the "
            "partial first, or add after the moe.combine";
}

LogicalResult PartialVerifier::requireIds(Operation *op, Value ids,
                                          ArrayRef<IdSpace> accepted,
                                          StringRef remedy) {
  IdSpace space = states.lookup(ids).ids;
  if (space == IdSpace::None || llvm::is_contained(accepted, space))
    return success();
  return op->emitOpError("takes ")
         << quote(ids) << ", " << getIdWords(space) << ", where "
         << getIdWords(accepted.front()) << " are needed; " << remedy;
}

/// `destinations` require whole experts, and the ids chosen for the rows that
/// are exchanged over the axis.
LogicalResult PartialVerifier::requireDestinations(Operation *op, Axis axis,
                                                   ValueRange ids) {
  if (mesh.getNumExperts() == 0)
    return op->emitOpError(
        "has 'destinations', but each rank has a slice of every "
        "expert; remove 'destinations' and 'ids'");
  for (Value each : ids)
    if (failed(requireIds(op, each, {IdSpace::Logical},
                          "give the ids that the router chose")))
      return failure();
  Value own = ids.front(), all = ids.size() > 1 ? ids.back() : Value();
  for (OpOperand &use : own.getUses()) {
    auto dispatch = dyn_cast<DispatchOp>(use.getOwner());
    if (!dispatch || dispatch.getAxis() != axis)
      continue;
    for (auto [input, result] :
         llvm::zip(dispatch.getInputs(), dispatch.getResults()))
      if (input == own && (!all || result == all))
        return success();
  }
  // A moe.combine without the moe.dispatch is given both.
  if (all && hasAllRows(all))
    return success();
  return op->emitOpError("has 'destinations' with the ids ")
         << quote(own) << ", which no moe.dispatch over " << stringifyAxis(axis)
         << " takes" << (all ? " to " + quote(all) : std::string())
         << "; give the ids of the rows that it moves";
}

/// Whether rows are read only by slots of a rank's own experts.
static bool isReadBySource(OpOperand &use) {
  if (auto gather = dyn_cast<GatherRowsOp>(use.getOwner()))
    return gather.getSource() && &use == &gather.getInputMutable();
  if (auto shrink = dyn_cast<LoraShrinkOp>(use.getOwner()))
    return shrink.getGather() && &use == &shrink.getInputMutable();
  auto product = dyn_cast<GroupedMatmulOp>(use.getOwner());
  if (!product || !product.getSource())
    return false;
  unsigned number = use.getOperandNumber();
  MutableOperandRange scale = product.getInputScaleMutable();
  return number == product.getInputMutable().getOperandNumber() ||
         (!scale.empty() && number == scale.begin()->getOperandNumber());
}

/// A row is undefined on ranks that are not its destinations.
LogicalResult PartialVerifier::requireReadByDestinations(DispatchOp op,
                                                         int64_t number) {
  Value rows = op.getResult(unsigned(number));
  // The caller of a function that returns the ids, too, can do as slots do.
  auto isReturned = [&](Value value) {
    return llvm::any_of(value.getUsers(), [](Operation *user) {
      return isa<func::ReturnOp>(user);
    });
  };
  bool areIdsReturned =
      llvm::any_of(llvm::zip(op.getInputs(), op.getResults()), [&](auto pair) {
        return std::get<0>(pair) == op.getIds().front() &&
               isReturned(std::get<1>(pair));
      });
  for (OpOperand &use : rows.getUses()) {
    if (isReadBySource(use) ||
        (areIdsReturned && isa<func::ReturnOp>(use.getOwner())))
      continue;
    auto diagnostic = use.getOwner()->emitOpError("reads ");
    diagnostic << quote(rows)
               << " also on ranks that do not receive a row; read it as the "
                  "input of a gemm with a source, or remove "
               << number << " from 'routed'";
    diagnostic.attachNote(op.getLoc()) << "here";
    return diagnostic;
  }
  return success();
}

LogicalResult PartialVerifier::passRegion(Operation *op, Region &region,
                                          ArrayRef<RegionInput> inputs,
                                          Value result) {
  PartialRegion checked(region, inputs);
  states[result].partial = checked.run();
  Operation *culprit = checked.getCulprit();
  if (!culprit)
    return success();
  Value value = checked.getBlamed();
  auto diagnostic = op->emitOpError(
      checked.addsWhole() ? "adds a reduced value to a value computed from "
                          : "is not linear in a value computed from ");
  diagnostic << quote(value) << ", a partial over "
             << checked.getBlamedAxes().str()
             << (checked.addsWhole()
                     ? ", so each rank would add it; "
                     : ", so the partials would not sum to its result; ")
             << kCombineAhead;
  diagnostic.attachNote(culprit->getLoc())
      << "by '" << culprit->getName() << "'";
  return diagnostic;
}

//===----------------------------------------------------------------------===//
// Ops
//===----------------------------------------------------------------------===//

LogicalResult PartialVerifier::visit(Operation &op) {
  return TypeSwitch<Operation *, LogicalResult>(&op)
      .Case<RouteOp, PlaceIdsOp, PermuteOp, GroupedMatmulOp, RowMapOp,
            RmsNormOp, LoraShrinkOp, UnpermuteOp, DispatchOp, CombineOp,
            func::ReturnOp>([&](auto typed) { return visit(typed); })
      .Default([&](Operation *other) {
        return requireWhole(other, other->getOperands(), kCombineAhead);
      });
}

LogicalResult PartialVerifier::visit(RouteOp op) {
  states[op.getIds()].ids = IdSpace::Logical;
  return requireWhole(op, op->getOperands(), kCombineAhead);
}

LogicalResult PartialVerifier::visit(PlaceIdsOp op) {
  IdSpace &made = states[op.getResult()].ids;
  made = states.lookup(op.getIds()).ids;
  StringRef remedy = "give the ids that the router chose";
  if (op.getZeroExperts() && !op.getTable()) {
    // Its result holds positions of slots.
    made = IdSpace::None;
    return requireIds(op, op.getIds(), {IdSpace::Logical}, remedy);
  }
  if (!op.getTable())
    return success();
  if (op.getReplicaCounts()) {
    made = IdSpace::Physical;
    return requireIds(op, op.getIds(), {IdSpace::Logical}, remedy);
  }
  made = IdSpace::Local;
  return requireIds(op, op.getIds(), {IdSpace::Logical, IdSpace::Physical},
                    remedy);
}

LogicalResult PartialVerifier::visit(PermuteOp op) {
  if (failed(requireWhole(op, op->getOperands(), kCombineAhead)))
    return failure();
  if (mesh.getNumExperts() > 0)
    return requireIds(op, op.getIds(), {IdSpace::Local},
                      "put a moe.place_ids with the rank's table before it");
  return requireIds(op, op.getIds(), {IdSpace::Logical, IdSpace::Physical},
                    "each rank has a slice of every expert: remove the table");
}

LogicalResult PartialVerifier::visit(GroupedMatmulOp op) {
  SmallVector<Value> whole{op.getWeight()};
  for (Value scale : {op.getInputScale(), op.getWeightScale(),
                      op.getWeightZeroPoint(), op.getWeightGlobalScale()})
    if (scale)
      whole.push_back(scale);
  if (failed(requireWhole(op, whole, kCombineAhead)))
    return failure();
  Axes split = getSplit(op.getWeight());
  Axes given = states.lookup(op.getInput()).partial;
  if (!split.empty() && !given.empty())
    return requireWhole(op, op.getInput(),
                        "a gemm with a slice of a weight yields a partial "
                        "itself: put a moe.combine before it");
  Axes sum = split.empty() ? given : split;
  if (op.getEpilogue().empty()) {
    states[op.getResult()].partial = sum;
    if (split.empty())
      passCombined(op.getInput(), op.getResult());
    return success();
  }
  SmallVector<RegionInput> inputs;
  unsigned perColumn = op.getLayout() ? 2 : 1;
  Value from = split.empty() ? op.getInput() : op.getWeight();
  inputs.append(perColumn, {from, sum});
  for (Value row : op.getRowOperands())
    inputs.push_back({row, states.lookup(row).partial});
  for (Value column : op.getColumnOperands())
    inputs.append(perColumn, {column, getSplit(column)});
  for (Value element : op.getElementwiseOperands())
    inputs.push_back({element, states.lookup(element).partial});
  for (size_t i = 0; i < op.getMatrices().size(); ++i)
    inputs.push_back({op.getShrunk(), states.lookup(op.getShrunk()).partial});
  if (split.empty())
    passCombined(op.getInput(), op.getResult());
  for (Value element : op.getElementwiseOperands())
    passCombined(element, op.getResult());
  return passRegion(op, op.getEpilogue(), inputs, op.getResult());
}

LogicalResult PartialVerifier::visit(RowMapOp op) {
  SmallVector<RegionInput> inputs;
  inputs.push_back({op.getInput(), states.lookup(op.getInput()).partial});
  passCombined(op.getInput(), op.getResult());
  for (Value row : op.getRowOperands())
    inputs.push_back({row, states.lookup(row).partial});
  for (Value element : op.getElementwiseOperands()) {
    inputs.push_back({element, states.lookup(element).partial});
    passCombined(element, op.getResult());
  }
  return passRegion(op, op.getBody(), inputs, op.getResult());
}

/// A rank has whole rows of its own experts, of which only the sum is partial.
LogicalResult PartialVerifier::visit(RmsNormOp op) {
  if (!op.getOffsets() || mesh.getNumExperts() == 0)
    return requireWhole(op, op->getOperands(), kCombineAhead);
  states[op.getResult()].partial = states.lookup(op.getInput()).partial;
  passCombined(op.getInput(), op.getResult());
  return success();
}

/// A rank with a slice of the matrices' columns has a partial of the sum, as
/// one with its own experts has.
LogicalResult PartialVerifier::visit(LoraShrinkOp op) {
  states[op.getResult()].partial = getSplit(op.getMatrices().front());
  return requireWhole(op, op->getOperands(), kCombineAhead);
}

LogicalResult PartialVerifier::visit(UnpermuteOp op) {
  states[op.getResult()].partial = states.lookup(op.getRows()).partial;
  passCombined(op.getRows(), op.getResult());
  for (Value addend : {op.getIdentity(), op.getAddend()}) {
    if (!addend)
      continue;
    passCombined(addend, op.getResult());
    if (failed(requireAlike(op, op.getRows(), addend)))
      return failure();
  }
  if (!op.getIdentity())
    return success();
  UnpermuteOp &zeros = states[op.getResult()].zeros;
  if (zeros) {
    auto diagnostic = op.emitOpError("adds zero experts to ");
    diagnostic << quote(op.getRows())
               << ", which already includes them; remove one of the sums";
    diagnostic.attachNote(zeros.getLoc()) << "here";
    return diagnostic;
  }
  zeros = op;
  return success();
}

LogicalResult PartialVerifier::visit(DispatchOp op) {
  for (auto [input, result] : llvm::zip(op.getInputs(), op.getResults())) {
    // Partials may be dispatched, except along their own axis.
    if (states.lookup(input).partial.contains(op.getAxis()) &&
        failed(requireWhole(op, input, kCombineAhead)))
      return failure();
    if (failed(requireIds(op, input, {IdSpace::Logical, IdSpace::Physical},
                          "other ranks have other experts: dispatch the ids "
                          "that the router chose, and place them afterwards")))
      return failure();
    State state = states.lookup(input);
    states[result] = state;
  }
  if (!op.getDestinations())
    return success();
  if (failed(requireDestinations(op, op.getAxis(), op.getIds())))
    return failure();
  for (int64_t number : op.getRouted().value_or(ArrayRef<int64_t>()))
    if (failed(requireReadByDestinations(op, number)))
      return failure();
  return success();
}

LogicalResult PartialVerifier::visit(CombineOp op) {
  Axis axis = op.getAxis();
  Value input = op.getInput();
  State state = states.lookup(input);
  CombineOp before;
  if (!state.partial.contains(axis))
    before = state.combined[size_t(axis)];
  for (Operation *user : input.getUsers())
    if (auto other = dyn_cast<CombineOp>(user); other && other != op &&
                                                other.getAxis() == axis &&
                                                other->isBeforeInBlock(op))
      before = other;
  if (before || !state.partial.contains(axis)) {
    auto diagnostic = op.emitOpError("sums ");
    diagnostic
        << quote(input) << " over " << stringifyAxis(axis)
        << (before ? ", over which it has been summed already, "
                   : ", over which it is reduced already, ")
        << "so that it would count once per rank; remove one of the sums";
    if (before)
      diagnostic.attachNote(before.getLoc()) << "here";
    return diagnostic;
  }
  if (op.getDestinations()) {
    if (failed(requireDestinations(op, axis, op.getIds())))
      return failure();
    auto sum = input.getDefiningOp<UnpermuteOp>();
    bool isGiven = isa<BlockArgument>(input);
    if (!isGiven && (!sum || sum.getAddend() || sum.getIdentity()))
      return op.emitOpError("takes ")
             << quote(input)
             << ", which is more than the sum of a row's experts, but ranks "
                "that do not receive a row count as zero; add the rest after "
                "it, or remove 'destinations' and 'ids'";
  }
  state.partial.erase(axis);
  state.combined[size_t(axis)] = op;
  states[op.getResult()] = state;
  return success();
}

LogicalResult PartialVerifier::visit(func::ReturnOp op) {
  for (auto [i, value] : llvm::enumerate(op.getOperands())) {
    if (failed(requireIds(op, value, {IdSpace::Logical},
                          "return the ids that the router chose")))
      return failure();
    Axes declared;
    if (failed(readPartial(func.getResultAttr(unsigned(i), kPartialAttr),
                           "result " + Twine(i), declared)))
      return failure();
    if (declared == states.lookup(value).partial)
      continue;
    if (declared.empty())
      return requireWhole(op, value, kCombineAhead);
    return func.emitOpError("result ")
           << i << " has " << kPartialAttr << ", but it is "
           << (states.lookup(value).partial.empty()
                   ? std::string("reduced")
                   : "a partial over " + states.lookup(value).partial.str())
           << "; declare the axes that a moe.combine is still needed for";
  }
  return success();
}

namespace {

struct MoeVerifyPartials
    : moec::impl::MoeVerifyPartialsPassBase<MoeVerifyPartials> {
  void runOnOperation() override {
    func::FuncOp func = getOperation();
    auto mesh = func->getAttrOfType<MeshAttr>(kMeshAttr);
    if (!mesh || mesh.getNumRanks() == 1 || !func.getBody().hasOneBlock())
      return;
    if (failed(PartialVerifier(func, mesh).run()))
      signalPassFailure();
  }
};

} // namespace
