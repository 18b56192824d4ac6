//===- Errors.cpp - exception classes -------------------------------------===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Errors.h"

#include <cstring>

using namespace moec::python;

namespace {

struct Errors {
  PyObject *base, *invalidArgument, *invalidType, *notFound, *unavailable,
      *exhausted;
};

} // namespace

static Errors errors;

/// The exception class of a code, and the code's name.
static std::pair<PyObject *, const char *> getClass(moert_code code) {
  switch (code) {
  case MOERT_INVALID_ARGUMENT:
    return {errors.invalidArgument, "invalid_argument"};
  case MOERT_OUT_OF_RANGE:
    return {errors.invalidArgument, "out_of_range"};
  case MOERT_NOT_FOUND:
    return {errors.notFound, "not_found"};
  case MOERT_RESOURCE_EXHAUSTED:
    return {errors.exhausted, "resource_exhausted"};
  case MOERT_UNAVAILABLE:
    return {errors.unavailable, "unavailable"};
  case MOERT_OK:
  case MOERT_INTERNAL:
    break;
  }
  return {errors.base, "internal"};
}

/// Raises an exception with its `code`.
static void raise(PyObject *type, const char *code,
                  const std::string &message) {
  Ref text = Ref::take(PyUnicode_DecodeUTF8(
      message.data(), Py_ssize_t(message.size()), "replace"));
  if (!text)
    return;
  Ref error =
      Ref::take(PyObject_CallFunctionObjArgs(type, text.get(), nullptr));
  Ref name = Ref::take(PyUnicode_FromString(code));
  if (error && name &&
      PyObject_SetAttrString(error.get(), "code", name.get()) == 0)
    PyErr_SetObject(type, error.get());
}

bool moec::python::fail(Kind kind, const std::string &message) {
  raise(kind == Kind::Value ? errors.invalidArgument : errors.invalidType,
        "invalid_argument", message);
  return false;
}

bool moec::python::check(moert_status *status, const char *argument) {
  if (!status)
    return true;
  auto [type, code] = getClass(moert_status_code(status));
  std::string message = moert_status_message(status);
  moert_status_free(status);
  // Python callers know argument names, but not C++ functions or indices: "bind
  // 'output': shape ..." is about the argument `out`.
  auto erasePrefix = [&](const char *begin, const char *end) {
    size_t behind =
        message.rfind(begin, 0) == 0 ? message.find(end) : std::string::npos;
    if (behind != std::string::npos)
      message.erase(0, behind + strlen(end));
  };
  erasePrefix("run(", "): ");
  if (argument) {
    erasePrefix("bind '", "': ");
    erasePrefix("run '", "': ");
    message = std::string(argument) + ": " + message;
  }
  raise(type, code, message);
  return false;
}

std::string moec::python::firstLine(std::string text) {
  return text.substr(0, text.find('\n'));
}

bool moec::python::failBecause(const char *argument, const char *what) {
  if (!PyErr_ExceptionMatches(PyExc_Exception))
    return false;
  PyObject *type, *value, *trace;
  PyErr_Fetch(&type, &value, &trace);
  PyErr_NormalizeException(&type, &value, &trace);
  Ref cause = Ref::take(value), ofType = Ref::take(type),
      ofTrace = Ref::take(trace);
  std::string text = value ? show(value) : "";
  PyErr_Clear();
  fail(Kind::Value,
       std::string(argument) + ": " + what + ": " + firstLine(text));
  if (!cause)
    return false;
  PyErr_Fetch(&type, &value, &trace);
  PyErr_NormalizeException(&type, &value, &trace);
  PyException_SetCause(value, cause.release());
  PyErr_Restore(type, value, trace);
  return false;
}

std::string moec::python::suggest(const std::string &text,
                                  const std::vector<std::string> &names) {
  Ref module = Ref::take(PyImport_ImportModule("difflib"));
  Ref list = Ref::take(PyList_New(0));
  for (const std::string &name : names) {
    Ref each = Ref::take(PyUnicode_FromString(name.c_str()));
    if (!list || !each || PyList_Append(list.get(), each.get()) < 0)
      break;
  }
  Ref found =
      module && list
          ? Ref::take(PyObject_CallMethod(module.get(), "get_close_matches",
                                          "sOi", text.c_str(), list.get(), 1))
          : Ref();
  bool isFound = found && PyList_Size(found.get()) == 1;
  std::string suggested =
      isFound ? "; did you mean '" + show(PyList_GetItem(found.get(), 0)) + "'?"
              : std::string();
  // A suggestion is never the reason of a failure.
  PyErr_Clear();
  return suggested;
}

/// Adds a subclass of moec.Error and, if given, of another class. `code` is
/// used for exceptions raised in Python.
static PyObject *addClass(PyObject *module, const char *name, PyObject *other,
                          const char *code, const char *doc) {
  std::string full = std::string("moec.") + name;
  Ref bases =
      Ref::take(errors.base ? other ? PyTuple_Pack(2, errors.base, other)
                                    : PyTuple_Pack(1, errors.base)
                            : PyTuple_Pack(1, other));
  if (!bases)
    return nullptr;
  PyObject *made =
      PyErr_NewExceptionWithDoc(full.c_str(), doc, bases.get(), nullptr);
  Ref text = Ref::take(PyUnicode_FromString(code));
  if (!made || !text || PyObject_SetAttrString(made, "code", text.get()) < 0 ||
      PyModule_AddObjectRef(module, name, made) < 0)
    return nullptr;
  return made;
}

bool moec::python::addErrors(PyObject *module) {
  errors = {};
  return (errors.base =
              addClass(module, "Error", PyExc_Exception, "internal",
                       "A failed call of moec. `code` is the name of the "
                       "failure in moert.h, such as \"invalid_argument\".")) &&
         (errors.invalidArgument = addClass(
              module, "InvalidArgument", PyExc_ValueError, "invalid_argument",
              "An argument has a wrong value: shape, strides, device, "
              "alignment, or an invalid description. The message names the "
              "argument and the remedy.")) &&
         (errors.invalidType = addClass(
              module, "InvalidType", PyExc_TypeError, "invalid_argument",
              "An argument has a wrong type: not a tensor, or a tensor of "
              "another dtype.")) &&
         (errors.notFound =
              addClass(module, "NotFound", PyExc_LookupError, "not_found",
                       "A file, or a tensor of that name, does not exist.")) &&
         (errors.unavailable =
              addClass(module, "Unavailable", nullptr, "unavailable",
                       "A driver or a GPU is not available.")) &&
         (errors.exhausted =
              addClass(module, "ResourceExhausted", PyExc_MemoryError,
                       "resource_exhausted", "Out of memory."));
}
