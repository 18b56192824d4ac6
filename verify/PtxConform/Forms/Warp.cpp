//===- Warp.cpp - collective instructions of a warp -------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Forms.h"

namespace moec::conform {

namespace {

/// Runs `text` in the lanes of mask %a0; the others return 0.
std::string masked(const std::string &text) {
  return "\tshl.b32 %t0, 1, %lane;\n"
         "\tand.b32 %t0, %t0, %a0;\n"
         "\tmov.b32 %d0, 0;\n"
         "\tsetp.eq.b32 %p0, %t0, 0;\n"
         "\t@%p0 bra skip;\n" +
         text +
         "skip:\n"
         "\tbar.warp.sync -1;\n";
}

void addShuffles(Family &family) {
  for (std::string mode : {"idx", "up", "down", "bfly"}) {
    std::string name = "shfl.sync." + mode + ".b32";
    family.body(name + " [%d|%p]",
                "\tand.b32 %t0, %a2, 0x1f1f;\n"
                "\t" +
                    name + " %d0|%d1, %a0, %a1, %t0, -1;\n",
                {B32, Pred}, {B32, B32, B32});
    for (const char *clamp : {"31", "0", "0x1c1f", "0x1807"})
      family.body(name + " [1, " + clamp + "]",
                  "\t" + name + " %d0, %a0, 1, " + clamp + ", -1;\n", {B32},
                  {B32});
    family.body(name + " [half-warps apart]",
                "\tsetp.lt.u32 %p0, %lane, 16;\n"
                "\t@%p0 bra low;\n"
                "\t" +
                    name +
                    " %d0, %a0, 3, 0x101f, 0xffff0000;\n"
                    "\tbra.uni done;\n"
                    "low:\n"
                    "\t" +
                    name +
                    " %d0, %a0, 5, 0x101f, 0x0000ffff;\n"
                    "done:\n"
                    "\tbar.warp.sync -1;\n",
                {B32}, {B32});
  }
}

void addVotes(Family &family) {
  Operand mask = B32.as(Draw::WarpMasks);
  for (const char *name : {"all", "any", "uni"}) {
    std::string text = std::string("vote.sync.") + name + ".pred";
    family.body(text, "\t" + text + " %d0, %a0, -1;\n", {Pred}, {Pred});
    family.body(
        text + " [negated, of a few lanes]",
        masked("\t" + text + " %p1, !%a1, %a0;\n\tselp.b32 %d0, 1, 2, %p1;\n"),
        {B32}, {mask, Pred});
  }
  family.body("vote.sync.ballot.b32", "\tvote.sync.ballot.b32 %d0, %a0, -1;\n",
              {B32}, {Pred});
  family.body("vote.sync.ballot.b32 [of a few lanes]",
              masked("\tvote.sync.ballot.b32 %d0, %a1, %a0;\n"), {B32},
              {mask, Pred});
}

void addReductions(Family &family) {
  Operand mask = B32.as(Draw::WarpMasks);
  for (const char *name :
       {"add.s32", "add.u32", "min.s32", "min.u32", "max.s32", "max.u32",
        "and.b32", "or.b32", "xor.b32"}) {
    std::string text = std::string("redux.sync.") + name;
    family.body(text, "\t" + text + " %d0, %a0, -1;\n", {B32}, {B32});
    family.body(text + " [of a few lanes]",
                masked("\t" + text + " %d0, %a1, %a0;\n"), {B32}, {mask, B32});
  }
}

void addMatches(Family &family) {
  Operand mask = B32.as(Draw::WarpMasks);
  for (const char *type : {"b32", "b64"}) {
    Operand few = (type[1] == '3' ? B32 : B64).as(Draw::Few);
    std::string any = std::string("match.any.sync.") + type;
    family.body(any, "\t" + any + " %d0, %a0, -1;\n", {B32}, {few});
    family.body(any + " [of a few lanes]",
                masked("\t" + any + " %d0, %a1, %a0;\n"), {B32}, {mask, few});
    std::string all = std::string("match.all.sync.") + type;
    family.body(all, "\t" + all + " %d0|%d1, %a0, -1;\n", {B32, Pred}, {few});
    family.body(all + " [of a few lanes]",
                masked("\t" + all +
                       " %d0|%p1, %a1, %a0;\n"
                       "\t@%p1 xor.b32 %d0, %d0, 1;\n"),
                {B32}, {mask, few});
  }
}

} // namespace

void addWarp(Forms &forms) {
  Family family("warp", forms);
  family.launch(32, 128);
  addShuffles(family);
  addVotes(family);
  addReductions(family);
  addMatches(family);
  Operand mask = B32.as(Draw::WarpMasks);
  // The elected lane is unspecified, but all lanes must agree on it.
  const std::string agree = "\tvote.sync.ballot.b32 %t2, %p1, %t3;\n"
                            "\tshl.b32 %t1, 1, %t1;\n"
                            "\tand.b32 %t4, %t1, %t3;\n"
                            "\tsetp.eq.b32 %p2, %t1, %t2;\n"
                            "\tsetp.eq.b32 %p3, %t1, %t4;\n"
                            "\tand.pred %p2, %p2, %p3;\n"
                            "\tselp.b32 %d0, 100, 200, %p2;\n";
  family.body("elect.sync",
              "\tmov.b32 %t3, -1;\n\telect.sync %t1|%p1, -1;\n" + agree, {B32},
              {});
  family.body(
      "elect.sync [of a few lanes]",
      masked("\tmov.b32 %t3, %a0;\n\telect.sync %t1|%p1, %a0;\n" + agree),
      {B32}, {mask});
  family.body("activemask.b32 [of a whole warp]",
              "\tbar.warp.sync -1;\n\tactivemask.b32 %t0;\n"
              "\tadd.s32 %d0, %t0, %a0;\n",
              {B32}, {B32});
  family.shared(4);
  family.body("bar.warp.sync",
              "\tst.shared.b32 [%sh], %a0;\n"
              "\tbar.warp.sync -1;\n"
              "\txor.b32 %t0, %lane, 13;\n"
              "\tsub.s32 %t0, %t0, %lane;\n"
              "\tmad.lo.s32 %t0, %t0, 4, %sh;\n"
              "\tld.shared.b32 %d0, [%t0];\n",
              {B32}, {B32});
}

} // namespace moec::conform
