//===- Assemble.cpp - PTX to a cubin by ptxas -------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/Target/NVPTX.h"
#include "llvm/ADT/ScopeExit.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Process.h"
#include "llvm/Support/Program.h"

#include <array>

using namespace llvm;
using namespace moec;

static constexpr StringLiteral kCudaFolder = "/usr/local/cuda/bin";

std::string moec::findPtxas() {
  if (auto named = sys::Process::GetEnv("MOEC_PTXAS"); named && !named->empty())
    return *named;
  if (auto found = sys::findProgramByName("ptxas"))
    return *found;
  if (auto found = sys::findProgramByName("ptxas", {kCudaFolder}))
    return *found;
  return {};
}

//===----------------------------------------------------------------------===//
// What ptxas says
//===----------------------------------------------------------------------===//

/// The number in front of `unit`, as in "16 bytes stack frame"; 0 if it is not
/// there.
static int64_t numberBefore(StringRef line, StringRef unit) {
  size_t at = line.find(unit);
  if (at == StringRef::npos)
    return 0;
  StringRef before = line.take_front(at).rtrim();
  size_t begin = before.find_last_not_of("0123456789");
  int64_t number = 0;
  before.drop_front(begin + 1).getAsInteger(10, number);
  return number;
}

static bool isComplaint(StringRef line) {
  return line.contains("warning") || line.contains("(C75") ||
         line.contains("error");
}

AssembledKernels moec::parseAssemblerOutput(StringRef text) {
  AssembledKernels result;
  SmallVector<StringRef> lines;
  text.split(lines, '\n');
  for (StringRef line : lines) {
    auto [_, after] = line.split("Compiling entry function '");
    if (!after.empty()) {
      result.kernels.emplace_back();
      result.kernels.back().name = after.split('\'').first.str();
    }
    if (isComplaint(line))
      result.complaints.push_back(line.str());
    if (result.kernels.empty())
      continue;
    KernelReport &kernel = result.kernels.back();
    if (line.contains("bytes stack frame")) {
      kernel.stackBytes = numberBefore(line, "bytes stack frame");
      kernel.spillStoreBytes = numberBefore(line, "bytes spill stores");
      kernel.spillLoadBytes = numberBefore(line, "bytes spill loads");
    }
    if (line.contains("Used ")) {
      kernel.registers = numberBefore(line, "registers");
      kernel.sharedBytes = numberBefore(line, "bytes smem");
    }
  }
  return result;
}

//===----------------------------------------------------------------------===//
// Running it
//===----------------------------------------------------------------------===//

static Error fail(const Twine &message) {
  return createStringError(inconvertibleErrorCode(), message);
}

static Expected<std::string> readFile(StringRef path) {
  auto buffer = MemoryBuffer::getFile(path, /*IsText=*/false,
                                      /*RequiresNullTerminator=*/false);
  if (!buffer)
    return fail("cannot read '" + path + "': " + buffer.getError().message());
  return (*buffer)->getBuffer().str();
}

Expected<AssembledKernels> moec::assemble(StringRef ptx, StringRef chip,
                                          const AssembleOptions &options) {
  std::string ptxas = options.ptxas.empty() ? findPtxas() : options.ptxas;
  if (ptxas.empty())
    return fail("ptxas was not found; name it in MOEC_PTXAS, or put it on the "
                "PATH or into " +
                Twine(kCudaFolder));

  // Input, output, messages.
  std::array<SmallString<128>, 3> paths;
  scope_exit cleanup([&] {
    for (const auto &path : paths)
      if (!path.empty())
        sys::fs::remove(path);
  });
  constexpr StringLiteral suffixes[] = {"ptx", "cubin", "log"};
  for (auto [path, suffix] : zip(paths, suffixes))
    if (std::error_code error =
            sys::fs::createTemporaryFile("moec", suffix, path))
      return fail("no temporary file can be made: " + error.message());
  {
    std::error_code error;
    raw_fd_ostream file(paths[0], error);
    if (!error) {
      file << ptx;
      file.close();
      error = file.error();
    }
    if (error) {
      file.clear_error();
      return fail("cannot write '" + paths[0] + "': " + error.message());
    }
  }
  std::string arch = ("-arch=" + chip).str();
  StringRef args[] = {ptxas, arch, "-v", paths[0], "-o", paths[1]};
  std::optional<StringRef> redirects[] = {"", paths[2].str(), paths[2].str()};
  std::string error;
  int code =
      sys::ExecuteAndWait(ptxas, args, /*Env=*/std::nullopt, redirects,
                          /*SecondsToWait=*/0, /*MemoryLimit=*/0, &error);
  auto log = readFile(paths[2]);
  if (!log)
    return log.takeError();
  if (code != 0)
    return fail(Twine(ptxas) + " failed" + (error.empty() ? "" : ": ") + error +
                (log->empty() ? "" : ":\n") + StringRef(*log).rtrim());
  AssembledKernels result = parseAssemblerOutput(*log);
  auto cubin = readFile(paths[1]);
  if (!cubin)
    return cubin.takeError();
  result.cubin = std::move(*cubin);
  return result;
}
