//===- PublishedFamilies.cpp - models with code of their own ----*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Models that are published with modelling code of their own, or that engines
// alone have. What each means was read from that code.
//
//===----------------------------------------------------------------------===//

#include "Table.h"

using namespace llvm;

namespace moec {

void addPublishedFamilies(std::vector<Family> &all) {}

} // namespace moec
