//===- Machine.cpp - from ops to formulas -----------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Machine.h"

#include "moec/Dialect/Moe/QuantLayout.h"

#include "llvm/ADT/TypeSwitch.h"

#include <cstring>

using namespace mlir;
using namespace moert;

namespace moec::interpreter {

Status Machine::bind(Value value, const TensorRef &tensor,
                     const std::string &name) {
  auto type = cast<ShapedType>(value.getType());
  if (!matches(tensor, type))
    return invalidArgument(name + " is " + describe(tensor) +
                           ", but its type says " + describe(type));
  tensors[value] = tensor;
  return Status::ok();
}

Tensor Machine::take(Value value) {
  for (auto &[made, tensor] : owned)
    if (made == value)
      return std::move(tensor);
  // An argument that is returned directly.
  TensorRef source = at(value);
  Tensor copy = Tensor::undefined(source.dtype, source.shape);
  if (copy.size() > 0)
    memcpy(copy.ref().data, source.data, copy.size());
  return copy;
}

/// Makes the tensor of a result, unless the caller bound one.
Status Machine::allocate(Value value, ArrayRef<int64_t> shape) {
  auto type = cast<ShapedType>(value.getType());
  Result<DType> dtype = elementDType(type);
  if (!dtype)
    return dtype.status();
  owned.emplace_back(value, Tensor::undefined(*dtype, shape));
  return bind(value, owned.back().second.ref(),
              "result " +
                  std::to_string(cast<OpResult>(value).getResultNumber()));
}

Status Machine::checkTokens(Value value) const {
  if (value == tokensValue)
    return Status::ok();
  return invalidArgument("the operand tokens is not the kernel's last "
                         "argument");
}

//===----------------------------------------------------------------------===//
// Formulas for a moe op and its tile op
//===----------------------------------------------------------------------===//

template <typename OpT>
Status Machine::runRoute(OpT op, int64_t count) {
  Result<RegionEvaluator> score = RegionEvaluator::compile(op.getScore());
  if (!score)
    return score.status().withContext("region score");
  Result<RegionEvaluator> weight = RegionEvaluator::compile(op.getWeight());
  if (!weight)
    return weight.status().withContext("region weight");
  Result<RegionEvaluator> key = RegionEvaluator::compile(op.getKey());
  if (!key)
    return key.status().withContext("region key");
  RouteArguments arguments;
  arguments.tokens = count;
  arguments.logits = at(op.getLogits());
  arguments.selectionBias = maybe(op.getSelectionBias());
  arguments.expertScale = maybe(op.getExpertScale());
  arguments.inputIds = maybe(op.getInputIds());
  arguments.hashTable = maybe(op.getHashTable());
  arguments.numValidTokens = maybe(op.getNumValidTokens());
  arguments.isPadding = maybe(op.getIsPadding());
  arguments.givenIds = maybe(op.getGivenIds());
  arguments.ids = at(op.getIds());
  arguments.weights = at(op.getWeights());
  arguments.recordedIds = maybe(op.getRecordedIds());
  return route(arguments, op.getRouting(), *score,
               op.getKey().empty() ? nullptr : &*key, *weight);
}

template <typename OpT>
Status Machine::runPermute(OpT op, int64_t count, Value offsets, Value position,
                           Value source, Value rowWeight) {
  PermuteArguments arguments;
  arguments.tokens = count;
  arguments.ids = at(op.getIds());
  arguments.weights = at(op.getWeights());
  arguments.numValidTokens = maybe(op.getNumValidTokens());
  arguments.offsets = at(offsets);
  arguments.position = at(position);
  arguments.source = at(source);
  arguments.rowWeight = at(rowWeight);
  arguments.numExperts = op.getNumExperts();
  arguments.numZeroExperts = op.getNumZeroExperts();
  arguments.localExperts = op.getLocalExperts();
  if constexpr (std::is_same_v<OpT, tile::SortByExpertOp>) {
    arguments.counts = maybe(op.getCounts());
    arguments.chunkTokens = op.getChunkTokens().value_or(0);
  }
  return permute(arguments);
}

static GroupRows getGroupRows(tile::GemmOp op) {
  GroupRows rows;
  rows.min = op.getMinGroupRows().value_or(rows.min);
  rows.max = op.getMaxGroupRows().value_or(rows.max);
  return rows;
}

Status Machine::quantizeInput(tile::GemmOp op, int64_t count,
                              MatmulArguments &arguments) {
  auto type = cast<ShapedType>(op.getInput().getType());
  moe::QuantAttr quant = op.getInputQuantAttr();
  Result<DType> dtype = elementDType(type.clone(quant.getStorage()));
  if (!dtype)
    return dtype.status();
  QuantizeArguments rows;
  rows.input = arguments.input;
  rows.quant = quant;
  // Rows in the order of groups are defined up to the last offset.
  bool areTokens = !op.getOffsets() || op.getSource();
  rows.rows = areTokens ? validTokens(arguments.numValidTokens, count)
                        : arguments.input.shape[0];
  if (!areTokens)
    rows.offsets = arguments.offsets;
  bool isGiven = arguments.inputScale.has_value();
  auto add = [&](DType element, ArrayRef<int64_t> shape) {
    return owned.emplace_back(Value(), Tensor::undefined(element, shape))
        .second.ref();
  };
  rows.quantized = add(*dtype, arguments.input.shape);
  rows.tensorScale = arguments.inputScale;
  if (!isGiven) {
    int64_t groups = moe::getNumScaleColumns(quant, arguments.input.rowSize());
    rows.scale = add(DType::F32, {arguments.input.shape[0], groups});
    arguments.inputScale = rows.scale;
  }
  arguments.input = rows.quantized;
  return quantize(rows);
}

template <typename OpT>
Status Machine::runMatmul(OpT op, int64_t count, const TensorRef &result) {
  Result<RegionEvaluator> epilogue = RegionEvaluator::compile(op.getEpilogue());
  if (!epilogue)
    return epilogue.status().withContext("region epilogue");
  MatmulArguments arguments;
  arguments.tokens = count;
  arguments.input = at(op.getInput());
  arguments.weight = at(op.getWeight());
  arguments.inputScale = maybe(op.getInputScale());
  arguments.weightScale = maybe(op.getWeightScale());
  arguments.weightZeroPoint = maybe(op.getWeightZeroPoint());
  arguments.weightGlobalScale = maybe(op.getWeightGlobalScale());
  arguments.offsets = maybe(op.getOffsets());
  arguments.source = maybe(op.getSource());
  arguments.numValidTokens = maybe(op.getNumValidTokens());
  arguments.rowOperands = all(op.getRowOperands());
  arguments.columnOperands = all(op.getColumnOperands());
  arguments.elementwiseOperands = all(op.getElementwiseOperands());
  arguments.shrunk = maybe(op.getShrunk());
  arguments.adapters = maybe(op.getAdapters());
  arguments.matrices = all(op.getMatrices());
  arguments.result = result;
  arguments.inputQuant = op.getInputQuantAttr();
  arguments.weightQuant = op.getWeightQuantAttr();
  arguments.layout = op.getLayoutAttr();
  if constexpr (std::is_same_v<OpT, tile::GemmOp>) {
    arguments.groupRows = getGroupRows(op);
    if (op.getQuantizesInput())
      if (Status status = quantizeInput(op, count, arguments); !status)
        return status;
  }
  return groupedMatmul(arguments, *epilogue);
}

template <typename OpT>
Status Machine::runRowMap(OpT op, int64_t count, Value result) {
  Result<RegionEvaluator> body = RegionEvaluator::compile(op.getBody());
  if (!body)
    return body.status().withContext("region body");
  RowMapArguments arguments;
  arguments.tokens = count;
  arguments.input = at(op.getInput());
  arguments.numValidTokens = maybe(op.getNumValidTokens());
  arguments.rowOperands = all(op.getRowOperands());
  arguments.elementwiseOperands = all(op.getElementwiseOperands());
  arguments.result = at(result);
  return rowMap(arguments, *body);
}

template <typename OpT>
Status Machine::runRmsNorm(OpT op, int64_t rows) {
  RmsNormArguments arguments;
  arguments.rows = rows;
  arguments.input = at(op.getInput());
  arguments.weight = at(op.getWeight());
  arguments.rowWeight = maybe(op.getRowWeight());
  arguments.offsets = maybe(op.getOffsets());
  arguments.norm = op.getNorm();
  arguments.result = at(op.getResult());
  return rmsNorm(arguments);
}

template <typename OpT>
Status Machine::runLoraShrink(OpT op) {
  LoraShrinkArguments arguments;
  arguments.input = at(op.getInput());
  arguments.matrices = all(op.getMatrices());
  arguments.offsets = at(op.getOffsets());
  arguments.source = at(op.getSource());
  arguments.adapterIds = at(op.getAdapterIds());
  arguments.gathers = op.getGather();
  arguments.result = at(op.getResult());
  arguments.adapter = at(op.getAdapter());
  return shrinkLora(arguments);
}

Status Machine::run(tile::LoraUpdateOp op) {
  LoraUpdateArguments arguments;
  arguments.input = at(op.getInput());
  arguments.first = all(op.getMatrices());
  arguments.second = all(op.getSecond());
  arguments.results = all(op.getResults());
  arguments.offsets = at(op.getOffsets());
  arguments.source = at(op.getSource());
  arguments.adapterIds = at(op.getAdapterIds());
  arguments.gathers = op.getGather();
  return updateLora(arguments);
}

template <typename OpT>
Status Machine::runPlaceIds(OpT op, int64_t count, Value result) {
  PlaceIdsArguments arguments;
  arguments.tokens = count;
  arguments.ids = at(op.getIds());
  arguments.table = maybe(op.getTable());
  arguments.replicaCounts = maybe(op.getReplicaCounts());
  arguments.numValidTokens = maybe(op.getNumValidTokens());
  arguments.isPadding = maybe(op.getIsPadding());
  arguments.zeroExperts = op.getZeroExperts();
  arguments.result = at(result);
  return placeIds(arguments);
}

/// Computes the scale of a tensor, or quantizes by a given scale or by dynamic
/// ones.
template <typename OpT>
Status Machine::runQuantize(OpT op, int64_t rows) {
  constexpr bool findsScale = std::is_same_v<OpT, moe::TensorScaleOp> ||
                              std::is_same_v<OpT, tile::TensorScaleOp>;
  std::conditional_t<findsScale, TensorScaleArguments, QuantizeArguments>
      arguments;
  arguments.rows = rows;
  arguments.input = at(op.getInput());
  arguments.offsets = maybe(op.getOffsets());
  arguments.quant = op.getQuant();
  if constexpr (findsScale) {
    arguments.numValidTokens = maybe(op.getNumValidTokens());
    arguments.isPadding = maybe(op.getIsPadding());
    arguments.scale = at(op.getScale());
    return tensorScale(arguments);
  } else {
    arguments.tensorScale = maybe(op.getTensorScale());
    arguments.quantized = at(op.getQuantized());
    arguments.scale = maybe(op.getScale());
    return quantize(arguments);
  }
}

template <typename OpT>
Status Machine::runPrepack(OpT op) {
  PrepackArguments arguments;
  arguments.weight = at(op.getWeight());
  arguments.scale = at(op.getScale());
  arguments.zeroPoint = maybe(op.getZeroPoint());
  arguments.globalScale = maybe(op.getGlobalScale());
  arguments.packed = at(op.getPacked());
  arguments.packedScale = at(op.getPackedScale());
  arguments.rowScale = at(op.getRowScale());
  arguments.quant = op.getQuant();
  arguments.packing = op.getPacking();
  arguments.layout = op.getLayoutAttr();
  return repack(arguments);
}

template <typename OpT>
Status Machine::runUnpermute(OpT op, int64_t count, Value result) {
  UnpermuteArguments arguments;
  arguments.tokens = count;
  arguments.rows = at(op.getRows());
  arguments.position = at(op.getPosition());
  arguments.identity = maybe(op.getIdentity());
  arguments.identityWeights = maybe(op.getIdentityWeights());
  arguments.addend = maybe(op.getAddend());
  arguments.numValidTokens = maybe(op.getNumValidTokens());
  arguments.result = at(result);
  arguments.unreduced = op.getUnreduced();
  arguments.fromUnreduced = op.getFromUnreduced();
  return unpermute(arguments);
}

//===----------------------------------------------------------------------===//
// The moe ops: results are allocated
//===----------------------------------------------------------------------===//

Status Machine::run(moe::RouteOp op) {
  int64_t count = at(op.getLogits()).shape[0];
  int64_t topK = op.getRouting().getTopK();
  for (Value result : op->getResults())
    if (Status status = allocate(result, {count, topK}); !status)
      return status;
  return runRoute(op, count);
}

Status Machine::run(moe::PermuteOp op) {
  TensorRef ids = at(op.getIds());
  int64_t numLocal =
      op.getLocalExperts() ? op.getLocalExperts()->size() : op.getNumExperts();
  int64_t positions = ids.numElements();
  llvm::SmallVector<int64_t, 4> shapes[] = {
      {numLocal + 1}, ids.shape, {positions}, {positions, 1}};
  for (OpResult result : op->getResults())
    if (Status status = allocate(result, shapes[result.getResultNumber()]);
        !status)
      return status;
  return runPermute(op, ids.shape[0], op.getOffsets(), op.getPosition(),
                    op.getSource(), op.getRowWeight());
}

Status Machine::run(moe::GroupedMatmulOp op) {
  TensorRef input = at(op.getInput());
  int64_t rows = input.shape[0];
  if (op.getSource())
    rows = at(op.getSource()).shape[0];
  TensorRef weight = at(op.getWeight());
  int64_t columns = weight.shape[weight.shape.size() - 2];
  if (op.getLayout())
    columns /= 2;
  if (Status status = allocate(op.getResult(), {rows, columns}); !status)
    return status;
  return runMatmul(op, rows, at(op.getResult()));
}

Status Machine::run(moe::RowMapOp op) {
  TensorRef input = at(op.getInput());
  if (Status status = allocate(op.getResult(), input.shape); !status)
    return status;
  return runRowMap(op, input.shape[0], op.getResult());
}

Status Machine::run(moe::RmsNormOp op) {
  TensorRef input = at(op.getInput());
  if (Status status = allocate(op.getResult(), input.shape); !status)
    return status;
  return runRmsNorm(op, input.shape[0]);
}

Status Machine::run(moe::GatherRowsOp op) {
  GatherRowsArguments arguments;
  arguments.input = at(op.getInput());
  arguments.offsets = maybe(op.getOffsets());
  arguments.source = maybe(op.getSource());
  arguments.columns = at(op.getColumns());
  arguments.positions =
      arguments.source ? arguments.source->shape[0] : arguments.input.shape[0];
  if (Status status = allocate(
          op.getResult(), {arguments.positions, arguments.input.rowSize()});
      !status)
    return status;
  arguments.result = at(op.getResult());
  return gatherRows(arguments);
}

Status Machine::run(moe::LoraShrinkOp op) {
  int64_t positions = at(op.getSource()).shape[0];
  int64_t columns =
      cast<RankedTensorType>(op.getResult().getType()).getDimSize(1);
  if (Status status = allocate(op.getResult(), {positions, columns}); !status)
    return status;
  if (Status status = allocate(op.getAdapter(), {positions, 1}); !status)
    return status;
  return runLoraShrink(op);
}

Status Machine::run(moe::PlaceIdsOp op) {
  TensorRef ids = at(op.getIds());
  if (Status status = allocate(op.getResult(), ids.shape); !status)
    return status;
  return runPlaceIds(op, ids.shape[0], op.getResult());
}

Status Machine::run(moe::TensorScaleOp op) {
  if (Status status = allocate(op.getScale(), {1}); !status)
    return status;
  return runQuantize(op, at(op.getInput()).shape[0]);
}

Status Machine::run(moe::QuantizeOp op) {
  TensorRef input = at(op.getInput());
  if (Status status = allocate(op.getQuantized(), input.shape); !status)
    return status;
  if (op.getScale()) {
    int64_t groups = cast<ShapedType>(op.getScale().getType()).getDimSize(1);
    if (Status status = allocate(op.getScale(), {input.shape[0], groups});
        !status)
      return status;
  }
  return runQuantize(op, input.shape[0]);
}

Status Machine::run(moe::PrepackOp op) {
  for (OpResult result : op->getResults()) {
    auto type = cast<ShapedType>(result.getType());
    if (Status status = allocate(result, type.getShape()); !status)
      return status;
  }
  return runPrepack(op);
}

Status Machine::run(moe::UnpermuteOp op) {
  int64_t count = at(op.getPosition()).shape[0];
  if (Status status = allocate(
          op.getResult(),
          {count, cast<ShapedType>(op.getResult().getType()).getDimSize(1)});
      !status)
    return status;
  return runUnpermute(op, count, op.getResult());
}

/// With a quantized result, the unquantized one is a temporary tensor.
Status Machine::run(tile::GemmOp op) {
  TensorRef result = at(op.getResult());
  if (!op.quantizesResult())
    return runMatmul(op, tokens, result);
  auto type = cast<ShapedType>(op.getResult().getType());
  Result<DType> dtype = elementDType(type.clone(*op.getRoundedTo()));
  if (!dtype)
    return dtype.status();
  Tensor rounded = Tensor::undefined(*dtype, result.shape);
  if (Status status = runMatmul(op, tokens, rounded.ref()); !status)
    return status;
  QuantizeArguments arguments;
  arguments.rows = result.shape[0];
  arguments.input = rounded.ref();
  arguments.offsets = maybe(op.getOffsets());
  arguments.quantized = result;
  arguments.tensorScale = maybe(op.getResultTensorScale());
  arguments.scale = maybe(op.getResultScale());
  arguments.groupRows = getGroupRows(op);
  arguments.quant = op.getResultQuantAttr();
  return quantize(arguments);
}

Status Machine::run(tile::GatherRowsOp op) {
  GatherRowsArguments arguments;
  arguments.positions = tokens * static_cast<int64_t>(op.getTopK().value_or(1));
  arguments.offsets = maybe(op.getOffsets());
  arguments.source = maybe(op.getSource());
  arguments.columns = maybe(op.getColumns());
  for (auto [input, result] : llvm::zip(op.getInputs(), op.getResults())) {
    arguments.input = at(input);
    arguments.result = at(result);
    if (Status status = gatherRows(arguments); !status)
      return status;
  }
  return Status::ok();
}

Status Machine::run(tile::CountSlotsOp op) {
  CountSlotsArguments arguments;
  arguments.tokens = tokens;
  arguments.ids = at(op.getIds());
  arguments.numValidTokens = maybe(op.getNumValidTokens());
  arguments.counts = at(op.getCounts());
  arguments.numExperts = op.getNumExperts();
  arguments.chunkTokens = op.getChunkTokens();
  arguments.localExperts = op.getLocalExperts();
  return countSlots(arguments);
}

Status Machine::runOp(Operation &op) {
  auto onTile = [&](auto tileOp, auto &&evaluate) {
    if (Status status = checkTokens(tileOp.getTokens()); !status)
      return status;
    return evaluate();
  };
  return llvm::TypeSwitch<Operation *, Status>(&op)
      .Case<moe::RouteOp, moe::PermuteOp, moe::GroupedMatmulOp, moe::RowMapOp,
            moe::RmsNormOp, moe::LoraShrinkOp, moe::PlaceIdsOp,
            moe::GatherRowsOp, moe::TensorScaleOp, moe::QuantizeOp,
            moe::PrepackOp, moe::UnpermuteOp>(
          [&](auto moeOp) { return run(moeOp); })
      .Case([&](tile::TopKOp t) {
        return onTile(t, [&] { return runRoute(t, tokens); });
      })
      .Case([&](tile::CountSlotsOp t) {
        return onTile(t, [&] { return run(t); });
      })
      .Case([&](tile::SortByExpertOp t) {
        return onTile(t, [&] {
          return runPermute(t, tokens, t.getOffsets(), t.getPosition(),
                            t.getSource(), t.getRowWeight());
        });
      })
      .Case([&](tile::GemmOp t) { return onTile(t, [&] { return run(t); }); })
      .Case([&](tile::RowMapOp t) {
        return onTile(t, [&] { return runRowMap(t, tokens, t.getResult()); });
      })
      .Case([&](tile::RmsNormOp t) {
        return onTile(
            t, [&] { return runRmsNorm(t, tokens * t.getTopK().value_or(1)); });
      })
      .Case([&](tile::LoraShrinkOp t) {
        return onTile(t, [&] { return runLoraShrink(t); });
      })
      .Case([&](tile::LoraUpdateOp t) {
        return onTile(t, [&] { return run(t); });
      })
      .Case([&](tile::PlaceIdsOp t) {
        return onTile(t, [&] { return runPlaceIds(t, tokens, t.getResult()); });
      })
      .Case([&](tile::PrepackOp t) {
        return onTile(t, [&] { return runPrepack(t); });
      })
      .Case<tile::QuantizeOp, tile::TensorScaleOp>([&](auto t) {
        return onTile(t, [&] {
          int64_t rows = t.getTopK() ? tokens * *t.getTopK() : tokens;
          return runQuantize(t, rows);
        });
      })
      .Case([&](tile::GatherRowsOp t) {
        return onTile(t, [&] { return run(t); });
      })
      .Case([&](tile::GatherReduceOp t) {
        return onTile(t,
                      [&] { return runUnpermute(t, tokens, t.getResult()); });
      })
      .Default([](Operation *) {
        return invalidArgument("the interpreter does not run this op; it runs "
                               "pipeline ops of moe (after moe-decompose) and "
                               "the ops of tile");
      });
}

Status Machine::run(Block &block) {
  for (Operation &op : block.without_terminator())
    if (Status status = runOp(op); !status)
      return status.withContext(op.getName().getStringRef().str());
  return Status::ok();
}

} // namespace moec::interpreter
