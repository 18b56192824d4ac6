//===- Integer.cpp - arithmetic and logic on integers -----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Forms.h"

namespace moec::conform {

namespace {

Operand typed(const std::string &type) {
  return type.substr(1) == "16" ? B16 : type.substr(1) == "32" ? B32 : B64;
}

void addArithmetic(Family &family) {
  for (const char *type : {"s32", "u32", "s64", "u64", "s16", "u16"}) {
    Operand value = typed(type);
    std::string suffix = std::string(".") + type;
    for (const char *name : {"add", "sub", "min", "max", "mul.lo", "mul.hi"})
      family.op(name + suffix, {value}, {value, value});
    for (const char *name : {"div", "rem"})
      family.op(name + suffix, {value}, {value, value.as(Draw::Divisors)});
    for (const char *name : {"mad.lo", "mad.hi"})
      family.op(name + suffix, {value}, {value, value, value});
    if (type[0] == 's')
      for (const char *name : {"abs", "neg"})
        family.op(name + suffix, {value}, {value});
    if (type[1] == '6')
      continue;
    Operand wide = type[1] == '1' ? B32 : B64;
    family.op("mul.wide" + suffix, {wide}, {value, value});
    family.op("mad.wide" + suffix, {wide}, {value, value, wide});
  }
  family.body("add.s32 [immediate]", "\tadd.s32 %d0, %a0, -12345;\n", {B32},
              {B32});
  family.body("sub.s32 [immediate]", "\tsub.s32 %d0, 77, %a0;\n", {B32}, {B32});
  family.body("mad.lo.s32 [immediates]", "\tmad.lo.s32 %d0, %a0, -48, 1000;\n",
              {B32}, {B32});
  family.body("mul.hi.u64 [immediate]",
              "\tmul.hi.u64 %d0, %a0, -6148914691236517205;\n", {B64}, {B64});
  family.body("mul.wide.u16 [immediate]", "\tmul.wide.u16 %d0, %a0, 52429;\n",
              {B32}, {B16});
  family.op("sad.u32", {B32}, {B32, B32, B32});
  family.op("sad.s32", {B32}, {B32, B32, B32});
  family.op("dp4a.s32.s32", {B32}, {B32, B32, B32});
  family.op("dp4a.u32.s32", {B32}, {B32, B32, B32});
  family.body("add.cc.u32, addc.u32",
              "\tadd.cc.u32 %d0, %a0, %a1;\n\taddc.u32 %d1, %a2, %a3;\n",
              {B32, B32}, {B32, B32, B32, B32});
}

void addLogic(Family &family) {
  for (const char *bits : {"16", "32", "64"}) {
    Operand value = typed(std::string("b") + bits);
    std::string suffix = std::string(".b") + bits;
    for (const char *name : {"and", "or", "xor"})
      family.op(name + suffix, {value}, {value, value});
    family.op("not" + suffix, {value}, {value});
    family.op("cnot" + suffix, {value}, {value.as(Draw::Shifts)});
    for (std::string name : {"shl.b", "shr.u", "shr.s"})
      family.op(name + bits, {value}, {value, B32.as(Draw::Shifts)});
  }
  for (const char *name : {"and", "or", "xor"})
    family.op(std::string(name) + ".pred", {Pred}, {Pred, Pred});
  family.op("not.pred", {Pred}, {Pred});
  for (const char *name : {"shf.l.wrap.b32", "shf.l.clamp.b32",
                           "shf.r.wrap.b32", "shf.r.clamp.b32"})
    family.op(name, {B32}, {B32, B32, B32.as(Draw::Shifts)});
  for (int table : {0x00, 0x01, 0x6a, 0x80, 0x96, 0xca, 0xe8, 0xf8, 0xff})
    family.body("lop3.b32 [" + std::to_string(table) + "]",
                "\tlop3.b32 %d0, %a0, %a1, %a2, " + std::to_string(table) +
                    ";\n",
                {B32}, {B32, B32, B32});
}

void addBits(Family &family) {
  for (const char *mode : {"", ".f4e", ".b4e", ".rc8", ".ecl", ".ecr", ".rc16"})
    family.op(std::string("prmt.b32") + mode, {B32}, {B32, B32, B32});
  family.body("prmt.b32 [immediate]", "\tprmt.b32 %d0, %a0, %a1, 0x5410U;\n",
              {B32}, {B32, B32});
  // The PTX ISA uses the low byte of a position; machine code for 64 bits does
  // not.
  Operand place = B32.as(Draw::Places);
  for (const char *type : {"u32", "s32", "u64", "s64"}) {
    Operand value = typed(type);
    family.op(std::string("bfe.") + type, {value}, {value, place, place});
  }
  family.body("bfe.u32 [immediates]", "\tbfe.u32 %d0, %a0, 5, 1;\n", {B32},
              {B32});
  for (const char *type : {"b32", "b64"}) {
    Operand value = typed(type);
    std::string suffix = std::string(".") + type;
    family.op("bfi" + suffix, {value}, {value, value, place, place});
    family.op("brev" + suffix, {value}, {value});
    family.op("popc" + suffix, {B32}, {value});
    family.op("clz" + suffix, {B32}, {value});
  }
  for (const char *type : {"u32", "s32", "u64", "s64"}) {
    family.op(std::string("bfind.") + type, {B32}, {typed(type)});
    family.op(std::string("bfind.shiftamt.") + type, {B32}, {typed(type)});
  }
  family.op("szext.clamp.s32", {B32}, {B32, place});
  family.op("szext.wrap.u32", {B32}, {B32, place});
  family.op("bmsk.clamp.b32", {B32}, {place, place});
}

} // namespace

void addInteger(Forms &forms) {
  Family family("integer", forms);
  addArithmetic(family);
  addLogic(family);
  addBits(family);
}

} // namespace moec::conform
