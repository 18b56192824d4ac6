//===- Session.h - a layer that moe-run has loaded --------------*- C++ -*-===//
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

/// A loaded layer with its tensors filled.
struct Session {
  /// What was given, unless it is a package, and what options change about it.
  std::optional<SourceText> text;
  SpecOverrides overrides;
  bool isIR() const { return text && !isJson(*text); }
  /// Outlives the module.
  std::unique_ptr<PooledContext> context;
  /// The source; the spec alone where it is a package.
  Source source;
  /// The level of the IR that was loaded.
  Level level = Level::Moe;
  std::optional<moert::Package> package;
  moert::PackageChoice choice;
  /// How the package came about, where it was made from the source.
  std::optional<JitReport> report;
  /// With --nproc; outlives what ranks have.
  std::unique_ptr<RankProcesses> processes;
  bool isRankProcess() const { return processes && processes->getRank(); }
  /// One, or as many simulated ones as there are seeds.
  std::vector<std::unique_ptr<moert::Device>> devices;
  moert::Plan plan;
  std::vector<HostTensor> tensors;
};

/// Reads a description or IR; of a package nothing yet. False where that is
/// complained of, as below.
bool readInput(Session &session, const MoeRunOptions &options);
/// Opens the package, or compiles what was read as the options say, and opens
/// the devices, of which `--signature` needs none.
bool loadLayer(Session &session, const MoeRunOptions &options,
               SourceDiagnostics &diagnostics);

/// Lists the layer's tensors.
void printSignature(const Session &session);
/// Says how the layer came about and what its runs took.
void printTimes(const Session &session, const RunResult &result,
                const MoeRunOptions &options);

} // namespace moec

#endif // MOEC_LIB_TOOLS_RUN_SESSION_H
