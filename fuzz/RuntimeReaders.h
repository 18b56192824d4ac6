//===- RuntimeReaders.h - readers of the runtime alone ----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Readers, as in Readers.h, of formats that the runtime reads without the
// compiler.
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
  /// The violated guarantee; empty if there is none.
  std::string broken;
};

/// Reads the index of a checkpoint. Accepted file names are in its folder.
Reading readIndex(llvm::StringRef text);

/// Decodes the request of a rank. An accepted request encodes to the same
/// bytes.
Reading readRankMessage(llvm::StringRef bytes);

/// Gives the bytes to a starting rank, as a peer without the secret could. The
/// first byte chooses the reader: rank 1 or rank 0, by a socket or by one of
/// the files. No input may be accepted.
Reading readBootstrap(llvm::StringRef bytes);

} // namespace moec::testing

#endif // MOEC_FUZZ_RUNTIMEREADERS_H
