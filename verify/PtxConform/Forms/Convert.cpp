//===- Convert.cpp - conversions --------------------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Forms.h"

namespace moec::conform {

namespace {

const Operand Ties = F32.as(Draw::Ties);

void addNarrowing(Family &family) {
  for (const char *mode :
       {"rn", "rz", "rm", "rp", "rn.ftz", "rn.sat", "rn.relu", "rz.relu"}) {
    std::string name = std::string("cvt.") + mode + ".f16.f32";
    family.op(name, {F16}, {Ties});
  }
  for (const char *mode :
       {"rn", "rz", "rn.relu", "rz.relu", "rn.satfinite", "rn.relu.satfinite"})
    for (const char *type : {"f16", "bf16"}) {
      Operand single = *type == 'f' ? F16 : BF16;
      Operand pair = *type == 'f' ? F16X2 : BF16X2;
      std::string text = std::string("cvt.") + mode + "." + type;
      if (*type == 'b')
        family.op(text + ".f32", {single}, {Ties});
      else if (std::string(mode).find("satfinite") != std::string::npos)
        family.op(text + ".f32", {single}, {Ties});
      family.op(text + "x2.f32", {pair}, {Ties, Ties});
    }
  for (const char *type : {"e4m3x2", "e5m2x2"})
    for (const char *relu : {"", ".relu"}) {
      std::string text = std::string("cvt.rn.satfinite") + relu + "." + type;
      family.op(text + ".f32", {B16}, {Ties, Ties});
      family.op(text + ".f16x2", {B16}, {F16X2});
    }
  family.op("cvt.rna.tf32.f32", {B32}, {Ties});
  family.op("cvt.rn.tf32.f32", {B32}, {Ties});
  family.op("cvt.rz.tf32.f32", {B32}, {Ties});
}

/// Covers all inputs.
void addWidening(Family &family) {
  family.launch(512, 128);
  Operand f16 = F16.as(Draw::Counting), bf16 = BF16.as(Draw::Counting);
  family.op("cvt.f32.f16", {F32}, {f16});
  family.op("cvt.ftz.f32.f16", {F32}, {f16});
  family.op("cvt.sat.f32.f16", {F32}, {f16});
  family.op("cvt.f32.bf16", {F32}, {bf16});
  family.op("cvt.rn.bf16.f16", {BF16}, {f16});
  family.op("cvt.rn.f16.bf16", {F16}, {bf16});
  for (const char *type : {"e4m3x2", "e5m2x2"})
    for (const char *relu : {"", ".relu"})
      family.op(std::string("cvt.rn") + relu + ".f16x2." + type, {F16X2},
                {B16.as(Draw::Counting)});
  for (const char *round : {"rni", "rzi", "rmi", "rpi"}) {
    std::string text = std::string("cvt.") + round;
    family.op(text + ".f16.f16", {F16}, {f16});
    family.op(text + ".bf16.bf16", {BF16}, {bf16});
    family.op(text + ".s32.f16", {B32}, {f16});
    family.op(text + ".u32.bf16", {B32}, {bf16});
  }
  family.op("cvt.rni.s64.bf16", {B64}, {bf16});
  family.op("cvt.rni.u16.f16", {B16}, {f16});
  family.launch(32, 128);
}

void addToInteger(Family &family) {
  Operand value = F32.as(Draw::NearIntegers);
  for (const char *round : {"rni", "rzi", "rmi", "rpi"}) {
    std::string text = std::string("cvt.") + round;
    for (const char *type : {"s32", "u32", "s64", "u64", "s16", "u16"}) {
      Operand result = type[1] == '1' ? B16 : type[1] == '3' ? B32 : B64;
      family.op(text + "." + type + ".f32", {result}, {value});
    }
    // The PTX ISA leaves open whether a NaN that is rounded to an integer keeps
    // its payload.
    family.op(text + ".f32.f32", {F32}, {value}).rule = Rule::AnyNan;
  }
  family.op("cvt.rzi.s8.f32", {B16}, {value});
  family.op("cvt.rni.u8.f32", {B16}, {value});
  family.op("cvt.rzi.ftz.s32.f32", {B32}, {value});
  family.op("cvt.rmi.ftz.f32.f32", {F32}, {value}).rule = Rule::AnyNan;
  family.op("cvt.sat.f32.f32", {F32}, {F32});
  family.op("cvt.ftz.f32.f32", {F32}, {F32}).rule = Rule::AnyNan;
}

void addFromInteger(Family &family) {
  for (const char *type : {"s32", "u32", "s64", "u64", "s16", "u16"}) {
    Operand value = type[1] == '1' ? B16 : type[1] == '3' ? B32 : B64;
    for (const char *round : {"rn", "rz", "rm", "rp"})
      family.op(std::string("cvt.") + round + ".f32." + type, {F32}, {value});
    family.op(std::string("cvt.rn.f16.") + type, {F16}, {value});
    family.op(std::string("cvt.rn.bf16.") + type, {BF16}, {value});
  }
  family.op("cvt.rn.f32.u8", {F32}, {B16});
  family.op("cvt.rn.f32.s8", {F32}, {B16});
}

void addIntegers(Family &family) {
  family.op("cvt.s64.s32", {B64}, {B32});
  family.op("cvt.u64.u32", {B64}, {B32});
  family.op("cvt.u32.u64", {B32}, {B64});
  family.op("cvt.s32.s64", {B32}, {B64});
  family.op("cvt.u16.u64", {B16}, {B64});
  family.op("cvt.u16.u32", {B16}, {B32});
  family.op("cvt.u32.u16", {B32}, {B16});
  family.op("cvt.s32.s16", {B32}, {B16});
  family.op("cvt.s64.s16", {B64}, {B16});
  family.op("cvt.s16.s8", {B16}, {B16});
  family.op("cvt.s32.s8", {B32}, {B32});
  family.op("cvt.u32.u8", {B32}, {B32});
  family.op("cvt.u16.u8", {B16}, {B16});
  family.op("cvt.s8.s32", {B32}, {B32});
  for (const char *type : {"s8.s32", "u8.s32", "u8.u32", "s16.s32", "u16.s32"})
    family.op(std::string("cvt.sat.") + type, {B32}, {B32});
  family.op("cvt.sat.s32.s64", {B32}, {B64});
  family.op("cvt.sat.u32.s64", {B32}, {B64});
}

} // namespace

void addConvert(Forms &forms) {
  Family family("convert", forms);
  addNarrowing(family);
  addWidening(family);
  addToInteger(family);
  addFromInteger(family);
  addIntegers(family);
}

} // namespace moec::conform
