//===- Listener.cpp - a function that hears messages of the library -------===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Listener.h"
#include "Errors.h"

#include <string>

using namespace moec::python;

void Listener::tell(void *user, moejit_severity severity, const char *text) {
  auto &listener = *static_cast<Listener *>(user);
  Held held;
  if (listener.type)
    return;
  if (Ref::take(PyObject_CallFunction(listener.function.get(), "is",
                                      int(severity), text)))
    return;
  if (PyErr_ExceptionMatches(PyExc_Exception)) {
    PyErr_WriteUnraisable(listener.function.get());
    return;
  }
  PyObject *type, *value, *trace;
  PyErr_Fetch(&type, &value, &trace);
  listener.type = Ref::take(type);
  listener.value = Ref::take(value);
  listener.trace = Ref::take(trace);
}

void Listener::tellBytes(void *user, uint64_t done, uint64_t all) {
  std::string text = std::to_string(done) + "/" + std::to_string(all);
  tell(user, MOEJIT_STEP, text.c_str());
}

bool Listener::check(moert_status *status) {
  if (!type)
    return python::check(status);
  moert_status_free(status);
  PyErr_Restore(type.release(), value.release(), trace.release());
  return false;
}
