//===- Communicator.cpp - ranks that share layers ---------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Errors.h"
#include "Layer.h"

#include <vector>

using namespace moec::python;

namespace {

/// moec.Communicator.
struct CommunicatorObject {
  PyObject base;
  moert_communicator *communicator;
  /// Device of local ranks; else null.
  PyObject *device;
  int64_t dp, tp;
};

PyTypeObject *communicatorType = nullptr;

CommunicatorObject &get(PyObject *self) {
  return *reinterpret_cast<CommunicatorObject *>(self);
}

PyObject *makeObject(moert_communicator *communicator,
                     const moert_communicator_options &options,
                     PyObject *device = nullptr) {
  auto *made = allocate<CommunicatorObject>(communicatorType);
  if (!made) {
    moert_communicator_free(communicator);
    return nullptr;
  }
  made->communicator = communicator;
  made->device = Ref::share(device).release();
  made->dp = options.dp;
  made->tp = options.tp;
  return reinterpret_cast<PyObject *>(made);
}

void freeCommunicator(PyObject *self) {
  {
    // Freeing may wait for other ranks.
    Unlocked unlocked;
    moert_communicator_free(get(self).communicator);
  }
  Py_CLEAR(get(self).device);
  deallocate(self);
}

/// The first three arguments: dp, tp, limit.
bool readOptions(PyObject *const *arguments,
                 moert_communicator_options &options) {
  options.size = sizeof(options);
  if (!getInt(arguments[0], "dp", 1, 1 << 16, options.dp) ||
      !getInt(arguments[1], "tp", 1, 1 << 16, options.tp))
    return false;
  options.limit_seconds = PyFloat_AsDouble(arguments[2]);
  if (PyErr_Occurred())
    return failBecause("limit", "seconds expected");
  if (options.limit_seconds > 0)
    return true;
  return fail(Kind::Value, "limit: a number of seconds above 0 expected");
}

/// from_environment(dp, tp, limit).
PyObject *fromEnvironment(PyObject *, PyObject *const *arguments,
                          Py_ssize_t count) {
  moert_communicator_options options = {};
  if (!checkCount("from_environment", count, 3, 3) ||
      !readOptions(arguments, options))
    return nullptr;
  moert_communicator *made = nullptr;
  moert_status *status;
  {
    Unlocked unlocked;
    status = moert_communicator_from_environment(&options, &made);
  }
  return check(status) ? makeObject(made, options) : nullptr;
}

/// adopt_nccl(dp, tp, limit, rank, ordinal, address).
PyObject *adoptNccl(PyObject *, PyObject *const *arguments, Py_ssize_t count) {
  moert_communicator_options options = {};
  int64_t rank = 0, ordinal = 0, address = 0;
  if (!checkCount("adopt_nccl", count, 6, 6) ||
      !readOptions(arguments, options) ||
      !getInt(arguments[3], "rank", 0, options.dp * options.tp - 1, rank) ||
      !getInt(arguments[4], "device", 0, 1 << 16, ordinal) ||
      !getInt(arguments[5], "comm", 1, INT64_MAX, address))
    return nullptr;
  moert_communicator *made = nullptr;
  moert_status *status;
  {
    Unlocked unlocked;
    status = moert_communicator_adopt_nccl(
        &options, rank, int(ordinal),
        reinterpret_cast<void *>(static_cast<intptr_t>(address)), &made);
  }
  return check(status) ? makeObject(made, options) : nullptr;
}

/// local(dp, tp, limit, device): one communicator per rank.
PyObject *makeLocal(PyObject *, PyObject *const *arguments, Py_ssize_t count) {
  moert_communicator_options options = {};
  if (!checkCount("local", count, 4, 4) || !readOptions(arguments, options))
    return nullptr;
  DeviceObject *device = getDevice(arguments[3]);
  if (!device)
    return nullptr;
  std::vector<moert_communicator *> made(size_t(options.dp * options.tp));
  if (!check(moert_communicator_create_local(&options, device->device,
                                             made.data())))
    return nullptr;
  Ref list = Ref::take(PyList_New(0));
  bool isWhole = static_cast<bool>(list);
  for (moert_communicator *each : made) {
    Ref object = Ref::take(makeObject(each, options, arguments[3]));
    isWhole = isWhole && object && PyList_Append(list.get(), object.get()) == 0;
  }
  return isWhole ? list.release() : nullptr;
}

PyObject *checkHealth(PyObject *self, PyObject *) {
  if (!check(moert_communicator_check(get(self).communicator)))
    return nullptr;
  Py_RETURN_NONE;
}

PyObject *getRank(PyObject *self, void *) {
  return PyLong_FromLongLong(moert_communicator_rank(get(self).communicator));
}

PyObject *getMesh(PyObject *self, void *) {
  return Py_BuildValue("(LL)", static_cast<long long>(get(self).dp),
                       static_cast<long long>(get(self).tp));
}

} // namespace

moert_communicator *moec::python::getCommunicator(PyObject *object) {
  if (PyObject_TypeCheck(object, communicatorType))
    return get(object).communicator;
  fail(Kind::Type, "communicator: a moec.Communicator expected, " +
                       nameType(object) + " found");
  return nullptr;
}

bool moec::python::addCommunicator(PyObject *module) {
  static PyMethodDef methods[] = {
      makeMethod("from_environment", fromEnvironment,
                 "Connects the ranks of a launcher: moec.ranks.connect().",
                 METH_STATIC),
      makeMethod("adopt_nccl", adoptNccl,
                 "Takes over a communicator of NCCL: moec.ranks.adopt().",
                 METH_STATIC),
      makeMethod("local", makeLocal,
                 "Ranks as threads of this process: moec.ranks.local().",
                 METH_STATIC),
      {"check", checkHealth, METH_NOARGS,
       "Raises the error that broke the communicator, if any, without "
       "waiting."},
      {}};
  static PyGetSetDef properties[] = {
      {"rank", getRank, nullptr, "This rank, from 0.", nullptr},
      {"mesh", getMesh, nullptr,
       "(dp, tp): number of groups of ranks with their own tokens, number of "
       "ranks per group.",
       nullptr},
      {}};
  static PyType_Slot slots[] = {
      {Py_tp_doc, const_cast<char *>(
                      "The ranks of a mesh, for Layer.use_communicator(); made "
                      "by moec.ranks. Its ranks are connected as long as it "
                      "lives.")},
      {Py_tp_dealloc, reinterpret_cast<void *>(freeCommunicator)},
      {Py_tp_methods, methods},
      {Py_tp_getset, properties},
      {}};
  static PyType_Spec spec = {
      "moec._core.Communicator", sizeof(CommunicatorObject), 0,
      Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};
  communicatorType = reinterpret_cast<PyTypeObject *>(PyType_FromSpec(&spec));
  return communicatorType && PyModule_AddType(module, communicatorType) == 0;
}
