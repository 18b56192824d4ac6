//===- Objects.cpp - objects of a CUDA device -------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Objects.h"
#include "../support/Check.h"
#include "KernelNames.h"
#include "Retained.h"

#include <algorithm>

namespace moert::cuda {

CudaBuffer::~CudaBuffer() {
  if (handle)
    context->finallyWithin([&] { (void)context->driver().cuMemFree(handle); });
}

CudaStream::~CudaStream() {
  if (!handle || !isOurs)
    return;
  context->finallyWithin(
      [&] { (void)context->driver().cuStreamDestroy(handle); });
  // Destroying an executor destroys its streams, so objects are freed here.
  freeReleased();
}

CudaEvent::~CudaEvent() {
  if (handle)
    context->finallyWithin(
        [&] { (void)context->driver().cuEventDestroy(handle); });
}

CudaGraph::~CudaGraph() {
  if (!handle)
    return;
  context->finallyWithin(
      [&] { (void)context->driver().cuGraphExecDestroy(handle); });
  freeReleased();
}

CudaModule::~CudaModule() {
  if (!handle.empty())
    context->finallyWithin([&] {
      for (CUmodule module : handle)
        (void)context->driver().cuModuleUnload(module);
    });
}

Result<CUfunction> CudaModule::findFunction(const std::string &name) const {
  const Driver &driver = context->driver();
  CUfunction function = nullptr;
  // Avoid failing look-ups, which tools that watch the driver report as errors.
  if (auto found = moduleOf.find(name); found != moduleOf.end()) {
    MOERT_CUDA(driver, cuModuleGetFunction,
               (&function, found->second, name.c_str()));
    return function;
  }
  for (CUmodule module : others) {
    CUresult code = driver.cuModuleGetFunction(&function, module, name.c_str());
    if (code == CUDA_SUCCESS)
      return function;
    if (code != CUDA_ERROR_NOT_FOUND)
      return driver.check(code, "cuModuleGetFunction");
  }
  return notFound("no module contains it; compile module and plan together");
}

void CudaModule::add(CUmodule module, const std::vector<std::string> &names) {
  handle.push_back(module);
  if (names.empty())
    others.push_back(module);
  for (const std::string &name : names)
    moduleOf[name] = module;
}

Result<Kernel *> CudaModule::kernel(const std::string &name) {
  std::lock_guard<std::mutex> lock(mutex);
  std::unique_ptr<CudaKernel> &slot = kernels[name];
  if (slot)
    return static_cast<Kernel *>(slot.get());
  const Driver &driver = context->driver();
  Status status = context->within([&]() -> Status {
    Result<CUfunction> function = findFunction(name);
    if (!function)
      return function.status();
    // The driver may load a kernel lazily at its first query: force that now,
    // since it must not happen during stream capture.
    int maxThreads = 0;
    MOERT_CUDA(
        driver, cuFuncGetAttribute,
        (&maxThreads, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, *function));
    slot = std::make_unique<CudaKernel>(name, *function, maxThreads);
    return Status::ok();
  });
  if (!status)
    return status.withContext("kernel '" + name + "'");
  return static_cast<Kernel *>(slot.get());
}

int neededDriver(const std::string &ptx) {
  size_t at = ptx.find(".version");
  if (at == std::string::npos)
    return 0;
  int major = 0, minor = 0;
  // Two digits fit.
  // NOLINTNEXTLINE(bugprone-unchecked-string-to-number-conversion)
  if (sscanf(ptx.c_str() + at, ".version %2d.%2d", &major, &minor) != 2)
    return 0;
  // PTX 7.0 came with CUDA 11.0, 8.0 with 12.0; from 8.6 on the minor versions
  // differ.
  if (major == 7 && minor <= 8)
    return 11000 + 10 * minor;
  if (major == 8)
    return 12000 + 10 * (minor <= 5 ? minor : minor + 1);
  if (major == 9)
    return 13000 + 10 * minor;
  return 0;
}

static std::string cudaVersion(int version) {
  return std::to_string(version / 1000) + "." +
         std::to_string(version % 1000 / 10);
}

/// Loads one file into `module`. The driver takes PTX as a zero-terminated
/// string.
static Status loadFile(const Context &context, ModuleImage::Kind kind,
                       const std::string &text, int driverVersion,
                       CUmodule &module) {
  if (kind == ModuleImage::Kind::Ptx)
    if (int needed = neededDriver(text); needed > driverVersion)
      return unavailable(
          "the PTX needs a driver of CUDA " + cudaVersion(needed) +
          " or newer, but this one is of " + cudaVersion(driverVersion) +
          "; update the driver, or compile to cubin by ptxas");
  char log[4096] = "";
  CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER,
                            CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  // NOLINTNEXTLINE(performance-no-int-to-ptr): the driver takes it as one.
  void *values[] = {log, reinterpret_cast<void *>(sizeof(log) - 1)};
  CUresult code = context.driver().cuModuleLoadDataEx(&module, text.c_str(), 2,
                                                      options, values);
  if (code == CUDA_SUCCESS)
    return Status::ok();
  Status status = context.driver().check(code, "cuModuleLoadDataEx");
  std::string said = log;
  while (!said.empty() && (said.back() == '\n' || said.back() == ' '))
    said.pop_back();
  if (said.empty())
    return status;
  return Status(status.code(),
                status.message() + "; the driver's compiler says: " + said);
}

Result<std::unique_ptr<Module>>
loadModule(const std::shared_ptr<const Context> &context,
           const ModuleImage &image, int driverVersion) {
  bool hasAll = !image.modules.empty() &&
                std::none_of(image.modules.begin(), image.modules.end(),
                             [](const auto &bytes) { return bytes.empty(); });
  if (image.kind == ModuleImage::Kind::HostFunctions || !hasAll)
    return invalidArgument(std::string("loadModule: the image holds ") +
                           (image.kind == ModuleImage::Kind::HostFunctions
                                ? moduleImageKindName(image.kind)
                                : "no module, or one without bytes") +
                           ", but a GPU takes cubin or PTX; compile for "
                           "the target sm_80 or another GPU target");
  auto made = std::make_unique<CudaModule>(context);
  Status status = context->within([&]() -> Status {
    for (size_t i = 0; i < image.modules.size(); ++i) {
      std::string text(image.modules[i].begin(), image.modules[i].end());
      CUmodule module = nullptr;
      if (Status loaded =
              loadFile(*context, image.kind, text, driverVersion, module);
          !loaded)
        return loaded.withContext(std::string("loadModule (") +
                                  moduleImageKindName(image.kind) + ", " +
                                  std::to_string(i + 1) + " of " +
                                  std::to_string(image.modules.size()) + ")");
      made->add(module, findKernelNames(image.kind, text));
    }
    return Status::ok();
  });
  if (!status)
    return status;
  return std::unique_ptr<Module>(std::move(made));
}

//===----------------------------------------------------------------------===//
// Tensor maps
//===----------------------------------------------------------------------===//

static CUtensorMapDataType tensorMapType(DType dtype) {
  switch (dtype) {
  case DType::F64:
    return CU_TENSOR_MAP_DATA_TYPE_FLOAT64;
  case DType::F32:
    return CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
  case DType::BF16:
    return CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
  case DType::F16:
    return CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
  case DType::I64:
    return CU_TENSOR_MAP_DATA_TYPE_INT64;
  case DType::U64:
    return CU_TENSOR_MAP_DATA_TYPE_UINT64;
  case DType::I32:
    return CU_TENSOR_MAP_DATA_TYPE_INT32;
  case DType::U32:
    return CU_TENSOR_MAP_DATA_TYPE_UINT32;
  case DType::I16:
  case DType::U16:
    return CU_TENSOR_MAP_DATA_TYPE_UINT16;
  case DType::F8E4M3:
  case DType::F8E5M2:
  case DType::F8E8M0:
  case DType::F4E2M1:
  case DType::I8:
  case DType::U8:
  case DType::Bool:
    return CU_TENSOR_MAP_DATA_TYPE_UINT8;
  }
  return CU_TENSOR_MAP_DATA_TYPE_UINT8;
}

static Result<CUtensorMapSwizzle> tensorMapSwizzle(int64_t bytes) {
  switch (bytes) {
  case 0:
    return CU_TENSOR_MAP_SWIZZLE_NONE;
  case 32:
    return CU_TENSOR_MAP_SWIZZLE_32B;
  case 64:
    return CU_TENSOR_MAP_SWIZZLE_64B;
  case 128:
    return CU_TENSOR_MAP_SWIZZLE_128B;
  default:
    return invalidArgument("encodeTensorMap: swizzle of " +
                           std::to_string(bytes) +
                           " bytes; 0, 32, 64 or 128 is accepted");
  }
}

Result<TensorMap> encodeTensorMap(const Driver &driver,
                                  const TensorMapRecipe &recipe) {
  constexpr size_t kMaxRank = 5;
  if (!driver.cuTensorMapEncodeTiled)
    return unavailable("encodeTensorMap: this driver has no tensor maps; "
                       "update it to CUDA 12.0 or newer");
  size_t rank = recipe.shape.size();
  if (rank < 1 || rank > kMaxRank || recipe.box.size() != rank ||
      recipe.strideBytes.size() != rank - 1)
    return invalidArgument("encodeTensorMap: rank " + std::to_string(rank) +
                           ", " + std::to_string(recipe.box.size()) +
                           " box sizes and " +
                           std::to_string(recipe.strideBytes.size()) +
                           " strides; a rank from 1 to 5, one box size per "
                           "dimension and one stride less are accepted");
  if (recipe.dtype == DType::F4E2M1)
    return invalidArgument("encodeTensorMap: f4 has no tensor map; describe "
                           "its bytes as u8");
  Result<CUtensorMapSwizzle> swizzle = tensorMapSwizzle(recipe.swizzleBytes);
  if (!swizzle)
    return swizzle.status();
  uint64_t sizes[kMaxRank], strides[kMaxRank];
  uint32_t box[kMaxRank], steps[kMaxRank];
  // The driver's dimensions begin with the innermost.
  for (size_t i = 0; i < rank; ++i) {
    size_t from = rank - 1 - i;
    if (recipe.shape[from] < 1 || recipe.box[from] < 1 ||
        recipe.box[from] > 256)
      return invalidArgument(
          "encodeTensorMap: dimension " + std::to_string(from) + " has size " +
          std::to_string(recipe.shape[from]) + " and box " +
          std::to_string(recipe.box[from]) +
          "; sizes from 1 and boxes from 1 to 256 are accepted");
    sizes[i] = static_cast<uint64_t>(recipe.shape[from]);
    box[i] = static_cast<uint32_t>(recipe.box[from]);
    steps[i] = 1;
    if (i + 1 < rank)
      strides[i] = static_cast<uint64_t>(recipe.strideBytes[from - 1]);
  }
  TensorMap map;
  static_assert(sizeof(map) == 128, "the size that the driver writes");
  MOERT_CUDA(driver, cuTensorMapEncodeTiled,
             (map.opaque, tensorMapType(recipe.dtype),
              static_cast<unsigned>(rank), recipe.data, sizes, strides, box,
              steps, CU_TENSOR_MAP_INTERLEAVE_NONE, *swizzle,
              CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
              CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE));
  return map;
}

} // namespace moert::cuda
