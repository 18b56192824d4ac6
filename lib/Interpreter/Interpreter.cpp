//===- Interpreter.cpp - runs functions and kernels op by op ----*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/Interpreter/Interpreter.h"
#include "Formulas.h"

#include "moec/Dialect/Plan/Plan.h"
#include "moec/Dialect/Tile/Tile.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/TypeSwitch.h"

#include <cstring>
#include <deque>

using namespace mlir;
using namespace moert;

namespace moec::interpreter {

namespace {

/// The values of one body, and how each op fills in its results.
class Machine {
public:
  Status bind(Value value, const TensorRef &tensor, const std::string &name);
  void setTokens(Value value, int64_t count) {
    tokensValue = value;
    tokens = count;
  }
  /// Runs the block up to its terminator.
  Status run(Block &block);
  TensorRef at(Value value) const { return tensors.find(value)->second; }
  Tensor take(Value value);

private:
  Status runOp(Operation &op);
  Status allocate(Value value, ArrayRef<int64_t> shape);
  OptionalRef maybe(Value value) const {
    return value ? OptionalRef(at(value)) : std::nullopt;
  }
  llvm::SmallVector<TensorRef> all(ValueRange values) const {
    return llvm::map_to_vector(values, [&](Value v) { return at(v); });
  }
  Status checkTokens(Value value) const;

  // The operands that a moe op and a tile op of one formula have in common.
  template <typename OpT>
  Status runRoute(OpT op, int64_t count, Value ids, Value weights);
  template <typename OpT>
  Status runPermute(OpT op, int64_t count, Value offsets, Value position,
                    Value source, Value rowWeight);
  template <typename OpT>
  Status runMatmul(OpT op, int64_t count, Value result);
  template <typename OpT>
  Status runRowMap(OpT op, int64_t count, Value result);
  template <typename OpT>
  Status runUnpermute(OpT op, int64_t count, Value result);

  Status run(moe::RouteOp op);
  Status run(moe::PermuteOp op);
  Status run(moe::GroupedMatmulOp op);
  Status run(moe::RowMapOp op);
  Status run(moe::UnpermuteOp op);

  llvm::DenseMap<Value, TensorRef> tensors;
  /// Tensors made here; a deque keeps their addresses.
  std::deque<std::pair<Value, Tensor>> owned;
  Value tokensValue;
  int64_t tokens = 0;
};

} // namespace

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
  // An argument that is returned as it is.
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
Status Machine::runRoute(OpT op, int64_t count, Value ids, Value weights) {
  Result<RegionEvaluator> score = RegionEvaluator::compile(op.getScore());
  if (!score)
    return score.status().withContext("region score");
  Result<RegionEvaluator> weight = RegionEvaluator::compile(op.getWeight());
  if (!weight)
    return weight.status().withContext("region weight");
  RouteArguments arguments;
  arguments.tokens = count;
  arguments.logits = at(op.getLogits());
  arguments.selectionBias = maybe(op.getSelectionBias());
  arguments.expertScale = maybe(op.getExpertScale());
  arguments.inputIds = maybe(op.getInputIds());
  arguments.hashTable = maybe(op.getHashTable());
  arguments.numValidTokens = maybe(op.getNumValidTokens());
  arguments.ids = at(ids);
  arguments.weights = at(weights);
  return route(arguments, op.getRouting(), *score, *weight);
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
  return permute(arguments);
}

template <typename OpT>
Status Machine::runMatmul(OpT op, int64_t count, Value result) {
  Result<RegionEvaluator> epilogue = RegionEvaluator::compile(op.getEpilogue());
  if (!epilogue)
    return epilogue.status().withContext("region epilogue");
  MatmulArguments arguments;
  arguments.tokens = count;
  arguments.input = at(op.getInput());
  arguments.weight = at(op.getWeight());
  arguments.offsets = maybe(op.getOffsets());
  arguments.source = maybe(op.getSource());
  arguments.numValidTokens = maybe(op.getNumValidTokens());
  arguments.rowOperands = all(op.getRowOperands());
  arguments.columnOperands = all(op.getColumnOperands());
  arguments.elementwiseOperands = all(op.getElementwiseOperands());
  arguments.result = at(result);
  if (std::optional<moe::WeightLayoutAttr> layout = op.getLayout())
    arguments.order = layout->getOrder();
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
  arguments.rowOperands = all(op.getRowOperands());
  arguments.result = at(result);
  return rowMap(arguments, *body);
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
  return runRoute(op, count, op.getIds(), op.getResult(1));
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
  return runMatmul(op, rows, op.getResult());
}

Status Machine::run(moe::RowMapOp op) {
  TensorRef input = at(op.getInput());
  if (Status status = allocate(op.getResult(), input.shape); !status)
    return status;
  return runRowMap(op, input.shape[0], op.getResult());
}

Status Machine::run(moe::UnpermuteOp op) {
  int64_t count = at(op.getPosition()).shape[0];
  if (Status status =
          allocate(op.getResult(), {count, at(op.getRows()).shape[1]});
      !status)
    return status;
  return runUnpermute(op, count, op.getResult());
}

Status Machine::runOp(Operation &op) {
  auto onTile = [&](auto tileOp, auto &&evaluate) {
    if (Status status = checkTokens(tileOp.getTokens()); !status)
      return status;
    return evaluate();
  };
  return llvm::TypeSwitch<Operation *, Status>(&op)
      .Case<moe::RouteOp, moe::PermuteOp, moe::GroupedMatmulOp, moe::RowMapOp,
            moe::UnpermuteOp>([&](auto moeOp) { return run(moeOp); })
      .Case([&](tile::TopKOp t) {
        return onTile(
            t, [&] { return runRoute(t, tokens, t.getIds(), t.getWeights()); });
      })
      .Case([&](tile::RankOp t) {
        return onTile(t, [&] {
          return runPermute(t, tokens, t.getOffsets(), t.getPosition(),
                            t.getSource(), t.getRowWeight());
        });
      })
      .Case([&](tile::ContractOp t) {
        return onTile(t, [&] { return runMatmul(t, tokens, t.getResult()); });
      })
      .Case([&](tile::RowMapOp t) {
        return onTile(t, [&] { return runRowMap(t, tokens, t.getResult()); });
      })
      .Case([&](tile::GatherReduceOp t) {
        return onTile(t,
                      [&] { return runUnpermute(t, tokens, t.getResult()); });
      })
      // Constants are read where a region uses them.
      .Case([](arith::ConstantOp) { return Status::ok(); })
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

//===----------------------------------------------------------------------===//
// Functions and kernels
//===----------------------------------------------------------------------===//

static std::string argumentName(FunctionOpInterface function, unsigned index) {
  if (auto name = function.getArgAttrOfType<StringAttr>(index, "moe.name"))
    return "argument '" + name.getValue().str() + "'";
  return "argument " + std::to_string(index);
}

static Status checkBody(FunctionOpInterface function) {
  if (function.getFunctionBody().hasOneBlock())
    return Status::ok();
  return invalidArgument("its body is not one block");
}

static Status bindArguments(Machine &machine, FunctionOpInterface function,
                            ArrayRef<TensorRef> tensors) {
  for (auto [i, tensor] : llvm::enumerate(tensors)) {
    Value value = function.getArgument(i);
    if (!isa<ShapedType>(value.getType()))
      return invalidArgument(argumentName(function, i) + " is not a tensor");
    if (Status status = machine.bind(value, tensor, argumentName(function, i));
        !status)
      return status;
  }
  return Status::ok();
}

static Status countMismatch(size_t expected, size_t found) {
  return invalidArgument("it takes " + std::to_string(expected) + " tensors, " +
                         std::to_string(found) + " were given");
}

static Result<std::vector<Tensor>> runFunction(func::FuncOp function,
                                               ArrayRef<TensorRef> inputs) {
  if (Status status = checkBody(function); !status)
    return status;
  if (inputs.size() != function.getNumArguments())
    return countMismatch(function.getNumArguments(), inputs.size());
  Machine machine;
  if (Status status = bindArguments(machine, function, inputs); !status)
    return status;
  Block &block = function.getBody().front();
  if (Status status = machine.run(block); !status)
    return status;
  std::vector<Tensor> results;
  for (Value value : block.getTerminator()->getOperands())
    results.push_back(machine.take(value));
  return std::move(results);
}

Result<std::vector<Tensor>> interpretFunction(func::FuncOp function,
                                              ArrayRef<TensorRef> inputs) {
  Result<std::vector<Tensor>> results = runFunction(function, inputs);
  if (!results)
    return results.status().withContext("@" + function.getName().str());
  return results;
}

static Status runPlanKernel(plan::KernelOp kernel,
                            ArrayRef<TensorRef> tensors) {
  size_t numIns = kernel.getNumArguments();
  if (tensors.size() != numIns + kernel.getNumResults())
    return countMismatch(numIns + kernel.getNumResults(), tensors.size());
  Machine machine;
  if (Status status =
          bindArguments(machine, kernel, tensors.take_front(numIns));
      !status)
    return status;
  Block &block = kernel.getBody().front();
  if (Status status = machine.run(block); !status)
    return status;
  for (auto [i, value, out] : llvm::enumerate(
           block.getTerminator()->getOperands(), tensors.drop_front(numIns))) {
    TensorRef made = machine.at(value);
    if (made.dtype != out.dtype || made.shape != out.shape)
      return invalidArgument("result " + std::to_string(i) + " is " +
                             describe(made) + ", its buffer " + describe(out));
    if (int64_t bytes = made.numElements() * dtypeBits(made.dtype) / 8)
      memcpy(out.data, made.data, bytes);
  }
  return Status::ok();
}

static Status runTileKernel(tile::KernelOp kernel, ArrayRef<TensorRef> tensors,
                            int64_t tokens) {
  size_t numTensors = kernel.getNumArguments() - 1;
  if (tensors.size() != numTensors)
    return countMismatch(numTensors, tensors.size());
  Machine machine;
  if (Status status = bindArguments(machine, kernel, tensors); !status)
    return status;
  machine.setTokens(kernel.getTokens(), tokens);
  return machine.run(kernel.getBody().front());
}

Status interpretKernel(FunctionOpInterface kernel, ArrayRef<TensorRef> tensors,
                       int64_t tokens) {
  std::string name = "@" + kernel.getName().str();
  if (Status status = checkBody(kernel); !status)
    return status.withContext(name);
  Operation *op = kernel;
  if (auto planKernel = dyn_cast<plan::KernelOp>(op))
    return runPlanKernel(planKernel, tensors).withContext(name);
  if (auto tileKernel = dyn_cast<tile::KernelOp>(op))
    return runTileKernel(tileKernel, tensors, tokens).withContext(name);
  return invalidArgument(name +
                         ": the interpreter runs plan.kernel and "
                         "tile.kernel, not '" +
                         op->getName().getStringRef().str() + "'");
}

} // namespace moec::interpreter
