//===- LayerDescription.h - a layer's description as JSON -------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOERT_SRC_PLAN_LAYERDESCRIPTION_H
#define MOERT_SRC_PLAN_LAYERDESCRIPTION_H

#include "moert/Status.h"

#include <map>
#include <string>

namespace moert {

/// The fields of a description (docs/use/layers.md) as JSON text, by path, such
/// as "routing.score". The layer's name is omitted, since results do not depend
/// on it.
using DescribedFields = std::map<std::string, std::string>;

Result<DescribedFields> readDescription(const std::string &json);

/// Names a field in which two layers differ, with both values: "'top_k' is 2,
/// and this layer's is 3". Empty if there is none.
std::string compareDescriptions(const DescribedFields &other,
                                const DescribedFields &own);

} // namespace moert

#endif // MOERT_SRC_PLAN_LAYERDESCRIPTION_H
