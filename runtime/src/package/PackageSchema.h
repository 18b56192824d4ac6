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

/// What a buffer that FlatBuffers has verified holds. Expressions, element
/// types and enumerators are checked; what verifyPackage() checks is not.
Result<Package> readPackage(const schema::Package &from);

/// True if the parts of a verified buffer of `bytes` are no larger together, as
/// is the case where none is used twice.
bool fitsInto(const schema::Package &package, size_t bytes);

} // namespace moert

#endif // MOERT_SRC_PACKAGE_PACKAGESCHEMA_H
