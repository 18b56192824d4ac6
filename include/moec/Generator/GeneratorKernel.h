//===- GeneratorKernel.h - the generator as a kernel ------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The generator as kernels, which makes full-size weights directly on the
// device.
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_GENERATOR_GENERATORKERNEL_H
#define MOEC_GENERATOR_GENERATORKERNEL_H

#include "mlir/IR/MLIRContext.h"
#include "mlir/IR/OwningOpRef.h"
#include "moec/Compiler/Compiler.h"
#include "moec/Generator/Generator.h"

namespace moec {

/// A module with the kernels of the generator, one per element type, in scf,
/// arith and memref, the form after `convert-tile-to-vector` (for "cpu") or
/// `convert-tile-to-nvvm`. Null, with an error reported to the context, only if
/// it does not verify.
mlir::OwningOpRef<mlir::ModuleOp> buildGenerator(mlir::MLIRContext &context,
                                                 llvm::StringRef target);

/// The generator, loaded on a device.
class DeviceGenerator {
public:
  /// `target` is the device's target. `context` has the dialects of
  /// registerDialects() and is not used later.
  static moert::Result<DeviceGenerator> create(mlir::MLIRContext &context,
                                               moert::Device &device,
                                               llvm::StringRef target);

  /// Writes elements first .. first+count-1 to device memory. Skips `padding`
  /// elements after each `columns`.
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
