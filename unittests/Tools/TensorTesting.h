//===- TensorTesting.h - tensors of a run for tests -------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_UNITTESTS_TOOLS_TENSORTESTING_H
#define MOEC_UNITTESTS_TOOLS_TENSORTESTING_H

#include "Tools/Run/HostTensor.h"

#include "gtest/gtest.h"

namespace moec::testing {

using ElementType = moert::DType;
using Role = moert::TensorRole;

struct TensorShape {
  std::string name;
  Role role;
  ElementType dtype;
  std::vector<int64_t> shape;
};

/// Tensors with memory, as allocateTensors() makes them.
inline std::vector<HostTensor>
makeTensors(const std::vector<TensorShape> &shapes) {
  std::vector<HostTensor> tensors;
  for (const TensorShape &shape : shapes) {
    HostTensor &tensor = tensors.emplace_back();
    tensor.name = shape.name;
    tensor.role = shape.role;
    tensor.dtype = shape.dtype;
    tensor.shape = shape.shape;
    EXPECT_TRUE(tensor.allocate());
  }
  return tensors;
}

} // namespace moec::testing

#endif // MOEC_UNITTESTS_TOOLS_TENSORTESTING_H
