//===- Errors.h - exceptions ------------------------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_PYTHON_ERRORS_H
#define MOEC_PYTHON_ERRORS_H

#include "Python.h"
#include "moert/moert.h"

namespace moec::python {

/// Whether a value of the right kind is wrong, or an object of another kind was
/// given.
enum class Kind { Value, Type };

/// Sets moec.InvalidArgument or moec.InvalidType. Answers false, for callers
/// that do too.
bool fail(Kind kind, const std::string &message);

/// Sets the exception of a status, which is freed; false if there is one. The
/// message begins with `argument`, where given, in place of what the runtime
/// calls it.
bool check(moert_status *status, const char *argument = nullptr);

/// Without what follows the first line: frames of C++, as PyTorch appends them.
std::string firstLine(std::string text);

/// An exception that is set becomes the cause of InvalidArgument about
/// `argument`; KeyboardInterrupt and its like stay as they are.
bool failBecause(const char *argument, const char *what);

bool addErrors(PyObject *module);

} // namespace moec::python

#endif // MOEC_PYTHON_ERRORS_H
