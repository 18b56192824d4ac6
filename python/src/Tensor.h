//===- Tensor.h - tensors of any framework ----------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_PYTHON_TENSOR_H
#define MOEC_PYTHON_TENSOR_H

#include "TensorType.h"

namespace moec::python {

/// Largest number of dimensions.
inline constexpr int kMaxRank = 8;

class Tensor;

/// The checked properties of a tensor, except its address and writability.
class Layout {
public:
  /// Stores the layout of a tensor that passed the checks.
  void take(const Tensor &tensor);
  void forget() { rank = -1; }
  bool isOf(const DLTensor &tensor) const;
  const char *dtype() const { return dtypeName; }

private:
  int rank = -1;
  bool hasStrides = false;
  DLDevice device = {};
  DLDataType type = {};
  const char *dtypeName = nullptr;
  int64_t shape[kMaxRank];
  int64_t strides[kMaxRank];
};

/// Requirements for a tensor.
struct Asking {
  /// Name in messages.
  const char *argument = "";
  /// Keep the memory alive as long as the Tensor, even if the object is deleted
  /// or gets other memory.
  bool keep = false;
  /// The memory will be written.
  bool write = false;
  /// On a GPU: the stream that will use the memory.
  void *stream = nullptr;
  /// A layout that need not be checked again; null for none.
  const Layout *known = nullptr;
};

/// A tensor of any framework, described by DLPack.
class Tensor {
public:
  Tensor() = default;
  Tensor(const Tensor &) = delete;
  Tensor &operator=(const Tensor &) = delete;
  ~Tensor() {
    if (isHeld())
      release();
  }

  /// Reads a tensor; may call functions of its framework. False with an
  /// exception set.
  bool read(PyObject *object, const Asking &asking);
  /// Reads a described tensor. Sizes and memory stay owned by the caller.
  bool borrow(const DLTensor &described, const Asking &asking);
  void reset() {
    if (isHeld())
      release();
    tensor = {};
  }

  /// Whether the tensor's storage was released or replaced since it was read.
  /// Only possible for kept PyTorch tensors; false for all others.
  bool hasLostMemory() const;

  const DLTensor &get() const { return tensor; }
  void *data() const {
    return static_cast<char *>(tensor.data) + tensor.byte_offset;
  }
  /// Name in moert.h: "bf16".
  const char *dtype() const { return dtypeName; }
  /// Whether the layout equals `Asking::known`.
  bool isKnown() const { return isKnownLayout; }
  /// Bytes from the first element to the end of the last one.
  int64_t extent() const;
  bool isContiguous() const;
  /// "[4, 64]".
  std::string showShape() const;
  /// "cpu", "cuda:0".
  std::string showDevice() const;

private:
  bool readExchange(PyObject *object, const DLPackExchangeAPI &exchange,
                    const Asking &asking);
  bool readCapsule(PyObject *object, const TensorType &type,
                   const Asking &asking);
  bool readArray(PyObject *object, const Asking &asking);
  bool checkTorch(PyObject *object, const Asking &asking);
  bool takeCapsule(PyObject *capsule, const Asking &asking);
  bool verify(const Asking &asking);
  bool isHeld() const { return versioned || old || array; }
  void release();

  DLTensor tensor = {};
  const char *dtypeName = nullptr;
  bool isReadOnly = false;
  bool isKnownLayout = false;
  DLManagedTensorVersioned *versioned = nullptr;
  DLManagedTensor *old = nullptr;
  /// A NumPy array without DLPack.
  Ref array;
  /// A PyTorch tensor whose memory is kept, and the functions of its type.
  Ref source;
  const TensorType *sourceType = nullptr;
  int64_t arrayShape[kMaxRank];
  int64_t arrayStrides[kMaxRank];
};

/// "cpu", "cuda:0", "device type 8".
std::string showDevice(DLDevice device);
/// "[4, 64]".
std::string showList(const int64_t *values, int count);

} // namespace moec::python

#endif // MOEC_PYTHON_TENSOR_H
