//===- Device.h - where layers run ------------------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_PYTHON_DEVICE_H
#define MOEC_PYTHON_DEVICE_H

#include "DLPack.h"
#include "Python.h"
#include "moert/moert.h"

namespace moec::python {

/// moec._core.Device.
struct DeviceObject {
  PyObject base;
  moert_device *device;
  /// kDLCPU or kDLCUDA, and the number.
  DLDevice where;
  /// Memory of the device with the numbers from 0 to the one before
  /// `numNumbers`.
  void *numbers;
  int64_t numNumbers;
};

extern PyTypeObject *deviceType;
/// Null with an exception set where the object is none.
DeviceObject *getDevice(PyObject *object);
bool addDevice(PyObject *module);

/// Memory of the device that holds a number from 0 on as an i32, as long as the
/// device lives; null with an exception set.
void *findNumber(DeviceObject &device, int64_t number);

/// Whether memory of `found` is memory of `device` too.
bool isMemoryOf(const DeviceObject &device, DLDevice found);

/// moec._core.Buffer, memory of a device with a shape and a dtype, for what has
/// no framework.
bool addBuffer(PyObject *module);
/// A buffer of the device with the shape and dtype of a tensor; null with an
/// exception set.
PyObject *makeBufferLike(PyObject *device, const DLTensor &tensor);

} // namespace moec::python

#endif // MOEC_PYTHON_DEVICE_H
