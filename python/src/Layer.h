//===- Layer.h - a layer on a device ----------------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_PYTHON_LAYER_H
#define MOEC_PYTHON_LAYER_H

#include "Device.h"
#include "Tensor.h"
#include "moejit/moejit.h"

#include <memory>
#include <mutex>
#include <vector>

namespace moec::python {

/// A tensor that a layer takes or gives, or that it prepares.
struct Operand {
  std::string text;
  /// The same as an interned str.
  Ref name;
  std::string dtype;
  moert_role role = MOERT_INPUT;
  std::vector<int64_t> shape;
  bool dependsOnTokens = false;
  int64_t alignment = 1;
  bool isStrided = false;
  /// A weight that the layer prepares.
  bool isPrepared = false;
  /// Runs read its memory. They do not where they read only what was prepared
  /// from it.
  bool isReadByRuns = true;
};

/// A weight that is bound.
class Weight final : public Tensor {
public:
  /// Remembers a tensor of PyTorch that counts what is written to it.
  void watch(PyObject *tensor);

  /// Null where writes are not counted.
  Ref counted;
};

/// Inputs and output of any layer are no more.
inline constexpr size_t kMostArguments = 12;

/// What an input or output is bound to.
struct Bound {
  /// None where it is not bound to a tensor.
  Layout layout;
  void *data = nullptr;

  bool isTo(const Tensor &tensor) const {
    return data == tensor.data() && layout.isOf(tensor.get());
  }
};

/// What a layer has. Operands and arguments stay as they are; the rest is used
/// under the mutex.
struct LayerState {
  /// Takes the layer over.
  LayerState(moert_layer *layer, DeviceObject *device);
  LayerState(const LayerState &) = delete;
  LayerState &operator=(const LayerState &) = delete;
  ~LayerState();

  DeviceObject &getDevice() const {
    return *reinterpret_cast<DeviceObject *>(device.get());
  }
  bool isOnHost() const { return getDevice().where.device_type == kDLCPU; }
  /// -1 where the layer has none.
  int find(const char *name) const;

  /// Null once it is closed.
  moert_layer *layer;
  Ref device;
  std::vector<Operand> operands;
  /// Indices of the operands that a call brings, inputs and output.
  std::vector<int> arguments;
  /// Operand indices of the weights that are prepared.
  std::vector<int> preparedWeights;
  /// Where these are in `arguments`; -1 for none.
  int hiddenStates = -1, output = -1, validTokens = -1;
  int numOutputs = 0;

  std::mutex mutex;
  /// Per operand: the weight that is bound or the memory of a prepared tensor,
  /// which clones share; null for none.
  std::vector<std::shared_ptr<Weight>> weights;
  /// Per operand: the number of writes to the weight that was prepared.
  std::vector<int64_t> versions;
  /// Per argument; calls bind what has changed since the one before. Changed
  /// with Python held, so that whoever holds it may look without the mutex.
  Bound bound[kMostArguments];
  bool isPrepared = false;
  /// Where runs find their workspace; null for memory of the layer's own.
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

/// The layer for one thread, which waits for it without keeping the others of
/// Python from running. `isOpen()` is false, with an exception set, where the
/// layer was closed.
class Locked {
public:
  explicit Locked(LayerState &state);
  Locked(const Locked &) = delete;
  Locked &operator=(const Locked &) = delete;
  ~Locked() { state.mutex.unlock(); }

  bool isOpen() const;

private:
  LayerState &state;
};

/// An object of `type`, a class below moec._core.Layer, that has the layer,
/// which is freed where that fails.
PyObject *makeLayer(PyObject *type, moert_layer *layer, DeviceObject *device);

/// Whether an object is a layer, which getState() takes.
bool isLayer(PyObject *object);

/// The operand of a weight; -1 with an exception set where there is none.
int findWeight(const LayerState &state, const char *name);
/// A tensor for that operand, whose memory is kept and perhaps written, and the
/// stream that its framework uses now; null with an exception set.
std::shared_ptr<Weight> readWeight(LayerState &state, int operand,
                                   PyObject *object, bool isWritten,
                                   void *&stream);
/// The tensor as that operand, for a call of the C API.
moert_tensor describeTensor(const LayerState &state, int operand,
                            const Tensor &tensor);

/// Binds a tensor that has been read to an operand, by the name of an argument.
bool bindOperand(LayerState &state, int operand, const Tensor &tensor,
                 const char *argument);
/// Whether device and dtype are those of the operand.
bool checkOperand(const LayerState &state, int operand, const Tensor &tensor,
                  const char *argument);

/// Prepares the weights where that is due: they were bound anew, or those that
/// are prepared were written to; `again`: in any case. What was given to
/// `stream` before is waited for.
bool prepare(LayerState &state, void *stream, bool again = false);
/// The latest run was captured: the graph keeps the memory of weights and
/// workspace.
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
bool makeNames();

/// What a moec.Communicator has; null with an exception set for any other
/// object.
moert_communicator *getCommunicator(PyObject *object);

bool addLayer(PyObject *module);
bool addCommunicator(PyObject *module);
bool addExpertMove(PyObject *module);
bool addCompiler(PyObject *module);
bool addTorch(PyObject *module);

/// A moejit_message_fn: calls `user`, an object of Python, with (severity,
/// text). The thread has let Python go.
void tell(void *user, moejit_severity severity, const char *text);

} // namespace moec::python

#endif // MOEC_PYTHON_LAYER_H
