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

/// What became of an input.
struct Reading {
  bool accepted = false;
  /// The promise that was broken on the way, empty if none was.
  std::string broken;
};

/// The index of a checkpoint. Files that are accepted are in its folder.
Reading readIndex(llvm::StringRef text);

/// What a rank has come for. What is accepted has the bytes that it came from.
Reading readRankMessage(llvm::StringRef bytes);

/// What ranks hear at their start from one who does not know the secret. The
/// first byte says who hears it: a rank by its file, a rank by its socket, or
/// rank 0. Nothing is accepted but rank 0's own file.
Reading readBootstrap(llvm::StringRef bytes);

} // namespace moec::testing

#endif // MOEC_FUZZ_RUNTIMEREADERS_H
