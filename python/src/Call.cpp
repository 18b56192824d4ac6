//===- Call.cpp - calls of a layer ----------------------------------------===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Call.h"
#include "Errors.h"

#include <algorithm>

using namespace moec;
using namespace moec::python;

ArgumentNames moec::python::names;

/// Adds a tuple of the names of inputs `begin` to `end` to the module.
static bool addInputs(PyObject *module, const char *name, size_t begin,
                      size_t end) {
  Ref tuple = Ref::take(PyTuple_New(Py_ssize_t(end - begin)));
  for (size_t i = begin; tuple && i < end; ++i)
    PyTuple_SetItem(tuple.get(), Py_ssize_t(i - begin),
                    Ref::share(names.inputs[i]).release());
  return tuple && PyModule_AddObjectRef(module, name, tuple.get()) == 0;
}

bool moec::python::addNames(PyObject *module) {
  for (size_t i = 0; i < kNumInputs; ++i)
    names.inputs[i] = PyUnicode_InternFromString(kInputs[i].name);
  names.out = PyUnicode_InternFromString("out");
  names.stream = PyUnicode_InternFromString("stream");
  return !PyErr_Occurred() &&
         addInputs(module, "POSITIONAL_INPUTS", 0, kNumPositional) &&
         addInputs(module, "KEYWORD_INPUTS", kNumPositional, kNumInputs);
}

static bool isSame(PyObject *name, PyObject *known) {
  return name == known || PyUnicode_Compare(name, known) == 0;
}

//===----------------------------------------------------------------------===//
// Arguments
//===----------------------------------------------------------------------===//

/// Message about an argument that the layer does not take.
static std::string explainExtra(const LayerState &state,
                                const std::string &name) {
  for (const CallInput &input : kInputs)
    if (input.remedy && name == input.name)
      return input.remedy;
  const char *has = state.find("topk_weights") >= 0    ? "ids"
                    : state.find("router_logits") >= 0 ? "logits"
                                                       : "gate";
  const char *wanted = name == "router_logits" ? "logits" : "ids";
  return std::string("its entry is \"") + has +
         "\"; leave the argument out, or compile it with entry=\"" + wanted +
         "\"";
}

int Call::find(PyObject *name) const {
  // Names in program text are interned, so pointers can be compared.
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

bool Call::give(int argument, void *value) {
  if (given[argument])
    return fail(Kind::Type, std::string(nameOf(argument)) + ": is given twice");
  given[argument] = value;
  return true;
}

bool Call::place(PyObject *name, void *value) {
  int argument = find(name);
  if (argument >= 0 && argument != state.output)
    return give(argument, value);
  if (isSame(name, names.out))
    return give(state.output, value);
  std::string text = show(name);
  if (std::none_of(names.inputs + 1, std::end(names.inputs),
                   [name](PyObject *each) { return isSame(name, each); })) {
    std::string known;
    std::vector<std::string> accepted{"out", "stream"};
    for (int i = 0; i < numArguments; ++i) {
      known += nameOf(i) + std::string(", ");
      accepted.push_back(nameOf(i));
    }
    return fail(Kind::Type, "a layer has no argument '" + text +
                                "'; this one has " + known + "stream" +
                                suggest(text, accepted));
  }
  return !value || fail(Kind::Value, text + ": the layer takes none; " +
                                         explainExtra(state, text));
}

bool Call::checkInputs() const {
  for (int i = 0; i < numArguments; ++i)
    if (!given[i] && i != state.output && i != state.validTokens)
      return fail(Kind::Type, std::string(nameOf(i)) +
                                  ": is missing; the layer was compiled for "
                                  "calls with this argument");
  return true;
}

//===----------------------------------------------------------------------===//
// Tensors
//===----------------------------------------------------------------------===//

Asking Call::makeAsking(int argument) const {
  Asking asking;
  asking.argument = nameOf(argument);
  asking.write = operandOf(argument).role == MOERT_OUTPUT;
  asking.stream = state.isOnHost() ? nullptr : stream;
  asking.known = &state.bound[argument].layout;
  return asking;
}

bool Call::readInput(int argument) {
  const Operand &expected = operandOf(argument);
  if (argument == state.validTokens && !given[argument]) {
    numValid = tokens;
    return true;
  }
  if (!readTensor(argument, makeAsking(argument)))
    return false;
  if (argument == state.validTokens && numValid >= 0)
    return true;
  if (!check(argument))
    return false;
  const Tensor &tensor = tensors[argument];
  if (!expected.dependsOnTokens)
    return true;
  if (tensor.get().ndim != int(expected.shape.size())) {
    leadingDimensions = argument == state.hiddenStates &&
                        tensor.get().ndim > int(expected.shape.size());
    return fail(Kind::Value, expected.text + ": rank " +
                                 std::to_string(expected.shape.size()) +
                                 " expected, shape " + tensor.showShape() +
                                 " found; reshape it to one row per token");
  }
  if (argument == state.hiddenStates) {
    tokens = tensor.get().shape[0];
    int64_t most = moert_layer_max_tokens(state.layer);
    manyTokens = tokens > most;
    if (manyTokens)
      return fail(Kind::Value,
                  expected.text +
                      ": at most max_tokens = " + std::to_string(most) +
                      " rows expected, shape " + tensor.showShape() +
                      " found; compile the layer for more");
  } else if (tensor.get().shape[0] != tokens) {
    return fail(Kind::Value, expected.text + ": " + std::to_string(tokens) +
                                 " rows expected, as in hidden_states, shape " +
                                 tensor.showShape() + " found");
  }
  // Integers have no gradient.
  return expected.dtype[0] == 'i' ||
         checkGradient(argument,
                       "call it under torch.no_grad(), or detach the tensor");
}

bool Call::checkGradient(int argument, const char *remedy) {
  int wanted = wantsGradient(argument);
  if (wanted < 0)
    return false;
  return wanted == 0 ||
         fail(Kind::Value, std::string(nameOf(argument)) +
                               ": requires a gradient, and a layer has no "
                               "backward pass; " +
                               remedy);
}

bool Call::readOutput() {
  isOutputNew = given[state.output] == nullptr;
  if ((isOutputNew && !makeOutput()) ||
      !readTensor(state.output, makeAsking(state.output)) ||
      !check(state.output))
    return false;
  if (isOutputNew)
    return true;
  const Tensor &tensor = tensors[state.output];
  if (tensor.get().ndim != 2 || tensor.get().shape[0] != tokens)
    return fail(Kind::Value, "out: " + std::to_string(tokens) +
                                 " rows expected, as in hidden_states, shape " +
                                 tensor.showShape() + " found");
  return checkGradient(state.output, "give a tensor that does not");
}

bool Call::read() {
  stream = MOERT_LAYER_STREAM;
  if ((!state.isOnHost() && !findStream()) || !readInput(state.hiddenStates))
    return false;
  for (int i = 0; i < numArguments; ++i)
    if (i != state.hiddenStates && i != state.output && !readInput(i))
      return false;
  return readOutput();
}

//===----------------------------------------------------------------------===//
// The run
//===----------------------------------------------------------------------===//

bool Call::bindTensor(int argument) {
  const Tensor &tensor = tensors[argument];
  Bound &before = state.bound[argument];
  if (before.isTo(tensor))
    return true;
  before.layout.forget();
  if (!bindOperand(state, state.arguments[size_t(argument)], tensor,
                   nameOf(argument)))
    return false;
  before.layout.take(tensor);
  before.data = tensor.data();
  return true;
}

/// A plain number of valid tokens is passed as the address of constant device
/// memory, so that runs and graphs can keep it.
bool Call::bindValidTokens() {
  state.bound[state.validTokens].layout.forget();
  // Values above the token count mean all tokens.
  void *memory = findNumber(state.getDevice(), std::min(numValid, tokens));
  if (!memory)
    return false;
  constexpr int64_t one = 1;
  moert_tensor tensor = {"num_valid_tokens", "i32", memory, 1, &one, nullptr};
  return python::check(moert_layer_bind(state.layer, &tensor),
                       "num_valid_tokens");
}

bool Call::bind() {
  for (int i = 0; i < numArguments; ++i) {
    bool isNumber = i == state.validTokens && numValid >= 0;
    if (!(isNumber ? bindValidTokens() : bindTensor(i)))
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

bool Call::checkRun(moert_status *status) const {
  if (!status)
    return true;
  std::string message = moert_status_message(status);
  for (int i = 0; i < numArguments; ++i)
    if (message.rfind("run '" + operandOf(i).text + "': ", 0) == 0)
      return python::check(status, nameOf(i));
  return python::check(status);
}

bool Call::markOutputs() {
  for (int i = 0; i < numArguments; ++i)
    if (operandOf(i).role == MOERT_OUTPUT &&
        !(i == state.output && isOutputNew) && !markWritten(i))
      return false;
  return true;
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
  if (!status && moert_layer_is_captured(state.layer))
    status = keepForGraph(state, stream);
  return checkRun(status) && markOutputs();
}

bool moec::python::isCallable(const LayerState &state) {
  bool hasOutput =
      state.numOutputs == 1 ||
      (state.numOutputs > 1 &&
       state.operands[size_t(state.arguments[size_t(state.output)])].text ==
           "output");
  return (state.hiddenStates >= 0 && hasOutput) ||
         fail(Kind::Value, "the layer has no matrix hidden_states among its "
                           "inputs, or several outputs but none called output; "
                           "use run(), which takes tensors by name");
}
