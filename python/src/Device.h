//===- Device.h - devices that layers run on --------------------*- C++ -*-===//
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
  /// kDLCPU or kDLCUDA, and the device index.
  DLDevice where;
  /// Device memory with the numbers 0 to `numNumbers` - 1.
  void *numbers;
  int64_t numNumbers;
};

extern PyTypeObject *deviceType;
/// Null with an exception set if the object is not a device.
DeviceObject *getDevice(PyObject *object);
bool addDevice(PyObject *module);

/// Device memory with the i32 value `number` >= 0, valid as long as the device;
/// null with an exception set.
void *findNumber(DeviceObject &device, int64_t number);

/// Whether memory of `found` is also memory of `device`.
bool isMemoryOf(const DeviceObject &device, DLDevice found);

/// moec._core.Buffer: device memory with a shape and a dtype, for use without a
/// framework.
bool addBuffer(PyObject *module);
/// A buffer on the device with shape and dtype of a tensor; null with an
/// exception set.
PyObject *makeBufferLike(PyObject *device, const DLTensor &tensor);

} // namespace moec::python

#endif // MOEC_PYTHON_DEVICE_H
