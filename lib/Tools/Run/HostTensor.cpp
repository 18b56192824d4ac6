//===- HostTensor.cpp - the tensors of a run, in host memory ----*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "HostTensor.h"

#include <cstdlib>

using namespace moec;
using moert::Result;
using moert::Status;

void HostTensor::Free::operator()(uint8_t *memory) const { std::free(memory); }

int64_t HostTensor::getNumElements() const {
  int64_t count = 1;
  for (int64_t size : shape)
    count *= size;
  return count;
}

size_t HostTensor::getNumBytes() const {
  return size_t(getNumElements()) * moert::dtypeBits(dtype) / 8;
}

moert::TensorView HostTensor::getView() const {
  return {data(), dtype, shape, {}};
}

moert::SafetensorsTensor HostTensor::getEntry() const {
  return {name, dtype, shape, data(), getNumBytes()};
}

Status HostTensor::allocate() {
  constexpr size_t alignment = 64;
  size_t bytes = (getNumBytes() + alignment - 1) / alignment * alignment;
  storage.reset();
  if (bytes == 0)
    return Status::ok();
  storage.reset(static_cast<uint8_t *>(std::aligned_alloc(alignment, bytes)));
  if (!storage)
    return moert::resourceExhausted(
        "tensor '" + name + "' needs " + std::to_string(bytes) +
        " bytes, which this machine does not give; reduce the layer with "
        "--num-experts or --tokens");
  return Status::ok();
}

Result<std::vector<HostTensor>> moec::allocateTensors(const moert::Plan &plan,
                                                      int64_t tokens) {
  std::vector<HostTensor> tensors;
  for (const moert::TensorDecl &decl : plan.tensors) {
    if (decl.role != moert::TensorRole::Input &&
        decl.role != moert::TensorRole::Weight &&
        decl.role != moert::TensorRole::Output)
      continue;
    HostTensor tensor;
    tensor.name = decl.name;
    tensor.role = decl.role;
    tensor.dtype = decl.dtype;
    for (const moert::Expr &size : decl.shape) {
      Result<int64_t> value = size.evaluate(tokens);
      if (!value)
        return value.status().withContext("tensor '" + decl.name + "'");
      tensor.shape.push_back(*value);
    }
    if (Status status = tensor.allocate(); !status)
      return status;
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}
