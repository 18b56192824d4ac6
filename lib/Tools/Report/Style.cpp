//===- Style.cpp - style sheet and script -----------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Style.h"

using llvm::StringLiteral;

// The build makes these texts of the files beside this one.
const StringLiteral moec::report::kStyle =
#include "page.css.inc"
    ;
const StringLiteral moec::report::kScript =
#include "page.js.inc"
    ;
