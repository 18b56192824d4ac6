//===- TensorType.cpp - properties of tensor types ------------------------===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "TensorType.h"
#include "Errors.h"

#include <memory>
#include <unordered_map>

using namespace moec::python;

PyObject *Imported::get() {
  if (function)
    return function;
  Ref imported = Ref::take(PyUnicode_FromString(module));
  Ref loaded =
      Ref::take(imported ? PyImport_GetModule(imported.get()) : nullptr);
  if (loaded)
    function = PyObject_GetAttrString(loaded.get(), name);
  PyErr_Clear();
  return function;
}

namespace {

struct Entry {
  /// Keeps the type's address from being reused.
  Ref type;
  TensorType found;
};

} // namespace

/// Programs have few tensor types. The limit bounds memory if a program creates
/// types in a loop.
static constexpr size_t kMostTypes = 64;

static std::unordered_map<PyTypeObject *, std::unique_ptr<Entry>> &getTypes() {
  static auto *types =
      new std::unordered_map<PyTypeObject *, std::unique_ptr<Entry>>();
  return *types;
}

/// The top-level package of a class; "" if unknown.
static std::string getPackage(PyObject *type) {
  Ref module = Ref::take(PyObject_GetAttrString(type, "__module__"));
  const char *text = module && PyUnicode_Check(module.get())
                         ? PyUnicode_AsUTF8AndSize(module.get(), nullptr)
                         : nullptr;
  std::string package = text ? text : "";
  PyErr_Clear();
  return package.substr(0, package.find('.'));
}

/// The framework of the first base class, in method resolution order, that
/// belongs to one.
static Framework findFramework(PyObject *type) {
  Ref order = Ref::take(PyObject_GetAttrString(type, "__mro__"));
  Py_ssize_t count =
      order && PyTuple_Check(order.get()) ? PyTuple_Size(order.get()) : 0;
  PyErr_Clear();
  for (Py_ssize_t i = 0; i < count; ++i) {
    std::string package = getPackage(PyTuple_GetItem(order.get(), i));
    if (package == "torch")
      return Framework::Torch;
    if (package == "numpy")
      return Framework::NumPy;
    if (package == "cupy")
      return Framework::CuPy;
    if (package == "jax" || package == "jaxlib")
      return Framework::Jax;
  }
  return Framework::Other;
}

static PyObject *findEmptyLike(Framework framework) {
  static Imported torch = {"torch", "empty_like"};
  static Imported numpy = {"numpy", "empty_like"};
  static Imported cupy = {"cupy", "empty_like"};
  switch (framework) {
  case Framework::Torch:
    return torch.get();
  case Framework::NumPy:
    return numpy.get();
  case Framework::CuPy:
    return cupy.get();
  case Framework::Jax:
  case Framework::Other:
    return nullptr;
  }
  return nullptr;
}

static PyObject *findFromDLPack(Framework framework) {
  static Imported jax = {"jax.numpy", "from_dlpack"};
  return framework == Framework::Jax ? jax.get() : nullptr;
}

/// The functions of the supported major version.
static const DLPackExchangeAPI *findExchange(PyObject *capsule) {
  constexpr const char *name = "dlpack_exchange_api";
  if (!capsule || !PyCapsule_IsValid(capsule, name))
    return nullptr;
  auto *header = static_cast<DLPackExchangeAPIHeader *>(
      PyCapsule_GetPointer(capsule, name));
  while (header && header->version.major > kDLPackMajor)
    header = header->prev_api;
  if (!header || header->version.major != kDLPackMajor)
    return nullptr;
  auto *exchange = reinterpret_cast<const DLPackExchangeAPI *>(header);
  return exchange->managed_tensor_from_py_object_no_sync &&
                 exchange->current_work_stream
             ? exchange
             : nullptr;
}

/// For types beyond the limit of the table: tensors are passed as capsules.
static const TensorType *getPlain(Framework framework) {
  static auto *plain = new TensorType[size_t(Framework::Other) + 1];
  TensorType &type = plain[size_t(framework)];
  type.framework = framework;
  if (!type.emptyLike)
    type.emptyLike = Ref::share(findEmptyLike(framework));
  if (!type.fromDLPack)
    type.fromDLPack = Ref::share(findFromDLPack(framework));
  return &type;
}

const TensorType *moec::python::findTensorType(PyObject *object) {
  PyTypeObject *type = Py_TYPE(object);
  static PyTypeObject *latest = nullptr;
  static const TensorType *latestFound = nullptr;
  if (type == latest)
    return latestFound;
  auto &types = getTypes();
  auto known = types.find(type);
  auto *asObject = reinterpret_cast<PyObject *>(type);
  if (known == types.end() && types.size() >= kMostTypes)
    return getPlain(findFramework(asObject));
  if (known == types.end()) {
    auto entry = std::make_unique<Entry>();
    entry->type = Ref::share(asObject);
    entry->found.framework = findFramework(asObject);
    entry->found.capsule = Ref::take(
        PyObject_GetAttrString(asObject, "__dlpack_c_exchange_api__"));
    PyErr_Clear();
    entry->found.exchange = findExchange(entry->found.capsule.get());
    entry->found.emptyLike = Ref::share(findEmptyLike(entry->found.framework));
    entry->found.fromDLPack =
        Ref::share(findFromDLPack(entry->found.framework));
    known = types.emplace(type, std::move(entry)).first;
  }
  latest = type;
  latestFound = &known->second->found;
  return latestFound;
}

/// Reads an address from the attribute `object.name`, or from its result if it
/// is callable.
static bool readAddress(PyObject *object, const char *name, void *&address) {
  Ref value = Ref::take(PyObject_GetAttrString(object, name));
  if (!value)
    return false;
  address = PyLong_AsVoidPtr(value.get());
  return !PyErr_Occurred();
}

bool moec::python::findCurrentStream(PyObject *object, int32_t device,
                                     void *&stream) {
  static Imported torch = {"torch.cuda", "current_stream"};
  static Imported cupy = {"cupy.cuda", "get_current_stream"};
  stream = nullptr;
  const TensorType *type = findTensorType(object);
  if (type->exchange)
    return type->exchange->current_work_stream(kDLCUDA, device, &stream) == 0 ||
           failBecause("stream",
                       "the framework does not say which it works on");
  bool isTorch = type->framework == Framework::Torch;
  PyObject *function = isTorch                              ? torch.get()
                       : type->framework == Framework::CuPy ? cupy.get()
                                                            : nullptr;
  if (!function)
    return true;
  Ref current = Ref::take(isTorch ? PyObject_CallFunction(function, "i", device)
                                  : PyObject_CallFunction(function, nullptr));
  return (current && readAddress(current.get(), isTorch ? "cuda_stream" : "ptr",
                                 stream)) ||
         failBecause("stream", "the framework does not say which it works on");
}
