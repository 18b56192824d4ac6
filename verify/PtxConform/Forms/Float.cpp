//===- Float.cpp - arithmetic on f32 ----------------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Forms.h"

namespace moec::conform {

/// Sign changes: the PTX ISA leaves the resulting payload of a NaN open.
static void addSigns(Family &family) {
  for (const char *name : {"abs.f32", "neg.f32", "abs.ftz.f32", "neg.ftz.f32"})
    family.op(name, {F32}, {F32}).rule = Rule::AnyNan;
  family.op("copysign.f32", {F32}, {F32, F32}).rule = Rule::AnyNan;
}

void addFloat(Forms &forms) {
  Family family("f32", forms);
  Operand cancelling = F32.as(Draw::Cancelling);
  for (const char *mode : {"", ".rn", ".rz", ".rm", ".rp", ".ftz", ".rn.ftz",
                           ".sat", ".rn.ftz.sat"}) {
    std::string suffix = std::string(mode) + ".f32";
    for (const char *name : {"add", "sub", "mul"})
      family.op(name + suffix, {F32}, {F32, F32});
    if (*mode && mode[1] == 'r')
      family.op("fma" + suffix, {F32}, {F32, F32, cancelling});
  }
  // The compiler emits some operands as immediates.
  family.body("add.rn.f32 [immediate]", "\tadd.rn.f32 %d0, %a0, 0f4B400000;\n",
              {F32}, {F32});
  family.body("fma.rn.f32 [immediates]",
              "\tfma.rn.f32 %d0, %a0, 0f3FB8AA3B, 0fBF317200;\n", {F32}, {F32});
  for (const char *mode : {".rn", ".rz", ".rm", ".rp", ".rn.ftz", ".rz.ftz"}) {
    std::string suffix = std::string(mode) + ".f32";
    family.op("div" + suffix, {F32}, {F32, F32});
    family.op("rcp" + suffix, {F32}, {F32});
    family.op("sqrt" + suffix, {F32}, {F32});
  }
  for (const char *name : {"min", "max"})
    for (const char *mode :
         {"", ".ftz", ".NaN", ".ftz.NaN", ".xorsign.abs", ".NaN.xorsign.abs"})
      family.op(std::string(name) + mode + ".f32", {F32}, {F32, F32});
  addSigns(family);
}

} // namespace moec::conform
