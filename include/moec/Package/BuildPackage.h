//===- BuildPackage.h - a compiled layer as a package -----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_PACKAGE_BUILDPACKAGE_H
#define MOEC_PACKAGE_BUILDPACKAGE_H

#include "moec/Compiler/Compiler.h"
#include "moert/Package.h"

namespace moec {

/// The layer of a module of any level, for the GPU of the options: PTX and,
/// where ptxas is found, a cubin for each of `architectures`, or for the target
/// itself if there are none. The module is left at level tile. Fails with a
/// diagnostic, also on target cpu, whose kernels live in the compiler's process
/// alone.
mlir::FailureOr<moert::Package>
buildPackage(mlir::ModuleOp module, const std::optional<LayerSpec> &spec,
             const CompileOptions &options,
             llvm::ArrayRef<std::string> architectures = {});

/// PTX of `target` in the form that loads fastest on a GPU of `architecture`: a
/// cubin by ptxas where that is found, else as it is, for the driver's
/// compiler.
mlir::FailureOr<moert::ModuleImage> makeImage(mlir::Operation *op,
                                              const std::string &ptx,
                                              llvm::StringRef target,
                                              llvm::StringRef architecture);

/// The target with the fastest schedules that a GPU of `architecture` ("sm_90")
/// runs; empty if none does.
std::string chooseTarget(llvm::StringRef architecture);

} // namespace moec

#endif // MOEC_PACKAGE_BUILDPACKAGE_H
