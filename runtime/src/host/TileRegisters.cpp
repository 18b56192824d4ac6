//===- TileRegisters.cpp - permission to use AMX ----------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moert/HostDevice.h"

#if defined(__x86_64__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

bool moert::allowTileRegisters() {
#if defined(__x86_64__) && defined(SYS_arch_prctl)
  // ARCH_REQ_XCOMP_PERM of asm/prctl.h (Linux 5.16), for XFEATURE_XTILEDATA.
  constexpr long request = 0x1023, tileData = 18;
  static const bool isAllowed = syscall(SYS_arch_prctl, request, tileData) == 0;
  return isAllowed;
#else
  return false;
#endif
}
