//===- TorchError.cpp - exceptions through PyTorch --------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "TorchError.h"

#include <new>
#include <stdexcept>

using namespace moec::python;

namespace pybind11 {

/// The class of pybind11's, by which PyTorch returns to Python, whose
/// exceptions say themselves what is set. A handler is found by the name of the
/// class; one that does not know it finds a std::runtime_error.
class __attribute__((visibility("default"))) builtin_exception
    : public std::runtime_error {
public:
  using runtime_error::runtime_error;
  virtual void set_error() const = 0;
};

} // namespace pybind11

namespace {

/// An exception of Python on its way through C++.
class PendingError final : public pybind11::builtin_exception {
public:
  PendingError(const char *message, Ref type, Ref value, Ref trace)
      : builtin_exception(message), type(std::move(type)),
        value(std::move(value)), trace(std::move(trace)) {}
  PendingError(const PendingError &) = delete;
  PendingError &operator=(const PendingError &) = delete;
  ~PendingError() override {
    // Whoever catches it need not have Python.
    Held held;
    type = Ref();
    value = Ref();
    trace = Ref();
  }

  void set_error() const override {
    PyErr_Restore(Ref::share(type.get()).release(),
                  Ref::share(value.get()).release(),
                  Ref::share(trace.get()).release());
  }

private:
  Ref type, value, trace;
};

} // namespace

void *moec::python::takeError(const Torch &torch) {
  PyObject *type, *value, *trace;
  PyErr_Fetch(&type, &value, &trace);
  PyErr_NormalizeException(&type, &value, &trace);
  std::string message = value ? show(value) : "";
  PyErr_Clear();
  return new (torch.allocateException(sizeof(PendingError))) PendingError(
      message.c_str(), Ref::take(type), Ref::take(value), Ref::take(trace));
}

void moec::python::throwError(const Torch &torch, void *error) {
  torch.throwException(error, &typeid(PendingError), [](void *thrown) {
    static_cast<PendingError *>(thrown)->~PendingError();
  });
  __builtin_unreachable();
}
