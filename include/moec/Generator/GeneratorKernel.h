//===- GeneratorKernel.h - the generator as a kernel ------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Full-size weights are made where they are needed: on the device.
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_GENERATOR_GENERATORKERNEL_H
#define MOEC_GENERATOR_GENERATORKERNEL_H

#include "mlir/IR/MLIRContext.h"
#include "mlir/IR/OwningOpRef.h"
#include "moec/Compiler/Compiler.h"
#include "moec/Generator/Generator.h"

namespace moec {

/// A module with the kernels of the generator, one per type of element, in
/// scf, arith and memref: what `convert-tile-to-vector` (for "cpu") and
/// `convert-tile-to-nvvm` end with. Null, reported to the context, only if it
/// does not verify.
mlir::OwningOpRef<mlir::ModuleOp> buildGenerator(mlir::MLIRContext &context,
                                                 llvm::StringRef target);

/// The generator, loaded on a device.
class DeviceGenerator {
public:
  /// `target` is what the device runs; `context` has the dialects of
  /// registerDialects() and is not used later.
  static moert::Result<DeviceGenerator> create(mlir::MLIRContext &context,
                                               moert::Device &device,
                                               llvm::StringRef target);

  /// Writes elements first .. first+count-1 to device memory. After each
  /// `columns` of them `padding` elements are left as they are.
  moert::Status write(moert::Stream &stream, const RandomTensor &tensor,
                      int64_t first, int64_t count, void *to,
                      int64_t columns = 1, int64_t padding = 0);

private:
  DeviceGenerator(moert::Device &device) : device(&device) {}

  moert::Device *device;
  std::unique_ptr<moert::Module> module;
};

} // namespace moec

#endif // MOEC_GENERATOR_GENERATORKERNEL_H
