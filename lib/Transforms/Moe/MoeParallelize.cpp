//===- MoeParallelize.cpp - a layer over the ranks of a mesh ----*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// What is done for the rows of all ranks are the ops from the permutation of
// slots to the sum over a token's experts; everything else is done for a rank's
// own rows. docs/parallel.md has the rules.

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

class Parallelizer {
public:
  Parallelizer(func::FuncOp func, MeshAttr mesh)
      : func(func), mesh(mesh), b(func.getLoc(), func.getContext()) {}

  LogicalResult run() {
    if (failed(findOps()))
      return failure();
    if (mesh.getDp() > 1) {
      findExpertOps();
      if (failed(findOwners()))
        return failure();
      dispatch();
      combineRows();
      multiplyMaxTokens();
    }
    if (mesh.getTp() > 1)
      combineResults();
    return success();
  }

private:
  LogicalResult findOps();
  void findExpertOps();
  LogicalResult findOwners();
  bool isForOwners(Value input) const;
  void dispatch();
  void combineRows();
  void combineResults();
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
  /// What is done for the rows of all ranks, in order.
  llvm::SetVector<Operation *> expertOps;
  /// The table that says who needs a row, and by which ids; null where all rows
  /// go to all ranks.
  Value owners, ownIds;
};

LogicalResult Parallelizer::findOps() {
  if (failed(findOne(permute)) || failed(findOne(unpermute)))
    return failure();
  // Padding is that of a rank's own rows.
  auto place = permute.getIds().getDefiningOp<PlaceIdsOp>();
  while (place && !place.getIsPadding()) {
    places.insert(places.begin(), place);
    place = place.getIds().getDefiningOp<PlaceIdsOp>();
  }
  if (permute.getNumZeroExperts() > 0)
    return permute.emitOpError("has zero experts, whose share each rank of a "
                               "mesh would add; run such a layer on one rank");
  for (auto scale : func.getOps<TensorScaleOp>())
    return scale.emitOpError(
        "finds one scale for all rows of a call, and ranks of a mesh have "
        "other rows each; quantize by 'token' or 'group', or with a scale that "
        "is given");
  return success();
}

void Parallelizer::findExpertOps() {
  expertOps.insert(places.begin(), places.end());
  expertOps.insert(permute);
  for (Operation &op : llvm::make_range(std::next(permute->getIterator()),
                                        std::next(unpermute->getIterator())))
    if (llvm::any_of(op.getOperands(), [&](Value operand) {
          return expertOps.contains(operand.getDefiningOp());
        }))
      expertOps.insert(&op);
}

/// Asks for owners where so many copies of rows are for nothing that leaving
/// them out is more than it costs.
LogicalResult Parallelizer::findOwners() {
  constexpr double mostShare = 0.95;
  // Replicas are chosen behind the dispatch: no rank knows them ahead of it.
  if (places.size() != 1 || !places.front().getTable())
    return success();
  PlaceIdsOp place = places.front();
  for (BlockArgument argument : func.getArguments())
    if (getName(argument) == kOwnersTensor)
      owners = argument;
  if (!owners)
    return success();
  ownIds = place.getIds();
  auto table = cast<RankedTensorType>(place.getTable().getType());
  if (owners.getType() != table)
    return func.emitOpError("has '")
           << kOwnersTensor << "' of type " << owners.getType()
           << "; give one number per expert, " << table;
  int64_t topK = cast<RankedTensorType>(ownIds.getType()).getDimSize(1);
  if (getOwnedShare(table.getDimSize(0), permute.getNumExperts(), topK) >
      mostShare)
    owners = {};
  return success();
}

/// Whether rows are read as the `source` of slots alone, which are those of a
/// rank's own experts.
bool Parallelizer::isForOwners(Value input) const {
  return llvm::all_of(input.getUses(), [&](OpOperand &use) {
    if (!expertOps.contains(use.getOwner()))
      return true;
    auto product = dyn_cast<GroupedMatmulOp>(use.getOwner());
    return product && product.getSource() &&
           (use.get() == product.getInput() ||
            use.get() == product.getInputScale());
  });
}

/// The rows of all ranks of what those ops read of a rank's own rows.
void Parallelizer::dispatch() {
  // Ids of rows that do not count are -1, but for those that the caller gives.
  Value counts = permute.getNumValidTokens();
  Value chosen = permute.getIds();
  while (auto placed = chosen.getDefiningOp<PlaceIdsOp>())
    chosen = placed.getIds();
  if (chosen.getDefiningOp<RouteOp>())
    counts = {};
  Value addend = unpermute.getAddend();
  // Rows that do not count are zero where they are added, as their sums are.
  if (auto shared = addend ? addend.getDefiningOp<GroupedMatmulOp>() : nullptr;
      shared && permute.getNumValidTokens())
    shared.getNumValidTokensMutable().assign(permute.getNumValidTokens());
  permute.getNumValidTokensMutable().clear();
  unpermute.getNumValidTokensMutable().clear();
  unpermute.getAddendMutable().clear();
  if (counts && places.empty()) {
    b.setInsertionPoint(permute);
    auto place = PlaceIdsOp::create(
        b, permute.getIds().getType(), permute.getIds(),
        /*table=*/Value(), /*replica_counts=*/Value(), counts,
        /*is_padding=*/Value());
    setNames(place, {"counted_ids"});
    permute.getIdsMutable().assign(place.getResult());
    expertOps.insert(place);
    places.push_back(place);
  }

  llvm::SetVector<Value> inputs;
  for (Operation *op : expertOps)
    for (Value operand : op->getOperands())
      if (hasTokenRows(operand) && !expertOps.contains(operand.getDefiningOp()))
        inputs.insert(operand);
  SmallVector<Type> types =
      llvm::map_to_vector(inputs, [](Value input) { return input.getType(); });
  if (counts) {
    inputs.insert(counts);
    types.push_back(RankedTensorType::get({mesh.getDp()}, b.getI32Type()));
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
    if (owners && hasTokenRows(input) && isForOwners(input))
      owned.push_back(int64_t(i));
  bool hasOwned = !owned.empty();
  auto dispatched = DispatchOp::create(
      b, types, AxisAttr::get(b.getContext(), Axis::Dp), inputs.getArrayRef(),
      hasOwned ? owners : Value(), hasOwned ? ValueRange(ownIds) : ValueRange(),
      hasOwned ? b.getDenseI64ArrayAttr(owned) : DenseI64ArrayAttr());
  setNames(dispatched, llvm::map_to_vector(inputs, [](Value input) {
             return ("all_" + getName(input)).str();
           }));
  for (auto [i, input] : llvm::enumerate(inputs.getArrayRef())) {
    Value own = input;
    own.replaceUsesWithIf(dispatched.getResult(i), [&](OpOperand &use) {
      return expertOps.contains(use.getOwner());
    });
  }
  if (counts)
    places.front().getNumValidTokensMutable().assign(
        dispatched.getResults().back());

  // In their order, behind what they read.
  SmallVector<Operation *> ordered(expertOps.begin(), expertOps.end());
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
  if (!addend)
    return;
  // It is of the rank's own rows: added to their sum.
  b.setInsertionPointAfter(unpermute);
  auto sum = RowMapOp::create(b, unpermute.getType(), unpermute.getResult(),
                              /*row_operands=*/ValueRange(), addend);
  Type f32 = b.getF32Type();
  {
    OpBuilder::InsertionGuard guard(b);
    Block *block =
        b.createBlock(&sum.getBody(), {}, {f32, f32}, {b.getLoc(), b.getLoc()});
    YieldOp::create(b, arith::AddFOp::create(b, block->getArgument(0),
                                             block->getArgument(1)));
  }
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
    combined.getIdsMutable().assign({ownIds, places.front().getIds()});
  }
  bool isReturned = llvm::any_of(unpermute->getUsers(), [](Operation *user) {
    return user->hasTrait<OpTrait::IsTerminator>();
  });
  setNames(combined, {isReturned ? getName(unpermute).str() : "routed_out"});
  setNames(unpermute, {"partial_out"});
  unpermute.getResult().replaceAllUsesExcept(combined.getResult(), combined);
}

void Parallelizer::combineResults() {
  Operation *end = func.getBody().front().getTerminator();
  b.setInsertionPoint(end);
  for (OpOperand &operand : end->getOpOperands()) {
    Value value = operand.get();
    // All ranks route alike, and each counts the slots of its own experts.
    if (isa_and_nonnull<RouteOp, PermuteOp>(value.getDefiningOp()))
      continue;
    auto combined = CombineOp::create(b, value, Axis::Tp);
    setNames(combined, {getName(value).str()});
    if (Operation *op = value.getDefiningOp(); op && op->getNumResults() == 1)
      setNames(op, {"partial_" + getName(value).str()});
    operand.set(combined.getResult());
  }
}

/// From here on tokens are those of a group of `dp` ranks.
void Parallelizer::multiplyMaxTokens() {
  if (auto most = func->getAttrOfType<IntegerAttr>(kMaxTokensAttr))
    func->setAttr(kMaxTokensAttr,
                  b.getI64IntegerAttr(most.getInt() * mesh.getDp()));
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
