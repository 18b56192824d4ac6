//===- Errors.h - exception classes -----------------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_PYTHON_ERRORS_H
#define MOEC_PYTHON_ERRORS_H

#include "Python.h"
#include "moert/moert.h"

#include <string>
#include <vector>

namespace moec::python {

/// A wrong value of the right type, or an object of a wrong type.
enum class Kind { Value, Type };

/// Sets moec.InvalidArgument or moec.InvalidType. Returns false, for callers
/// that do the same.
bool fail(Kind kind, const std::string &message);

/// Sets the exception of a status and frees the status; returns false if there
/// is one. `argument`, if given, replaces the runtime's name for it at the
/// start of the message.
bool check(moert_status *status, const char *argument = nullptr);

/// The first line of a text, without the C++ frames that PyTorch appends.
std::string firstLine(std::string text);

/// Raises InvalidArgument about `argument` with the current exception as its
/// cause. KeyboardInterrupt and similar exceptions are left as they are.
bool failBecause(const char *argument, const char *what);

/// "; did you mean 'NAME'?" for the name that is most like `text`; empty if
/// none is.
std::string suggest(const std::string &text,
                    const std::vector<std::string> &names);

bool addErrors(PyObject *module);

} // namespace moec::python

#endif // MOEC_PYTHON_ERRORS_H
