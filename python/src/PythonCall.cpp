//===- PythonCall.cpp - calls with Python objects -------------------------===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Call.h"
#include "Errors.h"
#include "TorchTensor.h"

#include <algorithm>
#include <chrono>

using namespace moec;
using namespace moec::python;

namespace {

/// A call whose arguments are Python objects: tensors of any framework.
class PythonCall final : public Call {
public:
  explicit PythonCall(LayerState &state) : Call(state) {}

  bool parse(PyObject *arguments, PyObject *keywords);
  /// Parses a call with arbitrary inputs and outputs, all by name.
  bool parseNamed(int64_t numTokens, PyObject *tensors, PyObject *stream);
  bool readNamed();
  PyObject *takeOutput();

  /// Binds and runs `count` times without Python code; `nanoseconds` is the
  /// total time.
  bool time(int64_t count, int64_t &nanoseconds);

private:
  bool accept(PyObject *name, PyObject *value);
  bool checkStream() const;
  PyObject *objectOf(int argument) const {
    return static_cast<PyObject *>(given[argument]);
  }

  bool readTensor(int argument, const Asking &asking) override;
  bool findStream() override;
  int wantsGradient(int argument) override;
  bool makeOutput() override;
  bool markWritten(int argument) override;

  PyObject *givenStream = nullptr;
  /// Whether PyTorch is in grad mode; -1 if not yet known.
  int gradMode = -1;
  /// The output made by the call.
  Ref made;
  /// Converts the output from a buffer to a tensor of its framework; null if it
  /// is not a buffer. Borrowed.
  PyObject *handOver = nullptr;
};

} // namespace

//===----------------------------------------------------------------------===//
// Arguments
//===----------------------------------------------------------------------===//

bool PythonCall::accept(PyObject *name, PyObject *value) {
  PyObject *given = value == Py_None ? nullptr : value;
  bool isStream =
      name == names.stream || (name != names.out && find(name) < 0 &&
                               PyUnicode_Compare(name, names.stream) == 0);
  if (!isStream)
    return place(name, given);
  givenStream = given;
  return true;
}

bool PythonCall::parse(PyObject *arguments, PyObject *keywords) {
  Py_ssize_t count = PyTuple_Size(arguments);
  if (count > Py_ssize_t(kNumPositional))
    return fail(Kind::Type, "a layer takes up to " +
                                std::to_string(kNumPositional) +
                                " arguments by position, " +
                                std::to_string(count) + " found");
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject *value = PyTuple_GetItem(arguments, i);
    if (value != Py_None && !accept(names.inputs[i], value))
      return false;
  }
  Py_ssize_t at = 0;
  PyObject *name, *value;
  while (keywords && PyDict_Next(keywords, &at, &name, &value))
    if (!accept(name, value))
      return false;
  return checkInputs() && checkStream();
}

bool PythonCall::parseNamed(int64_t numTokens, PyObject *dict,
                            PyObject *given) {
  isNamed = true;
  tokens = numTokens;
  givenStream = given == Py_None ? nullptr : given;
  if (!PyDict_Check(dict))
    return fail(Kind::Type,
                "tensors: a dict expected, " + nameType(dict) + " found");
  Py_ssize_t at = 0;
  PyObject *name, *value;
  while (PyDict_Next(dict, &at, &name, &value)) {
    const char *text = getText(name, "tensors: a name");
    if (!text)
      return false;
    int argument = find(name);
    if (argument < 0) {
      std::string names;
      std::vector<std::string> accepted;
      for (int i = 0; i < numArguments; ++i) {
        names += (i ? ", " : "") + operandOf(i).text;
        accepted.push_back(operandOf(i).text);
      }
      return fail(Kind::Value, std::string(text) +
                                   ": the layer has no such input or output; "
                                   "it has " +
                                   names + suggest(text, accepted));
    }
    if (!give(argument, value == Py_None ? nullptr : value))
      return false;
  }
  for (int i = 0; i < numArguments; ++i)
    if (!this->given[i])
      return fail(Kind::Type, std::string(nameOf(i)) +
                                  ": is missing; give all inputs and outputs "
                                  "of the layer");
  return checkStream();
}

bool PythonCall::checkStream() const {
  return !givenStream || !state.isOnHost() ||
         fail(Kind::Value,
              "stream: a layer on the CPU has no stream; leave it out");
}

/// The device index of a stream object; -1 if it has none.
static int64_t getDeviceOf(PyObject *stream) {
  for (const char *name : {"device_index", "device_id"}) {
    Ref number = Ref::take(PyObject_GetAttrString(stream, name));
    int64_t value = number && PyLong_Check(number.get())
                        ? PyLong_AsLongLong(number.get())
                        : -1;
    PyErr_Clear();
    if (value >= 0)
      return value;
  }
  return -1;
}

bool PythonCall::findStream() {
  int32_t device = state.getDevice().where.device_id;
  if (!givenStream)
    return findCurrentStream(objectOf(std::max(state.hiddenStates, 0)), device,
                             stream);
  int64_t owner = getDeviceOf(givenStream);
  if (owner >= 0 && owner != device)
    return fail(Kind::Value,
                "stream: one of cuda:" + std::to_string(device) +
                    " expected, one of cuda:" + std::to_string(owner) +
                    " found; use a stream of the layer's device");
  if (PyLong_Check(givenStream) && !PyBool_Check(givenStream)) {
    stream = PyLong_AsVoidPtr(givenStream);
    return !PyErr_Occurred() || failBecause("stream", "no address");
  }
  for (const char *name : {"cuda_stream", "ptr"}) {
    Ref value = Ref::take(PyObject_GetAttrString(givenStream, name));
    if (value && PyLong_Check(value.get())) {
      stream = PyLong_AsVoidPtr(value.get());
      return !PyErr_Occurred() || failBecause("stream", "no address");
    }
    PyErr_Clear();
  }
  return fail(Kind::Type, "stream: a stream of a framework, or the address of "
                          "a CUstream as an int, expected, " +
                              nameType(givenStream) + " found");
}

//===----------------------------------------------------------------------===//
// Tensors
//===----------------------------------------------------------------------===//

/// True if an object is a number rather than a tensor: an int, or a scalar of
/// NumPy.
static bool isNumber(PyObject *object) {
  return PyLong_Check(object) ||
         (PyIndex_Check(object) &&
          !PyObject_HasAttrString(object, "__dlpack__"));
}

bool PythonCall::readTensor(int argument, const Asking &asking) {
  PyObject *object = objectOf(argument);
  if (argument == state.validTokens && !isNamed && isNumber(object))
    return getInt(object, "num_valid_tokens", 0, INT32_MAX, numValid);
  return tensors[argument].read(object, asking);
}

int PythonCall::wantsGradient(int argument) {
  PyObject *object = objectOf(argument);
  if (findTensorType(object)->framework != Framework::Torch)
    return 0;
  if (gradMode < 0)
    gradMode = isGradEnabled();
  int wanted = gradMode > 0 ? requiresGradient(object) : gradMode;
  if (wanted < 0)
    failBecause(nameOf(argument), "the tensor cannot be read");
  return wanted;
}

bool PythonCall::makeOutput() {
  const Operand &hidden = operandOf(state.hiddenStates);
  const Operand &output = operandOf(state.output);
  if (output.shape[1] != hidden.shape[1] || output.dtype != hidden.dtype)
    return fail(Kind::Value, "out: is missing; the layer's output is not like "
                             "hidden_states, so give a tensor of " +
                                 output.dtype + ", shape [" +
                                 std::to_string(tokens) + ", " +
                                 std::to_string(output.shape[1]) + "]");
  PyObject *like = objectOf(state.hiddenStates);
  const TensorType *type = findTensorType(like);
  if (type->fromDLPack) {
    handOver = type->fromDLPack.get();
    made = Ref::take(
        makeBufferLike(state.device.get(), tensors[state.hiddenStates].get()));
    given[state.output] = made.get();
    return bool(made);
  }
  if (!type->emptyLike)
    return fail(Kind::Value,
                "out: is missing, and moec does not know how tensors of type " +
                    nameType(like) + " are allocated; give one");
  made = Ref::take(
      PyObject_CallFunctionObjArgs(type->emptyLike.get(), like, nullptr));
  given[state.output] = made.get();
  return made || failBecause("out", "it cannot be allocated");
}

bool PythonCall::markWritten(int argument) {
  PyObject *object = objectOf(argument);
  return findTensorType(object)->framework != Framework::Torch ||
         increaseVersion(object, nameOf(argument));
}

/// Shapes are checked by binding and by the run.
bool PythonCall::readNamed() {
  stream = MOERT_LAYER_STREAM;
  if (!state.isOnHost() && !findStream())
    return false;
  for (int i = 0; i < numArguments; ++i) {
    if (!readTensor(i, makeAsking(i)) || !check(i))
      return false;
    if (operandOf(i).dtype[0] != 'i' &&
        !checkGradient(i,
                       "call it under torch.no_grad(), or detach the tensor"))
      return false;
  }
  return true;
}

//===----------------------------------------------------------------------===//
// The run
//===----------------------------------------------------------------------===//

/// The consumer may use streams that are unknown here.
PyObject *PythonCall::takeOutput() {
  PyObject *output = objectOf(state.output);
  if (!handOver)
    return Ref::share(output).release();
  moert_status *status = nullptr;
  if (!state.isOnHost()) {
    Unlocked unlocked;
    status = moert_layer_synchronize_stream(state.layer, stream);
  }
  if (!python::check(status))
    return nullptr;
  return PyObject_CallFunctionObjArgs(handOver, output, nullptr);
}

bool PythonCall::time(int64_t count, int64_t &nanoseconds) {
  using Clock = std::chrono::steady_clock;
  Locked locked(state);
  if (!locked.isOpen() || !bind() ||
      !prepare(state, state.isOnHost() ? nullptr : stream))
    return false;
  Clock::time_point begin = Clock::now();
  for (int64_t i = 0; i < count; ++i) {
    for (int argument = 0; argument < numArguments; ++argument)
      if (tensors[argument].get().data &&
          !bindOperand(state, state.arguments[size_t(argument)],
                       tensors[argument], nameOf(argument)))
        return false;
    if (!python::check(launch()))
      return false;
  }
  nanoseconds = std::chrono::nanoseconds(Clock::now() - begin).count();
  return true;
}

/// Calls a method of moec.Layer that makes other calls of this one. The
/// exception that is set stays, if the object has no such method or the method
/// cannot do it with these tensors.
static PyObject *callMethod(PyObject *self, const char *name,
                            PyObject *arguments, PyObject *keywords) {
  PyObject *type, *value, *trace;
  PyErr_Fetch(&type, &value, &trace);
  Ref method = Ref::take(PyObject_GetAttrString(self, name));
  if (!method) {
    PyErr_Restore(type, value, trace);
    return nullptr;
  }
  PyObject *result = PyObject_Call(method.get(), arguments, keywords);
  if (result == Py_NotImplemented) {
    Py_DECREF(result);
    PyErr_Restore(type, value, trace);
    return nullptr;
  }
  Py_XDECREF(type);
  Py_XDECREF(value);
  Py_XDECREF(trace);
  return result;
}

PyObject *moec::python::callLayer(PyObject *self, PyObject *arguments,
                                  PyObject *keywords) {
  if (!isCallable(getState(self)))
    return nullptr;
  PythonCall call(getState(self));
  if (!call.parse(arguments, keywords))
    return nullptr;
  if (!call.read()) {
    // One row per token, then at most max_tokens rows.
    if (call.hasLeadingDimensions())
      return callMethod(self, "_call_flat", arguments, keywords);
    if (call.hasManyTokens())
      return callMethod(self, "_call_in_parts", arguments, keywords);
    return nullptr;
  }
  return call.run() ? call.takeOutput() : nullptr;
}

/// run(tokens, tensors, stream): runs the layer with all inputs and outputs by
/// name.
PyObject *moec::python::runLayer(PyObject *self, PyObject *const *arguments,
                                 Py_ssize_t count) {
  int64_t tokens = 0;
  if (!checkCount("run", count, 2, 3) ||
      !getInt(arguments[0], "tokens", 0, INT64_MAX, tokens))
    return nullptr;
  PythonCall call(getState(self));
  if (!call.parseNamed(tokens, arguments[1],
                       count > 2 ? arguments[2] : Py_None) ||
      !call.readNamed() || !call.run())
    return nullptr;
  Py_RETURN_NONE;
}

/// time_calls(count, arguments, keywords): time of that many calls of the C API
/// with the same tensors, in nanoseconds.
PyObject *moec::python::timeCalls(PyObject *self, PyObject *const *arguments,
                                  Py_ssize_t count) {
  int64_t number = 0;
  if (!checkCount("time_calls", count, 3, 3) ||
      !getInt(arguments[0], "count", 1, 100000000, number))
    return nullptr;
  if (!PyTuple_Check(arguments[1]) || !PyDict_Check(arguments[2])) {
    fail(Kind::Type, "time_calls: a tuple and a dict expected");
    return nullptr;
  }
  if (!isCallable(getState(self)))
    return nullptr;
  PythonCall call(getState(self));
  int64_t nanoseconds = 0;
  if (!call.parse(arguments[1], arguments[2]) || !call.read() ||
      !call.time(number, nanoseconds))
    return nullptr;
  return PyLong_FromLongLong(nanoseconds);
}
