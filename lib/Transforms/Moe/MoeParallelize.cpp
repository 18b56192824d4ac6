//===- MoeParallelize.cpp - a layer over the ranks of a mesh ----*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// Inserts dispatches and combines. Ops from the permutation of slots to the sum
// over a token's experts run on the rows of all ranks. Other ops run on a
// rank's own rows or, if the ranks of a group share its tokens (sp), on those
// of the group from the first op with split weights on. Zero experts have no
// weights; their sums are added to a rank's own rows, after the reductions. In
// a batch-invariant layer ranks exchange the rows of slots, and add them where
// the token is, in the order of one rank.
// docs/use/parallel.md has the rules.

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"
#include "moec/Dialect/Moe/Moe.h"
#include "moec/Dialect/Names.h"
#include "moec/Dialect/RowDestinations.h"
#include "moec/Schedules/Exchange.h"
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

/// Whether an op reads a result of one of `ops`.
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
    if (failed(findOps()) || failed(verifyInvariance()))
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
      if (failed(findDestinations()))
        return failure();
      dispatch(Axis::Dp, findExpertOps());
      if (isBatchInvariant() && !unpermute.getUnreduced()) {
        combineSlots(addend);
      } else {
        if (addend)
          addOwnRows(addend);
        combineRows();
      }
    }
    finish();
    return success();
  }

private:
  using Ops = llvm::SetVector<Operation *>;

  /// Sums of zero experts for a rank's own rows; `number` is 0 without.
  struct ZeroExperts {
    int64_t number = 0;
    /// Positions and weights of the slots of the rank's own rows.
    Value position, weights;
    Value identity;
  };

  LogicalResult findOps();
  bool isBatchInvariant() { return func->hasAttr(kBatchInvariantAttr); }
  LogicalResult verifyInvariance();
  void takeZeroExperts();
  void copyForOwnRows(ArrayRef<Operation *> made, const Ops &ops);
  Ops takeTensorScales(const Ops &ops);
  Ops withTensorScales(const Ops &ops);
  Ops findExpertOps();
  Ops findGroupOps();
  LogicalResult findDestinations();
  void countOwnRows();
  void dispatch(Axis axis, const Ops &ops);
  void addOwnRows(Value addend);
  CombineOp combineOverDp(UnpermuteOp partial);
  void combineRows();
  void combineSlots(Value addend);
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
        return op.emitOpError("is the second op of its kind; a function of "
                              "several ranks holds one layer");
      found = op;
    }
    if (found)
      return success();
    return func.emitOpError("has a mesh of several ranks, but no '")
           << OpTy::getOperationName() << "'; give it one decomposed layer";
  }

  func::FuncOp func;
  MeshAttr mesh;
  ImplicitLocOpBuilder b;
  PermuteOp permute;
  UnpermuteOp unpermute;
  /// The ops from ids of all ranks' rows to local ids, in order: logical to
  /// physical ids, then physical to local ones.
  SmallVector<PlaceIdsOp, 2> places;
  ZeroExperts zeros;
  /// With zero experts or a norm of the sum, and a latent width: the gemm back
  /// to the hidden size, which runs on reduced sums of a rank's own rows.
  GroupedMatmulOp latentUp;
  /// The norm of the experts' sum ahead of that gemm, which reads reduced rows.
  RmsNormOp sumNorm;
  /// The ids chosen for the rank's own rows.
  Value ownIds;
  /// The table of destination ranks of the dispatch over dp, and the ids that
  /// index it; null if all rows go to all ranks.
  Value destinations, destinationIds;
  /// With replicas, physical experts per rank of that table; else null.
  IntegerAttr expertsPerRank;
  /// Number of the rank's own rows that are valid; null for all.
  Value numValidTokens;
};

LogicalResult Parallelizer::findOps() {
  if (failed(findOne(permute)) || failed(findOne(unpermute)))
    return failure();
  numValidTokens = permute.getNumValidTokens();
  ownIds = permute.getIds();
  // Padding is known for a rank's own rows.
  auto place = permute.getIds().getDefiningOp<PlaceIdsOp>();
  while (place && !place.getIsPadding()) {
    places.insert(places.begin(), place);
    ownIds = place.getIds();
    place = ownIds.getDefiningOp<PlaceIdsOp>();
  }
  for (Operation *user : unpermute->getUsers())
    sumNorm = dyn_cast<RmsNormOp>(user);
  if (sumNorm)
    latentUp = cast<GroupedMatmulOp>(*sumNorm->user_begin());
  for (auto scale : func.getOps<TensorScaleOp>())
    if (scale.getNumValidTokens() || scale.getIsPadding())
      return scale.emitOpError(
          "computes one scale for all valid rows of a call, but a rank does "
          "not know which rows of other ranks are valid; quantize by 'token' "
          "or 'group', with a given scale, or without 'num_valid_tokens' and "
          "'padding_mask'");
  return success();
}

/// A batch-invariant layer adds each token's rows on one rank.
LogicalResult Parallelizer::verifyInvariance() {
  if (!isBatchInvariant())
    return success();
  if (mesh.getTp() > 1 || mesh.getNumExperts() == 0)
    return func.emitOpError(
        "is batch-invariant, but its ranks add partials of gemms in an order "
        "that depends on the number of rows; give 'parallel' whole experts "
        "('experts') and 'tp' = 1, or remove 'batch_invariant'");
  if (permute.getNumZeroExperts() > 0)
    return func.emitOpError(
        "is batch-invariant, but several ranks add zero experts after the "
        "others; give one rank, or remove 'batch_invariant'");
  return success();
}

/// Removes zero experts from the ops on rows of all ranks, where no rank has
/// their slots.
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

/// A scale and its quantization, once more for the uses in ops on a rank's own
/// rows, those of a shared expert.
void Parallelizer::copyForOwnRows(ArrayRef<Operation *> made, const Ops &ops) {
  auto isOwn = [&](OpOperand &use) {
    return !ops.contains(use.getOwner()) &&
           !llvm::is_contained(made, use.getOwner());
  };
  if (llvm::none_of(made.back()->getUses(), isOwn))
    return;
  b.setInsertionPointAfter(made.back());
  IRMapping copies;
  for (Operation *op : made) {
    Operation *copy = b.clone(*op, copies);
    setNames(copy, {("own_" + getName(op->getResult(0))).str()});
    op->getResult(0).replaceUsesWithIf(copy->getResult(0), isOwn);
  }
}

/// The quantizations of `ops`' rows by one scale, each behind its scale, which
/// is that of all ranks' rows.
Parallelizer::Ops Parallelizer::takeTensorScales(const Ops &ops) {
  Ops taken;
  for (Operation *op : ops)
    for (Value operand : op->getOperands()) {
      auto quantize = operand.getDefiningOp<QuantizeOp>();
      auto scale =
          quantize && quantize.getTensorScale()
              ? quantize.getTensorScale().getDefiningOp<TensorScaleOp>()
              : TensorScaleOp();
      if (!scale || ops.contains(quantize) || !taken.insert(scale))
        continue;
      taken.insert(quantize);
      copyForOwnRows({scale, quantize}, ops);
    }
  return taken;
}

/// `ops` behind the scales and quantizations of their rows.
Parallelizer::Ops Parallelizer::withTensorScales(const Ops &ops) {
  Ops all = takeTensorScales(ops);
  all.insert(ops.begin(), ops.end());
  return all;
}

/// The ops that run on the rows of all ranks, in order.
Parallelizer::Ops Parallelizer::findExpertOps() {
  Ops ops;
  ops.insert(places.begin(), places.end());
  ops.insert(permute);
  for (Operation &op : llvm::make_range(std::next(permute->getIterator()),
                                        std::next(unpermute->getIterator())))
    if (readsOf(&op, ops))
      ops.insert(&op);
  return withTensorScales(ops);
}

/// The ops that run on the rows of a group, in order: those with weights that
/// differ between ranks, and all that depend on them. The hidden states are
/// permuted for the shared expert after the dispatch, since routed experts read
/// them, too. A gate whose share the weights have is that of the own rows.
Parallelizer::Ops Parallelizer::findGroupOps() {
  Ops ops;
  ops.insert(places.begin(), places.end());
  ops.insert(permute);
  for (Operation &op : func->getRegion(0).front().without_terminator()) {
    auto product = dyn_cast<GroupedMatmulOp>(op);
    if ((product && product == latentUp) || (sumNorm && &op == sumNorm))
      continue;
    auto gather = dyn_cast<GatherRowsOp>(op);
    Value weight = product  ? product.getWeight()
                   : gather ? gather.getColumns()
                            : Value();
    bool isOfShared = weight &&
                      getName(weight).starts_with("shared_experts.") &&
                      !llvm::any_of(op.getUsers(), llvm::IsaPred<RowMapOp>);
    if (isOfShared || readsOf(&op, ops))
      ops.insert(&op);
  }
  return withTensorScales(ops);
}

/// Dispatches to destination ranks only if this avoids more copies of rows than
/// finding the destinations costs.
LogicalResult Parallelizer::findDestinations() {
  constexpr double mostShare = 0.95;
  // Replicas are loaded for each id of a row.
  constexpr int64_t mostReplicas = 8;
  // One scale for all rows reads all of them on each rank.
  if (llvm::any_of(func.getOps<TensorScaleOp>(),
                   [](TensorScaleOp scale) { return !scale.getOffsets(); }))
    return success();
  if (places.empty() || !places.front().getTable())
    return success();
  PlaceIdsOp place = places.front();
  auto table = cast<RankedTensorType>(place.getTable().getType());
  int64_t numHere = permute.getNumExperts();
  if (place.getReplicaCounts()) {
    // The replica of a token is chosen after the dispatch, so rows go to all
    // replicas, on any rank of a group. The index of a physical expert
    // determines the group.
    if (table.getDimSize(1) > mostReplicas)
      return success();
    destinations = place.getTable();
    numHere = std::min(numHere * mesh.getTp(), table.getDimSize(0));
    expertsPerRank =
        b.getI64IntegerAttr(permute.getNumExperts() * mesh.getTp());
  } else {
    for (BlockArgument argument : func.getArguments())
      if (getName(argument) == kDestinationsTensor)
        destinations = argument;
    if (!destinations)
      return success();
    if (destinations.getType() != table)
      return func.emitOpError("has '")
             << kDestinationsTensor << "' of type " << destinations.getType()
             << "; give one number per expert, " << table;
  }
  // With sp, the ids of the group's rows.
  destinationIds = place.getIds();
  int64_t topK = cast<RankedTensorType>(destinationIds.getType()).getDimSize(1);
  // Zero experts have no destination rank.
  if (getRoutedShare(table.getDimSize(0) + zeros.number, numHere, topK) >
      mostShare)
    destinations = {};
  return success();
}

/// Whether `ops` read the rows only through the `source` of slots, i.e. for a
/// rank's own experts.
static bool isForDestinations(Value input,
                              const llvm::SetVector<Operation *> &ops) {
  return llvm::all_of(input.getUses(), [&](OpOperand &use) {
    if (!ops.contains(use.getOwner()))
      return true;
    if (auto gather = dyn_cast<GatherRowsOp>(use.getOwner()))
      return gather.getSource() && use.get() == gather.getInput();
    if (auto shrink = dyn_cast<LoraShrinkOp>(use.getOwner()))
      return shrink.getGather() && use.get() == shrink.getInput();
    auto product = dyn_cast<GroupedMatmulOp>(use.getOwner());
    return product && product.getSource() &&
           (use.get() == product.getInput() ||
            use.get() == product.getInputScale());
  });
}

/// Excludes invalid rows before the ids are dispatched, and from everything
/// that is added to a rank's own rows.
void Parallelizer::countOwnRows() {
  // Ids of invalid rows are -1, except those that the caller gives.
  Value counts = numValidTokens;
  Value chosen = ownIds;
  while (auto placed = chosen.getDefiningOp<PlaceIdsOp>())
    chosen = placed.getIds();
  if (chosen.getDefiningOp<RouteOp>())
    counts = {};
  Value addend = unpermute.getAddend();
  // Invalid rows are zero when they are added, like their sums; gemms on rows
  // of a group do not know them.
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

/// Dispatches, over an axis, the tensors of a rank's own rows that `ops` read.
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
  SmallVector<int64_t> routed;
  for (auto [i, input] : llvm::enumerate(inputs.getArrayRef()))
    if (axis == Axis::Dp && destinations && hasTokenRows(input) &&
        isForDestinations(input, ops))
      routed.push_back(int64_t(i));
  bool hasRouted = !routed.empty();
  auto dispatched = DispatchOp::create(
      b, types, AxisAttr::get(b.getContext(), axis), inputs.getArrayRef(),
      hasRouted ? destinations : Value(),
      hasRouted ? ValueRange(destinationIds) : ValueRange(),
      hasRouted ? b.getDenseI64ArrayAttr(routed) : DenseI64ArrayAttr(),
      hasRouted ? expertsPerRank : IntegerAttr());
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

  // In order, after the ops that they read.
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

/// A copy of rows, plus an addend if given, with zeros from `numValidTokens`
/// on.
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

/// Adds the addend of the rank's own rows, or of its group's, after their
/// reduction.
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

CombineOp Parallelizer::combineOverDp(UnpermuteOp partial) {
  b.setInsertionPointAfter(partial);
  auto combined = CombineOp::create(b, partial.getResult(), Axis::Dp);
  if (destinations) {
    combined.getDestinationsMutable().assign(destinations);
    combined.getIdsMutable().assign({destinationIds, places.front().getIds()});
    combined.setExpertsPerRankAttr(expertsPerRank);
  }
  return combined;
}

void Parallelizer::combineRows() {
  CombineOp combined = combineOverDp(unpermute);
  bool isReturned = llvm::any_of(unpermute->getUsers(), [](Operation *user) {
    return user->hasTrait<OpTrait::IsTerminator>();
  });
  setNames(combined, {isReturned ? getName(unpermute).str() : "routed_out"});
  setNames(unpermute, {"partial_out"});
  unpermute.getResult().replaceAllUsesExcept(combined.getResult(), combined);
}

/// Exchanges the row of each slot, which one rank has, and adds a token's rows
/// on its own rank.
void Parallelizer::combineSlots(Value addend) {
  auto type = cast<RankedTensorType>(unpermute.getResult().getType());
  int64_t topK = cast<RankedTensorType>(ownIds.getType()).getDimSize(1);
  b.setInsertionPointAfter(unpermute);
  auto slots = UnpermuteOp::create(
      b, type.clone({type.getDimSize(0), topK * type.getDimSize(1)}),
      unpermute.getRows(), unpermute.getPosition(), /*identity=*/Value(),
      /*identity_weights=*/Value(), /*addend=*/Value(),
      /*num_valid_tokens=*/Value(), /*unreduced=*/true,
      /*from_unreduced=*/false);
  setNames(slots, {"slot_rows"});
  CombineOp combined = combineOverDp(slots);
  setNames(combined, {"own_slot_rows"});
  Operation *made = addend ? addend.getDefiningOp() : nullptr;
  if (made && combined->isBeforeInBlock(made))
    b.setInsertionPointAfter(made);
  else
    b.setInsertionPointAfter(combined);
  auto sum = UnpermuteOp::create(
      b, type, combined.getResult(), ownIds, /*identity=*/Value(),
      /*identity_weights=*/Value(), addend, numValidTokens,
      /*unreduced=*/false, /*from_unreduced=*/true);
  setNames(sum, {getName(unpermute).str()});
  unpermute.getResult().replaceAllUsesWith(sum.getResult());
  unpermute.erase();
  unpermute = sum;
}

/// Reduces returned partials over tp, then adds zero experts to the returned
/// value, or before it if they have another width.
void Parallelizer::finish() {
  SmallVector<OpOperand *> uses;
  if (latentUp) {
    uses.push_back(sumNorm ? &sumNorm.getInputMutable()
                           : &latentUp.getInputMutable());
    for (OpOperand &shared : latentUp.getElementwiseOperandsMutable())
      uses.push_back(&shared);
  } else {
    for (OpOperand &use :
         func.getBody().front().getTerminator()->getOpOperands())
      // All ranks route equally, and each counts the slots of its own experts.
      // The caller reduces a result that is declared to be a partial.
      if (!func.getResultAttr(use.getOperandNumber(), kPartialAttr) &&
          !isa_and_nonnull<RouteOp, PermuteOp>(use.get().getDefiningOp()))
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
  // Zero experts, and the gemm that widens them, exclude invalid rows.
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
  // The sum is an addend; no position refers to one of its rows.
  auto all = UnpermuteOp::create(b, sum.getType(), /*rows=*/sum, zeros.position,
                                 zeros.identity, zeros.weights, /*addend=*/sum,
                                 numValidTokens);
  setNames(all, {name});
  use.set(all.getResult());
}

/// Whether invalid rows of a group are zeros: sums of no slots.
bool Parallelizer::isZeroBeyondCount(Value value) const {
  if (!numValidTokens)
    return true;
  if (auto combined = value.getDefiningOp<CombineOp>())
    value = combined.getInput();
  auto sum = value.getDefiningOp<UnpermuteOp>();
  return sum && !sum.getAddend();
}

/// From here on tokens are those of all ranks with their own tokens.
void Parallelizer::multiplyMaxTokens() {
  if (auto most = func->getAttrOfType<IntegerAttr>(kMaxTokensAttr))
    func->setAttr(kMaxTokensAttr,
                  b.getI64IntegerAttr(most.getInt() * mesh.getTokenRanks()));
}

struct MoeParallelize : moec::impl::MoeParallelizePassBase<MoeParallelize> {
  void runOnOperation() override {
    func::FuncOp func = getOperation();
    auto mesh = func->getAttrOfType<MeshAttr>(kMeshAttr);
    // A function whose exchange is written out, or a part of one, stays.
    if (!mesh || mesh.getNumRanks() == 1 ||
        !func.getOps<DispatchOp>().empty() || !func.getOps<CombineOp>().empty())
      return;
    if (failed(Parallelizer(func, mesh).run()))
      signalPassFailure();
  }
};

} // namespace
