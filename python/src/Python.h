//===- Python.h - CPython helpers and ownership -----------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_PYTHON_PYTHON_H
#define MOEC_PYTHON_PYTHON_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <cstdint>
#include <string>
#include <utility>

namespace moec::python {

/// An owned reference to an object, or null.
class Ref {
public:
  Ref() = default;
  /// Takes ownership of a new reference.
  static Ref take(PyObject *object) { return Ref(object); }
  /// Makes a new reference.
  static Ref share(PyObject *object) {
    Py_XINCREF(object);
    return Ref(object);
  }
  Ref(Ref &&other) noexcept : object(std::exchange(other.object, nullptr)) {}
  Ref &operator=(Ref &&other) noexcept {
    std::swap(object, other.object);
    return *this;
  }
  Ref(const Ref &) = delete;
  Ref &operator=(const Ref &) = delete;
  ~Ref() { Py_XDECREF(object); }

  PyObject *get() const { return object; }
  /// Releases ownership of the reference.
  PyObject *release() { return std::exchange(object, nullptr); }
  explicit operator bool() const { return object != nullptr; }

private:
  explicit Ref(PyObject *object) : object(object) {}

  PyObject *object = nullptr;
};

/// Releases the GIL during its lifetime.
class Unlocked {
public:
  Unlocked() : state(PyEval_SaveThread()) {}
  Unlocked(const Unlocked &) = delete;
  Unlocked &operator=(const Unlocked &) = delete;
  ~Unlocked() { PyEval_RestoreThread(state); }

private:
  PyThreadState *state;
};

/// Holds the GIL during its lifetime, whether or not the thread had it before.
class Held {
public:
  Held() : state(PyGILState_Ensure()) {}
  Held(const Held &) = delete;
  Held &operator=(const Held &) = delete;
  ~Held() { PyGILState_Release(state); }

private:
  PyGILState_STATE state;
};

/// The text of a str, valid as long as the object; null with an exception set
/// for any other object.
const char *getText(PyObject *object, const char *what);
/// A new reference to the int that an object stands for, which may be a scalar
/// of NumPy or PyTorch but no bool; null with an exception set.
PyObject *readInt(PyObject *object, const char *what);
/// Reads an int, as readInt() does, from `least` to `most`. False with an
/// exception set.
bool getInt(PyObject *object, const char *what, int64_t least, int64_t most,
            int64_t &value);
/// The type of an object for a message: "str", "torch.Tensor".
std::string nameType(PyObject *object);
/// The repr of an object; "" with an exception set on failure.
std::string show(PyObject *object);

/// Raises a TypeError unless the number of arguments is from `least` to `most`.
bool checkCount(const char *function, Py_ssize_t count, Py_ssize_t least,
                Py_ssize_t most);

using Method = PyObject *(*)(PyObject * self, PyObject *const *arguments,
                             Py_ssize_t count);
/// A method with positional arguments.
inline PyMethodDef makeMethod(const char *name, Method method,
                              const char *doc = nullptr, int flags = 0) {
  return {name, reinterpret_cast<PyCFunction>(reinterpret_cast<void *>(method)),
          METH_FASTCALL | flags, doc};
}

/// A new, zeroed object of one of our types; null with an exception set.
template <typename T>
T *allocate(PyTypeObject *type) {
  auto make = reinterpret_cast<allocfunc>(PyType_GetSlot(type, Py_tp_alloc));
  return reinterpret_cast<T *>(make(type, 0));
}
/// Frees an object of one of our types, but not its members.
void deallocate(PyObject *self);

} // namespace moec::python

#endif // MOEC_PYTHON_PYTHON_H
