//===- TorchError.h - exceptions that pass through PyTorch ------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_PYTHON_TORCHERROR_H
#define MOEC_PYTHON_TORCHERROR_H

#include "Torch.h"

namespace moec::python {

/// Converts the current Python exception to a C++ exception, which PyTorch
/// converts back where it returns to Python. C++ code that catches it can read
/// the message.
void *takeError(const Torch &torch);

/// Throws the result of takeError(). Destructors in the caller do not run.
[[noreturn]] void throwError(const Torch &torch, void *error);

} // namespace moec::python

#endif // MOEC_PYTHON_TORCHERROR_H
