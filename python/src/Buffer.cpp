//===- Buffer.cpp - device memory with a shape ----------------------------===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Device.h"
#include "Errors.h"

#include <memory>
#include <vector>

using namespace moec::python;

namespace {

/// Memory shared by a buffer and the tensors exported from it.
struct Memory {
  /// A DeviceObject.
  Ref device;
  void *data = nullptr;
  size_t bytes = 0;
  DLDataType dtype = {};
  std::vector<int64_t> shape;
  std::vector<int64_t> strides;

  moert_device *getDevice() const {
    return reinterpret_cast<DeviceObject *>(device.get())->device;
  }
  ~Memory() { moert_device_release(getDevice(), data); }
};

struct BufferObject {
  PyObject base;
  Memory *memory;
};

/// An exported tensor, which its consumer owns; keeps its buffer alive.
struct Exported {
  Ref buffer;
  DLManagedTensorVersioned versioned = {};
  DLManagedTensor old = {};
};

} // namespace

static PyTypeObject *bufferType = nullptr;

static Memory &getMemory(PyObject *self) {
  return *reinterpret_cast<BufferObject *>(self)->memory;
}

/// Buffer(device, shape, code, bits): the dtype is DLPack's.
static PyObject *makeBuffer(PyTypeObject *type, PyObject *arguments,
                            PyObject *) {
  PyObject *device, *shape;
  unsigned char code, bits;
  if (!PyArg_ParseTuple(arguments, "O!O!bb:Buffer", deviceType, &device,
                        &PyTuple_Type, &shape, &code, &bits))
    return nullptr;
  auto memory = std::make_unique<Memory>();
  memory->device = Ref::share(device);
  memory->dtype = {code, bits, 1};
  int64_t elements = 1;
  for (Py_ssize_t i = 0; i < PyTuple_Size(shape); ++i) {
    int64_t size;
    if (!getInt(PyTuple_GetItem(shape, i), "shape", 0, INT32_MAX, size))
      return nullptr;
    memory->shape.push_back(size);
    if (__builtin_mul_overflow(elements, size, &elements) ||
        elements > INT64_MAX / 8) {
      fail(Kind::Value, "shape: has more elements than memory could hold");
      return nullptr;
    }
  }
  memory->strides.resize(memory->shape.size());
  int64_t packed = 1;
  for (size_t i = memory->shape.size(); i-- > 0;) {
    memory->strides[i] = packed;
    packed *= memory->shape[i];
  }
  memory->bytes = size_t(elements) * bits / 8;
  if (!check(moert_device_allocate(memory->getDevice(), memory->bytes,
                                   &memory->data),
             "shape"))
    return nullptr;
  auto *self = allocate<BufferObject>(type);
  if (self)
    self->memory = memory.release();
  return reinterpret_cast<PyObject *>(self);
}

PyObject *moec::python::makeBufferLike(PyObject *device,
                                       const DLTensor &tensor) {
  Ref shape = Ref::take(PyTuple_New(tensor.ndim));
  for (int i = 0; shape && i < tensor.ndim; ++i) {
    PyObject *size = PyLong_FromLongLong(tensor.shape[i]);
    if (!size || PyTuple_SetItem(shape.get(), i, size) < 0)
      return nullptr;
  }
  Ref arguments =
      Ref::take(shape ? Py_BuildValue("(OOBB)", device, shape.get(),
                                      tensor.dtype.code, tensor.dtype.bits)
                      : nullptr);
  return arguments ? makeBuffer(bufferType, arguments.get(), nullptr) : nullptr;
}

static void freeBuffer(PyObject *self) {
  delete reinterpret_cast<BufferObject *>(self)->memory;
  deallocate(self);
}

static PyObject *copyIn(PyObject *self, PyObject *bytes) {
  Memory &memory = getMemory(self);
  char *data = nullptr;
  Py_ssize_t size = 0;
  if (PyBytes_AsStringAndSize(bytes, &data, &size) < 0)
    return nullptr;
  if (size_t(size) != memory.bytes) {
    fail(Kind::Value, "bytes: " + std::to_string(memory.bytes) + " expected, " +
                          std::to_string(size) + " found");
    return nullptr;
  }
  if (!check(moert_device_copy_in(memory.getDevice(), memory.data, data,
                                  memory.bytes)))
    return nullptr;
  Py_RETURN_NONE;
}

static PyObject *copyOut(PyObject *self, PyObject *) {
  Memory &memory = getMemory(self);
  Ref bytes =
      Ref::take(PyBytes_FromStringAndSize(nullptr, Py_ssize_t(memory.bytes)));
  if (!bytes || !check(moert_device_copy_out(memory.getDevice(),
                                             PyBytes_AsString(bytes.get()),
                                             memory.data, memory.bytes)))
    return nullptr;
  return bytes.release();
}

/// Frees an exported tensor, on any thread.
static void freeExported(Exported *exported) {
  if (!Py_IsInitialized())
    return;
  PyGILState_STATE state = PyGILState_Ensure();
  delete exported;
  PyGILState_Release(state);
}

/// Destructor of a capsule whose tensor was never consumed.
static void freeCapsule(PyObject *capsule) {
  for (const char *name : {"dltensor_versioned", "dltensor"})
    if (PyCapsule_IsValid(capsule, name))
      delete static_cast<Exported *>(PyCapsule_GetContext(capsule));
}

static PyObject *makeCapsule(PyObject *self, PyObject *arguments,
                             PyObject *keywords) {
  static const char *names[] = {"stream", "max_version", "dl_device", "copy",
                                nullptr};
  PyObject *stream = nullptr, *version = nullptr, *device = nullptr,
           *copy = nullptr;
  if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "|$OOOO:__dlpack__",
                                   const_cast<char **>(names), &stream,
                                   &version, &device, &copy))
    return nullptr;
  if (copy == Py_True) {
    PyErr_SetString(PyExc_BufferError, "a Buffer makes no copies");
    return nullptr;
  }
  Memory &memory = getMemory(self);
  auto exported = std::make_unique<Exported>();
  exported->buffer = Ref::share(self);
  DLTensor tensor = {};
  tensor.data = memory.data;
  tensor.device = reinterpret_cast<DeviceObject *>(memory.device.get())->where;
  tensor.ndim = int32_t(memory.shape.size());
  tensor.dtype = memory.dtype;
  tensor.shape = memory.shape.data();
  tensor.strides = memory.strides.data();
  exported->versioned.version = {kDLPackMajor, kDLPackMinor};
  exported->versioned.manager_ctx = exported->old.manager_ctx = exported.get();
  exported->versioned.dl_tensor = exported->old.dl_tensor = tensor;
  exported->versioned.deleter = [](DLManagedTensorVersioned *taken) {
    freeExported(static_cast<Exported *>(taken->manager_ctx));
  };
  exported->old.deleter = [](DLManagedTensor *taken) {
    freeExported(static_cast<Exported *>(taken->manager_ctx));
  };
  bool isVersioned = version && version != Py_None;
  PyObject *capsule =
      isVersioned ? PyCapsule_New(&exported->versioned, "dltensor_versioned",
                                  freeCapsule)
                  : PyCapsule_New(&exported->old, "dltensor", freeCapsule);
  if (!capsule || PyCapsule_SetContext(capsule, exported.get()) < 0)
    return nullptr;
  (void)exported.release();
  return capsule;
}

static PyObject *getWhere(PyObject *self, PyObject *) {
  DLDevice where =
      reinterpret_cast<DeviceObject *>(getMemory(self).device.get())->where;
  return Py_BuildValue("(ii)", where.device_type, where.device_id);
}

bool moec::python::addBuffer(PyObject *module) {
  static PyMethodDef methods[] = {
      {"copy_in", copyIn, METH_O, "Fills it with bytes."},
      {"copy_out", copyOut, METH_NOARGS, "Its bytes."},
      {"__dlpack__",
       reinterpret_cast<PyCFunction>(reinterpret_cast<void *>(makeCapsule)),
       METH_VARARGS | METH_KEYWORDS, nullptr},
      {"__dlpack_device__", getWhere, METH_NOARGS, nullptr},
      {}};
  static PyType_Slot slots[] = {
      {Py_tp_new, reinterpret_cast<void *>(makeBuffer)},
      {Py_tp_dealloc, reinterpret_cast<void *>(freeBuffer)},
      {Py_tp_methods, methods},
      {}};
  static PyType_Spec spec = {"moec._core.Buffer", sizeof(BufferObject), 0,
                             Py_TPFLAGS_DEFAULT, slots};
  bufferType = reinterpret_cast<PyTypeObject *>(PyType_FromSpec(&spec));
  return bufferType && PyModule_AddType(module, bufferType) == 0;
}
