//===- Listener.h - a function that hears messages of the library ---------===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_PYTHON_LISTENER_H
#define MOEC_PYTHON_LISTENER_H

#include "Python.h"
#include "moejit/moejit.h"

namespace moec::python {

/// A Python function that gets the messages (severity, text) of a call of the
/// library. An Exception of it is told and keeps nothing from being done.
/// Python handles signals in it, so Ctrl-C raises KeyboardInterrupt there: the
/// library cannot be stopped, but the interrupt ends the messages and is raised
/// after the call.
class Listener {
public:
  explicit Listener(PyObject *function) : function(Ref::share(function)) {}

  /// The callback for the library, from any thread; `user` is the listener.
  static void tell(void *user, moejit_severity severity, const char *text);
  /// A callback like `tell`, for a step of `all` bytes.
  static void tellBytes(void *user, uint64_t done, uint64_t all);

  /// Sets the exception of the interrupt or of the status, which is freed.
  /// False if there is one.
  bool check(moert_status *status);

private:
  Ref function;
  /// KeyboardInterrupt or SystemExit; null if there is none.
  Ref type, value, trace;
};

} // namespace moec::python

#endif // MOEC_PYTHON_LISTENER_H
