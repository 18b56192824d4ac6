//===- KernelNamesTest.cpp - names of kernels in code files -----*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "../../runtime/src/cuda/KernelNames.h"

#include <gtest/gtest.h>

#include <cstring>

using namespace moert;
using namespace moert::cuda;

using Names = std::vector<std::string>;

namespace {

/// An ELF file of empty sections with these names.
std::string makeElf(const Names &sections) {
  constexpr size_t kHeader = 64, kEntry = 64;
  std::string names(1, '\0');
  std::string entries;
  auto put = [](std::string &to, size_t at, uint64_t value, size_t bytes) {
    memcpy(to.data() + at, &value, bytes);
  };
  for (const std::string &section : sections) {
    std::string entry(kEntry, '\0');
    put(entry, 0, names.size(), 4);
    entries += entry;
    names += section + '\0';
  }
  std::string table(kEntry, '\0');
  put(table, 0x18, kHeader, 8);
  put(table, 0x20, names.size(), 8);
  entries += table;
  std::string file(kHeader, '\0');
  file.replace(0, 4, "\177ELF");
  put(file, 0x28, kHeader + names.size(), 8);
  put(file, 0x3A, kEntry, 2);
  put(file, 0x3C, sections.size() + 1, 2);
  put(file, 0x3E, sections.size(), 2);
  return file + names + entries;
}

Names findInCubin(const std::string &file) {
  return findKernelNames(ModuleImage::Kind::Cubin, file);
}

Names findInPtx(const std::string &text) {
  return findKernelNames(ModuleImage::Kind::Ptx, text);
}

} // namespace

TEST(KernelNamesTest, OfPtxAreItsEntries) {
  EXPECT_EQ(findInPtx(".version 8.0\n.visible .entry one(\n.param .u64 p)\n{}\n"
                      ".func helper() {}\n.entry  two_$3 () {}"),
            (Names{"one", "two_$3"}));
  for (const char *text : {"", ".entry", ".entry ", ".entry (", ".entrynone("})
    EXPECT_EQ(findInPtx(text), Names()) << text;
}

TEST(KernelNamesTest, OfCubinsAreThoseOfSectionsOfCode) {
  std::string file = makeElf({".symtab", ".text.product", ".nv.info.product",
                              ".text.", ".text.route.tokens", ".textual"});
  EXPECT_EQ(findInCubin(file), (Names{"product", "route.tokens"}));
  EXPECT_EQ(findInCubin(makeElf({})), Names());
}

TEST(KernelNamesTest, DamagedCubinsHaveNone) {
  std::string file = makeElf({".text.product"});
  for (size_t size = 0; size < file.size(); ++size)
    EXPECT_LE(findInCubin(file.substr(0, size)).size(), 1u) << size;
  // With any byte changed nothing outside of the file is read.
  for (size_t at = 0; at < file.size(); ++at)
    for (char value : {'\xFF', '\x7F', '\0'}) {
      std::string other = file;
      other[at] = value;
      EXPECT_LE(findInCubin(other).size(), 0x10000u);
    }
  EXPECT_EQ(findInCubin("\177ELF"), Names());
  EXPECT_EQ(findInCubin(".entry one("), Names());
}
