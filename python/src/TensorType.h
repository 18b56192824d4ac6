//===- TensorType.h - properties of tensor types ----------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_PYTHON_TENSORTYPE_H
#define MOEC_PYTHON_TENSORTYPE_H

#include "DLPack.h"
#include "Python.h"

namespace moec::python {

/// A function of a module that may be imported already.
struct Imported {
  const char *module;
  const char *name;
  PyObject *function = nullptr;

  /// Null if the module is not loaded or lacks the function.
  PyObject *get();
};

enum class Framework { Torch, NumPy, CuPy, Jax, Other };

/// Properties of a tensor type, looked up once per type.
struct TensorType {
  Framework framework = Framework::Other;
  /// DLPack's C functions; null if tensors are passed as capsules.
  const DLPackExchangeAPI *exchange = nullptr;
  /// The framework's `empty_like`; null if there is none.
  Ref emptyLike;
  /// `from_dlpack` of a framework with immutable tensors: results are made in a
  /// buffer and converted.
  Ref fromDLPack;
  /// Keeps `exchange` alive.
  Ref capsule;
};

/// The properties of the type of `object`; valid as long as the process.
const TensorType *findTensorType(PyObject *object);

/// The current stream in this thread of the framework of `object`, a tensor on
/// CUDA device `device`. Null, the default stream, if the framework has no such
/// concept. False with an exception set.
bool findCurrentStream(PyObject *object, int32_t device, void *&stream);

} // namespace moec::python

#endif // MOEC_PYTHON_TENSORTYPE_H
