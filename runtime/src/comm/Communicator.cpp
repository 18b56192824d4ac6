//===- Communicator.cpp - collectives between ranks -------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moert/Communicator.h"

namespace moert {

Communicator::~Communicator() = default;

Status Communicator::reserve(MeshAxis /*axis*/, int64_t /*bytes*/,
                             int64_t /*resultBytes*/) {
  return Status::ok();
}

Status Communicator::reservePacked(MeshAxis /*axis*/,
                                   const std::vector<PackedSizes> & /*sizes*/) {
  return Status::ok();
}

void *Communicator::results(MeshAxis /*axis*/) { return nullptr; }

} // namespace moert
