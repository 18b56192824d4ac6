//===- Temporaries.h - registry of temporary files --------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOERT_SRC_SUPPORT_TEMPORARIES_H
#define MOERT_SRC_SUPPORT_TEMPORARIES_H

namespace moert {

/// Registers a file to be removed if a signal ends the process. Returns the
/// argument for forgetTemporary(), or -1 if the registry is full.
int noteTemporary(int folder, const char *name);
void forgetTemporary(int note);

/// Removes the registered files. Async-signal-safe. The library itself installs
/// no signal handlers; these are up to the program.
void removeTemporaries();

} // namespace moert

#endif // MOERT_SRC_SUPPORT_TEMPORARIES_H
