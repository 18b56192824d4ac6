//===- Registry.h - dialects and passes of moec -----------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_COMPILER_REGISTRY_H
#define MOEC_COMPILER_REGISTRY_H

namespace mlir {
class DialectRegistry;
} // namespace mlir

namespace moec {

/// Registers our dialects, the upstream dialects that our passes create, and
/// the interfaces for their translation to LLVM IR.
void registerDialects(mlir::DialectRegistry &registry);

/// Registers our passes and pipelines and the upstream passes that they use,
/// for tools that take passes by name.
void registerPasses();

} // namespace moec

#endif // MOEC_COMPILER_REGISTRY_H
