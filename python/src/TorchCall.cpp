//===- TorchCall.cpp - kernels of the PyTorch operators -------------------===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// moec::forward and moec::forward_out of moec/torch.py, as called by PyTorch's
// dispatcher with libtorch tensors. No Python objects are made for tensors.
//
//===----------------------------------------------------------------------===//

#include "Call.h"
#include "TorchError.h"

#include <memory>

using namespace moec::python;

static Torch torch;
/// moec.torch's layers by number, and the function that raises for an unknown
/// number.
static PyObject *layers = nullptr, *findLayer = nullptr;

/// Arguments of moec::wants_gradient.
static constexpr int kMostFloats = 4;

namespace {

/// The arguments of an operator; owns them.
struct Operands {
  Operands(const StableIValue *stack, bool hasOut);
  Operands(const Operands &) = delete;
  Operands &operator=(const Operands &) = delete;
  ~Operands();

  AtenTensorHandle out = nullptr;
  /// In the order of CallInputs.def; null for none.
  AtenTensorHandle inputs[kNumInputs];
  int64_t number;
};

/// An owned libtorch tensor, or null.
class OwnTensor {
public:
  explicit OwnTensor(AtenTensorHandle handle) : handle(handle) {}
  OwnTensor(const OwnTensor &) = delete;
  OwnTensor &operator=(const OwnTensor &) = delete;
  ~OwnTensor() {
    if (handle)
      torch.aoti_torch_delete_tensor_object(handle);
  }

  AtenTensorHandle get() const { return handle; }
  AtenTensorHandle release() { return std::exchange(handle, nullptr); }

private:
  AtenTensorHandle handle;
};

/// A call whose arguments are libtorch tensors.
class TorchCall final : public Call {
public:
  /// `made` is the output if the caller gives none.
  TorchCall(LayerState &state, AtenTensorHandle made)
      : Call(state), made(made) {}

  bool take(const Operands &operands);

private:
  AtenTensorHandle handleOf(int argument) const {
    return static_cast<AtenTensorHandle>(given[argument]);
  }

  bool readTensor(int argument, const Asking &asking) override;
  bool findStream() override;
  int wantsGradient(int argument) override;
  bool makeOutput() override;
  bool markWritten(int argument) override;

  AtenTensorHandle made;
  /// Bit mask of arguments that require a gradient; -1 if not yet known.
  int64_t wanting = -1;
};

} // namespace

//===----------------------------------------------------------------------===//
// Arguments
//===----------------------------------------------------------------------===//

static AtenTensorHandle takeOptional(StableIValue value) {
  std::unique_ptr<StableIValue> held(reinterpret_cast<StableIValue *>(value));
  return held ? reinterpret_cast<AtenTensorHandle>(*held) : nullptr;
}

/// A new reference to a tensor as an optional argument; null for none.
static StableIValue giveOptional(AtenTensorHandle handle) {
  AtenTensorHandle other = nullptr;
  if (!handle || torch.aoti_torch_new_tensor_handle(handle, &other) != 0)
    return 0;
  return reinterpret_cast<StableIValue>(
      new StableIValue(reinterpret_cast<StableIValue>(other)));
}

Operands::Operands(const StableIValue *stack, bool hasOut) {
  if (hasOut)
    out = reinterpret_cast<AtenTensorHandle>(*stack++);
  inputs[0] = reinterpret_cast<AtenTensorHandle>(*stack++);
  number = int64_t(*stack++);
  for (size_t i = 1; i < kNumInputs; ++i)
    inputs[i] = takeOptional(*stack++);
}

Operands::~Operands() {
  for (AtenTensorHandle each : inputs)
    if (each)
      torch.aoti_torch_delete_tensor_object(each);
  if (out)
    torch.aoti_torch_delete_tensor_object(out);
}

/// An undefined tensor also means None.
static bool isDefined(AtenTensorHandle handle) {
  bool answer = false;
  return handle && torch.aoti_torch_is_defined(handle, &answer) == 0 && answer;
}

bool TorchCall::take(const Operands &operands) {
  if (operands.out) {
    if (!isDefined(operands.out))
      return fail(Kind::Type,
                  "out: is missing; give a tensor, or use moec::forward");
    give(state.output, operands.out);
  }
  for (size_t i = 0; i < kNumInputs; ++i)
    if (isDefined(operands.inputs[i]) &&
        !place(names.inputs[i], operands.inputs[i]))
      return false;
  return checkInputs();
}

//===----------------------------------------------------------------------===//
// Tensors
//===----------------------------------------------------------------------===//

bool TorchCall::readTensor(int argument, const Asking &asking) {
  DLTensor described;
  return torch.describe(handleOf(argument), asking.argument, described) &&
         tensors[argument].borrow(described, asking) &&
         torch.checkStorage(handleOf(argument), tensors[argument],
                            asking.argument);
}

bool TorchCall::findStream() {
  if (!torch.aoti_torch_get_current_cuda_stream)
    return fail(Kind::Value, "stream: this PyTorch was built without CUDA; "
                             "install one for the layer's device");
  int32_t device = state.getDevice().where.device_id;
  return torch.aoti_torch_get_current_cuda_stream(device, &stream) == 0 ||
         torch.failBecause("stream",
                           "the framework does not say which it works on");
}

/// The C ABI cannot tell whether a tensor requires a gradient. An operator with
/// a Python kernel can; it is called once, and only in grad mode.
int TorchCall::wantsGradient(int argument) {
  if (!torch.aoti_torch_grad_mode_is_enabled())
    return 0;
  if (wanting < 0) {
    StableIValue stack[kMostFloats] = {};
    int asked[kMostFloats], count = 0;
    for (int i = 0; i < numArguments && count < kMostFloats; ++i)
      if (given[i] && operandOf(i).dtype[0] != 'i') {
        asked[count] = i;
        stack[count++] = giveOptional(handleOf(i));
      }
    if (!torch.callOperator("moec::wants_gradient", stack)) {
      torch.failBecause(nameOf(argument), "the tensor cannot be read");
      return -1;
    }
    wanting = 0;
    for (int i = 0; i < count; ++i)
      wanting |= int64_t(stack[0] >> i & 1) << asked[i];
  }
  return int(wanting >> argument & 1);
}

bool TorchCall::makeOutput() {
  given[state.output] = made;
  return made || torch.failBecause("out", "it cannot be allocated");
}

/// The C ABI has no function for this. An in-place operator that changes
/// nothing does it: transposing a dimension with itself. Inference tensors have
/// no version counter, so the operator may fail.
bool TorchCall::markWritten(int argument) {
  AtenTensorHandle written = nullptr;
  if (torch.aoti_torch_new_tensor_handle(handleOf(argument), &written) != 0)
    return torch.failBecause(nameOf(argument), "the tensor cannot be read");
  StableIValue stack[] = {reinterpret_cast<StableIValue>(written), 0, 0};
  if (torch.callOperator("aten::transpose_", stack))
    torch.aoti_torch_delete_tensor_object(
        reinterpret_cast<AtenTensorHandle>(stack[0]));
  return true;
}

/// A tensor like the hidden states, unchecked; null if they are not a matrix,
/// or on failure. The GIL is released, since an allocator may wait for other
/// threads.
static AtenTensorHandle makeLike(AtenTensorHandle hidden) {
  int64_t rank = 0, *sizes = nullptr;
  int32_t dtype = 0, deviceType = 0, deviceIndex = 0;
  AtenTensorHandle made = nullptr;
  if (!isDefined(hidden) || torch.aoti_torch_get_dim(hidden, &rank) != 0 ||
      rank != 2 || torch.aoti_torch_get_sizes(hidden, &sizes) != 0 ||
      torch.aoti_torch_get_dtype(hidden, &dtype) != 0 ||
      torch.aoti_torch_get_device_type(hidden, &deviceType) != 0 ||
      torch.aoti_torch_get_device_index(hidden, &deviceIndex) != 0)
    return nullptr;
  const int64_t strides[] = {sizes[1], 1};
  return torch.aoti_torch_empty_strided(2, sizes, strides, dtype, deviceType,
                                        deviceIndex, &made) == 0
             ? made
             : nullptr;
}

//===----------------------------------------------------------------------===//
// Kernels
//===----------------------------------------------------------------------===//

/// The layer with that number; null with an exception set if there is none.
static Ref find(int64_t number) {
  Ref key = Ref::take(PyLong_FromLongLong(number));
  if (!key)
    return Ref();
  if (PyObject *layer = PyDict_GetItemWithError(layers, key.get()))
    return Ref::share(layer);
  return PyErr_Occurred() ? Ref()
                          : Ref::take(PyObject_CallFunctionObjArgs(
                                findLayer, key.get(), nullptr));
}

/// `made` is the output if the caller gives none. False with an exception set.
static bool call(const Operands &operands, AtenTensorHandle made) {
  Ref layer = find(operands.number);
  if (!layer || !isCallable(getState(layer.get())))
    return false;
  TorchCall call(getState(layer.get()), made);
  return call.take(operands) && call.read() && call.run();
}

template <bool hasOut>
static void runKernel(StableIValue *stack, uint64_t, uint64_t) {
  void *error = nullptr;
  {
    OwnTensor made(hasOut
                       ? nullptr
                       : makeLike(reinterpret_cast<AtenTensorHandle>(*stack)));
    // Reference counts of tensors with Python objects need the GIL.
    Held held;
    Operands operands(stack, hasOut);
    if (!call(operands, made.get()))
      error = takeError(torch);
    else if (!hasOut)
      *stack = reinterpret_cast<StableIValue>(made.release());
  }
  if (error)
    throwError(torch, error);
}

/// Throws, to test whether exceptions keep their type.
static void runProbe(StableIValue *, uint64_t, uint64_t) {
  void *error = nullptr;
  {
    Held held;
    fail(Kind::Value, "probe: fails on purpose");
    error = takeError(torch);
  }
  throwError(torch, error);
}

/// load_torch(path, layers, find): registers the kernel of moec::probe, whose
/// result tells whether add_torch_kernels() may be called. False if PyTorch
/// lacks functions that kernels need.
static PyObject *loadTorch(PyObject *, PyObject *const *arguments,
                           Py_ssize_t count) {
  const char *path = checkCount("load_torch", count, 3, 3)
                         ? getText(arguments[0], "path")
                         : nullptr;
  if (!path)
    return nullptr;
  if (!PyDict_Check(arguments[1])) {
    fail(Kind::Type,
         "layers: a dict expected, " + nameType(arguments[1]) + " found");
    return nullptr;
  }
  if (!torch.load(path))
    Py_RETURN_FALSE;
  // Never released, like kernels.
  layers = Ref::share(arguments[1]).release();
  findLayer = Ref::share(arguments[2]).release();
  return PyBool_FromLong(
      torch.addKernel("probe", "CompositeExplicitAutograd", runProbe));
}

/// add_torch_kernels(key): registers the kernels of moec::forward and
/// moec::forward_out for a dispatch key. False if PyTorch lacks functions that
/// they need.
static PyObject *addTorchKernels(PyObject *, PyObject *name) {
  const char *key = getText(name, "key");
  if (!key)
    return nullptr;
  bool isHost = std::string(key) == "CPU";
  return PyBool_FromLong(layers &&
                         (isHost || torch.aoti_torch_get_current_cuda_stream) &&
                         torch.addKernel("forward", key, runKernel<false>) &&
                         torch.addKernel("forward_out", key, runKernel<true>));
}

bool moec::python::addTorch(PyObject *module) {
  static PyMethodDef functions[] = {
      makeMethod("load_torch", loadTorch),
      {"add_torch_kernels", addTorchKernels, METH_O, nullptr},
      {}};
  return PyModule_AddFunctions(module, functions) == 0;
}
