//===- Call.h - a call of a layer -------------------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_PYTHON_CALL_H
#define MOEC_PYTHON_CALL_H

#include "Layer.h"

namespace moec::python {

/// Names of arguments, interned.
struct ArgumentNames {
  static constexpr size_t kInputs = 7;
  /// How many of these may be given by position.
  static constexpr size_t kPositional = 4;
  /// In the order of the operators of PyTorch.
  PyObject *inputs[kInputs];
  PyObject *out, *stream;
};
extern ArgumentNames names;

/// One call: arguments are placed, read and checked, run, in this order. What
/// an argument is, and so how it is read, is the deriving class's: an object of
/// Python (PythonCall.cpp) or a tensor of libtorch (TorchCall.cpp). Functions
/// answer false with an exception set.
class Call {
public:
  Call(const Call &) = delete;
  Call &operator=(const Call &) = delete;

  /// Whether all inputs were given.
  bool checkInputs() const;
  /// Reads and checks all tensors; allocates the output where none was given.
  bool read();
  /// Binds what was read and runs the layer.
  bool run();

protected:
  explicit Call(LayerState &state) : state(state) {}
  ~Call() = default;

  /// Reads what was given for an argument into `tensors`, or `numValid`.
  virtual bool readTensor(int argument, const Asking &asking) = 0;
  /// Finds the stream that the call works on, of a layer on a GPU.
  virtual bool findStream() = 0;
  /// Whether autograd would want to know of an operation on what was given; -1
  /// with an exception set.
  virtual int wantsGradient(int argument) = 0;
  /// Makes what is given for the output, with shape and dtype of the hidden
  /// states.
  virtual bool makeOutput() = 0;
  /// Tells autograd that what was given for an argument was written.
  virtual bool markWritten(int argument) = 0;

  /// The argument of that name, its index; -1 where it is another one.
  int find(PyObject *name) const;
  /// Takes a value for an argument, null for none.
  bool give(int argument, void *value);
  /// The same by name, that of an input or of the output.
  bool place(PyObject *name, void *value);

  /// Binds what has changed since the call before.
  bool bind();
  moert_status *launch();
  /// An exception of a status, by the names of arguments that the caller knows.
  bool checkRun(moert_status *status) const;
  bool checkGradient(int argument, const char *remedy);
  /// What an argument is asked for as.
  Asking makeAsking(int argument) const;
  const Operand &operandOf(int argument) const {
    return state.operands[size_t(state.arguments[size_t(argument)])];
  }
  const char *nameOf(int argument) const {
    return argument == state.output && !isNamed
               ? "out"
               : operandOf(argument).text.c_str();
  }
  bool check(int argument) const {
    return tensors[argument].isKnown() ||
           checkOperand(state, state.arguments[size_t(argument)],
                        tensors[argument], nameOf(argument));
  }

  LayerState &state;
  const int numArguments = int(state.arguments.size());
  /// Per argument, what the caller gave; borrowed.
  void *given[kMostArguments] = {};
  Tensor tensors[kMostArguments];
  void *stream = nullptr;
  int64_t tokens = 0;
  /// Inputs and outputs are given by their own names, all of them.
  bool isNamed = false;
  /// The number of valid tokens where it is no tensor; -1 where it is one.
  int64_t numValid = -1;
  /// Nobody else has seen the output yet.
  bool isOutputNew = false;

private:
  /// What is given for an operand: outputs too, but for the one that is
  /// returned.
  bool readInput(int argument);
  bool readOutput();
  bool markOutputs();
  bool bindTensor(int argument);
  bool bindValidTokens();
};

/// Whether layer(hidden_states, ...) says all that the layer needs.
bool isCallable(const LayerState &state);

} // namespace moec::python

#endif // MOEC_PYTHON_CALL_H
