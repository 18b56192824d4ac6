//===- DLPack.h - the DLPack ABI --------------------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The structures of DLPack 1.3 (https://github.com/dmlc/dlpack), the data
// interface between frameworks and this module. Names are DLPack's.
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_PYTHON_DLPACK_H
#define MOEC_PYTHON_DLPACK_H

#include <cstdint>

namespace moec::python {

struct DLDevice {
  int32_t device_type;
  int32_t device_id;
};

/// Values of DLDevice::device_type.
enum : int32_t {
  kDLCPU = 1,
  kDLCUDA = 2,
  kDLCUDAHost = 3,
  kDLCUDAManaged = 13,
};

struct DLDataType {
  uint8_t code;
  uint8_t bits;
  uint16_t lanes;
};

struct DLTensor {
  void *data;
  DLDevice device;
  int32_t ndim;
  DLDataType dtype;
  int64_t *shape;
  /// In elements. Before DLPack 1.2 null means a contiguous tensor.
  int64_t *strides;
  uint64_t byte_offset;
};

/// Contents of a capsule named "dltensor".
struct DLManagedTensor {
  DLTensor dl_tensor;
  void *manager_ctx;
  void (*deleter)(DLManagedTensor *self);
};

struct DLPackVersion {
  uint32_t major;
  uint32_t minor;
};

inline constexpr uint32_t kDLPackMajor = 1;
inline constexpr uint32_t kDLPackMinor = 3;
inline constexpr uint64_t kDLPackReadOnly = 1;

/// Contents of a capsule named "dltensor_versioned".
struct DLManagedTensorVersioned {
  DLPackVersion version;
  void *manager_ctx;
  void (*deleter)(DLManagedTensorVersioned *self);
  uint64_t flags;
  DLTensor dl_tensor;
};

struct DLPackExchangeAPIHeader {
  DLPackVersion version;
  /// API of an older major version, or null.
  DLPackExchangeAPIHeader *prev_api;
};

/// Contents of the capsule "dlpack_exchange_api" of a tensor type. Functions
/// return 0, or -1 with a Python exception set.
struct DLPackExchangeAPI {
  DLPackExchangeAPIHeader header;
  int (*managed_tensor_allocator)(DLTensor *prototype,
                                  DLManagedTensorVersioned **out,
                                  void *error_ctx,
                                  void (*set_error)(void *error_ctx,
                                                    const char *kind,
                                                    const char *message));
  int (*managed_tensor_from_py_object_no_sync)(void *object,
                                               DLManagedTensorVersioned **out);
  int (*managed_tensor_to_py_object_no_sync)(DLManagedTensorVersioned *tensor,
                                             void **object);
  /// The tensor stays owned by the object. May be null.
  int (*dltensor_from_py_object_no_sync)(void *object, DLTensor *out);
  int (*current_work_stream)(int32_t device_type, int32_t device_id,
                             void **stream);
};

static_assert(sizeof(DLTensor) == 48 && sizeof(DLManagedTensor) == 64 &&
                  sizeof(DLManagedTensorVersioned) == 80 &&
                  sizeof(DLPackExchangeAPI) == 56,
              "layouts are those of DLPack 1.3 on a machine of 64 bits");

} // namespace moec::python

#endif // MOEC_PYTHON_DLPACK_H
