//===- ExpertMove.cpp - moves of experts between ranks --------------------===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Errors.h"
#include "Layer.h"

#include <new>
#include <utility>
#include <vector>

using namespace moec::python;

namespace {

using Spare = std::vector<std::pair<int, std::shared_ptr<Weight>>>;

/// moec._core.ExpertMove.
struct MoveObject {
  PyObject base;
  moert_expert_move *move;
  PyObject *layer, *communicator;
  /// Operands of the layer and their bindings after the move.
  Spare *spare;
};

PyTypeObject *moveType = nullptr;

MoveObject &get(PyObject *self) {
  return *reinterpret_cast<MoveObject *>(self);
}

//===----------------------------------------------------------------------===//
// Numbers
//===----------------------------------------------------------------------===//

/// Calls `read` for each element of a sequence.
template <typename Read>
bool readEach(PyObject *object, const char *what, Read read) {
  Py_ssize_t size = PySequence_Check(object) ? PySequence_Size(object) : -1;
  if (size < 0) {
    PyErr_Clear();
    return fail(Kind::Type, std::string(what) + ": a sequence of numbers " +
                                "expected, " + nameType(object) + " found");
  }
  for (Py_ssize_t i = 0; i < size; ++i) {
    Ref element = Ref::take(PySequence_GetItem(object, i));
    if (!element || !read(element.get()))
      return false;
  }
  return true;
}

bool readInts(PyObject *object, const char *what,
              std::vector<int64_t> &numbers) {
  return readEach(object, what, [&](PyObject *element) {
    return getInt(element, what, INT64_MIN, INT64_MAX, numbers.emplace_back());
  });
}

template <typename T>
PyObject *makeList(const std::vector<T> &numbers) {
  Ref list = Ref::take(PyList_New(0));
  bool isWhole = static_cast<bool>(list);
  for (T number : numbers) {
    Ref object = Ref::take(PyLong_FromLongLong(number));
    isWhole = isWhole && object && PyList_Append(list.get(), object.get()) == 0;
  }
  return isWhole ? list.release() : nullptr;
}

/// balance_experts(loads, num_physical, num_groups, num_nodes, num_ranks,
/// max_replicas).
PyObject *balance(PyObject *, PyObject *const *arguments, Py_ssize_t count) {
  moert_balance_options options = {};
  options.size = sizeof(options);
  std::vector<double> loads;
  if (!checkCount("balance_experts", count, 6, 6) ||
      !readEach(arguments[0], "loads", [&](PyObject *element) {
        loads.push_back(PyFloat_AsDouble(element));
        return !PyErr_Occurred() || failBecause("loads", "numbers expected");
      }))
    return nullptr;
  int64_t *numbers[] = {&options.num_physical, &options.num_groups,
                        &options.num_nodes, &options.num_ranks,
                        &options.max_replicas};
  const char *names[] = {"num_physical", "num_groups", "num_nodes", "num_ranks",
                         "max_replicas"};
  for (size_t i = 0; i < std::size(numbers); ++i)
    if (!getInt(arguments[i + 1], names[i], 0, 1 << 24, *numbers[i]))
      return nullptr;
  options.num_experts = static_cast<int64_t>(loads.size());
  std::vector<int64_t> map(static_cast<size_t>(options.num_physical));
  loads.reserve(1);
  map.reserve(1);
  if (!check(moert_balance_experts(&options, loads.data(), map.data())))
    return nullptr;
  return makeList(map);
}

/// replica_tables(map, num_experts, max_replicas): physical ids, expert by
/// expert, and counts.
PyObject *makeTables(PyObject *, PyObject *const *arguments, Py_ssize_t count) {
  std::vector<int64_t> map;
  int64_t experts = 0, most = 0;
  if (!checkCount("replica_tables", count, 3, 3) ||
      !readInts(arguments[0], "map", map) ||
      !getInt(arguments[1], "num_experts", 1, 1 << 24, experts) ||
      !getInt(arguments[2], "max_replicas", 1, 1 << 24, most))
    return nullptr;
  map.reserve(1);
  // Checked before anything is written.
  bool isSmall = most <= static_cast<int64_t>(map.size()) &&
                 experts <= static_cast<int64_t>(map.size());
  std::vector<int32_t> ids(isSmall ? static_cast<size_t>(experts * most) : 1),
      counts(isSmall ? static_cast<size_t>(experts) : 1);
  if (!check(moert_replica_tables(map.data(), static_cast<int64_t>(map.size()),
                                  experts, most, ids.data(), counts.data())))
    return nullptr;
  Ref idList = Ref::take(makeList(ids)),
      countList = Ref::take(makeList(counts));
  if (!idList || !countList)
    return nullptr;
  return PyTuple_Pack(2, idList.get(), countList.get());
}

/// The layer of an argument; null with an exception set.
PyObject *getLayer(PyObject *object) {
  if (isLayer(object))
    return object;
  fail(Kind::Type,
       "layer: a moec.Layer expected, " + nameType(object) + " found");
  return nullptr;
}

/// sum_loads(layer, communicator, own, map, num_experts).
PyObject *sumLoads(PyObject *, PyObject *const *arguments, Py_ssize_t count) {
  std::vector<int64_t> own, map;
  int64_t experts = 0;
  if (!checkCount("sum_loads", count, 5, 5) || !getLayer(arguments[0]))
    return nullptr;
  moert_communicator *communicator = getCommunicator(arguments[1]);
  if (!communicator || !readInts(arguments[2], "own", own) ||
      !readInts(arguments[3], "map", map) ||
      !getInt(arguments[4], "num_experts", 1, 1 << 24, experts))
    return nullptr;
  own.reserve(1);
  map.reserve(1);
  LayerState &state = getState(arguments[0]);
  Locked locked(state);
  if (!locked.isOpen())
    return nullptr;
  std::vector<int64_t> loads(static_cast<size_t>(experts));
  moert_status *status;
  {
    // Other ranks may be Python threads.
    Unlocked unlocked;
    status = moert_layer_sum_loads(
        state.layer, communicator, own.data(), static_cast<int64_t>(own.size()),
        map.data(), static_cast<int64_t>(map.size()), loads.data(), experts);
  }
  return check(status) ? makeList(loads) : nullptr;
}

//===----------------------------------------------------------------------===//
// Moves
//===----------------------------------------------------------------------===//

/// Reads a dict of tensors, by operands of the layer.
bool readSpare(LayerState &state, PyObject *given, Spare &spare,
               void *&stream) {
  if (!PyDict_Check(given))
    return fail(Kind::Type, "spare: a dict of tensors by name expected, " +
                                nameType(given) + " found");
  PyObject *name, *tensor;
  for (Py_ssize_t place = 0; PyDict_Next(given, &place, &name, &tensor);) {
    const char *text = getText(name, "spare");
    int operand = text ? findWeight(state, text) : -1;
    std::shared_ptr<Weight> read =
        operand < 0
            ? nullptr
            : readWeight(state, operand, tensor, /*isWritten=*/true, stream);
    if (!read)
      return false;
    spare.emplace_back(operand, std::move(read));
  }
  return true;
}

/// begin(layer, communicator, old, new, spare).
PyObject *beginMove(PyObject *, PyObject *const *arguments, Py_ssize_t count) {
  std::vector<int64_t> from, to;
  if (!checkCount("begin", count, 5, 5) || !getLayer(arguments[0]))
    return nullptr;
  moert_communicator *communicator = getCommunicator(arguments[1]);
  if (!communicator || !readInts(arguments[2], "old", from) ||
      !readInts(arguments[3], "new", to))
    return nullptr;
  if (from.size() != to.size()) {
    fail(Kind::Value, "new: " + std::to_string(from.size()) +
                          " experts expected, as in old, " +
                          std::to_string(to.size()) + " found");
    return nullptr;
  }
  LayerState &state = getState(arguments[0]);
  Spare spare;
  void *stream = nullptr;
  if (!readSpare(state, arguments[4], spare, stream))
    return nullptr;
  from.reserve(1);
  to.reserve(1);
  std::vector<moert_tensor> described;
  described.reserve(spare.size() + 1);
  for (const auto &[operand, tensor] : spare)
    described.push_back(describeTensor(state, operand, *tensor));
  Locked locked(state);
  if (!locked.isOpen())
    return nullptr;
  moert_expert_move *move = nullptr;
  moert_status *status;
  {
    Unlocked unlocked;
    // Waits for earlier uses of the memory, which PyTorch's allocator orders by
    // stream only.
    status = state.isOnHost()
                 ? nullptr
                 : moert_device_synchronize(state.getDevice().device, stream);
    if (!status)
      status = moert_expert_move_begin(
          state.layer, communicator, from.data(), to.data(),
          static_cast<int64_t>(from.size()), described.data(),
          static_cast<int>(spare.size()), &move);
  }
  if (!check(status))
    return nullptr;
  auto *made = allocate<MoveObject>(moveType);
  if (!made) {
    moert_expert_move_free(move);
    return nullptr;
  }
  made->move = move;
  made->layer = Ref::share(arguments[0]).release();
  made->communicator = Ref::share(arguments[1]).release();
  made->spare = new Spare(std::move(spare));
  return reinterpret_cast<PyObject *>(made);
}

void freeMove(PyObject *self) {
  MoveObject &object = get(self);
  {
    Unlocked unlocked;
    moert_expert_move_free(object.move);
  }
  delete object.spare;
  Py_CLEAR(object.communicator);
  Py_CLEAR(object.layer);
  deallocate(self);
}

PyObject *step(PyObject *self, PyObject *) {
  MoveObject &object = get(self);
  Locked locked(getState(object.layer));
  if (!locked.isOpen())
    return nullptr;
  moert_status *status;
  {
    // Other ranks may be Python threads.
    Unlocked unlocked;
    status = moert_expert_move_step(object.move);
  }
  if (!check(status))
    return nullptr;
  Py_RETURN_NONE;
}

PyObject *switchOver(PyObject *self, PyObject *) {
  MoveObject &object = get(self);
  LayerState &state = getState(object.layer);
  Locked locked(state);
  if (!locked.isOpen())
    return nullptr;
  moert_status *status;
  {
    Unlocked unlocked;
    // The previous memory is freed with the move.
    status =
        state.isOnHost()
            ? nullptr
            : moert_layer_synchronize_stream(state.layer, state.latestStream);
    if (!status)
      status = moert_expert_move_switch(object.move);
  }
  if (!check(status))
    return nullptr;
  for (auto &[operand, tensor] : *object.spare)
    std::swap(state.weights[static_cast<size_t>(operand)], tensor);
  Py_RETURN_NONE;
}

PyObject *getSteps(PyObject *self, void *) {
  return PyLong_FromLongLong(moert_expert_move_num_steps(get(self).move));
}

} // namespace

bool moec::python::addExpertMove(PyObject *module) {
  static PyMethodDef functions[] = {makeMethod("balance_experts", balance),
                                    makeMethod("replica_tables", makeTables),
                                    makeMethod("sum_loads", sumLoads),
                                    {}};
  static PyMethodDef methods[] = {
      makeMethod("begin", beginMove,
                 "Begins a move: moec.ranks.move_experts().", METH_STATIC),
      {"step", step, METH_NOARGS,
       "Starts the move of one expert per rank on the move's own stream, while "
       "the layer runs. All ranks must make the same number of calls."},
      {"switch", switchOver, METH_NOARGS,
       "Call when no steps are left: waits for the steps of all ranks, and "
       "binds the layer to the new memory. The layer's next call uses the new "
       "map."},
      {}};
  static PyGetSetDef properties[] = {
      {"steps", getSteps, nullptr, "Number of remaining steps.", nullptr}, {}};
  static PyType_Slot slots[] = {
      {Py_tp_doc,
       const_cast<char *>("A move of experts between ranks while a layer runs: "
                          "step() while `steps` are left, then switch(). Made "
                          "by moec.ranks.move_experts().")},
      {Py_tp_dealloc, reinterpret_cast<void *>(freeMove)},
      {Py_tp_methods, methods},
      {Py_tp_getset, properties},
      {}};
  static PyType_Spec spec = {
      "moec._core.ExpertMove", sizeof(MoveObject), 0,
      Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};
  moveType = reinterpret_cast<PyTypeObject *>(PyType_FromSpec(&spec));
  return moveType && PyModule_AddType(module, moveType) == 0 &&
         PyModule_AddFunctions(module, functions) == 0;
}
