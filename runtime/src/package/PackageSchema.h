//===- PackageSchema.h - the FlatBuffer of a package ------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOERT_SRC_PACKAGE_PACKAGESCHEMA_H
#define MOERT_SRC_PACKAGE_PACKAGESCHEMA_H

#include "moert/Package.h"
#include "package_generated.h"

namespace moert {

/// Converts a buffer that FlatBuffers has verified. Checks expressions, element
/// types and enumerators, but not what verifyPackage() checks.
Result<Package> readPackage(const schema::Package &from);

/// True if the parts of a verified buffer together take no more than `bytes`,
/// as is the case if none is used twice.
bool fitsInto(const schema::Package &package, size_t bytes);

} // namespace moert

#endif // MOERT_SRC_PACKAGE_PACKAGESCHEMA_H
