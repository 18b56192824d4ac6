//===- Call.cpp - a call of a layer -----------------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Errors.h"
#include "Layer.h"

#include <algorithm>
#include <chrono>

using namespace moec;
using namespace moec::python;

namespace {

/// Names of arguments, interned.
struct Names {
  PyObject *out, *stream;
  /// Those that may be given by position.
  PyObject *positional[4];
};

/// One call: read, checked, run, given up, in this order.
class Call {
public:
  explicit Call(LayerState &state) : state(state) {}

  bool parse(PyObject *arguments, PyObject *keywords);
  /// Reads and checks all tensors; allocates the output where none was given.
  bool read();
  /// The same of a layer with any inputs and outputs, all of them by name.
  bool parseNamed(int64_t numTokens, PyObject *tensors, PyObject *stream);
  bool readNamed();
  bool run();
  PyObject *takeOutput();

  /// Binds and runs without anything of Python, `count` times; what each
  /// takes, in nanoseconds.
  bool time(int64_t count, std::vector<int64_t> &nanoseconds);

private:
  int find(PyObject *name) const;
  bool give(int argument, PyObject *value);
  bool accept(PyObject *name, PyObject *value);
  bool readStream();
  /// What is given for an operand: outputs too, but for the one that is
  /// returned.
  bool readInput(int argument);
  bool readOutput();
  bool makeOutput();
  bool checkGradient(PyObject *object, const char *argument,
                     const char *remedy);
  bool checkOverlap(int output);
  bool bind();
  bool bindValidTokens();
  moert_status *launch();
  const Operand &operandOf(int argument) const {
    return state.operands[size_t(state.arguments[size_t(argument)])];
  }
  const char *nameOf(int argument) const {
    return argument == state.output && !isNamed
               ? "out"
               : operandOf(argument).text.c_str();
  }
  bool check(int argument) const {
    return checkOperand(state, state.arguments[size_t(argument)],
                        tensors[argument], nameOf(argument));
  }

  LayerState &state;
  const int numArguments = int(state.arguments.size());
  /// Per argument; borrowed.
  PyObject *given[kMostArguments] = {};
  PyObject *givenStream = nullptr;
  Ref output;
  /// What makes a tensor of the framework of the output, which is a buffer
  /// then; null where it is one. Borrowed.
  PyObject *handOver = nullptr;
  Tensor tensors[kMostArguments];
  void *stream = nullptr;
  int64_t tokens = 0;
  bool isNamed = false;
  /// -1 unless it was given as an int.
  int64_t numValid = -1;
};

} // namespace

static Names names;

bool moec::python::makeNames() {
  constexpr const char *positional[] = {"hidden_states", "router_logits",
                                        "topk_ids", "topk_weights"};
  for (size_t i = 0; i < std::size(positional); ++i)
    names.positional[i] = PyUnicode_InternFromString(positional[i]);
  names.out = PyUnicode_InternFromString("out");
  names.stream = PyUnicode_InternFromString("stream");
  return !PyErr_Occurred();
}

static bool isSame(PyObject *name, PyObject *known) {
  return name == known || PyUnicode_Compare(name, known) == 0;
}

//===----------------------------------------------------------------------===//
// Arguments
//===----------------------------------------------------------------------===//

/// What an argument that the layer does not take is about.
static std::string explainExtra(const LayerState &state,
                                const std::string &name) {
  if (name == "num_valid_tokens")
    return "compile it with num_valid_tokens=True";
  if (name == "input_ids")
    return "its experts are not chosen by a hash of the token";
  if (name == "is_padding")
    return "give its description \"padding_mask\": true";
  const char *has = state.find("topk_ids") >= 0        ? "ids"
                    : state.find("router_logits") >= 0 ? "logits"
                                                       : "gate";
  const char *wanted = name == "router_logits" ? "logits" : "ids";
  return std::string("its entry is \"") + has +
         "\"; leave the argument out, or compile it with entry=\"" + wanted +
         "\"";
}

/// The argument of that name, its index; -1 where it is another one.
int Call::find(PyObject *name) const {
  // Names in the text of a program are interned, and so the same object.
  for (int i = 0; i < numArguments; ++i)
    if (name == operandOf(i).name.get())
      return i;
  if (name == names.out || name == names.stream)
    return -1;
  for (int i = 0; i < numArguments; ++i)
    if (PyUnicode_Compare(name, operandOf(i).name.get()) == 0)
      return i;
  return -1;
}

bool Call::give(int argument, PyObject *value) {
  if (given[argument])
    return fail(Kind::Type, std::string(nameOf(argument)) + ": is given twice");
  given[argument] = value == Py_None ? nullptr : value;
  return true;
}

bool Call::accept(PyObject *name, PyObject *value) {
  int argument = find(name);
  if (argument >= 0 && argument != state.output)
    return give(argument, value);
  if (isSame(name, names.out))
    return give(state.output, value);
  if (isSame(name, names.stream)) {
    givenStream = value == Py_None ? nullptr : value;
    return true;
  }
  constexpr const char *others[] = {"router_logits", "topk_ids",
                                    "topk_weights",  "num_valid_tokens",
                                    "input_ids",     "is_padding"};
  std::string text = show(name);
  if (std::find(std::begin(others), std::end(others), text) == std::end(others))
    return fail(Kind::Type, "a layer has no argument '" + text + "'");
  return value == Py_None ||
         fail(Kind::Value,
              text + ": the layer takes none; " + explainExtra(state, text));
}

bool Call::parse(PyObject *arguments, PyObject *keywords) {
  Py_ssize_t count = PyTuple_Size(arguments);
  if (count > Py_ssize_t(std::size(names.positional)))
    return fail(Kind::Type, "a layer takes up to 4 arguments by position, " +
                                std::to_string(count) + " found");
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject *value = PyTuple_GetItem(arguments, i);
    if (value != Py_None && !accept(names.positional[i], value))
      return false;
  }
  Py_ssize_t at = 0;
  PyObject *name, *value;
  while (keywords && PyDict_Next(keywords, &at, &name, &value))
    if (!accept(name, value))
      return false;
  for (int i = 0; i < numArguments; ++i)
    if (!given[i] && i != state.output && i != state.validTokens)
      return fail(Kind::Type, std::string(nameOf(i)) +
                                  ": is missing; the layer was compiled for "
                                  "calls that bring it");
  return true;
}

bool Call::parseNamed(int64_t numTokens, PyObject *dict, PyObject *given) {
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
      for (int i = 0; i < numArguments; ++i)
        names += (i ? ", " : "") + operandOf(i).text;
      return fail(Kind::Value, std::string(text) +
                                   ": the layer has no such input or output; "
                                   "it has " +
                                   names);
    }
    if (!give(argument, value))
      return false;
  }
  for (int i = 0; i < numArguments; ++i)
    if (!this->given[i])
      return fail(Kind::Type, std::string(nameOf(i)) +
                                  ": is missing; give all inputs and outputs "
                                  "of the layer");
  return true;
}

/// The number of the device that a stream says it is of; -1 where it does not.
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

bool Call::readStream() {
  if (state.isOnHost()) {
    stream = MOERT_LAYER_STREAM;
    return !givenStream ||
           fail(Kind::Value,
                "stream: a layer on the CPU has none; leave it out");
  }
  int32_t device = state.getDevice().where.device_id;
  if (!givenStream)
    return findCurrentStream(given[std::max(state.hiddenStates, 0)], device,
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

bool Call::readInput(int argument) {
  const Operand &expected = operandOf(argument);
  PyObject *object = given[argument];
  if (argument == state.validTokens) {
    if (!object) {
      numValid = tokens;
      return true;
    }
    if (PyLong_Check(object))
      return getInt(object, "num_valid_tokens", 0, INT32_MAX, numValid);
  }
  Asking asking;
  asking.argument = nameOf(argument);
  asking.write = expected.role == MOERT_OUTPUT;
  asking.stream = state.isOnHost() ? nullptr : stream;
  Tensor &tensor = tensors[argument];
  if (!tensor.read(object, asking) || !check(argument))
    return false;
  if (!expected.dependsOnTokens)
    return true;
  if (tensor.get().ndim != int(expected.shape.size()))
    return fail(Kind::Value, expected.text + ": rank " +
                                 std::to_string(expected.shape.size()) +
                                 " expected, shape " + tensor.showShape() +
                                 " found; reshape it to one row per token");
  if (argument == state.hiddenStates)
    tokens = tensor.get().shape[0];
  else if (tensor.get().shape[0] != tokens)
    return fail(Kind::Value,
                expected.text + ": " + std::to_string(tokens) +
                    " rows expected, as hidden_states has, shape " +
                    tensor.showShape() + " found");
  // Integers have no gradient.
  return expected.dtype[0] == 'i' ||
         checkGradient(object, asking.argument,
                       "call it under torch.no_grad(), or detach the tensor");
}

bool Call::checkGradient(PyObject *object, const char *argument,
                         const char *remedy) {
  int wanted = wantsGradient(object);
  if (wanted < 0)
    return failBecause(argument, "the tensor cannot be read");
  return wanted == 0 ||
         fail(Kind::Value, std::string(argument) +
                               ": requires a gradient, and a layer has no "
                               "backward pass; " +
                               remedy);
}

bool Call::makeOutput() {
  PyObject *like = given[state.hiddenStates];
  const TensorType *type = findTensorType(like);
  if (type->fromDLPack) {
    handOver = type->fromDLPack.get();
    output = Ref::take(
        makeBufferLike(state.device.get(), tensors[state.hiddenStates].get()));
    return bool(output);
  }
  if (!type->emptyLike)
    return fail(Kind::Value,
                "out: is missing, and moec does not know how tensors of type " +
                    nameType(like) + " are allocated; give one");
  output = Ref::take(
      PyObject_CallFunctionObjArgs(type->emptyLike.get(), like, nullptr));
  return output || failBecause("out", "it cannot be allocated");
}

bool Call::readOutput() {
  bool isGiven = given[state.output] != nullptr;
  if (isGiven)
    output = Ref::share(given[state.output]);
  else if (!makeOutput())
    return false;
  Asking asking;
  asking.argument = "out";
  asking.write = true;
  asking.stream = state.isOnHost() ? nullptr : stream;
  Tensor &tensor = tensors[state.output];
  if (!tensor.read(output.get(), asking) || !check(state.output))
    return false;
  if (!isGiven)
    return true;
  if (tensor.get().ndim != 2 || tensor.get().shape[0] != tokens)
    return fail(Kind::Value,
                "out: " + std::to_string(tokens) +
                    " rows expected, as hidden_states has, shape " +
                    tensor.showShape() + " found");
  return checkGradient(output.get(), "out", "give a tensor that does not") &&
         checkOverlap(state.output);
}

/// Kernels read inputs after others have written rows of the output.
bool Call::checkOverlap(int output) {
  const Tensor &written = tensors[output];
  auto *begin = static_cast<const char *>(written.data());
  const char *end = begin + written.extent();
  for (int i = 0; i < numArguments; ++i) {
    const Tensor &read = tensors[i];
    if (i == output || !read.get().data)
      continue;
    auto *from = static_cast<const char *>(read.data());
    if (begin < from + read.extent() && from < end)
      return fail(Kind::Value, std::string(nameOf(output)) +
                                   ": shares memory with " + nameOf(i) +
                                   "; give memory of its own");
  }
  return true;
}

bool Call::read() {
  if (!readStream() || !readInput(state.hiddenStates))
    return false;
  for (int i = 0; i < numArguments; ++i)
    if (i != state.hiddenStates && i != state.output && !readInput(i))
      return false;
  for (int i = 0; i < numArguments; ++i)
    if (i != state.output && operandOf(i).role == MOERT_OUTPUT &&
        !checkOverlap(i))
      return false;
  return readOutput();
}

/// Shapes are checked where tensors are bound and where the layer runs.
bool Call::readNamed() {
  if (!readStream())
    return false;
  for (int i = 0; i < numArguments; ++i) {
    Asking asking;
    asking.argument = nameOf(i);
    asking.write = operandOf(i).role == MOERT_OUTPUT;
    asking.stream = state.isOnHost() ? nullptr : stream;
    if (!tensors[i].read(given[i], asking) || !check(i))
      return false;
    if (operandOf(i).dtype[0] != 'i' &&
        !checkGradient(given[i], asking.argument,
                       "call it under torch.no_grad(), or detach the tensor"))
      return false;
  }
  for (int i = 0; i < numArguments; ++i)
    if (operandOf(i).role == MOERT_OUTPUT && !checkOverlap(i))
      return false;
  return true;
}

//===----------------------------------------------------------------------===//
// The run
//===----------------------------------------------------------------------===//

/// A number of valid tokens that is no tensor gets memory of the layer's.
bool Call::bindValidTokens() {
  moert_device *device = state.getDevice().device;
  if (!state.validMemory && !python::check(moert_device_allocate(
                                device, sizeof(int32_t), &state.validMemory)))
    return false;
  if (state.validHeld != numValid) {
    auto value = int32_t(numValid);
    // Runs of before may still read it.
    if ((state.validHeld >= 0 && !python::check(moert_device_synchronize(
                                     device, state.latestStream))) ||
        !python::check(moert_device_copy_in(device, state.validMemory, &value,
                                            sizeof(value)),
                       "num_valid_tokens"))
      return false;
    state.validHeld = numValid;
  }
  constexpr int64_t one = 1;
  moert_tensor tensor = {
      "num_valid_tokens", "i32", state.validMemory, 1, &one, nullptr};
  return python::check(moert_layer_bind(state.layer, &tensor),
                       "num_valid_tokens");
}

bool Call::bind() {
  for (int i = 0; i < numArguments; ++i) {
    bool isNumber = i == state.validTokens && numValid >= 0;
    if (!(isNumber ? bindValidTokens()
                   : bindOperand(state, state.arguments[size_t(i)], tensors[i],
                                 nameOf(i))))
      return false;
  }
  return true;
}

moert_status *Call::launch() {
  const Tensor *memory = state.workspace.get();
  return moert_layer_run(state.layer, tokens, stream,
                         memory ? memory->data() : nullptr,
                         memory ? memory->extent() : 0);
}

bool Call::run() {
  Locked locked(state);
  if (!locked.isOpen() || !bind() ||
      !prepare(state, state.isOnHost() ? nullptr : stream))
    return false;
  state.latestStream = stream;
  moert_status *status;
  {
    Unlocked unlocked;
    status = launch();
  }
  return python::check(status);
}

/// Who takes it over works on streams that are not known here.
PyObject *Call::takeOutput() {
  if (!handOver)
    return output.release();
  moert_status *status = nullptr;
  if (!state.isOnHost()) {
    Unlocked unlocked;
    status = moert_layer_synchronize_stream(state.layer, stream);
  }
  if (!python::check(status))
    return nullptr;
  return PyObject_CallFunctionObjArgs(handOver, output.get(), nullptr);
}

bool Call::time(int64_t count, std::vector<int64_t> &nanoseconds) {
  using Clock = std::chrono::steady_clock;
  Locked locked(state);
  if (!locked.isOpen() || !bind() ||
      !prepare(state, state.isOnHost() ? nullptr : stream))
    return false;
  for (int64_t i = 0; i < count; ++i) {
    Clock::time_point begin = Clock::now();
    if (!bind() || !python::check(launch()))
      return false;
    nanoseconds.push_back(
        std::chrono::nanoseconds(Clock::now() - begin).count());
  }
  return true;
}

/// Whether layer(hidden_states, ...) says all that the layer needs.
static bool isCallable(const LayerState &state) {
  bool hasOutput =
      state.numOutputs == 1 ||
      (state.numOutputs > 1 &&
       state.operands[size_t(state.arguments[size_t(state.output)])].text ==
           "output");
  return (state.hiddenStates >= 0 && hasOutput) ||
         fail(Kind::Value,
              "the layer has no matrix hidden_states among its inputs, or "
              "several outputs of which none is called output; run() takes "
              "tensors by name");
}

PyObject *moec::python::callLayer(PyObject *self, PyObject *arguments,
                                  PyObject *keywords) {
  if (!isCallable(getState(self)))
    return nullptr;
  Call call(getState(self));
  if (!call.parse(arguments, keywords) || !call.read() || !call.run())
    return nullptr;
  return call.takeOutput();
}

/// run(tokens, tensors, stream): the layer with all inputs and outputs by name.
PyObject *moec::python::runLayer(PyObject *self, PyObject *const *arguments,
                                 Py_ssize_t count) {
  int64_t tokens = 0;
  if (!checkCount("run", count, 2, 3) ||
      !getInt(arguments[0], "tokens", 0, INT64_MAX, tokens))
    return nullptr;
  Call call(getState(self));
  if (!call.parseNamed(tokens, arguments[1],
                       count > 2 ? arguments[2] : Py_None) ||
      !call.readNamed() || !call.run())
    return nullptr;
  Py_RETURN_NONE;
}

/// time_calls(count, arguments, keywords): what each of so many calls of the C
/// API takes, in nanoseconds, with the same tensors.
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
  Call call(getState(self));
  std::vector<int64_t> nanoseconds;
  nanoseconds.reserve(size_t(number));
  if (!call.parse(arguments[1], arguments[2]) || !call.read() ||
      !call.time(number, nanoseconds))
    return nullptr;
  Ref list = Ref::take(PyList_New(0));
  for (int64_t each : nanoseconds) {
    Ref item = Ref::take(PyLong_FromLongLong(each));
    if (!list || !item || PyList_Append(list.get(), item.get()) < 0)
      return nullptr;
  }
  return list.release();
}
