//===- OpenDevice.cpp - the device that --device names ----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "OpenDevice.h"

#include "moert/CudaDevice.h"
#include "moert/HostDevice.h"

moert::Result<std::unique_ptr<moert::Device>>
moec::openDevice(llvm::StringRef name, int threads) {
  if (name == "host")
    return moert::createHostDevice(threads);
  llvm::StringRef number = name;
  int ordinal = 0;
  if (number.consume_front("cuda") &&
      (number.empty() || (number.consume_front(":") &&
                          !number.getAsInteger(10, ordinal) && ordinal >= 0)))
    return moert::createCudaDevice(ordinal);
  return moert::invalidArgument("--device: '" + name.str() +
                                "' is none of 'host', 'cuda' and 'cuda:N'");
}
