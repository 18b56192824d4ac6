//===- Atomic.cpp - atomics and reductions in memory ------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Forms.h"

namespace moec::conform {

namespace {

struct Operation {
  const char *name;
  Operand value;
  /// Whether `red` has the operation, too.
  bool hasReduction = true;
};

std::vector<Operation> operations() {
  std::vector<Operation> all = {{"exch.b32", B32, false},
                                {"exch.b64", B64, false},
                                {"and.b32", B32},
                                {"or.b32", B32},
                                {"xor.b32", B32},
                                {"and.b64", B64},
                                {"or.b64", B64},
                                {"xor.b64", B64},
                                {"add.u32", B32},
                                {"add.s32", B32},
                                {"add.u64", B64},
                                {"inc.u32", B32},
                                {"dec.u32", B32},
                                {"min.u32", B32},
                                {"min.s32", B32},
                                {"max.u32", B32},
                                {"max.s32", B32},
                                {"min.u64", B64},
                                {"min.s64", B64},
                                {"max.u64", B64},
                                {"max.s64", B64},
                                {"add.f32", F32},
                                {"add.noftz.f16", F16},
                                {"add.noftz.bf16", BF16},
                                {"add.noftz.f16x2", F16X2},
                                {"add.noftz.bf16x2", BF16X2}};
  return all;
}

std::string bits(const Operand &value) {
  return ".b" + std::to_string(value.width);
}

/// Each thread uses its own location: compares the old and the new value.
void addAlone(Family &family, const std::string &space,
              const std::string &address) {
  for (const Operation &operation : operations()) {
    std::string type = bits(operation.value);
    std::string place = " [" + address + "], ";
    std::string init = "\tst." + space + type + place + "%a0;\n";
    std::string look = "\tld." + space + type + " %d1, [" + address + "];\n";
    std::string name = "atom." + space + "." + operation.name;
    family.body(
        name, init + "\t" + name + " %d0, [" + address + "], %a1;\n" + look,
        {operation.value, operation.value}, {operation.value, operation.value});
    if (!operation.hasReduction)
      continue;
    name = "red." + space + "." + operation.name;
    family.body(name,
                init + "\tmov" + type + " %d0, %a0;\n\t" + name + place +
                    "%a1;\n" + look,
                {operation.value, operation.value},
                {operation.value, operation.value});
  }
  for (const Operand &value : {B16, B32, B64}) {
    Operand few = value.as(Draw::Few);
    std::string name = "atom." + space + ".cas" + bits(value);
    family.body(name,
                "\tst." + space + bits(value) + " [" + address + "], %a0;\n\t" +
                    name + " %d0, [" + address + "], %a1, %a2;\n\tld." + space +
                    bits(value) + " %d1, [" + address + "];\n",
                {value, value}, {few, few, value});
  }
}

/// All threads of a CTA use one location; the final value does not depend on
/// their order.
void addTogether(Family &family) {
  for (const char *operation : {"add.u32", "min.s32", "max.s32", "and.b32",
                                "or.b32", "xor.b32", "min.u32", "max.u32"})
    family.body(std::string("atom.shared.") + operation + " [by a whole CTA]",
                std::string("\tsetp.eq.b32 %p0, %thread, 0;\n"
                            "\t@%p0 st.shared.b32 [%smem], 77;\n"
                            "\tbar.sync 0;\n"
                            "\tatom.shared.") +
                    operation +
                    " %t0, [%smem], %a0;\n"
                    "\tbar.sync 0;\n"
                    "\tld.shared.b32 %d0, [%smem];\n",
                {B32}, {B32});
}

void addOrdered(Family &family) {
  for (const char *order :
       {"relaxed.cta", "relaxed.gpu", "relaxed.sys", "acquire.gpu",
        "release.gpu", "acq_rel.gpu", "acq_rel.sys", "acq_rel.cta"}) {
    std::string name = std::string("atom.") + order + ".global.add.u32";
    family.body(name,
                "\tst.global.b32 [%out1], %a0;\n\t" + name +
                    " %d0, [%out1], %a1;\n\tld.global.b32 %d1, [%out1];\n",
                {B32, B32}, {B32, B32});
  }
  for (const char *order : {"relaxed.gpu", "release.gpu", "release.sys"}) {
    std::string name = std::string("red.") + order + ".global.add.u32";
    family.body(name,
                "\tst.global.b32 [%out0], %a0;\n\t" + name +
                    " [%out0], %a1;\n\tld.global.b32 %d0, [%out0];\n",
                {B32}, {B32, B32});
  }
}

void addVectors(Family &family) {
  const std::pair<const char *, Operand> rows[] = {
      {"v2.f32", F32.times(2)},
      {"v4.f32", F32.times(4)},
      {"noftz.v2.f16x2", F16X2.times(2)},
      {"noftz.v4.f16x2", F16X2.times(4)},
      {"noftz.v4.bf16x2", BF16X2.times(4)},
  };
  for (const auto &[type, value] : rows) {
    std::string name = std::string("red.global.add.") + type;
    std::string init, look, operands;
    for (unsigned i = 0; i < value.count; ++i) {
      std::string at = std::to_string(i);
      std::string place = "[%out0+" + std::to_string(4 * i) + "]";
      init += "\tst.global.b32 " + place + ", %a0_" + at + ";\n";
      look += "\tld.global.b32 %d0_" + at + ", " + place + ";\n";
      operands += (i ? ", %a1_" : "%a1_") + at;
    }
    family.body(name,
                init + "\t" + name + " [%out0], {" + operands + "};\n" + look,
                {value}, {value, value});
  }
}

} // namespace

void addAtomic(Forms &forms) {
  Family family("atomic", forms);
  family.launch(16, 128);
  addAlone(family, "global", "%out1");
  addOrdered(family);
  addVectors(family);
  family.shared(8, 16);
  addAlone(family, "shared", "%sh");
  addTogether(family);
}

} // namespace moec::conform
