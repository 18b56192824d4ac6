//===- BuildPackage.h - compiles a layer to a package -----------*- C++ -*-===//
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

/// Compiles a module of any level for the GPU of the options: PTX, and a cubin
/// by ptxas for each of `architectures`. The module is left at level tile.
/// Fails with a diagnostic; also for target cpu, whose kernels exist only in
/// the compiler's process.
mlir::FailureOr<moert::Package>
buildPackage(mlir::ModuleOp module, const std::optional<LayerSpec> &spec,
             const CompileOptions &options,
             llvm::ArrayRef<std::string> architectures = {});

/// The architectures to assemble kernels of the options' target for, so that
/// they load fastest on a GPU of `architecture` ("sm_90"; empty: that of the
/// target). Empty without ptxas.
std::vector<std::string> chooseArchitectures(const CompileOptions &options,
                                             llvm::StringRef architecture = {});

/// The GPU model of `device` for CompileOptions::part, if it runs code for
/// `target`. Empty for a target whose choices do not depend on the part, for a
/// device that does not report its hardware, and for a part with coefficients
/// measured on another model, so that the target's default is used.
std::string choosePart(llvm::StringRef target, const moert::Device &device);

} // namespace moec

#endif // MOEC_PACKAGE_BUILDPACKAGE_H
