//===- Compare.cpp - comparisons and selections -----------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Forms.h"

namespace moec::conform {

namespace {

/// Comparisons differ at equal operands, so the second form draws from a few
/// values.
void addCompared(Family &family, const std::string &compare,
                 const std::string &type, const Operand &value) {
  family.op("setp." + compare + "." + type, {Pred}, {value, value});
  if (type[0] == 'f' || type[0] == 'b')
    return;
  Operand few = value.as(Draw::Few);
  family.op("setp." + compare + "." + type, {Pred}, {few, few}, "near");
}

void addSetp(Family &family) {
  const std::vector<std::string> ordered = {"eq", "ne", "lt", "le", "gt", "ge"};
  for (const char *type : {"s16", "u16", "s32", "u32", "s64", "u64"}) {
    Operand value = type[1] == '1' ? B16 : type[1] == '3' ? B32 : B64;
    for (const std::string &compare : ordered)
      addCompared(family, compare, type, value);
    if (type[0] == 'u')
      for (const char *compare : {"lo", "ls", "hi", "hs"})
        addCompared(family, compare, type, value);
  }
  for (const char *type : {"b16", "b32", "b64"}) {
    Operand value = type[1] == '1' ? B16 : type[1] == '3' ? B32 : B64;
    for (const char *compare : {"eq", "ne"})
      family.op(std::string("setp.") + compare + "." + type, {Pred},
                {value.as(Draw::Few), value.as(Draw::Few)});
  }
  std::vector<std::string> all = ordered;
  all.insert(all.end(),
             {"equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan"});
  for (const std::string &compare : all) {
    addCompared(family, compare, "f32", F32);
    addCompared(family, compare, "f16", F16);
    addCompared(family, compare, "bf16", BF16);
    for (const char *type : {"f16x2", "bf16x2"}) {
      std::string name = "setp." + compare + "." + type;
      Operand value = type[0] == 'f' ? F16X2 : BF16X2;
      family.body(name, "\t" + name + " %d0|%d1, %a0, %a1;\n", {Pred, Pred},
                  {value, value});
    }
  }
  family.op("setp.lt.ftz.f32", {Pred}, {F32, F32});
  family.op("setp.eq.ftz.f32", {Pred}, {F32, F32});
  for (const char *combine : {"and", "or", "xor"}) {
    std::string name = std::string("setp.lt.") + combine + ".s32";
    family.body(name + " [two results]",
                "\t" + name + " %d0|%d1, %a0, %a1, %a2;\n", {Pred, Pred},
                {B32, B32, Pred});
    name = std::string("setp.gt.") + combine + ".f32";
    family.body(name + " [negated]", "\t" + name + " %d0, %a0, %a1, !%a2;\n",
                {Pred}, {F32, F32, Pred});
  }
  family.body("setp.leu.f32 [immediate]",
              "\tsetp.leu.f32 %d0, %a0, 0f3F800000;\n", {Pred}, {F32});
}

void addSet(Family &family) {
  family.op("set.lt.u32.s32", {B32}, {B32, B32});
  family.op("set.ge.f32.s32", {B32}, {B32, B32});
  family.op("set.eq.u32.f32", {B32}, {F32, F32});
  family.op("set.gtu.f32.f32", {F32}, {F32, F32});
  family.op("set.lt.f16x2.f16x2", {B32}, {F16X2, F16X2});
  family.op("set.ne.bf16x2.bf16x2", {B32}, {BF16X2, BF16X2});
}

void addSelect(Family &family) {
  for (const char *type : {"b16", "b32", "b64"}) {
    Operand value = type[1] == '1' ? B16 : type[1] == '3' ? B32 : B64;
    family.op(std::string("selp.") + type, {value}, {value, value, Pred});
  }
  family.op("selp.f32", {B32}, {F32, F32, Pred});
  family.body("selp.b32 [immediates]", "\tselp.b32 %d0, -5, 9, %a0;\n", {B32},
              {Pred});
  family.op("slct.b32.s32", {B32}, {B32, B32, B32});
  family.op("slct.b64.s32", {B64}, {B64, B64, B32});
  family.op("slct.b32.f32", {B32}, {B32, B32, F32});
  for (const char *kind :
       {"finite", "infinite", "number", "notanumber", "normal", "subnormal"})
    family.op(std::string("testp.") + kind + ".f32", {Pred}, {F32});
}

void addBranches(Family &family) {
  family.body("bra, @p [steps of a 3n+1 walk]",
              "\tand.b32 %t0, %a0, 0xff;\n"
              "\tadd.s32 %t0, %t0, 1;\n"
              "\tmov.b32 %d0, 0;\n"
              "loop:\n"
              "\tsetp.eq.s32 %p0, %t0, 1;\n"
              "\t@%p0 bra done;\n"
              "\tand.b32 %t1, %t0, 1;\n"
              "\tsetp.eq.s32 %p1, %t1, 0;\n"
              "\t@%p1 bra even;\n"
              "\tmad.lo.s32 %t0, %t0, 3, 1;\n"
              "\tbra.uni next;\n"
              "even:\n"
              "\tshr.u32 %t0, %t0, 1;\n"
              "next:\n"
              "\tadd.s32 %d0, %d0, 1;\n"
              "\tbra.uni loop;\n"
              "done:\n",
              {B32}, {B32});
  family.body("@!p [predicated moves]",
              "\tmov.b32 %d0, 1;\n"
              "\t@%a0 mov.b32 %d0, 2;\n"
              "\t@!%a1 add.s32 %d0, %d0, 8;\n",
              {B32}, {Pred, Pred});
  family.body("exit [by some threads]",
              "\tst.global.b32 [%out0], %a0;\n"
              "\tmov.b32 %d0, 7;\n"
              "\tsetp.lt.s32 %p0, %a0, 0;\n"
              "\t@%p0 exit;\n",
              {B32}, {B32});
}

} // namespace

void addCompare(Forms &forms) {
  Family family("compare", forms);
  addSetp(family);
  addSet(family);
  addSelect(family);
  addBranches(family);
}

} // namespace moec::conform
