//===- Assemble.cpp - assembles PTX with ptxas ----------------------------===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/Support/Process.h"
#include "moec/Target/NVPTX.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/Process.h"
#include "llvm/Support/Program.h"

#include <cerrno>
#include <cstring>

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

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
// Output of ptxas
//===----------------------------------------------------------------------===//

/// The number before `unit`, as in "16 bytes stack frame"; 0 if there is none.
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

namespace {

/// An in-memory file that another program of this user can open by path. The
/// system removes it when this process ends in any manner.
class MemoryFile {
public:
  MemoryFile() : descriptor(memfd_create("moec", MFD_CLOEXEC)) {}
  ~MemoryFile() {
    if (descriptor >= 0)
      close(descriptor);
  }
  MemoryFile(const MemoryFile &) = delete;
  MemoryFile &operator=(const MemoryFile &) = delete;

  bool isOpen() const { return descriptor >= 0; }

  std::string path() const {
    return ("/proc/" + Twine(getpid()) + "/fd/" + Twine(descriptor)).str();
  }

  bool write(StringRef text) {
    while (!text.empty()) {
      ssize_t written = ::write(descriptor, text.data(), text.size());
      if (written < 0 && errno == EINTR)
        continue;
      if (written < 0)
        return false;
      text = text.drop_front(size_t(written));
    }
    return true;
  }

  /// Reads all contents from the beginning.
  bool read(std::string &text) const {
    struct stat info;
    if (fstat(descriptor, &info) != 0)
      return false;
    text.resize(size_t(info.st_size));
    for (size_t done = 0; done < text.size();) {
      ssize_t got = pread(descriptor, text.data() + done, text.size() - done,
                          off_t(done));
      if (got < 0 && errno == EINTR)
        continue;
      if (got <= 0)
        return false;
      done += size_t(got);
    }
    return true;
  }

private:
  int descriptor;
};

} // namespace

std::string moec::getAssembler(const AssembleOptions &options) {
  return options.ptxas.empty() ? findPtxas() : options.ptxas;
}

Expected<std::string>
moec::getAssemblerVersion(const AssembleOptions &options) {
  std::string ptxas = getAssembler(options);
  Expected<ProcessResult> run =
      runProcess(ptxas, {"--version"}, options.timeoutSeconds);
  if (!run)
    return run.takeError();
  if (run->exitCode != 0)
    return createStringError(ptxas + " --version failed:\n" + run->output);
  return std::move(run->output);
}

/// The end of a message about an assembler that the environment names.
static StringRef explainChoice(const AssembleOptions &options) {
  auto named = sys::Process::GetEnv("MOEC_PTXAS");
  return options.ptxas.empty() && named && !named->empty()
             ? "; the environment variable MOEC_PTXAS names it: correct or "
               "unset it"
             : "";
}

Expected<AssembledKernels> moec::assemble(StringRef ptx, StringRef chip,
                                          const AssembleOptions &options) {
  std::string ptxas = getAssembler(options);
  if (ptxas.empty())
    return createStringError("ptxas was not found; name it in MOEC_PTXAS, or "
                             "put it on the PATH or into " +
                             kCudaFolder);
  MemoryFile input, output;
  if (!input.isOpen() || !output.isOpen() || !input.write(ptx))
    return createStringError("cannot create a file in memory for ptxas: " +
                             Twine(strerror(errno)));
  // -suppress-debug-info: with line information in the PTX, ptxas would embed
  // the whole PTX in the cubin.
  Expected<ProcessResult> run =
      runProcess(ptxas,
                 {("-arch=" + chip).str(), "-v", "-lineinfo",
                  "-suppress-debug-info", input.path(), "-o", output.path()},
                 options.timeoutSeconds);
  if (!run)
    return createStringError(toString(run.takeError()) +
                             explainChoice(options));
  StringRef said = StringRef(run->output).rtrim();
  if (run->exitCode != 0)
    return createStringError(
        ptxas + " failed with exit code " + Twine(run->exitCode) +
        (said.empty() ? explainChoice(options) : ":\n") + said);
  AssembledKernels result = parseAssemblerOutput(run->output);
  result.cpuSeconds = run->cpuSeconds;
  if (!output.read(result.cubin) || result.cubin.empty())
    return createStringError(ptxas + " has written no cubin" +
                             (said.empty() ? explainChoice(options) : ":\n") +
                             said);
  return result;
}
