//===- LayerFunction.cpp - a function of pipeline ops as kernels *- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "LayerFunction.h"

#include "mlir/IR/Matchers.h"
#include "moec/Dialect/Names.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace moec;
using namespace moec::moe;

/// The default bound of docs/use/layers.md.
static constexpr int64_t kDefaultMaxTokens = 16384;

/// Only the first dimension may depend on the token count.
static bool isRowMajorData(RankedTensorType type) {
  return !type.getEncoding() &&
         llvm::none_of(type.getShape().drop_front(type.getRank() > 0),
                       ShapedType::isDynamic);
}

bool LayerFunction::holdsLayer(func::FuncOp func) {
  return func
      .walk([](Operation *op) {
        return isa_and_nonnull<MoeDialect>(op->getDialect())
                   ? WalkResult::interrupt()
                   : WalkResult::advance();
      })
      .wasInterrupted();
}

LogicalResult LayerFunction::analyze(func::FuncOp function) {
  func = function;
  if (!func.getBody().hasOneBlock())
    return func.emitOpError("holds moe ops in several blocks; a layer's "
                            "function has one block without control flow");
  maxTokens = kDefaultMaxTokens;
  if (auto attr = func->getAttrOfType<IntegerAttr>(kMaxTokensAttr))
    maxTokens = attr.getInt();
  if (maxTokens < 1)
    return func.emitOpError("has ")
           << kMaxTokensAttr << " = " << maxTokens << "; give at least 1";
  ownTokens = groupTokens = moert::Expr::tokens();
  if (auto attr = func->getAttrOfType<MeshAttr>(kMeshAttr)) {
    mesh = attr;
    groupTokens = moert::Expr::ceilDiv(ownTokens, mesh.getNumGroups());
    ownTokens = moert::Expr::ceilDiv(ownTokens, mesh.getTokenRanks());
  }
  if (failed(checkArguments()) || failed(checkOps()) || failed(checkResults()))
    return failure();
  formGroups();
  return success();
}

LogicalResult LayerFunction::checkArguments() {
  llvm::StringSet<> names;
  for (BlockArgument arg : func.getArguments()) {
    unsigned index = arg.getArgNumber();
    auto fail = [&](const Twine &message) {
      return func.emitOpError("argument ") << index << " " << message;
    };
    auto type = dyn_cast<RankedTensorType>(arg.getType());
    if (!type || !isRowMajorData(type))
      return fail("must be a ranked tensor with at most its first dimension "
                  "dynamic, such as tensor<?x2048xbf16>");
    auto name = func.getArgAttrOfType<StringAttr>(index, kNameAttr);
    if (!name || name.getValue().empty())
      return fail("has no name; add {moe.name = \"hidden_states\"} or another "
                  "tensor name of docs/use/layers.md");
    if (!names.insert(name.getValue()).second)
      return fail("is the second argument with moe.name = \"" +
                  name.getValue() + "\"; give each tensor its own name");
    auto role = func.getArgAttrOfType<StringAttr>(index, kRoleAttr);
    if (!role || (role.getValue() != "input" && role.getValue() != "weight"))
      return fail("('" + name.getValue() +
                  "') has no role; add moe.role = \"input\" or \"weight\"");
    if (func.getArgAttr(index, kStridedAttr) &&
        (role.getValue() != "weight" || type.getRank() < 2))
      return fail("('" + name.getValue() + "') has " + kStridedAttr +
                  ", which only weights of rank 2 or more may have; remove it");
    if (type.getRank() == 0 || !type.isDynamicDim(0))
      continue;
    if (role.getValue() == "weight")
      return fail("('" + name.getValue() +
                  "') is a weight with a dynamic dimension; weights have "
                  "constant shapes");
    FailureOr<moert::Expr> tokens = readRows(arg);
    if (failed(tokens))
      return failure();
    rows[arg] = rowTokens[arg] = *tokens;
  }
  return success();
}

/// The rows of an input: those of the rank, of its group or of all ranks.
FailureOr<moert::Expr> LayerFunction::readRows(BlockArgument arg) {
  unsigned index = arg.getArgNumber();
  Attribute given = func.getArgAttr(index, kRowsAttr);
  if (!given)
    return ownTokens;
  auto rows = dyn_cast<StringAttr>(given);
  StringRef value = rows ? rows.getValue() : "";
  if (mesh && value == "all")
    return moert::Expr::tokens();
  if (mesh && value == "group")
    return groupTokens;
  return func.emitOpError("argument ")
         << index << " has " << kRowsAttr << " = " << given
         << (mesh ? "; give \"all\" or \"group\", or remove it for the rows "
                    "of a rank"
                  : ", but the function has no moe.mesh; remove it");
}

/// Prepacked values are available before all runs.
LogicalResult LayerFunction::checkWeights(PrepackOp op) {
  for (Value operand : op->getOperands()) {
    auto argument = dyn_cast<BlockArgument>(operand);
    auto role = argument ? func.getArgAttrOfType<StringAttr>(
                               argument.getArgNumber(), kRoleAttr)
                         : StringAttr();
    if (!role || role.getValue() != "weight")
      return op.emitOpError(
          "takes a value that is not a weight of the layer; give it arguments "
          "of the function with moe.role = \"weight\"");
  }
  return success();
}

LogicalResult LayerFunction::checkOps() {
  for (Operation &op : func.getBody().front().without_terminator()) {
    if (matchPattern(&op, m_Constant()))
      continue;
    if (isa<LayerOp>(op))
      return op.emitOpError(
          "cannot be converted to a plan as a whole; run moe-decompose first");
    if (!isa<RouteOp, PermuteOp, GroupedMatmulOp, PrepackOp, PlaceIdsOp,
             GatherRowsOp, RowMapOp, RmsNormOp, LoraShrinkOp, TensorScaleOp,
             QuantizeOp, UnpermuteOp, DispatchOp, CombineOp>(op))
      return op.emitOpError(
          "cannot be converted to a kernel; a layer's function holds only "
          "moe.route, moe.permute, moe.grouped_matmul, moe.prepack, "
          "moe.place_ids, moe.gather_rows, moe.row_map, moe.rms_norm, "
          "moe.lora_shrink, moe.tensor_scale, "
          "moe.quantize, moe.unpermute, moe.dispatch and moe.combine");
    if (failed(checkMesh(op)))
      return failure();
    if (auto repack = dyn_cast<PrepackOp>(op))
      if (failed(checkWeights(repack)))
        return failure();
    for (Value operand : op.getOperands())
      if (Operation *source = operand.getDefiningOp();
          source && matchPattern(source, m_Constant()))
        return op.emitOpError("reads a constant tensor; make it an argument of "
                              "the function with moe.role = \"weight\"");
    if (failed(checkRows(op)))
      return failure();
    inferRows(op);
    ops.push_back(&op);
  }
  return success();
}

/// Collectives need several ranks.
LogicalResult LayerFunction::checkMesh(Operation &op) {
  std::optional<Axis> axis;
  if (auto dispatch = dyn_cast<DispatchOp>(op))
    axis = dispatch.getAxis();
  else if (auto combine = dyn_cast<CombineOp>(op))
    axis = combine.getAxis();
  if (!axis)
    return success();
  if (mesh && mesh.getSize(*axis) > 1)
    return success();
  return op.emitOpError("is over axis '")
         << stringifyAxis(*axis) << "', which has one rank; give the function "
         << kMeshAttr << " = #moe.mesh<" << stringifyAxis(*axis)
         << " = 2> or more";
}

/// Verifiers allow only the tokens' number of rows to be dynamic.
void LayerFunction::inferRows(Operation &op) {
  auto setRows = [&](Value result, Value like, int64_t factor = 1) {
    moert::Expr count = rows.lookup(like) * factor;
    rows[result] = count;
    moert::Expr tokens = rowTokens.lookup(like);
    rowTokens[result] = tokens;
  };
  auto setTokens = [&](Value result, const moert::Expr &tokens) {
    if (cast<RankedTensorType>(result.getType()).isDynamicDim(0))
      rows[result] = rowTokens[result] = tokens;
  };
  TypeSwitch<Operation *>(&op)
      .Case([&](RouteOp route) {
        setRows(route.getIds(), route.getLogits());
        setRows(route.getWeights(), route.getLogits());
        if (Value recorded = route.getRecordedIds())
          setRows(recorded, route.getLogits());
      })
      .Case([&](PermuteOp permute) {
        Value ids = permute.getIds();
        int64_t topK = cast<RankedTensorType>(ids.getType()).getDimSize(1);
        setRows(permute.getPosition(), ids);
        setRows(permute.getSource(), ids, topK);
        setRows(permute.getRowWeight(), ids, topK);
      })
      .Case([&](GroupedMatmulOp matmul) {
        Value source = matmul.getSource();
        setRows(matmul.getResult(), source ? source : matmul.getInput());
      })
      .Case(
          [&](PlaceIdsOp place) { setRows(place.getResult(), place.getIds()); })
      .Case([&](DispatchOp dispatch) {
        for (Value result : dispatch.getResults())
          setTokens(result, dispatch.getAxis() == Axis::Dp
                                ? moert::Expr::tokens()
                                : groupTokens);
      })
      .Case([&](CombineOp combine) {
        setTokens(combine.getResult(),
                  combine.getOwnRows() ? ownTokens : groupTokens);
      })
      .Case([&](GatherRowsOp gather) {
        Value source = gather.getSource();
        setRows(gather.getResult(), source ? source : gather.getInput());
      })
      .Case([&](RowMapOp map) { setRows(map.getResult(), map.getInput()); })
      .Case([&](RmsNormOp norm) { setRows(norm.getResult(), norm.getInput()); })
      .Case([&](LoraShrinkOp shrink) {
        setRows(shrink.getResult(), shrink.getSource());
        setRows(shrink.getAdapter(), shrink.getSource());
      })
      .Case([&](QuantizeOp quantize) {
        setRows(quantize.getQuantized(), quantize.getInput());
        if (quantize.getScale())
          setRows(quantize.getScale(), quantize.getInput());
      })
      .Case([&](UnpermuteOp unpermute) {
        setRows(unpermute.getResult(), unpermute.getPosition());
      });
}

LogicalResult LayerFunction::checkResults() {
  llvm::StringSet<> names;
  for (BlockArgument arg : func.getArguments())
    names.insert(
        func.getArgAttrOfType<StringAttr>(arg.getArgNumber(), kNameAttr)
            .getValue());
  llvm::DenseSet<Value> seen;
  for (auto [index, value] : llvm::enumerate(getReturned())) {
    auto fail = [&, index = index](const Twine &message) {
      return func.emitOpError("result ") << index << " " << message;
    };
    auto name = func.getResultAttrOfType<StringAttr>(index, kNameAttr);
    if (!name || name.getValue().empty())
      return fail("has no name; add {moe.name = \"output\"}");
    if (!names.insert(name.getValue()).second)
      return fail("has the name \"" + name.getValue() +
                  "\" of another tensor; give each tensor its own name");
    if (!isa_and_nonnull<MoeDialect>(value.getDefiningOp()
                                         ? value.getDefiningOp()->getDialect()
                                         : nullptr))
      return fail("is not the result of a moe op; return results of moe ops");
    if (!seen.insert(value).second)
      return fail("returns the same value as an earlier result; return each "
                  "value once");
  }
  if (seen.empty())
    return func.emitOpError("returns nothing; return the layer's output");
  return success();
}

static std::string kernelName(ArrayRef<Operation *> ops) {
  if (isa<RouteOp>(ops.front()))
    return "route";
  if (isa<PermuteOp>(ops.front()))
    return "permute";
  if (isa<PrepackOp>(ops.front()))
    return "repack";
  StringRef name = getResultName(ops.front(), 0);
  return name.empty() ? ops.front()->getName().stripDialect().str()
                      : name.str();
}

void LayerFunction::formGroups() {
  for (size_t i = 0; i < ops.size(); ++i) {
    KernelGroup group;
    group.ops.push_back(ops[i]);
    if (auto route = dyn_cast<RouteOp>(ops[i]); route && i + 1 < ops.size())
      if (auto permute = dyn_cast<PermuteOp>(ops[i + 1]);
          permute && permute.getIds() == route.getIds())
        group.ops.push_back(ops[++i]);
    group.name = kernelName(group.ops);
    for (Operation *op : group.ops) {
      for (Value operand : op->getOperands())
        if (!llvm::is_contained(group.ops, operand.getDefiningOp()))
          group.ins.insert(operand);
      for (Value result : op->getResults()) {
        // Prepared values are available as arguments are.
        if (!group.prepares())
          producers[result] = groups.size();
        group.outs.push_back(result);
      }
    }
    group.tokens = moert::Expr::tokens();
    for (Value in : group.ins)
      if (auto found = rowTokens.find(in); found != rowTokens.end())
        group.tokens = found->second;
    groups.push_back(std::move(group));
  }
}
