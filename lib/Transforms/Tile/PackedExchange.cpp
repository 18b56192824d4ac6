//===- PackedExchange.cpp - kernels of an all-to-all ------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "PackedExchange.h"

#include "LaunchShape.h"
#include "moec/Schedules/Exchange.h"
#include "moert/PackedRows.h"

using namespace mlir;
using namespace moec;

/// Whether the table of destinations has one rank per expert. With replicas,
/// one is chosen by the index of the row among all rows, which another order
/// would change.
static bool hasOneDestinationPerId(plan::CollectiveOp collective) {
  return collective.getDestinations() && !collective.getExpertsPerRank();
}

/// The sum that returns the rows of `gather`; null if there is none, or if
/// another collective reads the gathered rows.
static plan::CollectiveOp findReturningSum(plan::CollectiveOp gather) {
  auto ids = llvm::find(gather.getIns(), gather.getIds().front());
  if (ids == gather.getIns().end())
    return nullptr;
  Value allIds = gather.getOuts()[ids - gather.getIns().begin()];
  plan::CollectiveOp back;
  for (Operation *op = gather->getNextNode(); op; op = op->getNextNode()) {
    auto other = dyn_cast<plan::CollectiveOp>(op);
    if (!other)
      continue;
    if (other.getKind() == plan::CollectiveKind::ReduceScatter &&
        other.getAxis() == gather.getAxis() && hasOneDestinationPerId(other) &&
        other.getIns().size() == 1 &&
        other.getIds().front() == gather.getIds().front() &&
        other.getIds().back() == allIds) {
      // With chunks, the last one moves all rows.
      if (!other.isFollowed())
        back = other;
      continue;
    }
    if (llvm::any_of(other.getIns(), [&](Value read) {
          return llvm::is_contained(gather.getOuts(), read);
        }))
      return nullptr;
  }
  return back;
}

/// The input of a gather without a row per token: null, or the number of the
/// rank's valid rows, if the ids do not have it. No value if there is any
/// other, whose use in another order is unknown.
static std::optional<Value> findNumValidTokens(plan::CollectiveOp gather) {
  Value found;
  for (Value in : gather.getIns()) {
    auto type = cast<MemRefType>(in.getType());
    if (type.isDynamicDim(0))
      continue;
    if (found || type.getShape() != ArrayRef<int64_t>{1} ||
        !type.getElementType().isInteger(32))
      return std::nullopt;
    found = in;
  }
  return found;
}

LogicalResult PackedExchangeMaker::run(plan::VariantOp variant) {
  plan::MeshAttr mesh =
      variant->getParentOfType<plan::ProgramOp>().getMeshAttr();
  for (auto gather : variant.getBody().getOps<plan::CollectiveOp>()) {
    if (gather.getKind() != plan::CollectiveKind::AllGather ||
        !hasOneDestinationPerId(gather) || !getExchangedRows(gather))
      continue;
    plan::CollectiveOp back = findReturningSum(gather);
    std::optional<Value> numValidTokens = findNumValidTokens(gather);
    if (!back || !getExchangedRows(back) || !numValidTokens)
      continue;
    int64_t ranks =
        gather.getAxis() == plan::Axis::Dp ? mesh.getDp() : mesh.getTp();
    if (failed(addRoute(gather, ranks, *numValidTokens)) ||
        failed(addRoute(back, ranks, *numValidTokens)) ||
        failed(addPack(gather, ranks)) || failed(addSum(back, ranks)))
      return failure();
  }
  return success();
}

LogicalResult PackedExchangeMaker::add(
    plan::CollectiveOp collective, StringRef attribute, StringRef name,
    ArrayRef<Type> types,
    llvm::function_ref<Operation *(OpBuilder &, ValueRange, Value)> makePhase) {
  moert::Expr rows = *getExchangedRows(collective);
  auto type = FunctionType::get(module.getContext(), types, {});
  Made *same = llvm::find_if(made, [&](Made &other) {
    return other.kernel.getFunctionType() == type && other.rows == rows &&
           other.kernel.getSymName().starts_with(name);
  });
  if (same == made.end()) {
    OpBuilder builder(module.getContext());
    auto kernel =
        tile::KernelOp::create(builder, collective.getLoc(), name, type);
    symbols.insert(kernel);
    Block &body = kernel.getBody().front();
    builder.setInsertionPointToStart(&body);
    ValueRange arguments = body.getArguments();
    Operation *phase =
        makePhase(builder, arguments.drop_back(), arguments.back());
    tile::ReturnOp::create(builder, collective.getLoc());
    SmallVector<const Schedule *> schedules = getSchedulesFor(target, phase);
    if (schedules.empty())
      return phase->emitOpError("has no schedule on the target ")
             << target.name;
    phase->setAttr("config", schedules.front()->choose(phase, target));
    setLaunchShape(kernel, target);
    made.push_back({kernel, rows});
    same = &made.back();
  }
  collective->setAttr(attribute, FlatSymbolRefAttr::get(same->kernel));
  return success();
}

/// Types of the operands by which all kernels of an all-to-all address rows.
static MemRefType getPositionsType(MLIRContext *context) {
  return MemRefType::get(ShapedType::kDynamic, IntegerType::get(context, 32));
}
static MemRefType getCountsType(MLIRContext *context, int64_t ranks) {
  return MemRefType::get(ranks, IntegerType::get(context, 32));
}
static MemRefType getHeaderType(MLIRContext *context) {
  return MemRefType::get(moert::PackedRows::kNumWords,
                         IntegerType::get(context, 64));
}

LogicalResult PackedExchangeMaker::addRoute(plan::CollectiveOp collective,
                                            int64_t ranks,
                                            Value numValidTokens) {
  MLIRContext *context = module.getContext();
  SmallVector<Type> types{collective.getIds().front().getType(),
                          collective.getDestinations().getType()};
  if (numValidTokens)
    types.push_back(numValidTokens.getType());
  types.append({getPositionsType(context), getCountsType(context, ranks),
                IntegerType::get(context, 64)});
  return add(collective, kRouteKernelAttr, "route_rows", types,
             [&](OpBuilder &builder, ValueRange args, Value rows) {
               ValueRange made = args.take_back(2);
               return tile::RouteRowsOp::create(
                   builder, collective.getLoc(), rows, args[0], args[1],
                   numValidTokens ? args[2] : Value(), made[0], made[1],
                   tile::ConfigAttr());
             });
}

LogicalResult PackedExchangeMaker::addPack(plan::CollectiveOp gather,
                                           int64_t ranks) {
  MLIRContext *context = module.getContext();
  SmallVector<Type> rowTypes;
  for (Type type : gather.getIns().getTypes())
    if (cast<MemRefType>(type).isDynamicDim(0))
      rowTypes.push_back(type);
  SmallVector<Type> types;
  for (int i = 0; i < 3; ++i)
    llvm::append_range(types, rowTypes);
  llvm::append_range(types, ArrayRef<Type>{getPositionsType(context),
                                           getCountsType(context, ranks),
                                           getHeaderType(context),
                                           IntegerType::get(context, 64)});
  return add(gather, kPackKernelAttr, "pack_rows", types,
             [&](OpBuilder &builder, ValueRange args, Value rows) {
               size_t count = rowTypes.size();
               ValueRange routes = args.drop_front(3 * count);
               return tile::PackRowsOp::create(
                   builder, gather.getLoc(), rows, args.take_front(count),
                   args.slice(count, count), args.slice(2 * count, count),
                   routes[0], routes[1], routes[2], tile::ConfigAttr());
             });
}

LogicalResult PackedExchangeMaker::addSum(plan::CollectiveOp combine,
                                          int64_t ranks) {
  MLIRContext *context = module.getContext();
  Type row = combine.getIns().front().getType();
  Type types[] = {row,
                  row,
                  getPositionsType(context),
                  getCountsType(context, ranks),
                  getHeaderType(context),
                  row,
                  IntegerType::get(context, 64)};
  return add(combine, kPackKernelAttr, "sum_packed_rows", types,
             [&](OpBuilder &builder, ValueRange args, Value rows) {
               return tile::SumPackedRowsOp::create(
                   builder, combine.getLoc(), rows, args[0], args[1], args[2],
                   args[3], args[4], args[5], tile::ConfigAttr());
             });
}
