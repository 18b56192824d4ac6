//===- Move.cpp - moves, packing and special registers ----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Forms.h"

namespace moec::conform {

void addMove(Forms &forms) {
  Family family("move", forms);
  family.op("mov.b16", {B16}, {B16});
  family.op("mov.b32", {B32}, {B32});
  family.op("mov.b64", {B64}, {B64});
  family.op("mov.pred", {Pred}, {Pred});
  family.body("mov.b32 [immediate]",
              "\tmov.b32 %d0, -2147483648;\n\tadd.s32 %d0, %d0, %a0;\n", {B32},
              {B32});
  family.body("mov.b32 [unpack]", "\tmov.b32 {%d0, %d1}, %a0;\n", {B16, B16},
              {B32});
  family.body("mov.b32 [pack]", "\tmov.b32 %d0, {%a0, %a1};\n", {B32},
              {B16, B16});
  family.body("mov.b32 [unpack, one unused]", "\tmov.b32 {_, %d0}, %a0;\n",
              {B16}, {B32});
  family.body("mov.b64 [unpack]", "\tmov.b64 {%d0, %d1}, %a0;\n", {B32, B32},
              {B64});
  family.body("mov.b64 [pack]", "\tmov.b64 %d0, {%a0, %a1};\n", {B64},
              {B32, B32});
  family.body("mov.b64 [pack 4]", "\tmov.b64 %d0, {%a0, %a1, %a2, %a3};\n",
              {B64}, {B16, B16, B16, B16});
  family.body("mov.b64 [unpack 4]", "\tmov.b64 {%d0, %d1, %d2, %d3}, %a0;\n",
              {B16, B16, B16, B16}, {B64});
  family.launch(3, 96);
  for (const char *name :
       {"tid.x", "tid.y", "ntid.x", "ntid.y", "ctaid.x", "ctaid.y", "nctaid.x",
        "laneid", "lanemask_eq", "lanemask_le", "lanemask_lt", "lanemask_ge",
        "lanemask_gt", "cluster_ctarank", "cluster_nctarank", "clusterid.x",
        "nclusterid.x"}) {
    std::string text = std::string("mov.u32 %d0, %") + name + ";\n";
    family.body("mov.u32 [%" + std::string(name) + "]", "\t" + text, {B32}, {});
  }
}

} // namespace moec::conform
