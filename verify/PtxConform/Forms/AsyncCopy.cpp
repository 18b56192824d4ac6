//===- AsyncCopy.cpp - asynchronous copies without a tensor map -*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Forms.h"

namespace moec::conform {

namespace {

const Operand kFourWords = B32.times(4);
const Operand kEightWords = B32.times(8);

std::string readShared(unsigned words) {
  std::string text;
  for (unsigned i = 0; i < words; ++i)
    text += "\tld.shared.b32 %d0_" + std::to_string(i) + ", [%sh+" +
            std::to_string(4 * i) + "];\n";
  return text;
}

std::string fillShared(unsigned words, const char *prefix = "%a0_") {
  std::string text;
  for (unsigned i = 0; i < words; ++i)
    text += "\tst.shared.b32 [%sh+" + std::to_string(4 * i) + "], " + prefix +
            std::to_string(i) + ";\n";
  return text;
}

void addCpAsync(Family &family) {
  family.shared(48);
  const std::string done = "\tcp.async.wait_all;\n";
  const std::string marks = "\tmov.b32 %t1, -1;\n"
                            "\tst.shared.v4.b32 [%sh], {%t1, %t1, %t1, %t1};\n";
  for (const char *form :
       {"ca.shared.global [%sh], [%in0], 4",
        "ca.shared.global [%sh], [%in0], 8",
        "ca.shared.global [%sh], [%in0], 16",
        "cg.shared.global [%sh], [%in0], 16",
        "cg.shared.global.L2::128B [%sh], [%in0], 16",
        "cg.shared::cta.global.L2::256B [%sh], [%in0], 16"}) {
    std::string name = std::string("cp.async.") + form;
    std::string shortName = name.substr(0, name.find(' '));
    family.body(shortName + " [" + name.substr(name.rfind(' ') + 1) + "]",
                marks + "\t" + name + ";\n" + done + readShared(4),
                {kFourWords}, {kFourWords});
  }
  for (const char *form : {"ca.shared.global [%sh], [%in0], 4, ",
                           "ca.shared.global [%sh], [%in0], 8, ",
                           "cg.shared.global [%sh], [%in0], 16, "}) {
    std::string name = std::string("cp.async.") + form;
    std::string size = name.substr(name.size() - 4, 2);
    family.body(name.substr(0, name.find(' ')) + " [zero fill, " +
                    size.substr(size[0] == ' ') + "]",
                marks + "\trem.u32 %t0, %thread, " + size + ";\n" +
                    "\tadd.s32 %t0, %t0, 1;\n\t" + name + "%t0;\n" + done +
                    readShared(4),
                {kFourWords}, {kFourWords});
  }
  family.body("cp.async.cg.shared.global [zero fill, no byte read]",
              marks + "\tcp.async.cg.shared.global [%sh], [%in0], 16, 0;\n" +
                  done + readShared(4),
              {kFourWords}, {kFourWords});
  family.body("cp.async.commit_group, wait_group",
              "\tcp.async.cg.shared.global [%sh], [%in0], 16;\n"
              "\tcp.async.commit_group;\n"
              "\tcp.async.cg.shared.global [%sh+16], [%in0+16], 16;\n"
              "\tcp.async.commit_group;\n"
              "\tcp.async.wait_group 1;\n"
              "\tld.shared.b32 %t0, [%sh];\n"
              "\tcp.async.wait_group 0;\n" +
                  readShared(8) + "\txor.b32 %d0_7, %d0_7, %t0;\n",
              {kEightWords}, {kEightWords});
  const std::string waits = "wait:\n"
                            "\tmbarrier.try_wait.parity.shared.b64 %p0, "
                            "[%sh+32], 0;\n"
                            "\t@!%p0 bra wait;\n";
  for (const char *form : {"", ".noinc"})
    family.body(std::string("cp.async.mbarrier.arrive") + form + ".shared.b64",
                std::string("\tmbarrier.init.shared.b64 [%sh+32], 1;\n"
                            "\tcp.async.cg.shared.global [%sh], [%in0], 16;\n"
                            "\tcp.async.mbarrier.arrive") +
                    form + ".shared.b64 [%sh+32];\n" +
                    (*form ? ""
                           : "\tmbarrier.arrive.shared.b64 %u0, "
                             "[%sh+32];\n") +
                    waits + readShared(4),
                {kFourWords}, {kFourWords});
}

const std::string kWait = "wait:\n"
                          "\tmbarrier.try_wait.parity.shared.b64 %p0, "
                          "[%sh+64], 0;\n"
                          "\t@!%p0 bra wait;\n";
const std::string kReady = "\tmbarrier.init.shared.b64 [%sh+64], 1;\n"
                           "\tfence.mbarrier_init.release.cluster;\n"
                           "\tfence.proxy.async.shared::cta;\n"
                           "\tmbarrier.arrive.expect_tx.shared.b64 %u0, "
                           "[%sh+64], 32;\n";

void addBulk(Family &family) {
  family.shared(80);
  for (const char *space : {"shared::cluster", "shared::cta"}) {
    std::string name = std::string("cp.async.bulk.") + space +
                       ".global.mbarrier::complete_tx::bytes";
    family.body(name,
                kReady + "\t" + name + " [%sh], [%in0], 32, [%sh+64];\n" +
                    kWait + readShared(8),
                {kEightWords}, {kEightWords});
  }
  const std::string fence = "\tfence.proxy.async;\n";
  const std::string end = "\tcp.async.bulk.commit_group;\n"
                          "\tcp.async.bulk.wait_group 0;\n";
  std::string readBack;
  for (unsigned i = 0; i < 8; ++i)
    readBack += "\tld.global.b32 %d0_" + std::to_string(i) + ", [%out0+" +
                std::to_string(4 * i) + "];\n";
  family.body("cp.async.bulk.global.shared::cta.bulk_group",
              fillShared(8) + fence +
                  "\tcp.async.bulk.global.shared::cta.bulk_group [%out0], "
                  "[%sh], 32;\n" +
                  end + readBack,
              {kEightWords}, {kEightWords});
  family.body("cp.async.bulk.wait_group.read [before its source is reused]",
              fillShared(8) + fence +
                  "\tcp.async.bulk.global.shared::cta.bulk_group [%out0], "
                  "[%sh], 32;\n"
                  "\tcp.async.bulk.commit_group;\n"
                  "\tcp.async.bulk.wait_group.read 0;\n"
                  "\tst.shared.b32 [%sh], 0;\n"
                  "\tcp.async.bulk.wait_group 0;\n" +
                  readBack,
              {kEightWords}, {kEightWords});
  family.body("cp.async.bulk.prefetch.L2.global",
              "\tcp.async.bulk.prefetch.L2.global [%in0], 32;\n"
              "\tadd.s32 %d0, %a0_0, %a0_7;\n",
              {B32}, {kEightWords});
}

void addBulkReductions(Family &family) {
  family.shared(32);
  const std::pair<const char *, Operand> rows[] = {
      {"add.u32", B32.times(8)},         {"add.s32", B32.times(8)},
      {"add.u64", B64.times(4)},         {"inc.u32", B32.times(8)},
      {"dec.u32", B32.times(8)},         {"min.u32", B32.times(8)},
      {"min.s32", B32.times(8)},         {"max.u32", B32.times(8)},
      {"max.s32", B32.times(8)},         {"min.s64", B64.times(4)},
      {"max.u64", B64.times(4)},         {"and.b32", B32.times(8)},
      {"or.b32", B32.times(8)},          {"xor.b32", B32.times(8)},
      {"and.b64", B64.times(4)},         {"add.f32", F32.times(8)},
      {"add.noftz.f16", F16X2.times(8)}, {"add.noftz.bf16", BF16X2.times(8)},
      {"min.f16", F16X2.times(8)},       {"max.f16", F16X2.times(8)},
      {"min.bf16", BF16X2.times(8)},     {"max.bf16", BF16X2.times(8)},
  };
  for (const auto &[operation, value] : rows) {
    std::string name =
        std::string("cp.reduce.async.bulk.global.shared::cta.bulk_group.") +
        operation;
    std::string type = ".b" + std::to_string(value.width);
    std::string text, readBack;
    for (unsigned i = 0; i < value.count; ++i) {
      std::string at = std::to_string(i);
      std::string offset = "+" + std::to_string(i * value.width / 8) + "]";
      text += "\tst.shared" + type + " [%sh" + offset + ", %a1_" + at + ";\n";
      text += "\tst.global" + type + " [%out0" + offset + ", %a0_" + at + ";\n";
      readBack +=
          "\tld.global" + type + " %d0_" + at + ", [%out0" + offset + ";\n";
    }
    family.body(name,
                text + "\tfence.proxy.async;\n\t" + name +
                    " [%out0], [%sh], 32;\n"
                    "\tcp.async.bulk.commit_group;\n"
                    "\tcp.async.bulk.wait_group 0;\n" +
                    readBack,
                {value}, {value, value});
  }
}

} // namespace

void addAsyncCopy(Forms &forms) {
  Family family("async copy", forms);
  family.launch(8, 128);
  addCpAsync(family);
  addBulk(family);
  addBulkReductions(family);
}

} // namespace moec::conform
