//===- GeneratorKernel.cpp - the generator as a kernel ----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/Generator/GeneratorKernel.h"

#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"
#include "llvm/Support/FormatVariadic.h"

#include <cstring>

using namespace mlir;
using namespace moec;
using moert::Result;
using moert::Status;

namespace {

/// Elements and threads of a CTA.
constexpr int64_t kElements = 4096;
constexpr int64_t kThreads = 256;

/// One kernel. {0}: name, {1}: type of the stored bits, {2}: the last parameter
/// of a kernel on the host, {3}: attributes, {4}: defines %cta, %thread and
/// %step, {5}: from the f32 %value to %element.
constexpr char kKernel[] = R"(
func.func @{0}(%out: memref<?x{1}>, %key: i64, %first: i64, %count: i64,
               %factor_bits: i64, %columns: i64, %padding: i64, %shift: i64{2}) attributes {{ moec.kernel{3} } {{
  {4}
  %c0 = arith.constant 0 : index
  %size = arith.constant {6} : index
  %one = arith.constant 1 : i64
  %golden = arith.constant 0x9E3779B97F4A7C15 : i64
  %factor1 = arith.constant 0xBF58476D1CE4E5B9 : i64
  %factor2 = arith.constant 0x94D049BB133111EB : i64
  %s16 = arith.constant 16 : i64
  %s27 = arith.constant 27 : i64
  %s30 = arith.constant 30 : i64
  %s31 = arith.constant 31 : i64
  %s32 = arith.constant 32 : i64
  %mask = arith.constant 0x0000FFFF0000FFFF : i64
  %mean = arith.constant 131070 : i32
  %factor32 = arith.trunci %factor_bits : i64 to i32
  %factor = arith.bitcast %factor32 : i32 to f32
  %begin = arith.muli %cta, %size : index
  %count_index = arith.index_cast %count : i64 to index
  scf.for %j = %thread to %size step %step {{
    %i = arith.addi %begin, %j : index
    %exists = arith.cmpi ult, %i, %count_index : index
    scf.if %exists {{
      %i64 = arith.index_cast %i : index to i64
      %index = arith.addi %first, %i64 : i64
      %next = arith.addi %index, %one : i64
      %scaled = arith.muli %next, %golden : i64
      %z0 = arith.addi %key, %scaled : i64
      %h0 = arith.shrui %z0, %s30 : i64
      %x0 = arith.xori %z0, %h0 : i64
      %z1 = arith.muli %x0, %factor1 : i64
      %h1 = arith.shrui %z1, %s27 : i64
      %x1 = arith.xori %z1, %h1 : i64
      %z2 = arith.muli %x1, %factor2 : i64
      %h2 = arith.shrui %z2, %s31 : i64
      %bits = arith.xori %z2, %h2 : i64
      %even = arith.andi %bits, %mask : i64
      %upper = arith.shrui %bits, %s16 : i64
      %odd = arith.andi %upper, %mask : i64
      %pair = arith.addi %even, %odd : i64
      %low = arith.trunci %pair : i64 to i32
      %shifted = arith.shrui %pair, %s32 : i64
      %high = arith.trunci %shifted : i64 to i32
      %all = arith.addi %low, %high : i32
      %centered = arith.subi %all, %mean : i32
      %shift32 = arith.trunci %shift : i64 to i32
      %sum = arith.addi %centered, %shift32 : i32
      %float = arith.sitofp %sum : i32 to f32
      %value = arith.mulf %float, %factor : f32
      {5}
      %row = arith.divui %i64, %columns : i64
      %skipped = arith.muli %row, %padding : i64
      %place = arith.addi %i64, %skipped : i64
      %at = arith.index_cast %place : i64 to index
      memref.store %element, %out[%at] : memref<?x{1}>
    }
  }
  return
}
)";

constexpr char kAsF32[] = "%element = arith.bitcast %value : f32 to i32";

constexpr char kAsF16[] = R"(
      %half = arith.truncf %value : f32 to f16
      %element = arith.bitcast %half : f16 to i16)";

// Rounded by integer operations, since values are finite and not every target
// has the instruction.
constexpr char kAsBF16[] = R"(
      %b = arith.bitcast %value : f32 to i32
      %c16 = arith.constant 16 : i32
      %c1 = arith.constant 1 : i32
      %half = arith.constant 0x7FFF : i32
      %kept = arith.shrui %b, %c16 : i32
      %odd_bit = arith.andi %kept, %c1 : i32
      %up = arith.addi %half, %odd_bit : i32
      %rounded = arith.addi %b, %up : i32
      %top = arith.shrui %rounded, %c16 : i32
      %element = arith.trunci %top : i32 to i16)";

// Likewise: 3 of 23 mantissa bits stay; below 2^-6 values are multiples of
// 2^-9, the last bit of 2^14.
constexpr char kAsE4M3[] = R"(
      %b = arith.bitcast %value : f32 to i32
      %c20 = arith.constant 20 : i32
      %c24 = arith.constant 24 : i32
      %c1 = arith.constant 1 : i32
      %digits = arith.constant 0x7FFFFFFF : i32
      %half = arith.constant 0x7FFFF : i32
      %bias = arith.constant 960 : i32
      %least = arith.constant 0x3C800000 : i32
      %anchor = arith.constant 16384.0 : f32
      %anchor_bits = arith.constant 0x46800000 : i32
      %sign_bit = arith.constant 0x80 : i32
      %magnitude = arith.andi %b, %digits : i32
      %kept = arith.shrui %magnitude, %c20 : i32
      %odd_bit = arith.andi %kept, %c1 : i32
      %up = arith.addi %half, %odd_bit : i32
      %rounded = arith.addi %magnitude, %up : i32
      %top = arith.shrui %rounded, %c20 : i32
      %normal = arith.subi %top, %bias : i32
      %absolute = arith.bitcast %magnitude : i32 to f32
      %anchored = arith.addf %absolute, %anchor : f32
      %anchored_bits = arith.bitcast %anchored : f32 to i32
      %small = arith.subi %anchored_bits, %anchor_bits : i32
      %is_small = arith.cmpi ult, %magnitude, %least : i32
      %code = arith.select %is_small, %small, %normal : i32
      %moved = arith.shrui %b, %c24 : i32
      %sign = arith.andi %moved, %sign_bit : i32
      %both = arith.ori %code, %sign : i32
      %element = arith.trunci %both : i32 to i8)";

// Values are finite; the sign is dropped.
constexpr char kAsE8M0[] = R"(
      %b = arith.bitcast %value : f32 to i32
      %c23 = arith.constant 23 : i32
      %exponent = arith.shrui %b, %c23 : i32
      %element = arith.trunci %exponent : i32 to i8)";

// Next to 1.5 * 2^23 floats are integers, counted by the low bits.
constexpr char kAsI8[] = R"(
      %anchor = arith.constant 12582912.0 : f32
      %anchored = arith.addf %value, %anchor : f32
      %b = arith.bitcast %anchored : f32 to i32
      %element = arith.trunci %b : i32 to i8)";

constexpr char kOnCpu[] = R"(
  %thread = arith.constant 0 : index
  %step = arith.constant 1 : index)";

constexpr char kOnGpu[] = R"(
  %ctaid = nvvm.read.ptx.sreg.ctaid.x : i32
  %tid = nvvm.read.ptx.sreg.tid.x : i32
  %cta = arith.index_castui %ctaid : i32 to index
  %thread = arith.index_castui %tid : i32 to index
  %step = arith.constant 256 : index)";
static_assert(kThreads == 256, "the step of kOnGpu");

const char *getKernelName(moert::DType dtype) {
  return dtype == moert::DType::F32      ? "generate_f32"
         : dtype == moert::DType::BF16   ? "generate_bf16"
         : dtype == moert::DType::F16    ? "generate_f16"
         : dtype == moert::DType::F8E4M3 ? "generate_f8e4m3"
         : dtype == moert::DType::F8E8M0 ? "generate_f8e8m0"
                                         : "generate_i8";
}

std::string printGenerator(bool isGpu) {
  std::string text;
  auto add = [&](moert::DType dtype, const char *bits, const char *element) {
    text += llvm::formatv(
        kKernel, getKernelName(dtype), bits, isGpu ? "" : ", %cta: index",
        isGpu ? llvm::formatv(", moec.block = {0} : i64", kThreads).str() : "",
        isGpu ? kOnGpu : kOnCpu, element, kElements);
  };
  add(moert::DType::F32, "i32", kAsF32);
  add(moert::DType::BF16, "i16", kAsBF16);
  add(moert::DType::F16, "i16", kAsF16);
  add(moert::DType::F8E4M3, "i8", kAsE4M3);
  add(moert::DType::F8E8M0, "i8", kAsE8M0);
  add(moert::DType::I8, "i8", kAsI8);
  return text;
}

FailureOr<std::string> emitPtx(MLIRContext &context, StringRef target) {
  OwningOpRef<ModuleOp> module = buildGenerator(context, target);
  if (!module)
    return failure();
  PassManager manager(&context);
  buildTileToNVVMPipeline(manager, target);
  if (failed(manager.run(*module)))
    return failure();
  return emitPTX(*module, NvptxOptions{target.str()});
}

FailureOr<moert::ModuleImage> compile(MLIRContext &context, StringRef target) {
  if (target != "cpu") {
    FailureOr<std::string> ptx = emitPtx(context, target);
    if (failed(ptx))
      return failure();
    // The driver assembles six small kernels fast enough.
    moert::ModuleImage image;
    image.kind = moert::ModuleImage::Kind::Ptx;
    image.modules.emplace_back(ptx->begin(), ptx->end());
    return image;
  }
  OwningOpRef<ModuleOp> module = buildGenerator(context, target);
  if (!module)
    return failure();
  PassManager manager(&context);
  buildTileToLLVMPipeline(manager);
  if (failed(manager.run(*module)))
    return failure();
  return jitKernels(*module, CpuTargetOptions());
}

} // namespace

OwningOpRef<ModuleOp> moec::buildGenerator(MLIRContext &context,
                                           StringRef target) {
  return parseSourceString<ModuleOp>(printGenerator(target != "cpu"), &context,
                                     "generator");
}

Result<DeviceGenerator> DeviceGenerator::create(MLIRContext &context,
                                                moert::Device &device,
                                                StringRef target) {
  FailureOr<moert::ModuleImage> image = compile(context, target);
  if (failed(image))
    return moert::internalError("the generator does not compile for '" +
                                target.str() + "'");
  Result<std::unique_ptr<moert::Module>> module = device.loadModule(*image);
  if (!module)
    return module.status().withContext("generator");
  DeviceGenerator generator(device);
  generator.module = std::move(*module);
  return generator;
}

Status DeviceGenerator::write(moert::Stream &stream, const RandomTensor &tensor,
                              int64_t first, int64_t count, void *to,
                              int64_t columns, int64_t padding) {
  Result<moert::Kernel *> kernel = module->kernel(getKernelName(tensor.dtype));
  if (!kernel)
    return kernel.status();
  uint32_t factor;
  std::memcpy(&factor, &tensor.factor, sizeof(factor));
  uint64_t args[] = {reinterpret_cast<uintptr_t>(to),
                     tensor.stream.getKey(),
                     static_cast<uint64_t>(first),
                     static_cast<uint64_t>(count),
                     factor,
                     static_cast<uint64_t>(columns),
                     static_cast<uint64_t>(padding),
                     static_cast<uint64_t>(static_cast<int64_t>(tensor.shift))};
  moert::LaunchDims dims;
  dims.grid = (count + kElements - 1) / kElements;
  dims.block = kThreads;
  if (dims.grid == 0)
    return Status::ok();
  return device->launch(stream, **kernel, dims, {args, std::size(args)});
}
