//===- InterpreterDevice.h - a device that interprets kernels ---*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_INTERPRETER_INTERPRETERDEVICE_H
#define MOEC_INTERPRETER_INTERPRETERDEVICE_H

#include "moert/Device.h"

#include "mlir/IR/BuiltinOps.h"

#include <memory>

namespace moec::interpreter {

/// A device in host memory whose kernels are the `plan.kernel` or `tile.kernel`
/// ops of `module`; one launch evaluates all CTAs. loadModule() ignores the
/// images. The slots of a launch are the addresses of a kernel's ins and outs,
/// then the token count; dynamic sizes are those in the module's `plan.program`
/// for the tensors of the launch. The module must outlive the device and not
/// change.
moert::Result<std::unique_ptr<moert::Device>>
createInterpreterDevice(mlir::ModuleOp module);

} // namespace moec::interpreter

#endif // MOEC_INTERPRETER_INTERPRETERDEVICE_H
