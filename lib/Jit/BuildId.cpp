//===- BuildId.cpp - identifies the compiler build ------------------------===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/Jit/BuildId.h"

#include "mlir/Target/LLVMIR/Export.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Support/MathExtras.h"

#include <cstring>

#include <elf.h>
#include <link.h>

using namespace llvm;
using namespace moec;

namespace {

struct Search {
  /// An address in the object to find.
  uintptr_t address = 0;
  std::string file;
  /// Build id of the object in hexadecimal digits.
  std::string id;
};

/// The build id in the ELF notes at `begin`, which are aligned to `alignment`.
StringRef findBuildId(const char *begin, size_t size, size_t alignment) {
  for (size_t at = 0; at + sizeof(ElfW(Nhdr)) <= size;) {
    ElfW(Nhdr) note;
    std::memcpy(&note, begin + at, sizeof(note));
    size_t name = at + sizeof(note);
    size_t description = alignTo(name + note.n_namesz, alignment);
    size_t end = alignTo(description + note.n_descsz, alignment);
    if (end > size)
      break;
    if (note.n_type == NT_GNU_BUILD_ID &&
        StringRef(begin + name, note.n_namesz) == StringRef("GNU", 4))
      return StringRef(begin + description, note.n_descsz);
    at = end;
  }
  return {};
}

/// Called for each object of the process; a nonzero result stops the iteration.
int visit(dl_phdr_info *info, size_t, void *data) {
  auto &search = *static_cast<Search *>(data);
  using Segment = ElfW(Phdr);
  ArrayRef<Segment> segments(info->dlpi_phdr, info->dlpi_phnum);
  bool holds = any_of(segments, [&](const Segment &segment) {
    uintptr_t begin = info->dlpi_addr + segment.p_vaddr;
    return segment.p_type == PT_LOAD && search.address >= begin &&
           search.address - begin < segment.p_memsz;
  });
  if (!holds)
    return 0;
  search.file = *info->dlpi_name ? info->dlpi_name : "this program";
  for (const Segment &segment : segments) {
    if (segment.p_type != PT_NOTE)
      continue;
    auto *notes =
        reinterpret_cast<const char *>(info->dlpi_addr + segment.p_vaddr);
    StringRef id =
        findBuildId(notes, segment.p_memsz, segment.p_align == 8 ? 8 : 4);
    if (!id.empty())
      search.id = toHex(id, /*LowerCase=*/true);
  }
  return 1;
}

template <typename Function>
uintptr_t addressOf(Function *function) {
  return reinterpret_cast<uintptr_t>(function);
}

} // namespace

Expected<std::string> moec::getCompilerBuildId() {
  std::string ids;
  // One function of moec, one of MLIR, one of LLVM.
  for (uintptr_t address : {addressOf(&getCompilerBuildId),
                            addressOf(&mlir::translateModuleToLLVMIR),
                            addressOf(&TargetRegistry::targets)}) {
    Search search;
    search.address = address;
    dl_iterate_phdr(visit, &search);
    if (search.id.empty())
      return createStringError(
          (search.file.empty() ? "the program" : search.file) +
          " has no build id, so its compiled layers cannot be told from those "
          "of another build; link it with -Wl,--build-id=sha1");
    ids += (ids.empty() ? "" : " ") + search.id;
  }
  return ids;
}
