//===- LayerBinding.cpp - tensors as weights of a layer ------------------===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Errors.h"
#include "LayerMethods.h"

#include <cstring>

using namespace moec::python;

/// Hint for a wrong dtype.
static const char *getRemedy(const Operand &operand, const char *found) {
  if (operand.dtype == "i32" && strcmp(found, "i64") == 0)
    return "convert it, as with .to(torch.int32)";
  if (operand.dtype == "i8" && strcmp(found, "u8") == 0)
    return "view it as int8 if these are packed bytes";
  if (operand.role == MOERT_WEIGHT)
    return "convert the tensor, or compile the layer for its dtype";
  return "convert the tensor";
}

/// Whether the operand holds ids of 8 bits, which have no sign.
static bool isByteIds(const Operand &operand) {
  return operand.dtype == "i8" && operand.text == "topk_ids";
}

/// Whether bytes are accepted for 8-bit elements that few frameworks have, or
/// booleans for bytes that are tested against 0.
static bool areBytesOf(const Operand &operand, const char *found) {
  const std::string &dtype = operand.dtype;
  return (strcmp(found, "u8") == 0 &&
          (dtype.rfind("f8", 0) == 0 || isByteIds(operand))) ||
         (strcmp(found, "bool") == 0 && dtype == "i8" && !isByteIds(operand));
}

bool moec::python::checkOperand(const LayerState &state, int operand,
                                const Tensor &tensor, const char *argument) {
  const Operand &expected = state.operands[size_t(operand)];
  const DeviceObject &device = state.getDevice();
  if (expected.dtype != tensor.dtype() && !areBytesOf(expected, tensor.dtype()))
    return fail(Kind::Type, std::string(argument) + ": dtype " +
                                (isByteIds(expected) ? "u8" : expected.dtype) +
                                " expected, " + tensor.dtype() + " found; " +
                                getRemedy(expected, tensor.dtype()));
  if (!isMemoryOf(device, tensor.get().device))
    return fail(Kind::Value, std::string(argument) + ": a tensor on " +
                                 showDevice(device.where) +
                                 " expected, one on " + tensor.showDevice() +
                                 " found; copy it to the device of the layer");
  return true;
}

moert_tensor moec::python::describeTensor(const LayerState &state, int operand,
                                          const Tensor &tensor) {
  const Operand &expected = state.operands[size_t(operand)];
  moert_tensor described = {};
  described.name = expected.text.c_str();
  described.dtype = expected.dtype.c_str();
  described.data = tensor.data();
  described.rank = tensor.get().ndim;
  described.shape = tensor.get().shape;
  described.strides = tensor.get().strides;
  return described;
}

bool moec::python::bindOperand(LayerState &state, int operand,
                               const Tensor &tensor, const char *argument) {
  moert_tensor described = describeTensor(state, operand, tensor);
  return check(moert_layer_bind(state.layer, &described), argument);
}

Ref moec::python::shareMemory(PyObject *tensor) {
  if (findTensorType(tensor)->framework != Framework::Torch)
    return Ref::share(tensor);
  return Ref::take(PyObject_CallMethod(tensor, "detach", nullptr));
}

/// `what`: the word for tensors of the role in messages.
static int findOperand(const LayerState &state, const char *name,
                       moert_role role, const char *what) {
  int operand = state.find(name);
  if (operand >= 0 && state.operands[size_t(operand)].role == role)
    return operand;
  std::string names;
  std::vector<std::string> accepted;
  for (const Operand &each : state.operands)
    if (each.role == role) {
      names += (names.empty() ? "" : ", ") + each.text;
      accepted.push_back(each.text);
    }
  fail(Kind::Value, std::string(name) + ": the layer has no such " + what +
                        "; it has " + (names.empty() ? "none" : names) +
                        suggest(name, accepted));
  return -1;
}

int moec::python::findWeight(const LayerState &state, const char *name) {
  return findOperand(state, name, MOERT_WEIGHT, "weight");
}

std::shared_ptr<Weight> moec::python::readWeight(LayerState &state, int operand,
                                                 PyObject *object,
                                                 bool isWritten,
                                                 void *&stream) {
  const char *name = state.operands[size_t(operand)].text.c_str();
  Asking asking;
  asking.argument = name;
  asking.keep = true;
  asking.write = isWritten;
  if (!state.isOnHost() &&
      !findCurrentStream(object, state.getDevice().where.device_id,
                         asking.stream))
    return nullptr;
  Ref shared = shareMemory(object);
  if (!shared) {
    failBecause(name, "the tensor cannot be read");
    return nullptr;
  }
  auto tensor = std::make_shared<Weight>();
  if (!tensor->read(shared.get(), asking) ||
      !checkOperand(state, operand, *tensor, name))
    return nullptr;
  tensor->watch(shared.get());
  stream = asking.stream;
  return tensor;
}

/// Binds a tensor to an operand permanently.
static PyObject *bindFor(LayerState &state, int operand, PyObject *object,
                         bool isWritten) {
  const char *name = state.operands[size_t(operand)].text.c_str();
  void *stream = nullptr;
  std::shared_ptr<Weight> tensor =
      readWeight(state, operand, object, isWritten, stream);
  if (!tensor)
    return nullptr;
  {
    Locked locked(state);
    if (!locked.isOpen() || !bindOperand(state, operand, *tensor, name))
      return nullptr;
    if (const Operand &bound = state.operands[size_t(operand)];
        bound.isPrepared || bound.role == MOERT_PREPARED)
      state.isPrepared = false;
    state.latestStream = stream;
    std::swap(state.weights[size_t(operand)], tensor);
  }
  Py_RETURN_NONE;
}

PyObject *moec::python::bindWeight(PyObject *self, PyObject *const *arguments,
                                   Py_ssize_t count) {
  LayerState &state = getState(self);
  if (!checkCount("bind", count, 2, 2))
    return nullptr;
  const char *name = getText(arguments[0], "name");
  int operand = name ? findWeight(state, name) : -1;
  return operand < 0 ? nullptr
                     : bindFor(state, operand, arguments[1],
                               /*isWritten=*/false);
}

PyObject *moec::python::bindMemory(PyObject *self, PyObject *const *arguments,
                                   Py_ssize_t count) {
  LayerState &state = getState(self);
  if (!checkCount("bind_memory", count, 2, 2))
    return nullptr;
  const char *name = getText(arguments[0], "name");
  int operand =
      name ? findOperand(state, name, MOERT_PREPARED, "prepared tensor") : -1;
  return operand < 0 ? nullptr
                     : bindFor(state, operand, arguments[1],
                               /*isWritten=*/true);
}
