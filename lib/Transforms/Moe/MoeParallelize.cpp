//===- MoeParallelize.cpp - a layer over the ranks of a mesh ----*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// What is done for the rows of all ranks are the ops from the permutation of
// slots to the sum over a token's experts; everything else is done for a rank's
// own rows, or, where ranks of a group share its tokens (sp), for those of the
// group from the first op on whose weights are split. What zero experts add,
// which have no weights, is of a rank's own rows, behind the sums over ranks.
// docs/parallel.md has the rules.

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"
#include "moec/Analysis/Exchange.h"
#include "moec/Dialect/Moe/Moe.h"
#include "moec/Dialect/Names.h"
#include "moec/Dialect/RowOwners.h"
#include "moec/Transforms/Passes.h"
#include "llvm/ADT/SetVector.h"

namespace moec {
#define GEN_PASS_DEF_MOEPARALLELIZEPASS
#include "moec/Transforms/Passes.h.inc"
} // namespace moec

using namespace mlir;
using namespace moec;
using namespace moec::moe;

namespace {

bool hasTokenRows(Value value) {
  auto type = dyn_cast<RankedTensorType>(value.getType());
  return type && type.getRank() > 0 && type.isDynamicDim(0);
}

StringRef getName(Value value) {
  if (Operation *op = value.getDefiningOp())
    return getResultName(op, cast<OpResult>(value).getResultNumber());
  auto argument = cast<BlockArgument>(value);
  auto func = cast<func::FuncOp>(argument.getOwner()->getParentOp());
  auto name =
      func.getArgAttrOfType<StringAttr>(argument.getArgNumber(), kNameAttr);
  return name ? name.getValue() : StringRef();
}

/// Whether an op reads what one of `ops` makes.
bool readsOf(Operation *op, const llvm::SetVector<Operation *> &ops) {
  return llvm::any_of(op->getOperands(), [&](Value operand) {
    return ops.contains(operand.getDefiningOp());
  });
}

class Parallelizer {
public:
  Parallelizer(func::FuncOp func, MeshAttr mesh)
      : func(func), mesh(mesh), b(func.getLoc(), func.getContext()) {}

  LogicalResult run() {
    if (failed(findOps()))
      return failure();
    takeZeroExperts();
    if (mesh.getTokenRanks() > 1) {
      countOwnRows();
      multiplyMaxTokens();
    }
    if (mesh.getSp())
      dispatch(Axis::Tp, findGroupOps());
    if (mesh.getSize(Axis::Dp) > 1) {
      Value addend = unpermute.getAddend();
      unpermute.getAddendMutable().clear();
      if (failed(findOwners()))
        return failure();
      dispatch(Axis::Dp, findExpertOps());
      if (addend)
        addOwnRows(addend);
      combineRows();
    }
    finish();
    return success();
  }

private:
  using Ops = llvm::SetVector<Operation *>;

  /// What zero experts add to a rank's own rows; nothing without them.
  struct ZeroExperts {
    int64_t number = 0;
    /// Of the slots of the rank's own rows, and what they are multiplied with.
    Value position, weights;
    Value identity;
  };

  LogicalResult findOps();
  void takeZeroExperts();
  Ops findExpertOps() const;
  Ops findGroupOps() const;
  LogicalResult findOwners();
  void countOwnRows();
  void dispatch(Axis axis, const Ops &ops);
  void addOwnRows(Value addend);
  void combineRows();
  void finish();
  void combineResult(OpOperand &use);
  void addZeroExperts(OpOperand &use);
  bool isZeroBeyondCount(Value value) const;
  RowMapOp mapRows(Value input, Value numValidTokens, Value addend);
  void multiplyMaxTokens();

  void setNames(Operation *op, ArrayRef<std::string> names) {
    op->setAttr(kNameAttr, b.getStrArrayAttr(SmallVector<StringRef>(
                               names.begin(), names.end())));
  }
  template <typename OpTy>
  LogicalResult findOne(OpTy &found) {
    for (auto op : func.getOps<OpTy>()) {
      if (found)
        return op.emitOpError("is the second of its kind; a function of "
                              "several ranks holds one layer");
      found = op;
    }
    if (found)
      return success();
    return func.emitOpError("has a mesh of several ranks and no '")
           << OpTy::getOperationName() << "'; give it one decomposed layer";
  }

  func::FuncOp func;
  MeshAttr mesh;
  ImplicitLocOpBuilder b;
  PermuteOp permute;
  UnpermuteOp unpermute;
  /// What makes the ids of all ranks' rows those of this rank's experts, in
  /// order: logical to physical ones, and these to places.
  SmallVector<PlaceIdsOp, 2> places;
  ZeroExperts zeros;
  /// With zero experts and a latent width: the product back, which is done for
  /// whole sums of a rank's own rows.
  GroupedMatmulOp latentUp;
  /// The ids that were chosen for the rank's own rows.
  Value ownIds;
  /// The table that says who needs a row of the dispatch over dp, and by which
  /// ids; null where all rows go to all ranks.
  Value owners, ownerIds;
  /// Of replicas, whose table it is then; null where there are none.
  IntegerAttr expertsPerOwner;
  /// How many of the rank's own rows count; null where all do.
  Value numValidTokens;
};

LogicalResult Parallelizer::findOps() {
  if (failed(findOne(permute)) || failed(findOne(unpermute)))
    return failure();
  numValidTokens = permute.getNumValidTokens();
  ownIds = permute.getIds();
  // Padding is that of a rank's own rows.
  auto place = permute.getIds().getDefiningOp<PlaceIdsOp>();
  while (place && !place.getIsPadding()) {
    places.insert(places.begin(), place);
    ownIds = place.getIds();
    place = ownIds.getDefiningOp<PlaceIdsOp>();
  }
  for (auto scale : func.getOps<TensorScaleOp>())
    return scale.emitOpError(
        "finds one scale for all rows of a call, and ranks of a mesh have "
        "other rows each; quantize by 'token' or 'group', or with a scale that "
        "is given");
  return success();
}

/// From the ops for rows of all ranks, in which no rank has their slots.
void Parallelizer::takeZeroExperts() {
  zeros.number = permute.getNumZeroExperts();
  if (zeros.number == 0)
    return;
  zeros.identity = unpermute.getIdentity();
  zeros.weights = unpermute.getIdentityWeights();
  int64_t first = permute.getNumExperts();
  if (!places.empty()) {
    PlaceIdsOp chosen = places.front();
    if (Value table = chosen.getTable())
      first = cast<RankedTensorType>(table.getType()).getDimSize(0);
    chosen.removeZeroExpertsAttr();
  }
  b.setInsertionPointAfter(permute);
  auto place = PlaceIdsOp::create(
      b, ownIds.getType(), ownIds, /*table=*/Value(),
      /*replica_counts=*/Value(), /*num_valid_tokens=*/Value(),
      /*is_padding=*/Value(), b.getDenseI64ArrayAttr({first, zeros.number}));
  setNames(place, {"zero_position"});
  zeros.position = place.getResult();
  permute.setNumZeroExperts(0);
  unpermute.getIdentityMutable().clear();
  unpermute.getIdentityWeightsMutable().clear();
  for (Operation *user : unpermute->getUsers())
    if (auto product = dyn_cast<GroupedMatmulOp>(user))
      latentUp = product;
}

/// What is done for the rows of all ranks, in order.
Parallelizer::Ops Parallelizer::findExpertOps() const {
  Ops ops;
  ops.insert(places.begin(), places.end());
  ops.insert(permute);
  for (Operation &op : llvm::make_range(std::next(permute->getIterator()),
                                        std::next(unpermute->getIterator())))
    if (readsOf(&op, ops))
      ops.insert(&op);
  return ops;
}

/// What is done for the rows of a group, in order: what ranks have other
/// weights for, and all that follows from it. The hidden states of a group are
/// put in the shared expert's order behind the dispatch: routed experts read
/// them, too.
Parallelizer::Ops Parallelizer::findGroupOps() const {
  Ops ops;
  ops.insert(places.begin(), places.end());
  ops.insert(permute);
  for (Operation &op : func->getRegion(0).front().without_terminator()) {
    auto product = dyn_cast<GroupedMatmulOp>(op);
    if (product && product == latentUp)
      continue;
    auto gather = dyn_cast<GatherRowsOp>(op);
    Value weight = product  ? product.getWeight()
                   : gather ? gather.getColumns()
                            : Value();
    if ((weight && getName(weight).starts_with("shared_experts.")) ||
        readsOf(&op, ops))
      ops.insert(&op);
  }
  return ops;
}

/// Asks for owners where so many copies of rows are for nothing that leaving
/// them out is more than it costs.
LogicalResult Parallelizer::findOwners() {
  constexpr double mostShare = 0.95;
  // What is loaded for each id of a row.
  constexpr int64_t mostReplicas = 8;
  if (places.empty() || !places.front().getTable())
    return success();
  PlaceIdsOp place = places.front();
  auto table = cast<RankedTensorType>(place.getTable().getType());
  int64_t numHere = permute.getNumExperts();
  if (place.getReplicaCounts()) {
    // Which replica a token takes is chosen behind the dispatch, so that rows
    // go wherever there is one, on any rank of a group: the number of a
    // physical expert says the group.
    if (table.getDimSize(1) > mostReplicas)
      return success();
    owners = place.getTable();
    numHere = std::min(numHere * mesh.getTp(), table.getDimSize(0));
    expertsPerOwner =
        b.getI64IntegerAttr(permute.getNumExperts() * mesh.getTp());
  } else {
    for (BlockArgument argument : func.getArguments())
      if (getName(argument) == kOwnersTensor)
        owners = argument;
    if (!owners)
      return success();
    if (owners.getType() != table)
      return func.emitOpError("has '")
             << kOwnersTensor << "' of type " << owners.getType()
             << "; give one number per expert, " << table;
  }
  // With sp those of the group.
  ownerIds = place.getIds();
  int64_t topK = cast<RankedTensorType>(ownerIds.getType()).getDimSize(1);
  // Zero experts are nobody's.
  if (getOwnedShare(table.getDimSize(0) + zeros.number, numHere, topK) >
      mostShare)
    owners = {};
  return success();
}

/// Whether, among those ops, rows are read as the `source` of slots alone,
/// which are those of a rank's own experts.
static bool isForOwners(Value input, const llvm::SetVector<Operation *> &ops) {
  return llvm::all_of(input.getUses(), [&](OpOperand &use) {
    if (!ops.contains(use.getOwner()))
      return true;
    if (auto gather = dyn_cast<GatherRowsOp>(use.getOwner()))
      return gather.getSource() && use.get() == gather.getInput();
    auto product = dyn_cast<GroupedMatmulOp>(use.getOwner());
    return product && product.getSource() &&
           (use.get() == product.getInput() ||
            use.get() == product.getInputScale());
  });
}

/// Which rows count is said ahead of the ids that are dispatched, and of what
/// is added to a rank's own rows.
void Parallelizer::countOwnRows() {
  // Ids of rows that do not count are -1, but for those that the caller gives.
  Value counts = numValidTokens;
  Value chosen = ownIds;
  while (auto placed = chosen.getDefiningOp<PlaceIdsOp>())
    chosen = placed.getIds();
  if (chosen.getDefiningOp<RouteOp>())
    counts = {};
  Value addend = unpermute.getAddend();
  // Rows that do not count are zero where they are added, as their sums are;
  // products for rows of a group do not know them.
  if (mesh.getSp())
    for (auto product : func.getOps<GroupedMatmulOp>()) {
      if (product != latentUp)
        product.getNumValidTokensMutable().clear();
    }
  else if (auto shared =
               addend ? addend.getDefiningOp<GroupedMatmulOp>() : nullptr;
           shared && numValidTokens)
    shared.getNumValidTokensMutable().assign(numValidTokens);
  permute.getNumValidTokensMutable().clear();
  unpermute.getNumValidTokensMutable().clear();
  if (counts && places.empty()) {
    b.setInsertionPoint(permute);
    auto place = PlaceIdsOp::create(
        b, permute.getIds().getType(), permute.getIds(),
        /*table=*/Value(), /*replica_counts=*/Value(), counts,
        /*is_padding=*/Value(), /*zero_experts=*/DenseI64ArrayAttr());
    setNames(place, {"counted_ids"});
    permute.getIdsMutable().assign(place.getResult());
    places.push_back(place);
  } else if (counts) {
    places.front().getNumValidTokensMutable().assign(counts);
  }
}

/// The rows of all ranks of an axis of what those ops read of a rank's own.
void Parallelizer::dispatch(Axis axis, const Ops &ops) {
  llvm::SetVector<Value> inputs;
  for (Operation *op : ops)
    for (Value operand : op->getOperands())
      if (hasTokenRows(operand) && !ops.contains(operand.getDefiningOp()))
        inputs.insert(operand);
  SmallVector<Type> types =
      llvm::map_to_vector(inputs, [](Value input) { return input.getType(); });
  Value counts = places.empty() ? Value() : places.front().getNumValidTokens();
  if (counts) {
    inputs.insert(counts);
    int64_t before = cast<RankedTensorType>(counts.getType()).getDimSize(0);
    types.push_back(
        RankedTensorType::get({before * mesh.getSize(axis)}, b.getI32Type()));
  }

  Operation *last = nullptr;
  for (Value input : inputs)
    if (Operation *op = input.getDefiningOp();
        op && (!last || last->isBeforeInBlock(op)))
      last = op;
  if (last)
    b.setInsertionPointAfter(last);
  else
    b.setInsertionPointToStart(&func.getBody().front());
  SmallVector<int64_t> owned;
  for (auto [i, input] : llvm::enumerate(inputs.getArrayRef()))
    if (axis == Axis::Dp && owners && hasTokenRows(input) &&
        isForOwners(input, ops))
      owned.push_back(int64_t(i));
  bool hasOwned = !owned.empty();
  auto dispatched = DispatchOp::create(
      b, types, AxisAttr::get(b.getContext(), axis), inputs.getArrayRef(),
      hasOwned ? owners : Value(),
      hasOwned ? ValueRange(ownerIds) : ValueRange(),
      hasOwned ? b.getDenseI64ArrayAttr(owned) : DenseI64ArrayAttr(),
      hasOwned ? expertsPerOwner : IntegerAttr());
  setNames(dispatched, llvm::map_to_vector(inputs, [&](Value input) {
             StringRef name = getName(input);
             name.consume_front("group_");
             return ((axis == Axis::Dp ? "all_" : "group_") + name).str();
           }));
  for (auto [i, input] : llvm::enumerate(inputs.getArrayRef())) {
    Value own = input;
    own.replaceUsesWithIf(dispatched.getResult(i), [&](OpOperand &use) {
      return ops.contains(use.getOwner());
    });
  }
  if (counts)
    places.front().getNumValidTokensMutable().assign(
        dispatched.getResults().back());

  // In their order, behind what they read.
  SmallVector<Operation *> ordered(ops.begin(), ops.end());
  llvm::erase_if(ordered,
                 [&](Operation *op) { return llvm::is_contained(places, op); });
  ordered.insert(ordered.begin(), places.begin(), places.end());
  Operation *after = dispatched;
  for (Operation *op : ordered) {
    if (op->isBeforeInBlock(after))
      op->moveAfter(after);
    if (after->isBeforeInBlock(op))
      after = op;
  }
}

/// Rows as they are, or with an addend, and zeros from `numValidTokens` on.
RowMapOp Parallelizer::mapRows(Value input, Value numValidTokens,
                               Value addend) {
  auto map = RowMapOp::create(b, input.getType(), input, numValidTokens,
                              /*row_operands=*/ValueRange(),
                              addend ? ValueRange(addend) : ValueRange());
  OpBuilder::InsertionGuard guard(b);
  SmallVector<Type> types(addend ? 2 : 1, b.getF32Type());
  Block *block = b.createBlock(&map.getBody(), {}, types,
                               SmallVector<Location>(types.size(), b.getLoc()));
  Value row = block->getArgument(0);
  YieldOp::create(
      b, addend ? arith::AddFOp::create(b, row, block->getArgument(1)) : row);
  return map;
}

/// What is of the rank's own rows, or its group's, is added to their sum.
void Parallelizer::addOwnRows(Value addend) {
  b.setInsertionPointAfter(unpermute);
  auto sum = mapRows(unpermute.getResult(), /*numValidTokens=*/Value(), addend);
  setNames(sum, {getName(unpermute).str()});
  unpermute.getResult().replaceUsesWithIf(
      sum.getResult(), [&](OpOperand &use) { return use.getOwner() != sum; });
  if (Operation *made = addend.getDefiningOp();
      made && sum->isBeforeInBlock(made))
    sum->moveAfter(made);
}

void Parallelizer::combineRows() {
  b.setInsertionPointAfter(unpermute);
  auto combined = CombineOp::create(b, unpermute.getResult(), Axis::Dp);
  if (owners) {
    combined.getOwnersMutable().assign(owners);
    combined.getIdsMutable().assign({ownerIds, places.front().getIds()});
    combined.setExpertsPerOwnerAttr(expertsPerOwner);
  }
  bool isReturned = llvm::any_of(unpermute->getUsers(), [](Operation *user) {
    return user->hasTrait<OpTrait::IsTerminator>();
  });
  setNames(combined, {isReturned ? getName(unpermute).str() : "routed_out"});
  setNames(unpermute, {"partial_out"});
  unpermute.getResult().replaceAllUsesExcept(combined.getResult(), combined);
}

/// What is a part of a sum over tp is made whole, and zero experts are added
/// once it is: what is returned, but where zero experts have another width.
void Parallelizer::finish() {
  SmallVector<OpOperand *> uses;
  if (latentUp) {
    uses.push_back(&latentUp.getInputMutable());
    for (OpOperand &shared : latentUp.getElementwiseOperandsMutable())
      uses.push_back(&shared);
  } else {
    for (OpOperand &use :
         func.getBody().front().getTerminator()->getOpOperands())
      // All ranks route alike, and each counts the slots of its own experts.
      if (!isa_and_nonnull<RouteOp, PermuteOp>(use.get().getDefiningOp()))
        uses.push_back(&use);
  }
  for (OpOperand *use : uses) {
    b.setInsertionPoint(use->getOwner());
    if (mesh.getTp() > 1)
      combineResult(*use);
    if (zeros.number > 0 && use == uses.front())
      addZeroExperts(*use);
  }
}

void Parallelizer::combineResult(OpOperand &use) {
  Value value = use.get();
  auto combined = CombineOp::create(b, value, Axis::Tp, mesh.getSp());
  std::string name = getName(value).str();
  Value whole = combined.getResult();
  // Zero experts, and what makes them wider, leave out what does not count.
  if (mesh.getSp() && zeros.number == 0 && !isZeroBeyondCount(value)) {
    setNames(combined, {"padded_" + name});
    auto counted = mapRows(whole, numValidTokens, /*addend=*/Value());
    setNames(counted, {name});
    whole = counted.getResult();
  } else {
    setNames(combined, {name});
  }
  if (Operation *op = value.getDefiningOp(); op && op->getNumResults() == 1)
    setNames(op, {"partial_" + name});
  use.set(whole);
}

void Parallelizer::addZeroExperts(OpOperand &use) {
  Value sum = use.get();
  std::string name = getName(sum).str();
  setNames(sum.getDefiningOp(), {"real_" + name});
  // The sum is an addend; no position is of one of its rows.
  auto all = UnpermuteOp::create(b, sum.getType(), /*rows=*/sum, zeros.position,
                                 zeros.identity, zeros.weights, /*addend=*/sum,
                                 numValidTokens);
  setNames(all, {name});
  use.set(all.getResult());
}

/// Whether rows of a group that do not count are zeros: sums of no slots.
bool Parallelizer::isZeroBeyondCount(Value value) const {
  if (!numValidTokens)
    return true;
  if (auto combined = value.getDefiningOp<CombineOp>())
    value = combined.getInput();
  auto sum = value.getDefiningOp<UnpermuteOp>();
  return sum && !sum.getAddend();
}

/// From here on tokens are those of all ranks with tokens of their own.
void Parallelizer::multiplyMaxTokens() {
  if (auto most = func->getAttrOfType<IntegerAttr>(kMaxTokensAttr))
    func->setAttr(kMaxTokensAttr,
                  b.getI64IntegerAttr(most.getInt() * mesh.getTokenRanks()));
}

struct MoeParallelize : moec::impl::MoeParallelizePassBase<MoeParallelize> {
  void runOnOperation() override {
    func::FuncOp func = getOperation();
    auto mesh = func->getAttrOfType<MeshAttr>(kMeshAttr);
    if (!mesh || mesh.getNumRanks() == 1 || !func.getOps<CombineOp>().empty())
      return;
    if (failed(Parallelizer(func, mesh).run()))
      signalPassFailure();
  }
};

} // namespace
