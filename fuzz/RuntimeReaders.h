//===- RuntimeReaders.h - readers of the runtime alone ----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// As in Readers.h, of what the runtime reads without the compiler.
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_FUZZ_RUNTIMEREADERS_H
#define MOEC_FUZZ_RUNTIMEREADERS_H

#include "llvm/ADT/StringRef.h"

#include <string>

namespace moec::testing {

/// The outcome of reading one input.
struct Reading {
  bool accepted = false;
  /// The promise that was broken on the way, empty if none was.
  std::string broken;
};

/// The index of a checkpoint. Files that are accepted are in its folder.
Reading readIndex(llvm::StringRef text);

/// Decodes the request of a rank. An accepted request encodes to the same
/// bytes.
Reading readRankMessage(llvm::StringRef bytes);

/// Gives the bytes to a rank that starts, as a peer without the secret could.
/// The first byte chooses the reader: rank 1 or rank 0, by a socket or by one
/// of the files. Nothing is ever accepted.
Reading readBootstrap(llvm::StringRef bytes);

} // namespace moec::testing

#endif // MOEC_FUZZ_RUNTIMEREADERS_H
