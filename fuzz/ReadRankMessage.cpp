//===- ReadRankMessage.cpp - messages between ranks -------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "../runtime/src/comm/process/Message.h"
#include "RuntimeReaders.h"

using namespace moec::testing;

Reading moec::testing::readRankMessage(llvm::StringRef bytes) {
  auto request = moert::decodeRequest(bytes.str());
  if (!request)
    return {false, ""};
  if (moert::encodeRequest(request->get()) != bytes)
    return {true, "encoded again, the request has other bytes"};
  // A rank compares requests with its own, and prints differences.
  moert::Request own = request->get();
  return {true, moert::checkSame(0, own, 1, own) ? "" : "differs from itself"};
}
