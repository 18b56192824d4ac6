//===- Session.h - a loaded layer of moe-run --------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_TOOLS_RUN_SESSION_H
#define MOEC_LIB_TOOLS_RUN_SESSION_H

#include "HostTensor.h"
#include "Options.h"
#include "RankProcesses.h"
#include "RunLevel.h"
#include "moec/Jit/Jit.h"
#include "moec/Support/PooledContext.h"

namespace moec {

struct Session {
  /// The input, unless it is a package, and the overrides of options.
  std::optional<SourceText> text;
  SpecOverrides overrides;
  bool isIR() const { return text && !isJson(*text); }
  /// Outlives the module.
  std::unique_ptr<PooledContext> context;
  /// The source; of a package only the spec.
  Source source;
  /// The level of the IR that was loaded.
  Level level = Level::Moe;
  std::optional<moert::Package> package;
  moert::PackageChoice choice;
  /// The compilation's report, if the package was compiled from the source.
  std::optional<JitReport> report;
  /// Set with --nproc; outlives the ranks' objects.
  std::unique_ptr<RankProcesses> processes;
  bool isRankProcess() const { return processes && processes->getRank(); }
  /// One, or a simulator per seed.
  std::vector<std::unique_ptr<moert::Device>> devices;
  moert::Plan plan;
  std::vector<HostTensor> tensors;
};

/// Reads a description or IR; does nothing for a package. Returns false, here
/// and below, after printing an error.
bool readInput(Session &session, const MoeRunOptions &options);
/// Opens the package or compiles the input as the options say, and opens the
/// devices; `--signature` needs none.
bool loadLayer(Session &session, const MoeRunOptions &options,
               SourceDiagnostics &diagnostics);

void printSignature(const Session &session);
/// Prints how the layer was made and the times of its runs.
void printTimes(const Session &session, const RunResult &result,
                const MoeRunOptions &options);

} // namespace moec

#endif // MOEC_LIB_TOOLS_RUN_SESSION_H
