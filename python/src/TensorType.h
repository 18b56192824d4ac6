//===- TensorType.h - what a type of tensors offers -------------*- C++ -*-===//
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

/// A function of a module that the program may have imported.
struct Imported {
  const char *module;
  const char *name;
  PyObject *function = nullptr;

  /// Null where the module is not loaded or has no such function.
  PyObject *get();
};

enum class Framework { Torch, NumPy, CuPy, Jax, Other };

/// What a type of tensors offers, looked up once per type.
struct TensorType {
  Framework framework = Framework::Other;
  /// DLPack's C functions; null where tensors come as capsules.
  const DLPackExchangeAPI *exchange = nullptr;
  /// `empty_like` of the framework; null where there is none.
  Ref emptyLike;
  /// `from_dlpack` of a framework whose tensors are never written to: results
  /// are made elsewhere and handed over.
  Ref fromDLPack;
  /// What keeps `exchange` alive.
  Ref capsule;
};

/// What is known of the type of `object`. Lives as long as the process.
const TensorType *findTensorType(PyObject *object);

/// The stream that the framework of `object`, a tensor on CUDA device `device`,
/// works on now in this thread. Null, the default stream, where the framework
/// has no notion of it. False with an exception set.
bool findCurrentStream(PyObject *object, int32_t device, void *&stream);

} // namespace moec::python

#endif // MOEC_PYTHON_TENSORTYPE_H
