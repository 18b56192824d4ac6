//===- LayerMethods.h - methods of layers by subject ---------------------===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

// The methods of moec._core.Layer that Layer.cpp does not define itself. What
// they take is with their definitions.

#ifndef MOEC_PYTHON_LAYERMETHODS_H
#define MOEC_PYTHON_LAYERMETHODS_H

#include "Layer.h"

namespace moec::python {

/// A reference to the current memory of a tensor. A PyTorch tensor may get
/// other storage later (`parameter.data = ...`), so a reference to the tensor
/// is not enough.
Ref shareMemory(PyObject *tensor);

// LayerBinding.cpp
PyObject *bindWeight(PyObject *self, PyObject *const *arguments,
                     Py_ssize_t count);
PyObject *bindMemory(PyObject *self, PyObject *const *arguments,
                     Py_ssize_t count);

// LayerWeights.cpp
PyObject *loadWeights(PyObject *self, PyObject *const *arguments,
                      Py_ssize_t count);
PyObject *generateWeights(PyObject *self, PyObject *seed);
PyObject *loadTensors(PyObject *self, PyObject *const *arguments,
                      Py_ssize_t count);
PyObject *ownsWeights(PyObject *self, PyObject *);
PyObject *selectsTensor(PyObject *self, PyObject *const *arguments,
                        Py_ssize_t count);
PyObject *writePrepared(PyObject *self, PyObject *const *arguments,
                        Py_ssize_t count);
PyObject *bindPrepared(PyObject *self, PyObject *const *arguments,
                       Py_ssize_t count);
PyObject *prepareWeights(PyObject *self, PyObject *again);
PyObject *releaseWeights(PyObject *self, PyObject *);

} // namespace moec::python

#endif // MOEC_PYTHON_LAYERMETHODS_H
