//===- Temporaries.h - temporary files that exist now -----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOERT_SRC_SUPPORT_TEMPORARIES_H
#define MOERT_SRC_SUPPORT_TEMPORARIES_H

namespace moert {

/// Notes a file that is to go should a signal end the process. Answers what
/// forgetTemporary() takes; -1 where too many are noted already.
int noteTemporary(int folder, const char *name);
void forgetTemporary(int note);

/// Removes the files that are noted. For a signal handler: this is safe at any
/// time. The library itself handles no signals, for they are the program's.
void removeTemporaries();

} // namespace moert

#endif // MOERT_SRC_SUPPORT_TEMPORARIES_H
