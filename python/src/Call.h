//===- Call.h - calls of a layer --------------------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_PYTHON_CALL_H
#define MOEC_PYTHON_CALL_H

#include "Layer.h"

#include <iterator>

namespace moec::python {

/// A row of CallInputs.def.
struct CallInput {
  const char *name;
  enum Form { Positional, Keyword } form;
  const char *remedy;
};
inline constexpr CallInput kInputs[] = {
#define CALL_INPUT(NAME, FORM, REMEDY) {#NAME, CallInput::FORM, REMEDY},
#include "CallInputs.def"
};
inline constexpr size_t kNumInputs = std::size(kInputs);
/// Number of inputs that may be positional.
inline constexpr size_t kNumPositional = [] {
  size_t count = 0;
  while (count < kNumInputs && kInputs[count].form == CallInput::Positional)
    ++count;
  return count;
}();

/// Interned names of arguments.
struct ArgumentNames {
  /// In the order of the PyTorch operators.
  PyObject *inputs[kNumInputs];
  PyObject *out, *stream;
};
extern ArgumentNames names;

/// One call: its arguments are assigned, read and checked, then run. Derived
/// classes define the type of an argument and how to read it: a Python object
/// (PythonCall.cpp) or a libtorch tensor (TorchCall.cpp). Functions return
/// false with an exception set.
class Call {
public:
  Call(const Call &) = delete;
  Call &operator=(const Call &) = delete;

  /// Checks that all inputs are given.
  bool checkInputs() const;
  /// Reads and checks all tensors; allocates the output if none was given.
  bool read();
  /// Binds the tensors and runs the layer.
  bool run();
  /// Whether read() failed because the hidden states have several leading
  /// dimensions, as in [batch, seq, hidden].
  bool hasLeadingDimensions() const { return leadingDimensions; }
  /// Whether read() failed because the call has more than max_tokens rows.
  bool hasManyTokens() const { return manyTokens; }

protected:
  explicit Call(LayerState &state) : state(state) {}
  ~Call() = default;

  /// Reads an argument into `tensors` or `numValid`.
  virtual bool readTensor(int argument, const Asking &asking) = 0;
  /// Finds the stream of the call, for a layer on a GPU.
  virtual bool findStream() = 0;
  /// Whether an argument requires a gradient; -1 with an exception set.
  virtual int wantsGradient(int argument) = 0;
  /// Makes the output, with shape and dtype of the hidden states.
  virtual bool makeOutput() = 0;
  /// Tells autograd that an argument was written.
  virtual bool markWritten(int argument) = 0;

  /// Index of the argument with that name; -1 if there is none.
  int find(PyObject *name) const;
  /// Sets an argument; null means not given.
  bool give(int argument, void *value);
  /// Sets an input or output by name.
  bool place(PyObject *name, void *value);

  /// Binds arguments that changed since the previous call.
  bool bind();
  moert_status *launch();
  /// Raises the exception of a status, with the argument names of the caller.
  bool checkRun(moert_status *status) const;
  bool checkGradient(int argument, const char *remedy);
  /// Requirements for an argument.
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
  /// The caller's argument at each index; borrowed.
  void *given[kMostArguments] = {};
  Tensor tensors[kMostArguments];
  void *stream = nullptr;
  int64_t tokens = 0;
  /// All inputs and outputs are given by name.
  bool isNamed = false;
  /// Number of valid tokens, if not a tensor; else -1.
  int64_t numValid = -1;
  /// The output was made by this call and has no other users yet.
  bool isOutputNew = false;
  bool leadingDimensions = false, manyTokens = false;

private:
  /// Reads an operand: an input, or an output other than the returned one.
  bool readInput(int argument);
  bool readOutput();
  bool markOutputs();
  bool bindTensor(int argument);
  bool bindValidTokens();
};

/// Whether layer(hidden_states, ...) can pass everything the layer needs.
bool isCallable(const LayerState &state);

} // namespace moec::python

#endif // MOEC_PYTHON_CALL_H
