//===- TorchError.h - exceptions through PyTorch ----------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_PYTHON_TORCHERROR_H
#define MOEC_PYTHON_TORCHERROR_H

#include "Torch.h"

namespace moec::python {

/// Takes the exception of Python that is set, as one of C++ that PyTorch sets
/// again where it returns to Python. Code of C++ that catches it finds the
/// message.
void *takeError(const Torch &torch);

/// Throws what takeError() answered. Nothing of the caller's is destroyed.
[[noreturn]] void throwError(const Torch &torch, void *error);

} // namespace moec::python

#endif // MOEC_PYTHON_TORCHERROR_H
