//===- Python.h - CPython, and who owns what --------------------*- C++ -*-===//
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

/// A reference to an object that is ours, or null.
class Ref {
public:
  Ref() = default;
  /// Takes over a new reference.
  static Ref take(PyObject *object) { return Ref(object); }
  /// Makes one more.
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
  /// Gives the reference away.
  PyObject *release() { return std::exchange(object, nullptr); }
  explicit operator bool() const { return object != nullptr; }

private:
  explicit Ref(PyObject *object) : object(object) {}

  PyObject *object = nullptr;
};

/// Lets other threads of Python run as long as it lives.
class Unlocked {
public:
  Unlocked() : state(PyEval_SaveThread()) {}
  Unlocked(const Unlocked &) = delete;
  Unlocked &operator=(const Unlocked &) = delete;
  ~Unlocked() { PyEval_RestoreThread(state); }

private:
  PyThreadState *state;
};

/// Has Python for this thread, whether it had it before or not, as long as it
/// lives.
class Held {
public:
  Held() : state(PyGILState_Ensure()) {}
  Held(const Held &) = delete;
  Held &operator=(const Held &) = delete;
  ~Held() { PyGILState_Release(state); }

private:
  PyGILState_STATE state;
};

/// The text of a str, which lives as long as the object; null with an
/// exception set for any other object.
const char *getText(PyObject *object, const char *what);
/// An int, no bool, from `least` to `most`. False with an exception set.
bool getInt(PyObject *object, const char *what, int64_t least, int64_t most,
            int64_t &value);
/// "str", "torch.Tensor": the type of an object for a message.
std::string nameType(PyObject *object);
/// "" and an exception set where the object cannot be shown.
std::string show(PyObject *object);

/// Fails with a TypeError unless a function got from `least` to `most`
/// arguments.
bool checkCount(const char *function, Py_ssize_t count, Py_ssize_t least,
                Py_ssize_t most);

using Method = PyObject *(*)(PyObject * self, PyObject *const *arguments,
                             Py_ssize_t count);
/// A method that takes arguments by position.
inline PyMethodDef makeMethod(const char *name, Method method,
                              const char *doc = nullptr, int flags = 0) {
  return {name, reinterpret_cast<PyCFunction>(reinterpret_cast<void *>(method)),
          METH_FASTCALL | flags, doc};
}

/// A new object of a type of ours, all zeros; null with an exception set.
template <typename T>
T *allocate(PyTypeObject *type) {
  auto make = reinterpret_cast<allocfunc>(PyType_GetSlot(type, Py_tp_alloc));
  return reinterpret_cast<T *>(make(type, 0));
}
/// Ends an object of a type of ours, but for what it holds.
void deallocate(PyObject *self);

} // namespace moec::python

#endif // MOEC_PYTHON_PYTHON_H
