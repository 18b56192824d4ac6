//===- Half.cpp - arithmetic on f16 and bf16, packed too --------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Forms.h"

namespace moec::conform {

static void addType(Family &family, const std::string &type,
                    const Operand &value) {
  bool isF16 = type[0] == 'f';
  auto name = [&](const std::string &instruction) {
    return instruction + "." + type;
  };
  for (const char *instruction :
       {"add", "sub", "mul", "add.rn", "sub.rn", "mul.rn"})
    family.op(name(instruction), {value}, {value, value});
  Operand cancelling = value.as(Draw::Cancelling);
  for (const char *instruction : {"fma.rn", "fma.rn.relu"})
    family.op(name(instruction), {value}, {value, value, cancelling});
  if (isF16) {
    for (const char *instruction : {"add.ftz", "add.sat", "mul.ftz.sat"})
      family.op(name(instruction), {value}, {value, value});
    family.op(name("fma.rn.ftz"), {value}, {value, value, cancelling});
    family.op(name("fma.rn.sat"), {value}, {value, value, cancelling});
  }
  for (const char *instruction : {"min", "max", "min.NaN", "max.NaN",
                                  "min.xorsign.abs", "max.NaN.xorsign.abs"})
    family.op(name(instruction), {value}, {value, value});
  for (const char *instruction : {"abs", "neg"})
    family.op(name(instruction), {value}, {value}).rule = Rule::AnyNan;
}

void addHalf(Forms &forms) {
  Family family("f16, bf16", forms);
  addType(family, "f16", F16);
  addType(family, "f16x2", F16X2);
  addType(family, "bf16", BF16);
  addType(family, "bf16x2", BF16X2);
  family.op("fma.rn.oob.f16x2", {F16X2}, {F16X2, F16X2, F16X2});
}

} // namespace moec::conform
