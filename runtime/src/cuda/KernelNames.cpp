//===- KernelNames.cpp - names of kernels in code files ---------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "KernelNames.h"

#include <cctype>
#include <cstring>

namespace moert::cuda {

/// Finds `.visible .entry name(` in PTX.
static std::vector<std::string> findEntries(const std::string &ptx) {
  const std::string directive = ".entry";
  std::vector<std::string> names;
  auto isPartOfName = [](unsigned char c) {
    return std::isalnum(c) || c == '_' || c == '$' || c == '%';
  };
  for (size_t at = ptx.find(directive); at != std::string::npos;
       at = ptx.find(directive, at)) {
    at += directive.size();
    size_t begin = at;
    while (begin < ptx.size() &&
           std::isspace(static_cast<unsigned char>(ptx[begin])))
      ++begin;
    size_t end = begin;
    while (end < ptx.size() &&
           isPartOfName(static_cast<unsigned char>(ptx[end])))
      ++end;
    if (begin > at && end > begin)
      names.push_back(ptx.substr(begin, end - begin));
  }
  return names;
}

/// Reads a number of an ELF file in this machine's byte order; false beyond the
/// end.
template <typename Number>
static bool read(const std::string &file, uint64_t at, Number &number) {
  if (at > file.size() || file.size() - at < sizeof(number))
    return false;
  memcpy(&number, file.data() + at, sizeof(number));
  return true;
}

/// Finds sections named `.text.KERNEL`.
static std::vector<std::string> findCodeSections(const std::string &elf) {
  constexpr uint64_t kSections = 0x28, kSectionSize = 0x3A, kCount = 0x3C,
                     kNamesIndex = 0x3E;
  constexpr uint64_t kName = 0, kOffset = 0x18, kSize = 0x20;
  const std::string prefix = ".text.";
  uint64_t sections = 0, namesBegin = 0, namesSize = 0;
  uint16_t sectionSize = 0, count = 0, namesIndex = 0;
  if (elf.compare(0, 4, "\177ELF") != 0 || !read(elf, kSections, sections) ||
      !read(elf, kSectionSize, sectionSize) || !read(elf, kCount, count) ||
      !read(elf, kNamesIndex, namesIndex))
    return {};
  auto find = [&](uint64_t index) { return sections + index * sectionSize; };
  if (!read(elf, find(namesIndex) + kOffset, namesBegin) ||
      !read(elf, find(namesIndex) + kSize, namesSize) ||
      namesBegin > elf.size() || namesSize > elf.size() - namesBegin)
    return {};
  std::string texts = elf.substr(namesBegin, namesSize);
  std::vector<std::string> names;
  for (uint64_t i = 0; i < count; ++i) {
    uint32_t offset = 0;
    if (!read(elf, find(i) + kName, offset) || offset >= texts.size())
      continue;
    // The last name may end with the table.
    std::string name = texts.c_str() + offset;
    if (name.size() > prefix.size() &&
        name.compare(0, prefix.size(), prefix) == 0)
      names.push_back(name.substr(prefix.size()));
  }
  return names;
}

std::vector<std::string> findKernelNames(ModuleImage::Kind kind,
                                         const std::string &file) {
  return kind == ModuleImage::Kind::Ptx ? findEntries(file)
                                        : findCodeSections(file);
}

} // namespace moert::cuda
