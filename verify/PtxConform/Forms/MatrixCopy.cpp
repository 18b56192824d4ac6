//===- MatrixCopy.cpp - ldmatrix, stmatrix, movmatrix -----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Forms.h"

namespace moec::conform {

static std::string registers(const char *prefix, unsigned count) {
  std::string text = "{";
  for (unsigned i = 0; i < count; ++i)
    text += (i ? ", " : "") + std::string(prefix) + "_" + std::to_string(i);
  return text + "}";
}

void addMatrixCopy(Forms &forms) {
  Family family("matrix copy", forms);
  family.launch(8, 128).shared(16);
  // Lanes address the rows of the warp's 512 bytes in a permuted order.
  const std::string rows = "\tmad.lo.s32 %t0, %lane, 5, 3;\n"
                           "\tand.b32 %t0, %t0, 31;\n"
                           "\tand.b32 %t1, %thread, -32;\n"
                           "\tadd.s32 %t0, %t0, %t1;\n"
                           "\tmad.lo.s32 %t0, %t0, 16, %smem;\n";
  const Operand four = B32.times(4);
  const std::string all = "{%a0_0, %a0_1, %a0_2, %a0_3}";
  for (unsigned count : {1, 2, 4})
    for (const char *trans : {"", ".trans"}) {
      std::string shape = "m8n8.x" + std::to_string(count) + trans;
      std::string name = "ldmatrix.sync.aligned." + shape + ".shared.b16";
      std::string results = count == 1 ? "{%d0}" : registers("%d0", count);
      family.body(name,
                  "\tst.shared.v4.b32 [%sh], " + all +
                      ";\n\tbar.warp.sync -1;\n" + rows + "\t" + name + " " +
                      results + ", [%t0];\n",
                  {B32.times(count)}, {four});
      name = "stmatrix.sync.aligned." + shape + ".shared.b16";
      std::string operands = count == 1 ? "{%a0_0}" : registers("%a0", count);
      family.body(name,
                  "\tst.shared.v4.b32 [%sh], " + all +
                      ";\n\tbar.warp.sync -1;\n" + rows + "\t" + name +
                      " [%t0], " + operands +
                      ";\n\tbar.warp.sync -1;\n"
                      "\tld.shared.v4.b32 " +
                      registers("%d0", 4) + ", [%sh];\n",
                  {four}, {four});
    }
  family.op("movmatrix.sync.aligned.m8n8.trans.b16", {B32}, {B32});
}

} // namespace moec::conform
