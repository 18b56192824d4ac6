//===- PeerDevice.cpp - device memory that other ranks map ------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moert/PeerDevice.h"

namespace moert {

PeerDevice::~PeerDevice() = default;

} // namespace moert
