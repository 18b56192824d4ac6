//===- Tensor.cpp - tensors of any framework ------------------------------===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Tensor.h"
#include "Errors.h"
#include "TorchTensor.h"

#include <algorithm>
#include <cstring>

using namespace moec::python;

namespace {

struct DType {
  uint8_t code;
  uint8_t bits;
  uint16_t lanes;
  /// Name in moert.h.
  const char *name;
  /// Name in NumPy, with ml_dtypes.
  const char *numpy;
};

} // namespace

/// Codes of DLDataTypeCode.
static constexpr DType kDTypes[] = {
    {4, 16, 1, "bf16", "bfloat16"},
    {2, 32, 1, "f32", "float32"},
    {2, 16, 1, "f16", "float16"},
    {0, 32, 1, "i32", "int32"},
    {0, 64, 1, "i64", "int64"},
    {10, 8, 1, "f8e4m3", "float8_e4m3fn"},
    {12, 8, 1, "f8e5m2", "float8_e5m2"},
    {14, 8, 1, "f8e8m0", "float8_e8m0fnu"},
    {0, 8, 1, "i8", "int8"},
    {1, 8, 1, "u8", "uint8"},
    {2, 64, 1, "f64", "float64"},
    {0, 16, 1, "i16", "int16"},
    {1, 16, 1, "u16", "uint16"},
    {1, 32, 1, "u32", "uint32"},
    {1, 64, 1, "u64", "uint64"},
    {6, 8, 1, "bool", "bool"},
    // Two 4-bit values per byte.
    {17, 4, 2, "i8", "float4_e2m1fn_x2"},
};

std::string moec::python::showDevice(DLDevice device) {
  std::string number = std::to_string(device.device_id);
  switch (device.device_type) {
  case kDLCPU:
    return "cpu";
  case kDLCUDA:
    return "cuda:" + number;
  case kDLCUDAHost:
    return "pinned memory of the host";
  case kDLCUDAManaged:
    return "managed memory of cuda:" + number;
  }
  return "device " + number + " of type " + std::to_string(device.device_type);
}

std::string moec::python::showList(const int64_t *values, int count) {
  std::string text = "[";
  for (int i = 0; i < count; ++i)
    text += (i > 0 ? ", " : "") + std::to_string(values[i]);
  return text + "]";
}

std::string Tensor::showShape() const {
  return showList(tensor.shape, tensor.ndim);
}

std::string Tensor::showDevice() const {
  return moec::python::showDevice(tensor.device);
}

bool Tensor::isContiguous() const {
  if (!tensor.strides)
    return true;
  int64_t packed = 1;
  for (int i = tensor.ndim; i-- > 0;) {
    if (tensor.shape[i] != 1 && tensor.strides[i] != packed)
      return false;
    if (__builtin_mul_overflow(packed, tensor.shape[i], &packed))
      return false;
  }
  return true;
}

int64_t Tensor::extent() const {
  int64_t elements = 1;
  if (tensor.strides) {
    for (int i = 0; i < tensor.ndim; ++i) {
      if (tensor.shape[i] == 0)
        return 0;
      elements +=
          (tensor.shape[i] - 1) * std::max<int64_t>(tensor.strides[i], 0);
    }
  } else {
    for (int i = 0; i < tensor.ndim; ++i)
      elements *= tensor.shape[i];
  }
  return (elements * tensor.dtype.bits * tensor.dtype.lanes + 7) / 8;
}

void Layout::take(const Tensor &tensor) {
  const DLTensor &from = tensor.get();
  rank = from.ndim;
  hasStrides = from.strides != nullptr;
  device = from.device;
  type = from.dtype;
  dtypeName = tensor.dtype();
  std::copy_n(from.shape, rank, shape);
  if (hasStrides)
    std::copy_n(from.strides, rank, strides);
}

bool Layout::isOf(const DLTensor &tensor) const {
  if (tensor.ndim != rank || tensor.dtype.code != type.code ||
      tensor.dtype.bits != type.bits || tensor.dtype.lanes != type.lanes ||
      tensor.device.device_type != device.device_type ||
      tensor.device.device_id != device.device_id ||
      (tensor.strides != nullptr) != hasStrides || (rank > 0 && !tensor.shape))
    return false;
  for (int i = 0; i < rank; ++i)
    if (tensor.shape[i] != shape[i] ||
        (hasStrides && tensor.strides[i] != strides[i]))
      return false;
  return true;
}

void Tensor::release() {
  // Deleters may run Python code, which must not see a pending exception.
  PyObject *type, *value, *trace;
  PyErr_Fetch(&type, &value, &trace);
  DLManagedTensorVersioned *first = std::exchange(versioned, nullptr);
  DLManagedTensor *second = std::exchange(old, nullptr);
  if (first && first->deleter)
    first->deleter(first);
  if (second && second->deleter)
    second->deleter(second);
  PyErr_Restore(type, value, trace);
  array = Ref();
  source = Ref();
}

bool Tensor::read(PyObject *object, const Asking &asking) {
  reset();
  isReadOnly = false;
  const TensorType *type = findTensorType(object);
  if (!(type->exchange ? readExchange(object, *type->exchange, asking)
                       : readCapsule(object, *type, asking)))
    return false;
  // JAX arrays are immutable, but their capsules do not say so.
  isReadOnly |= type->framework == Framework::Jax;
  return (type->framework != Framework::Torch || checkTorch(object, asking)) &&
         verify(asking);
}

/// Checks the properties of a PyTorch tensor that DLPack does not report.
bool Tensor::checkTorch(PyObject *object, const Asking &asking) {
  if (!checkSign(object, asking.argument))
    return false;
  if (mayBeReleased(data())) {
    if (!checkHasMemory(object, asking.argument))
      return false;
    int64_t bytes = tensor.ndim >= 0 && tensor.ndim <= kMaxRank ? extent() : 0;
    if (bytes > 0 && !checkStorage(object, data(), bytes, asking.argument))
      return false;
  }
  if (asking.keep) {
    source = Ref::share(object);
    sourceType = findTensorType(object);
  }
  return true;
}

bool Tensor::hasLostMemory() const {
  if (!source)
    return false;
  void *now = nullptr;
  if (sourceType->exchange &&
      sourceType->exchange->dltensor_from_py_object_no_sync) {
    DLTensor described = {};
    if (sourceType->exchange->dltensor_from_py_object_no_sync(source.get(),
                                                              &described) == 0)
      now = static_cast<char *>(described.data) + described.byte_offset;
  } else if (Ref address = Ref::take(
                 PyObject_CallMethod(source.get(), "data_ptr", nullptr))) {
    now = PyLong_AsVoidPtr(address.get());
  }
  PyErr_Clear();
  return now != data() && extent() > 0;
}

bool Tensor::borrow(const DLTensor &described, const Asking &asking) {
  reset();
  isReadOnly = false;
  tensor = described;
  return verify(asking);
}

/// Called with an exception set that gives the framework's reason.
static bool failToRead(PyObject *object, const TensorType &type,
                       const char *argument) {
  return (type.framework != Framework::Torch ||
          checkHasMemory(object, argument)) &&
         failBecause(argument, "the tensor cannot be read");
}

bool Tensor::readExchange(PyObject *object, const DLPackExchangeAPI &exchange,
                          const Asking &asking) {
  if (!asking.keep && exchange.dltensor_from_py_object_no_sync)
    return exchange.dltensor_from_py_object_no_sync(object, &tensor) == 0 ||
           failToRead(object, *findTensorType(object), asking.argument);
  if (exchange.managed_tensor_from_py_object_no_sync(object, &versioned) != 0)
    return failToRead(object, *findTensorType(object), asking.argument);
  tensor = versioned->dl_tensor;
  isReadOnly = (versioned->flags & kDLPackReadOnly) != 0;
  return true;
}

/// Whether the tensor is on a CUDA device; -1 with an exception set.
static int isOnCuda(PyObject *object) {
  Ref device =
      Ref::take(PyObject_CallMethod(object, "__dlpack_device__", nullptr));
  if (!device)
    return -1;
  Ref type = Ref::take(PySequence_GetItem(device.get(), 0));
  Ref number = Ref::take(type ? PyNumber_Index(type.get()) : nullptr);
  if (!number)
    return -1;
  long value = PyLong_AsLong(number.get());
  return PyErr_Occurred() ? -1 : value == kDLCUDA || value == kDLCUDAManaged;
}

/// Calls `__dlpack__` with the arguments of new producers, then of old ones.
static PyObject *makeCapsule(PyObject *object, const TensorType &type,
                             const Asking &asking) {
  Ref produce = Ref::take(PyObject_GetAttrString(object, "__dlpack__"));
  if (!produce)
    return nullptr;
  Ref keywords = Ref::take(PyDict_New()), none = Ref::take(PyTuple_New(0));
  Ref version = Ref::take(Py_BuildValue("(ii)", kDLPackMajor, kDLPackMinor));
  int isGpu = type.framework == Framework::NumPy ? 0 : isOnCuda(object);
  if (!keywords || !none || !version || isGpu < 0)
    return nullptr;
  if (isGpu) {
    // 1 is the legacy default stream in DLPack.
    Ref stream = Ref::take(asking.stream ? PyLong_FromVoidPtr(asking.stream)
                                         : PyLong_FromLong(1));
    if (!stream || PyDict_SetItemString(keywords.get(), "stream", stream.get()))
      return nullptr;
  }
  if (PyDict_SetItemString(keywords.get(), "max_version", version.get()) < 0)
    return nullptr;
  PyObject *capsule = PyObject_Call(produce.get(), none.get(), keywords.get());
  if (capsule || !PyErr_ExceptionMatches(PyExc_TypeError))
    return capsule;
  PyErr_Clear();
  if (PyDict_DelItemString(keywords.get(), "max_version") < 0)
    return nullptr;
  return PyObject_Call(produce.get(), none.get(), keywords.get());
}

bool Tensor::readCapsule(PyObject *object, const TensorType &type,
                         const Asking &asking) {
  Ref capsule = Ref::take(makeCapsule(object, type, asking));
  if (!capsule && type.framework == Framework::Torch &&
      PyErr_ExceptionMatches(PyExc_BufferError)) {
    // A tensor that requires a gradient is not exported; its detached alias is.
    // Gradients are checked elsewhere.
    PyErr_Clear();
    Ref detached = Ref::take(PyObject_CallMethod(object, "detach", nullptr));
    capsule = Ref::take(detached ? makeCapsule(detached.get(), type, asking)
                                 : nullptr);
  }
  if (capsule)
    return takeCapsule(capsule.get(), asking);
  if (PyErr_ExceptionMatches(PyExc_AttributeError)) {
    PyErr_Clear();
    return fail(Kind::Type, std::string(asking.argument) +
                                ": a tensor (with __dlpack__) expected, " +
                                nameType(object) + " found");
  }
  // NumPy arrays that DLPack cannot describe have __array_interface__.
  if (type.framework == Framework::NumPy &&
      PyErr_ExceptionMatches(PyExc_BufferError)) {
    PyErr_Clear();
    return readArray(object, asking);
  }
  return failToRead(object, type, asking.argument);
}

bool Tensor::takeCapsule(PyObject *capsule, const Asking &asking) {
  constexpr const char *names[] = {"dltensor_versioned", "dltensor"};
  if (PyCapsule_IsValid(capsule, names[0])) {
    versioned = static_cast<DLManagedTensorVersioned *>(
        PyCapsule_GetPointer(capsule, names[0]));
    // The name marks a capsule as consumed.
    if (PyCapsule_SetName(capsule, "used_dltensor_versioned") < 0) {
      versioned = nullptr;
      return false;
    }
    if (versioned->version.major != kDLPackMajor)
      return fail(Kind::Value, std::string(asking.argument) +
                                   ": DLPack of version " +
                                   std::to_string(versioned->version.major) +
                                   " found, but only 1 is supported; install a "
                                   "release of the framework with version 1");
    tensor = versioned->dl_tensor;
    isReadOnly = (versioned->flags & kDLPackReadOnly) != 0;
    return true;
  }
  if (PyCapsule_IsValid(capsule, names[1])) {
    old =
        static_cast<DLManagedTensor *>(PyCapsule_GetPointer(capsule, names[1]));
    if (PyCapsule_SetName(capsule, "used_dltensor") < 0) {
      old = nullptr;
      return false;
    }
    tensor = old->dl_tensor;
    return true;
  }
  return fail(Kind::Type,
              std::string(asking.argument) +
                  ": __dlpack__ does not return an unused DLPack capsule");
}

/// Reads the sizes in a tuple.
static bool readSizes(PyObject *tuple, int64_t *sizes, int count) {
  for (int i = 0; i < count; ++i) {
    PyObject *item = PyTuple_GetItem(tuple, i);
    sizes[i] = item ? PyLong_AsLongLong(item) : -1;
    if (PyErr_Occurred())
      return false;
  }
  return true;
}

/// Whether the `typestr` of an __array_interface__, such as ">f4", has the
/// other byte order.
static bool isOfOtherByteOrder(PyObject *described) {
  constexpr char other = __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ ? '>' : '<';
  PyObject *type = PyDict_GetItemString(described, "typestr");
  return type && PyUnicode_Check(type) && show(type)[0] == other;
}

bool Tensor::readArray(PyObject *object, const Asking &asking) {
  Ref dtype = Ref::take(PyObject_GetAttrString(object, "dtype"));
  Ref name =
      Ref::take(dtype ? PyObject_GetAttrString(dtype.get(), "name") : nullptr);
  Ref described =
      Ref::take(PyObject_GetAttrString(object, "__array_interface__"));
  if (!name || !described || !PyDict_Check(described.get()))
    return failBecause(asking.argument, "the array cannot be read");
  if (isOfOtherByteOrder(described.get()))
    return fail(Kind::Value,
                std::string(asking.argument) +
                    ": the byte order is not that of this machine; give "
                    "x.astype(x.dtype.newbyteorder('='))");
  std::string found = show(name.get());
  const DType *known =
      std::find_if(std::begin(kDTypes), std::end(kDTypes),
                   [&](const DType &each) { return found == each.numpy; });
  if (known == std::end(kDTypes))
    return fail(Kind::Type, std::string(asking.argument) + ": dtype '" + found +
                                "' is not supported by layers");
  PyObject *data = PyDict_GetItemString(described.get(), "data");
  PyObject *shape = PyDict_GetItemString(described.get(), "shape");
  PyObject *strides = PyDict_GetItemString(described.get(), "strides");
  Py_ssize_t rank = shape && PyTuple_Check(shape) ? PyTuple_Size(shape) : -1;
  if (!data || !PyTuple_Check(data) || PyTuple_Size(data) != 2 || rank < 0 ||
      rank > kMaxRank)
    return fail(Kind::Value, std::string(asking.argument) +
                                 ": the array has a rank above " +
                                 std::to_string(kMaxRank) + ", or no address");
  tensor.data = PyLong_AsVoidPtr(PyTuple_GetItem(data, 0));
  isReadOnly = PyTuple_GetItem(data, 1) == Py_True;
  tensor.device = {kDLCPU, 0};
  tensor.ndim = int32_t(rank);
  tensor.dtype = {known->code, known->bits, known->lanes};
  tensor.shape = arrayShape;
  if (!readSizes(shape, arrayShape, tensor.ndim))
    return false;
  if (strides && PyTuple_Check(strides) && PyTuple_Size(strides) == rank) {
    if (!readSizes(strides, arrayStrides, tensor.ndim))
      return false;
    int64_t bytes = std::max(known->bits * known->lanes / 8, 1);
    for (int i = 0; i < tensor.ndim; ++i) {
      if (arrayStrides[i] % bytes != 0)
        return fail(Kind::Value, std::string(asking.argument) +
                                     ": strides are not multiples of the "
                                     "element size; make the array contiguous");
      arrayStrides[i] /= bytes;
    }
    tensor.strides = arrayStrides;
  }
  array = Ref::share(object);
  return !PyErr_Occurred();
}

bool Tensor::verify(const Asking &asking) {
  isKnownLayout = asking.known && asking.known->isOf(tensor);
  if (isKnownLayout && !(asking.write && isReadOnly)) {
    dtypeName = asking.known->dtype();
    return true;
  }
  std::string argument = asking.argument;
  if (tensor.ndim < 0 || tensor.ndim > kMaxRank ||
      (tensor.ndim > 0 && !tensor.shape))
    return fail(Kind::Value, argument + ": rank " +
                                 std::to_string(tensor.ndim) + " found; 0 to " +
                                 std::to_string(kMaxRank) + " are accepted");
  if (std::any_of(tensor.shape, tensor.shape + tensor.ndim,
                  [](int64_t size) { return size < 0; }))
    return fail(Kind::Value,
                argument + ": shape " + showShape() + " has a negative size");
  if (asking.write && isReadOnly)
    return fail(
        Kind::Value,
        argument +
            ": the tensor is read-only; give a writable one, or leave it out");
  for (const DType &known : kDTypes)
    if (known.code == tensor.dtype.code && known.bits == tensor.dtype.bits &&
        known.lanes == tensor.dtype.lanes) {
      dtypeName = known.name;
      return true;
    }
  return fail(Kind::Type,
              argument + ": DLPack's type code " +
                  std::to_string(tensor.dtype.code) + " of " +
                  std::to_string(tensor.dtype.bits) + " bits and " +
                  std::to_string(tensor.dtype.lanes) +
                  " lanes is not supported by layers; convert the tensor");
}
