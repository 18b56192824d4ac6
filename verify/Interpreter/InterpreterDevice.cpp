//===- InterpreterDevice.cpp - device that interprets kernels ---*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/Interpreter/InterpreterDevice.h"
#include "moec/Interpreter/Interpreter.h"

#include "moec/Dialect/Plan/PackedMemRef.h"
#include "moec/Dialect/Plan/Plan.h"
#include "moec/Dialect/Tile/Tile.h"
#include "moert/Expr.h"
#include "moert/HostDevice.h"

#include <cstring>
#include <map>
#include <mutex>

using namespace mlir;
using namespace moert;

namespace moec::interpreter {

namespace {

/// A tensor of a launch: its type, and its rows if they are dynamic.
struct Parameter {
  ShapedType type;
  DType dtype = DType::F32;
  Expr rows;
  /// Its strides follow its address.
  bool isStrided = false;

  size_t numSlots() const { return isStrided ? type.getRank() : 1; }
};

class InterpretedKernel : public Kernel {
public:
  InterpretedKernel(FunctionOpInterface op, std::vector<Parameter> parameters)
      : op(op), parameters(std::move(parameters)), kernelName(op.getName()) {}

  const std::string &name() const override { return kernelName; }
  Status run(ArrayRef<uint64_t> slots);

private:
  FunctionOpInterface op;
  std::vector<Parameter> parameters;
  std::string kernelName;
};

class InterpretedModule : public Module {
public:
  explicit InterpretedModule(ModuleOp module) : module(module) {}
  Result<Kernel *> kernel(const std::string &name) override;

private:
  ModuleOp module;
  std::mutex mutex;
  std::map<std::string, std::unique_ptr<InterpretedKernel>> kernels;
};

/// Memory, streams and events are the host's.
class InterpreterDevice : public DeviceWithoutGraphs {
public:
  InterpreterDevice(ModuleOp module, std::unique_ptr<Device> host)
      : module(module), host(std::move(host)) {}

  const std::string &name() const override { return deviceName; }
  Status checkTarget(const std::string &) const override {
    // The meaning of ops does not depend on the target.
    return Status::ok();
  }
  Result<std::unique_ptr<Buffer>> allocate(size_t bytes,
                                           size_t alignment) override {
    return host->allocate(bytes, alignment);
  }
  Status copyIn(void *dst, const void *src, size_t bytes) override {
    return host->copyIn(dst, src, bytes);
  }
  Status copyOut(void *dst, const void *src, size_t bytes) override {
    return host->copyOut(dst, src, bytes);
  }
  Status fill(Stream &stream, void *dst, uint8_t value, size_t bytes) override {
    return host->fill(stream, dst, value, bytes);
  }
  Result<std::unique_ptr<Module>> loadModule(const ModuleImage &) override {
    return std::unique_ptr<Module>(new InterpretedModule(module));
  }
  Result<std::unique_ptr<Stream>> createStream() override {
    return host->createStream();
  }
  Result<std::unique_ptr<Event>> createEvent() override {
    return host->createEvent();
  }
  Status launch(Stream &, Kernel &kernel, const LaunchDims &,
                const LaunchArgs &args) override {
    return static_cast<InterpretedKernel &>(kernel).run(
        {args.slots, args.numSlots});
  }
  Status record(Stream &stream, Event &event) override {
    return host->record(stream, event);
  }
  Status wait(Stream &stream, Event &event) override {
    return host->wait(stream, event);
  }
  Status synchronize(Stream &stream) override {
    return host->synchronize(stream);
  }
  Result<TensorMap> encodeTensorMap(const TensorMapRecipe &) override {
    // Tensor maps only matter to schedules, which the interpreter does not run.
    return TensorMap();
  }

private:
  const std::string deviceName = "interpreter";
  ModuleOp module;
  std::unique_ptr<Device> host;
};

} // namespace

/// A copy of a tensor without gaps between its rows.
static std::vector<char> pack(const TensorRef &tensor,
                              ArrayRef<uint64_t> strides) {
  int64_t element = dtypeBits(tensor.dtype) / 8;
  int64_t rowBytes = tensor.shape.back() * element;
  ArrayRef<int64_t> outer = ArrayRef<int64_t>(tensor.shape).drop_back();
  int64_t numRows = 1;
  for (int64_t size : outer)
    numRows *= size;
  std::vector<char> rows(numRows * rowBytes);
  for (int64_t row = 0; row < numRows; ++row) {
    int64_t offset = 0, left = row;
    for (size_t i = outer.size(); i-- > 0; left /= outer[i])
      offset += left % outer[i] * static_cast<int64_t>(strides[i]);
    std::memcpy(rows.data() + row * rowBytes,
                static_cast<const char *>(tensor.data) + offset * element,
                rowBytes);
  }
  return rows;
}

Status InterpretedKernel::run(ArrayRef<uint64_t> slots) {
  size_t numSlots = 1;
  for (const Parameter &parameter : parameters)
    numSlots += parameter.numSlots();
  if (slots.size() != numSlots)
    return invalidArgument(
        "launch of '" + kernelName + "': it has " +
        std::to_string(parameters.size()) +
        " tensors and the token count, in " + std::to_string(numSlots) +
        " arguments, the launch gives " + std::to_string(slots.size()));
  int64_t tokens = static_cast<int64_t>(slots.back());
  llvm::SmallVector<TensorRef> tensors;
  std::vector<std::vector<char>> packed;
  for (const Parameter &parameter : parameters) {
    TensorRef tensor;
    // NOLINTNEXTLINE(performance-no-int-to-ptr): slots hold addresses.
    tensor.data = reinterpret_cast<void *>(slots.front());
    tensor.dtype = parameter.dtype;
    tensor.shape.assign(parameter.type.getShape().begin(),
                        parameter.type.getShape().end());
    if (parameter.type.getNumDynamicDims() > 0) {
      Result<int64_t> rows = parameter.rows.evaluate(tokens);
      if (!rows)
        return rows.status().withContext("launch of '" + kernelName + "'");
      tensor.shape[0] = *rows;
    }
    if (parameter.isStrided) {
      packed.push_back(pack(tensor, slots.slice(1, parameter.numSlots() - 1)));
      tensor.data = packed.back().data();
    }
    slots = slots.drop_front(parameter.numSlots());
    tensors.push_back(tensor);
  }
  return interpretKernel(op, tensors, tokens);
}

/// Type and rows of a tensor that the program passes to a kernel.
static Result<Parameter> describeParameter(Value value) {
  Parameter parameter;
  parameter.type = cast<ShapedType>(value.getType());
  Result<DType> dtype = elementDType(parameter.type);
  if (!dtype)
    return dtype.status();
  parameter.dtype = *dtype;
  if (auto memref = dyn_cast<MemRefType>(parameter.type))
    parameter.isStrided = plan::isStridedMemRef(memref);
  if (parameter.type.getNumDynamicDims() == 0)
    return parameter;
  plan::ExprAttr rows;
  if (auto tensor = value.getDefiningOp<plan::TensorOp>())
    rows = tensor.getRowsAttr();
  else if (auto buffer = value.getDefiningOp<plan::BufferOp>())
    rows = buffer.getRowsAttr();
  if (!rows)
    return invalidArgument("a tensor of " + describe(parameter.type) +
                           " has no rows; give its plan.tensor or "
                           "plan.buffer 'rows'");
  Result<Expr> expression = Expr::parse(rows.getText().str());
  if (!expression)
    return expression.status();
  parameter.rows = *expression;
  return parameter;
}

static Result<std::vector<Parameter>> describeLaunch(ModuleOp module,
                                                     StringRef kernel) {
  plan::LaunchOp launch;
  module.walk([&](plan::LaunchOp op) {
    if (op.getKernel() != kernel)
      return WalkResult::advance();
    launch = op;
    return WalkResult::interrupt();
  });
  if (!launch)
    return notFound(
        "no plan.launch names the kernel, so its sizes are unknown");
  // The tokens of a run, from those passed to the kernel.
  Expr tokens = Expr::tokens();
  if (plan::ExprAttr told = launch.getTokensAttr()) {
    plan::MeshAttr mesh =
        launch->getParentOfType<plan::ProgramOp>().getMeshAttr();
    // The tokens of a rank, and of a group of ranks.
    int64_t own = mesh ? mesh.getTokenRanks() : 1;
    int64_t parts = mesh ? mesh.getDp() : 1;
    if (told.getExpr() == Expr::ceilDiv(tokens, own))
      parts = own;
    else if (told.getExpr() != Expr::ceilDiv(tokens, parts))
      return invalidArgument("its launch has tokens <\"" +
                             told.getText().str() +
                             "\">; the interpreter knows those of one rank, " +
                             Expr::ceilDiv(tokens, own).str());
    tokens = tokens * Expr(parts);
  }
  std::vector<Parameter> parameters;
  for (Value value : launch->getOperands()) {
    Result<Parameter> parameter = describeParameter(value);
    if (!parameter)
      return parameter.status();
    parameter->rows = parameter->rows.withTokens(tokens);
    parameters.push_back(*parameter);
  }
  return std::move(parameters);
}

Result<Kernel *> InterpretedModule::kernel(const std::string &name) {
  std::lock_guard<std::mutex> lock(mutex);
  std::unique_ptr<InterpretedKernel> &slot = kernels[name];
  if (slot)
    return slot.get();
  auto op = dyn_cast_or_null<FunctionOpInterface>(module.lookupSymbol(name));
  if (!op || !isa<plan::KernelOp, tile::KernelOp>(op))
    return notFound("kernel '" + name +
                    "' is not a plan.kernel or tile.kernel of the module; make "
                    "the plan from the same module");
  Result<std::vector<Parameter>> parameters = describeLaunch(module, name);
  if (!parameters)
    return parameters.status().withContext("kernel '" + name + "'");
  slot = std::make_unique<InterpretedKernel>(op, std::move(*parameters));
  return slot.get();
}

Result<std::unique_ptr<Device>> createInterpreterDevice(ModuleOp module) {
  Result<std::unique_ptr<Device>> host = createHostDevice(1);
  if (!host)
    return host.status();
  return std::unique_ptr<Device>(
      new InterpreterDevice(module, std::move(*host)));
}

} // namespace moec::interpreter
