//===- RuntimeType.h - elements that values are made for --------*- C++ -*-===//
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

/// The runtime's name of a type of which inputs and weights are made for a
/// device; fails for others.
moert::Result<moert::DType> getRuntimeType(const TensorInfo &info);

} // namespace moec

#endif // MOEC_LIB_TOOLS_ONDEVICE_RUNTIMETYPE_H
