//===- TorchError.cpp - exceptions that pass through PyTorch --------------===//
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

/// A copy of pybind11's class. PyTorch catches it where it returns to Python,
/// and the exception itself sets the Python error. Handlers match the class by
/// name; others see a std::runtime_error.
class __attribute__((visibility("default"))) builtin_exception
    : public std::runtime_error {
public:
  using runtime_error::runtime_error;
  virtual void set_error() const = 0;
};

} // namespace pybind11

namespace {

/// A Python exception that is propagated through C++.
class PendingError final : public pybind11::builtin_exception {
public:
  PendingError(const char *message, Ref type, Ref value, Ref trace)
      : builtin_exception(message), type(std::move(type)),
        value(std::move(value)), trace(std::move(trace)) {}
  PendingError(const PendingError &) = delete;
  PendingError &operator=(const PendingError &) = delete;
  ~PendingError() override {
    // The catching thread may not hold the GIL.
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
