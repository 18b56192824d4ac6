//===- TorchTensor.cpp - PyTorch-specific tensor properties ---------------===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "TorchTensor.h"
#include "Errors.h"
#include "TensorType.h"

using namespace moec::python;

int moec::python::isGradEnabled() {
  static Imported isEnabled = {"torch", "is_grad_enabled"};
  if (!isEnabled.get())
    return 0;
  Ref enabled = Ref::take(PyObject_CallNoArgs(isEnabled.get()));
  return enabled ? enabled.get() == Py_True : -1;
}

int moec::python::requiresGradient(PyObject *tensor) {
  static PyObject *name = PyUnicode_InternFromString("requires_grad");
  Ref wanted = Ref::take(name ? PyObject_GetAttr(tensor, name) : nullptr);
  return wanted ? wanted.get() == Py_True : -1;
}

bool moec::python::checkSign(PyObject *tensor, const char *argument) {
  static PyObject *name = PyUnicode_InternFromString("is_neg");
  Ref isNegative = Ref::take(
      name ? PyObject_CallMethodObjArgs(tensor, name, nullptr) : nullptr);
  if (!isNegative)
    return failBecause(argument, "the tensor cannot be read");
  return isNegative.get() != Py_True ||
         fail(Kind::Value, std::string(argument) +
                               ": is negated lazily (is_neg()), so its memory "
                               "has the opposite sign; give x.resolve_neg()");
}

bool moec::python::mayBeReleased(const void *data) {
  return reinterpret_cast<uintptr_t>(data) < uintptr_t(1) << 40;
}

/// Reads a number that a method returns; false with an exception set.
static bool callForNumber(PyObject *object, const char *method,
                          uintptr_t &number) {
  Ref answer = Ref::take(PyObject_CallMethod(object, method, nullptr));
  if (!answer)
    return false;
  number = PyLong_AsSize_t(answer.get());
  return !PyErr_Occurred();
}

bool moec::python::failForStorage(const char *argument, uint64_t size) {
  return fail(
      Kind::Value,
      std::string(argument) + ": its storage has " + std::to_string(size) +
          " bytes, fewer than the tensor needs, as after "
          "untyped_storage().resize_(); give a tensor with allocated memory");
}

bool moec::python::checkStorage(PyObject *tensor, const void *data,
                                int64_t bytes, const char *argument) {
  Ref storage =
      Ref::take(PyObject_CallMethod(tensor, "untyped_storage", nullptr));
  uintptr_t begin = 0, size = 0;
  if (!storage || !callForNumber(storage.get(), "data_ptr", begin) ||
      !callForNumber(storage.get(), "nbytes", size))
    return failBecause(argument, "the tensor cannot be read");
  auto address = reinterpret_cast<uintptr_t>(data);
  return (address >= begin && address - begin + uintptr_t(bytes) <= size) ||
         failForStorage(argument, size);
}

/// Whether a PyTorch function returns True for a tensor.
static bool isTrue(Imported &function, PyObject *tensor) {
  Ref answer = Ref::take(function.get() ? PyObject_CallFunctionObjArgs(
                                              function.get(), tensor, nullptr)
                                        : nullptr);
  PyErr_Clear();
  return answer.get() == Py_True;
}

/// "a meta tensor" and similar; "" for a tensor that may have memory.
static std::string describeWithoutMemory(PyObject *tensor) {
  static Imported isTransformed = {"torch._C._functorch",
                                   "is_functorch_wrapped_tensor"};
  static Imported isFunctional = {"torch", "_is_functional_tensor"};
  std::string type = nameType(tensor);
  if (type == "FakeTensor" || type == "FunctionalTensor")
    return "a " + type;
  if (isTrue(isTransformed, tensor))
    return "a tensor inside a transform of torch.func, such as vmap";
  if (isTrue(isFunctional, tensor))
    return "a functional tensor";
  Ref layout = Ref::take(PyObject_GetAttrString(tensor, "layout"));
  std::string text = layout ? show(layout.get()) : "";
  Ref isMeta = Ref::take(PyObject_GetAttrString(tensor, "is_meta"));
  PyErr_Clear();
  if (isMeta.get() == Py_True)
    return "a meta tensor";
  return text.empty() || text == "torch.strided" ? ""
                                                 : "a tensor of layout " + text;
}

bool moec::python::checkHasMemory(PyObject *tensor, const char *argument) {
  PyObject *type, *value, *trace;
  PyErr_Fetch(&type, &value, &trace);
  std::string what = describeWithoutMemory(tensor);
  PyErr_Restore(type, value, trace);
  if (what.empty())
    return true;
  PyErr_Clear();
  return fail(Kind::Value, std::string(argument) + ": is " + what +
                               ", which has no dense rows; give a dense tensor "
                               "on the device of the layer");
}

bool moec::python::increaseVersion(PyObject *tensor, const char *argument) {
  static Imported increase = {"torch.autograd.graph", "increment_version"};
  Ref done = Ref::take(increase.get() ? PyObject_CallFunctionObjArgs(
                                            increase.get(), tensor, nullptr)
                                      : nullptr);
  return done || failBecause(argument, "autograd cannot be told that it was "
                                       "written");
}
