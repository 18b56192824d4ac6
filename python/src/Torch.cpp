//===- Torch.cpp - access to libtorch -------------------------------------===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Torch.h"
#include "TorchTensor.h"

#include <dlfcn.h>
#include <iterator>

using namespace moec::python;

namespace {

/// A function that returns PyTorch's number of a dtype, and the DLPack type.
struct DType {
  const char *getter;
  DLDataType type;
};

} // namespace

static constexpr DType kDTypes[] = {
    {"aoti_torch_dtype_bfloat16", {4, 16, 1}},
    {"aoti_torch_dtype_float16", {2, 16, 1}},
    {"aoti_torch_dtype_float32", {2, 32, 1}},
    {"aoti_torch_dtype_float64", {2, 64, 1}},
    {"aoti_torch_dtype_int8", {0, 8, 1}},
    {"aoti_torch_dtype_int16", {0, 16, 1}},
    {"aoti_torch_dtype_int32", {0, 32, 1}},
    {"aoti_torch_dtype_int64", {0, 64, 1}},
    {"aoti_torch_dtype_uint8", {1, 8, 1}},
    {"aoti_torch_dtype_uint16", {1, 16, 1}},
    {"aoti_torch_dtype_uint32", {1, 32, 1}},
    {"aoti_torch_dtype_uint64", {1, 64, 1}},
    {"aoti_torch_dtype_bool", {6, 8, 1}},
    {"aoti_torch_dtype_complex32", {5, 32, 1}},
    {"aoti_torch_dtype_complex64", {5, 64, 1}},
    {"aoti_torch_dtype_complex128", {5, 128, 1}},
    {"aoti_torch_dtype_float8_e4m3fn", {10, 8, 1}},
    {"aoti_torch_dtype_float8_e4m3fnuz", {11, 8, 1}},
    {"aoti_torch_dtype_float8_e5m2", {12, 8, 1}},
    {"aoti_torch_dtype_float8_e5m2fnuz", {13, 8, 1}},
    {"torch_dtype_float8_e8m0fnu", {14, 8, 1}},
    {"torch_dtype_float4_e2m1fn_x2", {17, 4, 2}},
};

/// The release whose calling conventions kernels and calls use.
static constexpr uint64_t kVersion = uint64_t(2) << 56 | uint64_t(10) << 48;

template <typename Function>
static bool find(void *handle, const char *name, Function *&function) {
  function = reinterpret_cast<Function *>(dlsym(handle, name));
  return function != nullptr;
}

/// The result of a function without arguments; -1 if there is no such function.
static int32_t getNumber(void *handle, const char *name) {
  int32_t (*get)() = nullptr;
  return find(handle, name, get) ? get() : -1;
}

bool Torch::load(const char *path) {
  // The handle of a library also finds functions of its dependencies.
  handle = dlopen(path, RTLD_LAZY | RTLD_NOLOAD);
  if (!handle)
    return false;
  find(handle, "aoti_torch_get_current_cuda_stream",
       aoti_torch_get_current_cuda_stream);
  find(handle, "torch_exception_get_what_without_backtrace", getLatestFailure);
  cpu = getNumber(handle, "aoti_torch_device_type_cpu");
  cuda = getNumber(handle, "aoti_torch_device_type_cuda");
  for (const DType &each : kDTypes) {
    int32_t number = getNumber(handle, each.getter);
    if (number >= 0 && number < int32_t(std::size(dtypes)))
      dtypes[number] = each.type;
  }
#define FIND(name) find(handle, #name, name)
  return cpu >= 0 && cuda >= 0 && FIND(aoti_torch_is_defined) &&
         FIND(aoti_torch_get_data_ptr) && FIND(aoti_torch_get_dim) &&
         FIND(aoti_torch_get_sizes) && FIND(aoti_torch_get_strides) &&
         FIND(aoti_torch_get_storage_offset) &&
         FIND(aoti_torch_get_storage_size) && FIND(aoti_torch_get_dtype) &&
         FIND(aoti_torch_get_device_type) &&
         FIND(aoti_torch_get_device_index) &&
         FIND(aoti_torch_new_tensor_handle) &&
         FIND(aoti_torch_delete_tensor_object) &&
         FIND(aoti_torch_empty_strided) &&
         FIND(aoti_torch_grad_mode_is_enabled) &&
         FIND(aoti_torch_library_init_impl) &&
         ((FIND(torch_library_impl) && FIND(torch_call_dispatcher)) ||
          (FIND(aoti_torch_library_impl) &&
           FIND(aoti_torch_call_dispatcher))) &&
         find(handle, "__cxa_allocate_exception", allocateException) &&
         find(handle, "__cxa_throw", throwException);
#undef FIND
}

bool Torch::addKernel(const char *name, const char *key,
                      TorchKernel kernel) const {
  TorchLibraryHandle library = nullptr;
  // Kernels stay registered until the library is deleted.
  return aoti_torch_library_init_impl("moec", key, "moec/torch.py", 0,
                                      &library) == 0 &&
         (torch_call_dispatcher
              ? torch_library_impl(library, name, kernel, kVersion)
              : aoti_torch_library_impl(library, name, kernel)) == 0;
}

bool Torch::callOperator(const char *name, StableIValue *stack) const {
  return (torch_call_dispatcher
              ? torch_call_dispatcher(name, "", stack, kVersion)
              : aoti_torch_call_dispatcher(name, "", stack)) == 0;
}

bool Torch::failBecause(const char *argument, const char *what) const {
  const char *cause = getLatestFailure ? getLatestFailure() : nullptr;
  return fail(Kind::Value, std::string(argument) + ": " + what +
                               (cause ? ": " + firstLine(cause) : ""));
}

bool Torch::checkStorage(AtenTensorHandle handle, const Tensor &tensor,
                         const char *argument) const {
  int64_t offset = 0, size = 0;
  if (aoti_torch_get_storage_offset(handle, &offset) != 0 ||
      aoti_torch_get_storage_size(handle, &size) != 0)
    return failBecause(argument, "the tensor cannot be read");
  const DLDataType &type = tensor.get().dtype;
  int64_t end = offset * type.bits * type.lanes / 8 + tensor.extent();
  return tensor.extent() == 0 || end <= size ||
         failForStorage(argument, uint64_t(size));
}

bool Torch::describe(AtenTensorHandle handle, const char *argument,
                     DLTensor &tensor) const {
  int64_t rank = 0;
  int32_t dtype = 0, deviceType = 0, deviceIndex = 0;
  tensor = {};
  if (aoti_torch_get_data_ptr(handle, &tensor.data) != 0 ||
      aoti_torch_get_dim(handle, &rank) != 0 ||
      aoti_torch_get_sizes(handle, &tensor.shape) != 0 ||
      aoti_torch_get_strides(handle, &tensor.strides) != 0 ||
      aoti_torch_get_dtype(handle, &dtype) != 0 ||
      aoti_torch_get_device_type(handle, &deviceType) != 0 ||
      aoti_torch_get_device_index(handle, &deviceIndex) != 0)
    return failBecause(argument, "the tensor cannot be read");
  if (dtype >= 0 && dtype < int32_t(std::size(dtypes)))
    tensor.dtype = dtypes[dtype];
  if (tensor.dtype.lanes == 0)
    return fail(Kind::Value, std::string(argument) +
                                 ": the tensor cannot be read: DLPack does not "
                                 "support its dtype; convert the tensor");
  if (deviceType != cpu && deviceType != cuda)
    return fail(Kind::Value, std::string(argument) +
                                 ": the tensor is neither on the CPU nor on a "
                                 "GPU; copy it to the device of the layer");
  tensor.ndim = int32_t(rank);
  tensor.device =
      deviceType == cuda ? DLDevice{kDLCUDA, deviceIndex} : DLDevice{kDLCPU, 0};
  return true;
}
