//===- KernelHarness.cpp - one kernel through the JIT -----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "KernelHarness.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"
#include "moec/Dialect/Tile/Tile.h"
#include "llvm/ADT/APFloat.h"
#include "gtest/gtest.h"

#include <cmath>
#include <cstring>
#include <random>
#include <sys/mman.h>
#include <unistd.h>

using namespace mlir;
using namespace moec;
using namespace moec::test;
using moert::DType;

//===----------------------------------------------------------------------===//
// Array
//===----------------------------------------------------------------------===//

Array::Array(DType dtype, std::vector<int64_t> shape)
    : dtype(dtype), shape(std::move(shape)), count(1) {
  for (int64_t size : this->shape)
    count *= size;
  size_t page = sysconf(_SC_PAGESIZE);
  size_t bytes = count * moert::dtypeBits(dtype) / 8;
  size_t usable = (bytes + page - 1) / page * page;
  mapped = usable + page;
  mapping = mmap(nullptr, mapped, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  mprotect(static_cast<char *>(mapping) + usable, page, PROT_NONE);
  base = static_cast<char *>(mapping) + usable - bytes;
}

Array::Array(Array &&other)
    : dtype(other.dtype), shape(std::move(other.shape)), count(other.count),
      mapping(other.mapping), mapped(other.mapped), base(other.base) {
  other.mapping = nullptr;
}

Array::~Array() {
  if (mapping)
    munmap(mapping, mapped);
}

std::string Array::getType(bool dynamic) const {
  std::string text = "memref<";
  for (size_t i = 0; i < shape.size(); ++i)
    text += (dynamic && i == 0 ? "?" : std::to_string(shape[i])) + "x";
  return text +
         (dtype == DType::F8E4M3 ? "f8E4M3FN" : moert::dtypeName(dtype)) + ">";
}

static const llvm::fltSemantics &getSemantics(DType dtype) {
  if (dtype == DType::F8E4M3)
    return llvm::APFloat::Float8E4M3FN();
  return dtype == DType::BF16 ? llvm::APFloat::BFloat()
                              : llvm::APFloat::IEEEhalf();
}

double Array::get(int64_t i) const {
  switch (dtype) {
  case DType::F32:
    return static_cast<const float *>(base)[i];
  case DType::I32:
    return static_cast<const int32_t *>(base)[i];
  case DType::F8E4M3:
    return llvm::APFloat(getSemantics(dtype),
                         llvm::APInt(8, static_cast<const uint8_t *>(base)[i]))
        .convertToDouble();
  default:
    llvm::APFloat value(
        getSemantics(dtype),
        llvm::APInt(16, static_cast<const uint16_t *>(base)[i]));
    return value.convertToDouble();
  }
}

void Array::set(int64_t i, double value) {
  switch (dtype) {
  case DType::F32:
    static_cast<float *>(base)[i] = static_cast<float>(value);
    return;
  case DType::I32:
    static_cast<int32_t *>(base)[i] = static_cast<int32_t>(value);
    return;
  default: {
    // Through f32, like all values in kernels.
    llvm::APFloat rounded(static_cast<float>(value));
    bool losesInfo;
    rounded.convert(getSemantics(dtype), llvm::APFloat::rmNearestTiesToEven,
                    &losesInfo);
    uint64_t bits = rounded.bitcastToAPInt().getZExtValue();
    if (dtype == DType::F8E4M3)
      static_cast<uint8_t *>(base)[i] = static_cast<uint8_t>(bits);
    else
      static_cast<uint16_t *>(base)[i] = static_cast<uint16_t>(bits);
  }
  }
}

void Array::fill(double value) {
  for (int64_t i = 0; i < count; ++i)
    set(i, value);
}

void Array::randomize(unsigned seed) {
  std::mt19937 engine(seed);
  std::uniform_real_distribution<double> distribution(-1.0, 1.0);
  for (int64_t i = 0; i < count; ++i)
    set(i, distribution(engine));
}

double Array::round(DType dtype, double value) {
  Array one(dtype, {1});
  one.set(0, value);
  return one.get(0);
}

//===----------------------------------------------------------------------===//
// CompiledKernels
//===----------------------------------------------------------------------===//

CompiledKernels::CompiledKernels(const std::string &text,
                                 const std::string &cpu)
    : cpu(cpu), context(std::make_unique<MLIRContext>()) {
  context->loadDialect<tile::TileDialect>();
  context->disableMultithreading();
  ScopedDiagnosticHandler handler(context.get(), [&](Diagnostic &diagnostic) {
    errors += diagnostic.str() + "\n";
    return success();
  });
  module = parseSourceString<ModuleOp>(text, context.get());
  if (!module)
    return;
  PassManager manager(context.get());
  buildTileToLLVMPipeline(manager);
  if (failed(manager.run(*module)))
    return;
  auto image = jitKernels(*module, {cpu});
  if (failed(image))
    return;
  auto host = moert::createHostDevice(2);
  if (!host) {
    errors += host.status().toString();
    return;
  }
  device = std::move(*host);
  auto result = device->loadModule(*image);
  if (!result)
    errors += result.status().toString();
  else
    loaded = std::move(*result);
}

std::string CompiledKernels::getAssembly() {
  auto text = printAssembly(*module, {cpu});
  return succeeded(text) ? *text : std::string();
}

void CompiledKernels::run(const std::string &name, int64_t grid,
                          const std::vector<const Array *> &arrays,
                          int64_t tokens) {
  ASSERT_TRUE(isOk()) << errors;
  std::vector<uint64_t> args;
  for (const Array *array : arrays)
    args.push_back(reinterpret_cast<uint64_t>(array->data()));
  args.push_back(static_cast<uint64_t>(tokens));
  auto kernel = loaded->kernel(name);
  ASSERT_TRUE(kernel) << kernel.status().toString();
  auto stream = device->createStream();
  ASSERT_TRUE(stream);
  moert::Status status =
      device->launch(**stream, **kernel, {grid}, {args.data(), args.size()});
  ASSERT_TRUE(status) << status.toString();
  status = device->synchronize(**stream);
  ASSERT_TRUE(status) << status.toString();
}

void moec::test::expectClose(const Array &actual,
                             const std::vector<double> &expected,
                             double tolerance) {
  ASSERT_EQ(actual.size(), static_cast<int64_t>(expected.size()));
  double square = 0;
  for (double value : expected)
    square += value * value;
  double scale = std::sqrt(square / std::max<size_t>(expected.size(), 1));
  int failures = 0;
  for (int64_t i = 0; i < actual.size() && failures < 5; ++i) {
    double bound = tolerance * (std::fabs(expected[i]) + scale);
    // Negated so that NaN fails.
    if (!(std::fabs(actual.get(i) - expected[i]) <= bound)) {
      ++failures;
      ADD_FAILURE() << "element " << i << " is " << actual.get(i)
                    << ", expected " << expected[i];
    }
  }
}
