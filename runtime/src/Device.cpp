//===- Device.cpp - what a plan needs of a device ---------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moert/Device.h"

namespace moert {

Buffer::~Buffer() = default;
Kernel::~Kernel() = default;
Module::~Module() = default;
Stream::~Stream() = default;
Event::~Event() = default;
Device::~Device() = default;

const char *moduleImageKindName(ModuleImage::Kind kind) {
  switch (kind) {
  case ModuleImage::Kind::HostFunctions:
    return "host functions";
  case ModuleImage::Kind::Cubin:
    return "cubin";
  case ModuleImage::Kind::Ptx:
    return "PTX";
  }
  return "unknown";
}

} // namespace moert
