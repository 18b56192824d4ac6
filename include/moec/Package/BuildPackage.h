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

/// The layer of a module of any level, for the GPU of the options: PTX, and by
/// ptxas a cubin for each of `architectures`. The module is left at level tile.
/// Fails with a diagnostic, also on target cpu, whose kernels live in the
/// compiler's process alone.
mlir::FailureOr<moert::Package>
buildPackage(mlir::ModuleOp module, const std::optional<LayerSpec> &spec,
             const CompileOptions &options,
             llvm::ArrayRef<std::string> architectures = {});

/// What to assemble kernels of the options' target for, so that they load
/// fastest on a GPU of `architecture` ("sm_90"; empty: of the target): nothing
/// where there is no ptxas.
std::vector<std::string> chooseArchitectures(const CompileOptions &options,
                                             llvm::StringRef architecture = {});

/// The target with the fastest schedules that a GPU of `architecture` ("sm_90")
/// runs; empty if none does.
std::string chooseTarget(llvm::StringRef architecture);

/// The part that `device` is, for CompileOptions::part, where it runs code for
/// `target`: empty for a target whose choices depend on no part, for a device
/// that does not tell what it has, and for a part whose coefficients were
/// measured on another one, so that the target's default counts.
std::string choosePart(llvm::StringRef target, const moert::Device &device);

} // namespace moec

#endif // MOEC_PACKAGE_BUILDPACKAGE_H
