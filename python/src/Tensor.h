//===- Tensor.h - a tensor of some framework --------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_PYTHON_TENSOR_H
#define MOEC_PYTHON_TENSOR_H

#include "TensorType.h"

namespace moec::python {

/// No tensor has more dimensions.
inline constexpr int kMaxRank = 8;

class Tensor;

/// What the checks of a tensor look at, but for its address and whether it may
/// be written to.
class Layout {
public:
  /// That of a tensor which has passed them.
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

/// How a tensor is asked for.
struct Asking {
  /// What messages call it.
  const char *argument = "";
  /// Keeps the memory for as long as the Tensor lives, also when the object
  /// goes or gets other memory.
  bool keep = false;
  /// The memory is written.
  bool write = false;
  /// On a GPU: the stream that uses the memory.
  void *stream = nullptr;
  /// One that need not be checked again; null for none.
  const Layout *known = nullptr;
};

/// A tensor of some framework, as DLPack tells of it.
class Tensor {
public:
  Tensor() = default;
  Tensor(const Tensor &) = delete;
  Tensor &operator=(const Tensor &) = delete;
  ~Tensor() {
    if (isHeld())
      release();
  }

  /// False with an exception set. Calls functions of the object's framework.
  bool read(PyObject *object, const Asking &asking);
  /// The same of one that is described: sizes and memory stay whoever's they
  /// are.
  bool borrow(const DLTensor &described, const Asking &asking);
  void reset() {
    if (isHeld())
      release();
    tensor = {};
  }

  /// Whether the memory that was read is no more the tensor's: its storage was
  /// released or has other memory. Only kept tensors of PyTorch can lose
  /// memory; for all others the answer is false.
  bool hasLostMemory() const;

  const DLTensor &get() const { return tensor; }
  void *data() const {
    return static_cast<char *>(tensor.data) + tensor.byte_offset;
  }
  /// As moert.h has it: "bf16".
  const char *dtype() const { return dtypeName; }
  /// Whether the layout is the one that was known.
  bool isKnown() const { return isKnownLayout; }
  /// Bytes from the first element to behind the last one.
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
  /// An array of NumPy's that has no DLPack.
  Ref array;
  /// A tensor of PyTorch whose memory is kept, and the functions of its type.
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
