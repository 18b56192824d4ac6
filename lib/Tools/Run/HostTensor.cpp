//===- HostTensor.cpp - host tensors of a run -------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "HostTensor.h"

#include "moert/Workspace.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/MemoryBuffer.h"

#include <cstdlib>
#include <cstring>
#include <limits>
#include <optional>

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
        " bytes, more than this machine can allocate; reduce the layer with "
        "--num-experts or --tokens");
  return Status::ok();
}

Status HostTensor::spreadRows(int64_t gap, HostTensor &spread,
                              std::vector<int64_t> &strides) const {
  spread.name = name;
  spread.role = role;
  spread.dtype = dtype;
  spread.shape = shape;
  spread.shape.back() += gap;
  if (Status status = spread.allocate(); !status)
    return status;
  strides.assign(shape.size(), 1);
  for (size_t i = shape.size() - 1; i > 0; --i)
    strides[i - 1] = strides[i] * spread.shape[i];
  std::memset(spread.data(), 0xFF, spread.getNumBytes());
  size_t rowBytes = size_t(shape.back()) * moert::dtypeBits(dtype) / 8;
  size_t pitch = size_t(spread.shape.back()) * moert::dtypeBits(dtype) / 8;
  if (rowBytes > 0)
    for (size_t row = 0; row < getNumBytes() / rowBytes; ++row)
      std::memcpy(spread.data() + row * pitch, data() + row * rowBytes,
                  rowBytes);
  return Status::ok();
}

/// The number in the first line of `path` that begins with `key`.
static std::optional<uint64_t> readNumber(llvm::StringRef path,
                                          llvm::StringRef key) {
  // Files of /proc report no size, so they are read as streams.
  auto file = llvm::MemoryBuffer::getFileAsStream(path);
  if (!file)
    return std::nullopt;
  llvm::SmallVector<llvm::StringRef> lines;
  (*file)->getBuffer().split(lines, '\n');
  for (llvm::StringRef line : lines) {
    uint64_t number;
    if (line.consume_front(key) && !line.ltrim().consumeInteger(10, number))
      return number;
  }
  return std::nullopt;
}

/// Bytes that this process can still get, as far as the system reports.
static uint64_t getFreeMemory() {
  uint64_t free = std::numeric_limits<uint64_t>::max();
  if (auto kilobytes = readNumber("/proc/meminfo", "MemAvailable:"))
    free = *kilobytes * 1024;
  auto most = readNumber("/sys/fs/cgroup/memory.max", "");
  auto used = readNumber("/sys/fs/cgroup/memory.current", "");
  if (most && used)
    free = std::min(free, *most - std::min(*most, *used));
  return free;
}

static Status checkMemory(const moert::Plan &plan, int64_t tokens) {
  Result<int64_t> workspace = moert::workspaceBytes(plan, tokens);
  if (!workspace)
    return workspace.status();
  double needed = double(*workspace);
  for (const moert::TensorDecl &decl : plan.tensors) {
    if (decl.role == moert::TensorRole::Workspace)
      continue;
    Result<int64_t> bytes = moert::tensorBytes(decl).evaluate(tokens);
    if (!bytes)
      return bytes.status().withContext("tensor '" + decl.name + "'");
    needed += double(*bytes);
  }
  uint64_t free = getFreeMemory();
  if (needed <= double(free))
    return Status::ok();
  return moert::resourceExhausted(
      llvm::formatv("the layer needs {0:f1} GiB for its tensors and {1} "
                    "tokens, and this machine has {2:f1} GiB free; reduce it "
                    "with --num-experts or --tokens",
                    needed / (1 << 30), tokens, double(free) / (1 << 30))
          .str());
}

std::vector<const HostTensor *>
moec::getPointers(const std::vector<HostTensor> &tensors) {
  std::vector<const HostTensor *> pointers;
  for (const HostTensor &tensor : tensors)
    pointers.push_back(&tensor);
  return pointers;
}

Result<std::vector<HostTensor>> moec::allocateTensors(const moert::Plan &plan,
                                                      int64_t tokens) {
  if (Status status = checkMemory(plan, tokens); !status)
    return status;
  return allocateTensors(plan, tokens,
                         {moert::TensorRole::Input, moert::TensorRole::Weight,
                          moert::TensorRole::Output});
}

Result<std::vector<HostTensor>>
moec::allocateTensors(const moert::Plan &plan, int64_t tokens,
                      std::initializer_list<moert::TensorRole> roles) {
  Result<std::vector<HostTensor>> tensors =
      describeTensors(plan, tokens, roles);
  if (!tensors)
    return tensors.status();
  for (HostTensor &tensor : *tensors)
    if (Status status = tensor.allocate(); !status)
      return status;
  return tensors;
}

Result<std::vector<HostTensor>>
moec::describeTensors(const moert::Plan &plan, int64_t tokens,
                      std::initializer_list<moert::TensorRole> roles) {
  std::vector<HostTensor> tensors;
  for (const moert::TensorDecl &decl : plan.tensors) {
    if (!llvm::is_contained(roles, decl.role))
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
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}
