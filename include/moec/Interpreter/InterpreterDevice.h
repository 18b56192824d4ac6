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
/// ops of `module`, one launch evaluating all CTAs. Images given to
/// loadModule() are not looked at. A launch's slots are the addresses of a
/// kernel's ins and outs and, last, the token count; dynamic sizes are those
/// that the module's `plan.program` states for the tensors of the launch. The
/// module outlives the device and does not change.
moert::Result<std::unique_ptr<moert::Device>>
createInterpreterDevice(mlir::ModuleOp module);

} // namespace moec::interpreter

#endif // MOEC_INTERPRETER_INTERPRETERDEVICE_H
