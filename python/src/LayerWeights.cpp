//===- LayerWeights.cpp - load, prepare and release weights of a layer ---===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Errors.h"
#include "LayerMethods.h"
#include "Listener.h"
#include "moejit/moejit.h"

#include <optional>

using namespace moec::python;

namespace {

/// An optional int.
class GivenInt {
public:
  bool read(PyObject *object, const char *what) {
    isGiven = object != Py_None;
    return !isGiven || getInt(object, what, 0, INT32_MAX, value);
  }
  const int64_t *get() const { return isGiven ? &value : nullptr; }

private:
  int64_t value = 0;
  bool isGiven = false;
};

} // namespace

/// Calls `call`, which replaces all weights of the layer, and releases the
/// tensors bound before; `call` may clear `areReplaced` to keep them.
/// `arePrepared`: the new weights are in prepared form. `listener` hears the
/// call; null for none.
template <typename Call>
static PyObject *takeWeights(LayerState &state, bool arePrepared,
                             Listener *listener, Call call,
                             const int &areReplaced = 1) {
  std::vector<std::shared_ptr<Weight>> released(state.operands.size());
  Locked locked(state);
  if (!locked.isOpen())
    return nullptr;
  moert_status *status;
  {
    Unlocked unlocked;
    status = call();
  }
  if (!arePrepared)
    state.isPrepared = false;
  if (!status && areReplaced) {
    state.isPrepared = arePrepared;
    // The layer may still prepare weights in memory given to it.
    for (size_t i = 0; i < released.size(); ++i)
      if (arePrepared || state.operands[i].role != MOERT_PREPARED)
        std::swap(state.weights[i], released[i]);
  }
  if (!(listener ? listener->check(status) : check(status)))
    return nullptr;
  Py_RETURN_NONE;
}

PyObject *moec::python::loadWeights(PyObject *self, PyObject *const *arguments,
                                    Py_ssize_t count) {
  LayerState &state = getState(self);
  const char *path = checkCount("load", count, 4, 4)
                         ? getText(arguments[0], "weights")
                         : nullptr;
  GivenInt decoderLayer, rank;
  if (!path || !decoderLayer.read(arguments[1], "layer") ||
      !rank.read(arguments[2], "rank"))
    return nullptr;
  Listener listener(arguments[3]);
  return takeWeights(state, /*arePrepared=*/false, &listener, [&] {
    return moejit_layer_load_weights(state.layer, path, decoderLayer.get(),
                                     rank.get(), Listener::tell, &listener);
  });
}

PyObject *moec::python::generateWeights(PyObject *self, PyObject *number) {
  LayerState &state = getState(self);
  int64_t seed = 0;
  if (!getInt(number, "seed", 0, INT64_MAX, seed))
    return nullptr;
  return takeWeights(state, /*arePrepared=*/false, nullptr, [&] {
    return moejit_layer_generate_weights(state.layer, uint64_t(seed));
  });
}

/// Tensors of a caller that weights are loaded from, and their names.
class GivenTensors {
public:
  /// Reads a list of pairs (name, tensor).
  bool read(const LayerState &state, PyObject *list);

  std::vector<moejit_named_tensor> described;
  /// The stream that wrote the tensors.
  void *stream = nullptr;

private:
  bool add(const LayerState &state, const char *name, PyObject *object);

  std::vector<std::unique_ptr<Tensor>> tensors;
};

bool GivenTensors::read(const LayerState &state, PyObject *list) {
  stream = state.isOnHost() ? MOERT_LAYER_STREAM : state.latestStream;
  Py_ssize_t count = PyList_Check(list) ? PyList_Size(list) : -1;
  if (count < 0)
    return fail(Kind::Type, "tensors: a list of (name, tensor) expected, " +
                                nameType(list) + " found");
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject *pair = PyList_GetItem(list, i);
    if (!pair || !PyTuple_Check(pair) || PyTuple_Size(pair) != 2)
      return fail(Kind::Type, "tensors: pairs (name, tensor) expected, " +
                                  (pair ? nameType(pair) : "nothing") +
                                  " found");
    const char *name = getText(PyTuple_GetItem(pair, 0), "name");
    if (!name || !add(state, name, PyTuple_GetItem(pair, 1)))
      return false;
  }
  return true;
}

bool GivenTensors::add(const LayerState &state, const char *name,
                       PyObject *object) {
  Asking asking;
  asking.argument = name;
  asking.keep = true;
  const DeviceObject &device = state.getDevice();
  if (!state.isOnHost() &&
      !findCurrentStream(object, device.where.device_id, asking.stream))
    return false;
  auto tensor = std::make_unique<Tensor>();
  if (!tensor->read(object, asking))
    return false;
  DLDevice where = tensor->get().device;
  bool isHost = where.device_type == kDLCPU || where.device_type == kDLCUDAHost;
  if (!isHost && (state.isOnHost() || !isMemoryOf(device, where)))
    return fail(
        Kind::Value,
        std::string(name) + ": a tensor on the CPU" +
            (state.isOnHost() ? "" : " or " + showDevice(device.where)) +
            " expected, one on " + tensor->showDevice() +
            " found; copy it to one of these");
  if (!tensor->isContiguous())
    return fail(Kind::Value, std::string(name) +
                                 ": a contiguous tensor expected; make a "
                                 "contiguous copy of it");
  if (!isHost && asking.stream)
    stream = asking.stream;
  moejit_named_tensor one = {};
  one.name = name;
  one.dtype = tensor->dtype();
  one.data = tensor->data();
  one.rank = tensor->get().ndim;
  one.shape = tensor->get().shape;
  one.on_host = int(isHost);
  described.push_back(one);
  tensors.push_back(std::move(tensor));
  return true;
}

/// Arguments: pairs of names and tensors, layer, rank, moejit_tensor_set,
/// message.
PyObject *moec::python::loadTensors(PyObject *self, PyObject *const *arguments,
                                    Py_ssize_t count) {
  LayerState &state = getState(self);
  GivenInt decoderLayer, rank;
  int64_t set = 0;
  if (!checkCount("load_tensors", count, 5, 5) ||
      !decoderLayer.read(arguments[1], "layer") ||
      !rank.read(arguments[2], "rank") ||
      !getInt(arguments[3], "set", MOEJIT_TENSORS_ALL, MOEJIT_TENSORS_NONE,
              set))
    return nullptr;
  GivenTensors given;
  if (!given.read(state, arguments[0]))
    return nullptr;
  int isComplete = 0;
  Listener listener(arguments[4]);
  moejit_tensor_options options = {};
  options.size = sizeof(options);
  options.set = static_cast<moejit_tensor_set>(set);
  options.decoder_layer = decoderLayer.get();
  options.rank = rank.get();
  options.stream = given.stream;
  options.message = Listener::tell;
  options.user = &listener;
  options.is_complete = &isComplete;
  return takeWeights(
      state, /*arePrepared=*/false, &listener,
      [&] {
        return moejit_layer_load_tensors(state.layer, given.described.data(),
                                         int(given.described.size()), &options);
      },
      isComplete);
}

PyObject *moec::python::ownsWeights(PyObject *self, PyObject *) {
  LayerState &state = getState(self);
  int owns = 0;
  Locked locked(state);
  if (!locked.isOpen() || !check(moejit_layer_owns_weights(state.layer, &owns)))
    return nullptr;
  return PyBool_FromLong(owns);
}

/// Arguments: name, layer.
PyObject *moec::python::selectsTensor(PyObject *self,
                                      PyObject *const *arguments,
                                      Py_ssize_t count) {
  LayerState &state = getState(self);
  const char *name = checkCount("selects", count, 2, 2)
                         ? getText(arguments[0], "name")
                         : nullptr;
  GivenInt decoderLayer;
  if (!name || !decoderLayer.read(arguments[1], "layer"))
    return nullptr;
  int selected = 0;
  Locked locked(state);
  if (!locked.isOpen() ||
      !check(moejit_layer_selects(state.layer, name, decoderLayer.get(),
                                  &selected)))
    return nullptr;
  return PyBool_FromLong(selected);
}

/// Reads the arguments (path, rank or None, verify, message) of both functions
/// below, of which `listener` has the message; the second has one more,
/// whether the file must be of the same decoder layer.
static const char *readPreparedArguments(const char *call,
                                         PyObject *const *arguments,
                                         Py_ssize_t count, GivenInt &rank,
                                         std::optional<Listener> &listener,
                                         moert_prepared_options &options) {
  const char *path =
      checkCount(call, count, 4, 5) ? getText(arguments[0], "path") : nullptr;
  if (!path || !rank.read(arguments[1], "rank"))
    return nullptr;
  int verify = PyObject_IsTrue(arguments[2]);
  if (verify < 0)
    return nullptr;
  options.size = sizeof(options);
  options.rank = rank.get();
  options.no_digests = verify == 0;
  int isSameLayer = count > 4 ? PyObject_IsTrue(arguments[4]) : 0;
  if (isSameLayer < 0)
    return nullptr;
  options.same_decoder_layer = isSameLayer;
  options.step = Listener::tellBytes;
  options.step_user = &listener.emplace(arguments[3]);
  return path;
}

PyObject *moec::python::writePrepared(PyObject *self,
                                      PyObject *const *arguments,
                                      Py_ssize_t count) {
  LayerState &state = getState(self);
  GivenInt rank;
  std::optional<Listener> listener;
  moert_prepared_options options = {};
  const char *path = readPreparedArguments("write_prepared", arguments, count,
                                           rank, listener, options);
  if (!path)
    return nullptr;
  Locked locked(state);
  if (!locked.isOpen() || !prepare(state, state.latestStream))
    return nullptr;
  moert_status *status;
  {
    Unlocked unlocked;
    status = moert_layer_write_prepared(state.layer, path, &options);
  }
  if (!listener->check(status))
    return nullptr;
  Py_RETURN_NONE;
}

PyObject *moec::python::bindPrepared(PyObject *self, PyObject *const *arguments,
                                     Py_ssize_t count) {
  LayerState &state = getState(self);
  GivenInt rank;
  std::optional<Listener> listener;
  moert_prepared_options options = {};
  const char *path = readPreparedArguments("bind_prepared", arguments, count,
                                           rank, listener, options);
  if (!path)
    return nullptr;
  return takeWeights(state, /*arePrepared=*/true, &*listener, [&] {
    return moert_layer_bind_prepared(state.layer, path, &options);
  });
}

PyObject *moec::python::prepareWeights(PyObject *self, PyObject *given) {
  LayerState &state = getState(self);
  int again = PyObject_IsTrue(given);
  if (again < 0)
    return nullptr;
  Locked locked(state);
  if (!locked.isOpen() || !prepare(state, state.latestStream, again != 0))
    return nullptr;
  // Does no new work; returns the report of the last preparation.
  moert_prepare_report report = {};
  if (!check(moert_layer_prepare_weights(state.layer, &report)))
    return nullptr;
  return Py_BuildValue("(LLd)", static_cast<long long>(report.bytes),
                       static_cast<long long>(report.in_place_bytes),
                       report.seconds);
}

PyObject *moec::python::releaseWeights(PyObject *self, PyObject *) {
  LayerState &state = getState(self);
  std::vector<std::shared_ptr<Weight>> released(state.operands.size());
  Ref names = Ref::take(PyList_New(0));
  if (!names)
    return nullptr;
  Locked locked(state);
  if (!locked.isOpen() || !prepare(state, state.latestStream) ||
      !check(moert_layer_release_weights(state.layer)))
    return nullptr;
  for (size_t i = 0; i < released.size(); ++i) {
    const Operand &operand = state.operands[i];
    if (operand.role != MOERT_WEIGHT || operand.isReadByRuns)
      continue;
    std::swap(state.weights[i], released[i]);
    if (PyList_Append(names.get(), operand.name.get()) < 0)
      return nullptr;
  }
  return names.release();
}
