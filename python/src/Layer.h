//===- Layer.h - the Python type of layers ----------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_PYTHON_LAYER_H
#define MOEC_PYTHON_LAYER_H

#include "Device.h"
#include "Tensor.h"

#include <atomic>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace moec::python {

/// An input, weight, output or prepared tensor of a layer.
struct Operand {
  std::string text;
  /// `text` as an interned str.
  Ref name;
  std::string dtype;
  moert_role role = MOERT_INPUT;
  std::vector<int64_t> shape;
  bool dependsOnTokens = false;
  int64_t alignment = 1;
  bool isStrided = false;
  /// A weight that the layer prepares.
  bool isPrepared = false;
  /// False for a weight of which runs read only what was prepared from it.
  bool isReadByRuns = true;
};

/// A bound weight.
class Weight final : public Tensor {
public:
  /// Watches the write counter of a PyTorch tensor.
  void watch(PyObject *tensor);

  /// Null if writes are not counted.
  Ref counted;
};

/// Upper limit on inputs and outputs of a layer.
inline constexpr size_t kMostArguments = 12;

/// Binding of an input or output.
struct Bound {
  /// Empty if it is not bound to a tensor.
  Layout layout;
  void *data = nullptr;

  bool isTo(const Tensor &tensor) const {
    return data == tensor.data() && layout.isOf(tensor.get());
  }
};

/// State of a layer. Operands and arguments are constant; the mutex guards the
/// rest.
struct LayerState {
  /// Takes ownership of the layer.
  LayerState(moert_layer *layer, DeviceObject *device);
  LayerState(const LayerState &) = delete;
  LayerState &operator=(const LayerState &) = delete;
  ~LayerState();

  DeviceObject &getDevice() const {
    return *reinterpret_cast<DeviceObject *>(device.get());
  }
  bool isOnHost() const { return getDevice().where.device_type == kDLCPU; }
  /// Index of an operand; -1 if there is none with that name.
  int find(const char *name) const;

  /// Null after closing.
  moert_layer *layer;
  Ref device;
  std::vector<Operand> operands;
  /// Operand indices of a call's arguments: inputs and output.
  std::vector<int> arguments;
  /// Operand indices of the weights that are prepared.
  std::vector<int> preparedWeights;
  /// Indices in `arguments`; -1 for none.
  int hiddenStates = -1, output = -1, validTokens = -1;
  int numOutputs = 0;

  std::mutex mutex;
  /// The thread that has locked the mutex.
  std::atomic<std::thread::id> owner;
  /// Per operand: the bound weight or the memory of a prepared tensor, shared
  /// with clones; null for none.
  std::vector<std::shared_ptr<Weight>> weights;
  /// Per operand: the weight's write count when it was prepared.
  std::vector<int64_t> versions;
  /// Per argument; a call binds only what changed since the previous call.
  /// Written only with the GIL held, so that the GIL suffices for reading.
  Bound bound[kMostArguments];
  bool isPrepared = false;
  /// Workspace of runs; null for memory owned by the layer.
  std::shared_ptr<Tensor> workspace;
  /// The stream of the latest run.
  void *latestStream = nullptr;
};

/// moec._core.Layer, the base of moec.Layer.
struct LayerObject {
  PyObject base;
  LayerState *state;
};

inline LayerState &getState(PyObject *self) {
  return *reinterpret_cast<LayerObject *>(self)->state;
}

/// Locks the layer. The GIL is released while waiting for the mutex. `isOpen()`
/// is false, with an exception set, if the layer was closed, or if this thread
/// has locked it already: a method of the layer called Python code (a progress
/// function, a signal handler, a finalizer) that uses the layer.
class Locked {
public:
  explicit Locked(LayerState &state);
  Locked(const Locked &) = delete;
  Locked &operator=(const Locked &) = delete;
  ~Locked();

  bool isOpen() const;
  /// Like isOpen, for data that never changes: Python code within a call of the
  /// layer may ask for it.
  bool isReadable() const;

private:
  LayerState &state;
  bool isNested;
};

/// Makes an object of `type`, a subclass of moec._core.Layer, that owns the
/// layer. Frees the layer on failure.
PyObject *makeLayer(PyObject *type, moert_layer *layer, DeviceObject *device);

/// Whether an object is a layer, as getState() requires.
bool isLayer(PyObject *object);

/// Operand index of a weight; -1 with an exception set if there is none.
int findWeight(const LayerState &state, const char *name);
/// Reads a tensor for that operand, and the current stream of its framework.
/// The memory is kept alive and, with `isWritten`, written. Null with an
/// exception set.
std::shared_ptr<Weight> readWeight(LayerState &state, int operand,
                                   PyObject *object, bool isWritten,
                                   void *&stream);
/// Describes the tensor of an operand for the C API.
moert_tensor describeTensor(const LayerState &state, int operand,
                            const Tensor &tensor);

/// Binds a tensor to an operand; `argument` is its name in messages.
bool bindOperand(LayerState &state, int operand, const Tensor &tensor,
                 const char *argument);
/// Checks device and dtype of a tensor for an operand.
bool checkOperand(const LayerState &state, int operand, const Tensor &tensor,
                  const char *argument);

/// Prepares the weights if necessary: if they were bound again or written to.
/// With `again`, always. Waits for earlier work on `stream`.
bool prepare(LayerState &state, void *stream, bool again = false);
/// After a captured run: makes the graph keep the memory of weights and
/// workspace alive.
moert_status *keepForGraph(LayerState &state, void *stream);
bool addWeights();

/// layer(hidden_states, ...).
PyObject *callLayer(PyObject *self, PyObject *arguments, PyObject *keywords);
/// layer.run(tokens, tensors, stream): see PythonCall.cpp.
PyObject *runLayer(PyObject *self, PyObject *const *arguments,
                   Py_ssize_t count);
/// layer.time_calls(count, call): see PythonCall.cpp.
PyObject *timeCalls(PyObject *self, PyObject *const *arguments,
                    Py_ssize_t count);
/// Interns the names of a call's arguments and adds the lists of inputs to the
/// module.
bool addNames(PyObject *module);

/// The communicator of a moec.Communicator; null with an exception set for any
/// other object.
moert_communicator *getCommunicator(PyObject *object);

bool addLayer(PyObject *module);
bool addCommunicator(PyObject *module);
bool addExpertMove(PyObject *module);
bool addCompiler(PyObject *module);
bool addTorch(PyObject *module);

} // namespace moec::python

#endif // MOEC_PYTHON_LAYER_H
