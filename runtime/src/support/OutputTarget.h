//===- OutputTarget.h - resolves the target of an output --------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOERT_SRC_SUPPORT_OUTPUTTARGET_H
#define MOERT_SRC_SUPPORT_OUTPUTTARGET_H

#include "moert/Status.h"

#include <string>

namespace moert {

/// The target of an output: an open descriptor, or a file.
struct OutputTarget {
  /// An open descriptor, written in place; -1 for a file.
  int descriptor = -1;
  /// The file's path, with all links resolved.
  std::string path;
};

/// Resolves a path of an output. "-" is standard output. A path that leads to
/// an open descriptor (/dev/stdout, /dev/fd/3, /proc/self/fd/3, a link to one
/// of these) means that descriptor, and so does the regular file that standard
/// output or error is redirected to: replacing that file would lose what the
/// process prints. Other links are followed, so that a link stays a link.
Result<OutputTarget> resolveOutput(const std::string &path);

} // namespace moert

#endif // MOERT_SRC_SUPPORT_OUTPUTTARGET_H
