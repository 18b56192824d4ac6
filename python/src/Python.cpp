//===- Python.cpp - CPython helpers ---------------------------------------===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Python.h"
#include "Errors.h"

#include <cstring>

using namespace moec::python;

const char *moec::python::getText(PyObject *object, const char *what) {
  if (PyUnicode_Check(object)) {
    Py_ssize_t size = 0;
    const char *text = PyUnicode_AsUTF8AndSize(object, &size);
    // Names of files may have other bytes, which Python keeps as surrogates.
    if (!text)
      failBecause(what, "is not UTF-8");
    else if (size_t(size) != strlen(text))
      fail(Kind::Value, std::string(what) + ": has a NUL; leave it out");
    else
      return text;
    return nullptr;
  }
  fail(Kind::Type,
       std::string(what) + ": a str expected, " + nameType(object) + " found");
  return nullptr;
}

/// True if an object that has an index is a bool: Python's, or a scalar or
/// tensor with a dtype like "bool" or "torch.bool".
static bool isBool(PyObject *object) {
  if (PyBool_Check(object))
    return true;
  Ref dtype = Ref::take(PyObject_GetAttrString(object, "dtype"));
  bool answer = dtype && show(dtype.get()).find("bool") != std::string::npos;
  PyErr_Clear();
  return answer;
}

PyObject *moec::python::readInt(PyObject *object, const char *what) {
  if (PyIndex_Check(object) && !isBool(object)) {
    if (PyObject *number = PyNumber_Index(object))
      return number;
    // Arrays have the method, and refuse unless they have one element.
    if (!PyErr_ExceptionMatches(PyExc_TypeError) &&
        !PyErr_ExceptionMatches(PyExc_ValueError))
      return nullptr;
    PyErr_Clear();
  }
  fail(Kind::Type,
       std::string(what) + ": an int expected, " + nameType(object) + " found");
  return nullptr;
}

bool moec::python::getInt(PyObject *object, const char *what, int64_t least,
                          int64_t most, int64_t &value) {
  Ref number = Ref::take(readInt(object, what));
  if (!number)
    return false;
  int overflow = 0;
  value = PyLong_AsLongLongAndOverflow(number.get(), &overflow);
  if (value == -1 && overflow == 0 && PyErr_Occurred())
    return false;
  if (overflow != 0 || value < least || value > most) {
    std::string found =
        overflow != 0 ? "one beyond 64 bits" : std::to_string(value);
    return fail(Kind::Value, std::string(what) + ": an int from " +
                                 std::to_string(least) + " to " +
                                 std::to_string(most) + " expected, " + found +
                                 " found");
  }
  return true;
}

std::string moec::python::nameType(PyObject *object) {
  // Preserves a pending exception.
  PyObject *type, *value, *trace;
  PyErr_Fetch(&type, &value, &trace);
  Ref name = Ref::take(PyObject_GetAttrString(
      reinterpret_cast<PyObject *>(Py_TYPE(object)), "__name__"));
  const char *text = name && PyUnicode_Check(name.get())
                         ? PyUnicode_AsUTF8AndSize(name.get(), nullptr)
                         : nullptr;
  std::string answer = text ? text : "an object";
  PyErr_Clear();
  PyErr_Restore(type, value, trace);
  return answer;
}

std::string moec::python::show(PyObject *object) {
  Ref text = Ref::take(PyObject_Str(object));
  const char *shown =
      text ? PyUnicode_AsUTF8AndSize(text.get(), nullptr) : nullptr;
  return shown ? shown : "";
}

bool moec::python::checkCount(const char *function, Py_ssize_t count,
                              Py_ssize_t least, Py_ssize_t most) {
  if (count >= least && count <= most)
    return true;
  PyErr_Format(PyExc_TypeError, "%s: %zd to %zd arguments expected, %zd found",
               function, least, most, count);
  return false;
}

void moec::python::deallocate(PyObject *self) {
  PyTypeObject *type = Py_TYPE(self);
  reinterpret_cast<freefunc>(PyType_GetSlot(type, Py_tp_free))(self);
  Py_DECREF(reinterpret_cast<PyObject *>(type));
}
