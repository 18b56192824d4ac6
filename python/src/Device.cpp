//===- Device.cpp - devices that layers run on ----------------------------===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Device.h"
#include "Errors.h"
#include "moejit/moejit.h"

#include <algorithm>
#include <vector>

using namespace moec::python;

PyTypeObject *moec::python::deviceType = nullptr;

/// Device("cpu", threads) or Device("cuda", number).
static PyObject *makeDevice(PyTypeObject *type, PyObject *arguments,
                            PyObject *keywords) {
  const char *kind = nullptr;
  int number = 0;
  if (keywords && PyDict_Size(keywords) > 0) {
    PyErr_SetString(PyExc_TypeError, "Device takes arguments by position");
    return nullptr;
  }
  if (!PyArg_ParseTuple(arguments, "s|i:Device", &kind, &number))
    return nullptr;
  bool isHost = std::string(kind) == "cpu";
  if (!isHost && std::string(kind) != "cuda") {
    fail(Kind::Value,
         std::string("device: '") + kind + "' is neither cpu nor cuda");
    return nullptr;
  }
  moert_device *device = nullptr;
  moert_status *status;
  {
    Unlocked unlocked;
    status = isHost ? moejit_device_create_host(number, &device)
                    : moert_device_create_cuda(number, &device);
  }
  if (!check(status, "device"))
    return nullptr;
  auto *self = allocate<DeviceObject>(type);
  if (!self) {
    moert_device_free(device);
    return nullptr;
  }
  self->device = device;
  self->where = isHost ? DLDevice{kDLCPU, 0} : DLDevice{kDLCUDA, number};
  return reinterpret_cast<PyObject *>(self);
}

static void freeDevice(PyObject *self) {
  moert_device_free(reinterpret_cast<DeviceObject *>(self)->device);
  deallocate(self);
}

static PyObject *showName(PyObject *self) {
  return PyUnicode_FromString(
      moert_device_name(reinterpret_cast<DeviceObject *>(self)->device));
}

static PyObject *getName(PyObject *self, void *) { return showName(self); }

static PyObject *getThreads(PyObject *self, void *) {
  return PyLong_FromLong(
      moejit_device_threads(reinterpret_cast<DeviceObject *>(self)->device));
}

static PyObject *setThreads(PyObject *self, PyObject *count) {
  int64_t threads = 0;
  if (!getInt(count, "set_num_threads", 1, INT32_MAX, threads))
    return nullptr;
  moert_status *status;
  {
    Unlocked unlocked;
    status = moejit_device_set_threads(
        reinterpret_cast<DeviceObject *>(self)->device, int(threads));
  }
  if (!check(status))
    return nullptr;
  Py_RETURN_NONE;
}

DeviceObject *moec::python::getDevice(PyObject *object) {
  if (PyObject_TypeCheck(object, deviceType))
    return reinterpret_cast<DeviceObject *>(object);
  fail(Kind::Type,
       "device: a device of moec expected, " + nameType(object) + " found");
  return nullptr;
}

void *moec::python::findNumber(DeviceObject &device, int64_t number) {
  // Layers require addresses that are multiples of 16.
  constexpr int64_t kStride = 16, kFewest = 1024;
  if (number >= device.numNumbers) {
    // The previous memory is kept, since runs and graphs may use it.
    int64_t count = std::max(kFewest, 2 * number);
    std::vector<int32_t> values(size_t(count) * (kStride / 4));
    for (int64_t i = 0; i < count; ++i)
      values[size_t(i) * (kStride / 4)] = int32_t(i);
    void *memory = nullptr;
    size_t bytes = values.size() * sizeof(int32_t);
    if (!check(moert_device_allocate(device.device, bytes, &memory)) ||
        !check(
            moert_device_copy_in(device.device, memory, values.data(), bytes)))
      return nullptr;
    device.numbers = memory;
    device.numNumbers = count;
  }
  return static_cast<char *>(device.numbers) + number * kStride;
}

bool moec::python::isMemoryOf(const DeviceObject &device, DLDevice found) {
  if (device.where.device_type == kDLCPU)
    return found.device_type == kDLCPU || found.device_type == kDLCUDAHost;
  return (found.device_type == kDLCUDA &&
          found.device_id == device.where.device_id) ||
         found.device_type == kDLCUDAManaged;
}

bool moec::python::addDevice(PyObject *module) {
  static PyGetSetDef properties[] = {
      {"name", getName, nullptr, "\"cuda:0 (NVIDIA H200)\" or \"host\".",
       nullptr},
      {"threads", getThreads, nullptr, "Threads of the CPU; 0 for a GPU.",
       nullptr},
      {}};
  static PyMethodDef methods[] = {
      {"set_threads", setThreads, METH_O,
       "Changes the number of threads of the CPU for later calls."},
      {}};
  static PyType_Slot slots[] = {
      {Py_tp_new, reinterpret_cast<void *>(makeDevice)},
      {Py_tp_dealloc, reinterpret_cast<void *>(freeDevice)},
      {Py_tp_repr, reinterpret_cast<void *>(showName)},
      {Py_tp_getset, properties},
      {Py_tp_methods, methods},
      {}};
  static PyType_Spec spec = {"moec._core.Device", sizeof(DeviceObject), 0,
                             Py_TPFLAGS_DEFAULT, slots};
  deviceType = reinterpret_cast<PyTypeObject *>(PyType_FromSpec(&spec));
  return deviceType && PyModule_AddType(module, deviceType) == 0;
}
