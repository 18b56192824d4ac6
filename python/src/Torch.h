//===- Torch.h - access to libtorch -----------------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Functions of PyTorch's stable C ABI that operators need, looked up in the
// process at run time, since moec is neither built nor linked with PyTorch.
// Names of functions are PyTorch's.
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_PYTHON_TORCH_H
#define MOEC_PYTHON_TORCH_H

#include "Errors.h"
#include "Tensor.h"

#include <typeinfo>

namespace moec::python {

struct AtenTensorOpaque;
using AtenTensorHandle = AtenTensorOpaque *;
struct TorchLibraryOpaque;
using TorchLibraryHandle = TorchLibraryOpaque *;

/// An operator's argument or result: an int64_t, an AtenTensorHandle, or for an
/// optional value the address of one on the heap, null for none. The receiver
/// owns what it refers to.
using StableIValue = uint64_t;
using TorchKernel = void (*)(StableIValue *stack, uint64_t numArguments,
                             uint64_t numResults);

/// Functions return 0, or another number on failure.
struct Torch {
  /// False if a function is missing, as in releases before 2.9. `path` is that
  /// of the module torch._C.
  bool load(const char *path);

  /// Registers a kernel of "moec" for a dispatch key, permanently.
  bool addKernel(const char *name, const char *key, TorchKernel kernel) const;

  /// Calls an operator, which pops its arguments from the stack and pushes its
  /// results.
  bool callOperator(const char *name, StableIValue *stack) const;

  /// Describes a tensor as DLPack would; the tensor owns the sizes. False with
  /// an exception set about `argument`.
  bool describe(AtenTensorHandle handle, const char *argument,
                DLTensor &tensor) const;
  /// Fails if the storage of a tensor is smaller than the tensor.
  bool checkStorage(AtenTensorHandle handle, const Tensor &tensor,
                    const char *argument) const;
  /// Fails with libtorch's message about its latest failure.
  bool failBecause(const char *argument, const char *what) const;

  int32_t (*aoti_torch_is_defined)(AtenTensorHandle, bool *);
  int32_t (*aoti_torch_get_data_ptr)(AtenTensorHandle, void **);
  int32_t (*aoti_torch_get_dim)(AtenTensorHandle, int64_t *);
  int32_t (*aoti_torch_get_sizes)(AtenTensorHandle, int64_t **);
  int32_t (*aoti_torch_get_strides)(AtenTensorHandle, int64_t **);
  int32_t (*aoti_torch_get_storage_offset)(AtenTensorHandle, int64_t *);
  int32_t (*aoti_torch_get_storage_size)(AtenTensorHandle, int64_t *);
  int32_t (*aoti_torch_get_dtype)(AtenTensorHandle, int32_t *);
  int32_t (*aoti_torch_get_device_type)(AtenTensorHandle, int32_t *);
  int32_t (*aoti_torch_get_device_index)(AtenTensorHandle, int32_t *);
  int32_t (*aoti_torch_new_tensor_handle)(AtenTensorHandle, AtenTensorHandle *);
  int32_t (*aoti_torch_delete_tensor_object)(AtenTensorHandle);
  int32_t (*aoti_torch_empty_strided)(int64_t rank, const int64_t *sizes,
                                      const int64_t *strides, int32_t dtype,
                                      int32_t deviceType, int32_t deviceIndex,
                                      AtenTensorHandle *);
  bool (*aoti_torch_grad_mode_is_enabled)();
  int32_t (*aoti_torch_library_init_impl)(const char *space, const char *key,
                                          const char *file, uint32_t line,
                                          TorchLibraryHandle *);
  /// Null if PyTorch was built without CUDA.
  int32_t (*aoti_torch_get_current_cuda_stream)(int32_t device, void **);

  /// From the C++ runtime that libtorch uses, since kernels throw.
  void *(*allocateException)(size_t);
  void (*throwException)(void *, const std::type_info *, void (*)(void *));

private:
  void *handle = nullptr;
  /// Null before release 2.10, which has the ones below.
  int32_t (*torch_library_impl)(TorchLibraryHandle, const char *name,
                                TorchKernel, uint64_t version);
  int32_t (*torch_call_dispatcher)(const char *name, const char *overload,
                                   StableIValue *stack, uint64_t version);
  int32_t (*aoti_torch_library_impl)(TorchLibraryHandle, const char *name,
                                     TorchKernel);
  int32_t (*aoti_torch_call_dispatcher)(const char *name, const char *overload,
                                        StableIValue *stack);
  /// Null before release 2.13.
  const char *(*getLatestFailure)() = nullptr;
  int32_t cpu = 0, cuda = 0;
  /// Indexed by PyTorch's number of a dtype; 0 lanes if DLPack has no such
  /// type.
  DLDataType dtypes[64] = {};
};

} // namespace moec::python

#endif // MOEC_PYTHON_TORCH_H
