//===- RuntimeType.cpp - dtypes of generated tensors ------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "RuntimeType.h"

using namespace moec;

moert::Result<moert::DType> moec::getRuntimeType(const TensorInfo &info) {
  switch (info.type) {
  case TensorType::F32:
    return moert::DType::F32;
  case TensorType::BF16:
    return moert::DType::BF16;
  case TensorType::F16:
    return moert::DType::F16;
  case TensorType::I32:
    return moert::DType::I32;
  case TensorType::I16:
    return moert::DType::I16;
  case TensorType::F8E4M3FN:
    return moert::DType::F8E4M3;
  case TensorType::F8E8M0FNU:
    return moert::DType::F8E8M0;
  case TensorType::I8:
    return moert::DType::I8;
  default:
    return moert::invalidArgument("'" + info.name +
                                  "': there are no generated "
                                  "values of " +
                                  stringify(info.type).str());
  }
}
