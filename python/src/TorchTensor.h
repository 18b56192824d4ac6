//===- TorchTensor.h - PyTorch-specific tensor properties -------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Properties that DLPack does not describe. Tensors are Python objects here;
// operators get theirs from PyTorch's dispatcher, which has already handled
// these properties.
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_PYTHON_TORCHTENSOR_H
#define MOEC_PYTHON_TORCHTENSOR_H

#include "Python.h"

namespace moec::python {

/// Whether grad mode is on in this thread, and whether a tensor requires a
/// gradient. -1 with an exception set.
int isGradEnabled();
int requiresGradient(PyObject *tensor);

/// Fails if the elements are the negatives of the values in memory.
bool checkSign(PyObject *tensor, const char *argument);

/// Fails with a message that a storage of `size` bytes is too small.
bool failForStorage(const char *argument, uint64_t size);
/// Fails if the storage is smaller than `bytes` from `data` on.
bool checkStorage(PyObject *tensor, const void *data, int64_t bytes,
                  const char *argument);
/// Whether an address is so low that it may be an offset into a released
/// storage.
bool mayBeReleased(const void *data);

/// Fails for a tensor without memory, with a message that says what it is.
/// True, with any exception left as it is, for other tensors.
bool checkHasMemory(PyObject *tensor, const char *argument);

/// Tells autograd that the tensor was written.
bool increaseVersion(PyObject *tensor, const char *argument);

} // namespace moec::python

#endif // MOEC_PYTHON_TORCHTENSOR_H
