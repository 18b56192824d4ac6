//===- TorchTensor.h - what PyTorch alone says of a tensor ------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// DLPack has no word for these properties. Each tensor is an object of Python
// here; operators get theirs from PyTorch's dispatcher, which has settled them.
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_PYTHON_TORCHTENSOR_H
#define MOEC_PYTHON_TORCHTENSOR_H

#include "Python.h"

namespace moec::python {

/// Whether autograd wants to know of operations in this thread, and of those on
/// a tensor. -1 with an exception set.
int isGradEnabled();
int requiresGradient(PyObject *tensor);

/// Fails where the elements are the negatives of what is in memory.
bool checkSign(PyObject *tensor, const char *argument);

/// Fails because a storage of `size` bytes is too small for its tensor.
bool failForStorage(const char *argument, uint64_t size);
/// Fails where the storage has not all of the bytes from `data` on.
bool checkStorage(PyObject *tensor, const void *data, int64_t bytes,
                  const char *argument);
/// An address so low may be an offset into a storage that was released.
bool mayBeReleased(const void *data);

/// Fails by saying what the tensor is, for one that has no memory. True, with
/// the exception left as it is, for any other.
bool checkHasMemory(PyObject *tensor, const char *argument);

/// Tells autograd that the tensor was written.
bool increaseVersion(PyObject *tensor, const char *argument);

} // namespace moec::python

#endif // MOEC_PYTHON_TORCHTENSOR_H
