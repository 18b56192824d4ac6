//===- RuntimeType.h - dtypes of generated tensors --------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_TOOLS_ONDEVICE_RUNTIMETYPE_H
#define MOEC_LIB_TOOLS_ONDEVICE_RUNTIMETYPE_H

#include "moec/Import/TensorSignature.h"
#include "moert/DType.h"
#include "moert/Status.h"

namespace moec {

/// The runtime's dtype of a tensor that is generated for a device; fails for
/// dtypes that are never generated.
moert::Result<moert::DType> getRuntimeType(const TensorInfo &info);

} // namespace moec

#endif // MOEC_LIB_TOOLS_ONDEVICE_RUNTIMETYPE_H
