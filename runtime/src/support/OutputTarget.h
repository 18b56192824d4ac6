//===- OutputTarget.h - where an output goes --------------------*- C++ -*-===//
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

/// Where the bytes of an output go: into a descriptor that is open already, or
/// to a file.
struct OutputTarget {
  /// Open in this process, to be written in place; -1 for a file.
  int descriptor = -1;
  /// The file, all links to it resolved.
  std::string path;
};

/// "-" is standard output. A path that leads to an open descriptor
/// (/dev/stdout, /dev/fd/3, /proc/self/fd/3, a link to one of these) is that
/// descriptor, and so is the regular file that standard output or the error
/// stream goes to: replacing that file would lose what the process prints.
/// Other links are followed, so that a link stays a link.
Result<OutputTarget> resolveOutput(const std::string &path);

} // namespace moert

#endif // MOERT_SRC_SUPPORT_OUTPUTTARGET_H
