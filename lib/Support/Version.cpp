//===- Version.cpp - version and commit of the build ----------------------===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/Support/Version.h"

#include "MoecVersion.h"

const char *moec::getVersion() { return MOEC_VERSION; }

const char *moec::getVersionAndCommit() {
  constexpr bool isKnown = sizeof(MOEC_COMMIT) > 1;
  return isKnown ? MOEC_VERSION " (commit " MOEC_COMMIT ")" : MOEC_VERSION;
}
