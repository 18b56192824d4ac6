//===- Memory.cpp - loads, stores and memory order --------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Forms.h"

namespace moec::conform {

namespace {

std::string list(const std::string &prefix, unsigned count) {
  if (count == 1)
    return prefix;
  std::string text;
  for (unsigned i = 0; i < count; ++i)
    text += (i ? ", " : "{") + prefix + "_" + std::to_string(i);
  return text + "}";
}

Operand sized(unsigned width) {
  return width == 16 ? B16 : width == 32 ? B32 : B64;
}

std::string vectorOf(unsigned count) {
  return count == 1 ? "" : ".v" + std::to_string(count);
}

/// Adds `prefix` with its qualifiers, followed by `.v4.b32` and so on.
void addLoad(Family &family, const std::string &prefix, unsigned width,
             unsigned count) {
  Operand value = sized(width).times(count);
  std::string name = prefix + vectorOf(count) + ".b" + std::to_string(width);
  family.body(name, "\t" + name + " " + list("%d0", count) + ", [%in0];\n",
              {value}, {value});
}

void addStore(Family &family, const std::string &prefix, unsigned width,
              unsigned count, const std::string &loads) {
  Operand value = sized(width).times(count);
  std::string type = ".b" + std::to_string(width);
  std::string name = prefix + vectorOf(count) + type;
  std::string text = "\t" + name + " [%out0], " + list("%a0", count) + ";\n";
  for (unsigned i = 0; i < count; ++i)
    text += "\t" + loads + type + " " +
            (count == 1 ? "%d0" : "%d0_" + std::to_string(i)) + ", [%out0+" +
            std::to_string(i * width / 8) + "];\n";
  family.body(name, text, {value}, {value});
}

void addGlobal(Family &family) {
  const std::pair<unsigned, unsigned> shapes[] = {
      {16, 1}, {32, 1}, {64, 1}, {16, 2}, {16, 4}, {32, 2}, {32, 4}, {64, 2}};
  for (auto [width, count] : shapes) {
    addLoad(family, "ld.global", width, count);
    addLoad(family, "ld.global.nc", width, count);
    addStore(family, "st.global", width, count, "ld.global");
  }
  for (const char *cache :
       {".ca", ".cg", ".cs", ".cv", ".L1::no_allocate", ".L1::evict_first",
        ".L1::evict_last", ".L1::evict_unchanged", ".L2::64B", ".L2::128B",
        ".L2::256B", ".L1::no_allocate.L2::128B"})
    addLoad(family, std::string("ld.global") + cache, 32, 4);
  addLoad(family, "ld.global.nc.L1::no_allocate", 32, 4);
  addLoad(family, "ld.global.nc.L1::no_allocate.L2::256B", 32, 4);
  for (const char *cache : {".wb", ".cg", ".cs", ".wt", ".L1::no_allocate",
                            ".L1::evict_first", ".L1::evict_last"})
    addStore(family, std::string("st.global") + cache, 32, 4, "ld.global");
  family.body("ld.global.L2::cache_hint.v4.b32",
              "\tcreatepolicy.fractional.L2::evict_first.b64 %u0, 1.0;\n"
              "\tld.global.L2::cache_hint.v4.b32 {%d0_0, %d0_1, %d0_2, %d0_3}, "
              "[%in0], %u0;\n",
              {B32.times(4)}, {B32.times(4)});
}

/// Loads and stores of parts of a word, signed and unsigned.
void addParts(Family &family) {
  for (const char *type : {"u8", "s8", "u16", "s16", "b8", "b16"}) {
    bool isBits = *type == 'b';
    Operand result = isBits ? B16 : B32;
    std::string name = std::string("ld.global.") + type;
    family.body(name + " [into " + (isBits ? "16" : "32") + " bits]",
                "\t" + name + " %d0, [%in0+2];\n", {result}, {B32});
  }
  for (const char *name : {"ld.global.s32", "ld.global.nc.s32"})
    family.body(std::string(name) + " [into 64 bits]",
                "\t" + std::string(name) + " %d0, [%in0];\n", {B64}, {B32});
  for (const char *type : {"b8", "b16"})
    family.body(std::string("st.global.") + type + " [of a word]",
                std::string("\tst.global.b32 [%out0], %a0;\n\tst.global.") +
                    type + " [%out0+2], %a1;\n\tld.global.b32 %d0, [%out0];\n",
                {B32}, {B32, B16});
}

void addShared(Family &family) {
  family.shared(32);
  const std::pair<unsigned, unsigned> shapes[] = {
      {16, 1}, {32, 1}, {64, 1}, {16, 2}, {16, 4}, {32, 2}, {32, 4}, {64, 2}};
  for (auto [width, count] : shapes) {
    Operand value = sized(width).times(count);
    std::string type = vectorOf(count) + ".b" + std::to_string(width);
    family.body("st.shared" + type + ", ld.shared" + type,
                "\tst.shared" + type + " [%sh+16], " + list("%a0", count) +
                    ";\n\tld.shared" + type + " " + list("%d0", count) +
                    ", [%sh+16];\n",
                {value}, {value});
  }
  family.body("ld.shared.s8 [into 32 bits]",
              "\tst.shared.b32 [%sh], %a0;\n\tld.shared.s8 %d0, [%sh+1];\n",
              {B32}, {B32});
  family.body("ld.volatile.shared.b32",
              "\tst.volatile.shared.b32 [%sh], %a0;\n"
              "\tld.volatile.shared.b32 %d0, [%sh];\n",
              {B32}, {B32});
  family.body("cvta.shared.u64, isspacep, ld.b32 [generic]",
              "\tcvt.u64.u32 %u0, %sh;\n"
              "\tcvta.shared.u64 %u0, %u0;\n"
              "\tst.b32 [%u0], %a0;\n"
              "\tld.shared.b32 %d0, [%sh];\n"
              "\tld.b32 %d1, [%u0];\n"
              "\tisspacep.shared %d2, %u0;\n"
              "\tisspacep.global %d3, %u0;\n"
              "\tcvta.to.shared.u64 %u1, %u0;\n"
              "\tcvt.u32.u64 %t0, %u1;\n"
              "\tsetp.eq.b32 %d4, %t0, %sh;\n",
              {B32, B32, Pred, Pred, Pred}, {B32});
  family.body("cvta.to.shared::cluster.u64",
              "\tcvt.u64.u32 %u0, %sh;\n"
              "\tcvta.shared.u64 %u0, %u0;\n"
              "\tst.shared.b32 [%sh], %a0;\n"
              "\tcvta.to.shared::cluster.u64 %u1, %u0;\n"
              "\tcvt.u32.u64 %t0, %u1;\n"
              "\tld.shared::cluster.b32 %d0, [%t0];\n",
              {B32}, {B32});
  family.shared(0);
}

void addOtherSpaces(Family &family) {
  family.body("cvta.to.global.u64, isspacep, ld.b32 [generic]",
              "\tcvta.to.global.u64 %u0, %in0;\n"
              "\tld.global.b32 %d0, [%u0];\n"
              "\tcvta.global.u64 %u1, %u0;\n"
              "\tld.b32 %d1, [%u1];\n"
              "\tisspacep.global %d2, %u1;\n"
              "\tisspacep.shared %d3, %u1;\n",
              {B32, B32, Pred, Pred}, {B32});
  family.body("st.local.b32, ld.local.v2.b32",
              "\t.local .align 16 .b8 place[32];\n"
              "\t.reg .b64 %place;\n"
              "\tmov.b64 %place, place;\n"
              "\tst.local.b32 [%place+8], %a0;\n"
              "\tst.local.b32 [%place+12], %a1;\n"
              "\tld.local.v2.b32 {%d0, %d1}, [%place+8];\n",
              {B32, B32}, {B32, B32});
  Form &table = family.body("ld.const.b32",
                            "\tand.b32 %t0, %a0, 3;\n"
                            "\tmov.b64 %u0, table;\n"
                            "\tmad.wide.u32 %u0, %t0, 4, %u0;\n"
                            "\tld.const.b32 %d0, [%u0];\n",
                            {B32}, {B32});
  table.ptx.insert(table.ptx.find(".visible"),
                   ".const .align 4 .b32 table[4] = {17, 4000000000, 99, 0};\n"
                   "\n");
  family.body("ld.param.b32, ld.param.v2.b32",
              "\tld.param.b64 %u0, [b0];\n"
              "\tld.param.b32 %t0, [b0];\n"
              "\tld.param.v2.b32 {%t1, %t2}, [b0];\n"
              "\tmov.b64 {%t3, %t4}, %u0;\n"
              "\tsetp.eq.b32 %d0, %t0, %t3;\n"
              "\tsetp.eq.b32 %d1, %t2, %t4;\n",
              {Pred, Pred}, {B32});
}

void addOrdered(Family &family) {
  for (const char *order : {"volatile", "relaxed.cta", "relaxed.cluster",
                            "relaxed.gpu", "relaxed.sys", "acquire.cta",
                            "acquire.cluster", "acquire.gpu", "acquire.sys"})
    family.body(std::string("ld.") + order + ".global.b32",
                std::string("\tld.") + order + ".global.b32 %d0, [%in0];\n",
                {B32}, {B32});
  for (const char *order :
       {"volatile", "relaxed.cta", "relaxed.gpu", "relaxed.sys", "release.cta",
        "release.cluster", "release.gpu", "release.sys"})
    family.body(std::string("st.") + order + ".global.b32",
                std::string("\tst.") + order +
                    ".global.b32 [%out0], %a0;\n"
                    "\tld.relaxed.gpu.global.b32 %d0, [%out0];\n",
                {B32}, {B32});
  for (const char *fence :
       {"membar.cta", "membar.gl", "membar.sys", "fence.acq_rel.cta",
        "fence.acq_rel.cluster", "fence.acq_rel.gpu", "fence.acq_rel.sys",
        "fence.sc.cta", "fence.sc.cluster", "fence.sc.gpu", "fence.sc.sys",
        "fence.proxy.async", "fence.proxy.async.global",
        "fence.proxy.async.shared::cta", "fence.proxy.alias",
        "fence.mbarrier_init.release.cluster"})
    family.body(fence,
                "\tst.global.b32 [%out0], %a0;\n\t" + std::string(fence) +
                    ";\n\tld.global.b32 %d0, [%out0];\n",
                {B32}, {B32});
  for (const char *hint :
       {"prefetch.global.L1 [%in0]", "prefetch.global.L2 [%in0]",
        "prefetch.global.L2::evict_last [%in0]", "prefetchu.L1 [%in0]",
        "nanosleep.u32 20", "griddepcontrol.wait",
        "griddepcontrol.launch_dependents"})
    family.body(hint, "\t" + std::string(hint) + ";\n\tadd.s32 %d0, %a0, 1;\n",
                {B32}, {B32});
}

} // namespace

void addMemory(Forms &forms) {
  Family family("memory", forms);
  family.launch(8, 128);
  addGlobal(family);
  addParts(family);
  addShared(family);
  addOtherSpaces(family);
  addOrdered(family);
}

} // namespace moec::conform
