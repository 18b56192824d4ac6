//===- Version.h - version and commit of the build --------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_SUPPORT_VERSION_H
#define MOEC_SUPPORT_VERSION_H

namespace moec {

/// "0.1.0"
const char *getVersion();

/// "0.1.0 (commit 0123456789ab)"; without the commit if the sources were built
/// outside of a git repository.
const char *getVersionAndCommit();

} // namespace moec

#endif // MOEC_SUPPORT_VERSION_H
