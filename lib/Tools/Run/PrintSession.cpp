//===- PrintSession.cpp - messages of moe-run about a layer -----*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "PartTimes.h"
#include "Session.h"
#include "Timing.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FormatVariadic.h"

using namespace moec;

static void printTensor(llvm::StringRef role, llvm::StringRef name,
                        llvm::StringRef dtype,
                        llvm::ArrayRef<std::string> shape) {
  llvm::outs() << llvm::formatv("{0,-7} {1,-26} {2,-9} {3}\n", role, name,
                                dtype, llvm::join(shape, " x "));
}

/// Prints the tensors of a layer described in JSON, which need not compile.
static void printSignature(const LayerSpec &spec) {
  for (const TensorInfo &info : getTensorSignature(spec)) {
    llvm::SmallVector<std::string> shape;
    for (int64_t size : info.shape)
      shape.push_back(size == kTokenDimension ? "tokens"
                                              : std::to_string(size));
    printTensor(stringify(info.role), info.name, stringify(info.type), shape);
    for (const CheckpointForm &form : info.checkpointForms)
      for (const CheckpointPart &part : form)
        llvm::outs() << (&part == &form.front() ? "     or *." : "    and *.")
                     << part.name << (part.transposed ? "  (transposed)" : "")
                     << "\n";
  }
}

/// Prints the tensors of a layer given as IR.
static void printSignature(const moert::Plan &plan) {
  for (const moert::TensorDecl &decl : plan.tensors) {
    if (decl.role == moert::TensorRole::Workspace ||
        decl.role == moert::TensorRole::Prepared)
      continue;
    llvm::SmallVector<std::string> shape;
    for (const moert::Expr &size : decl.shape)
      shape.push_back(size.str());
    printTensor(moert::tensorRoleName(decl.role), decl.name,
                moert::dtypeName(decl.dtype), shape);
  }
}

void moec::printSignature(const Session &session) {
  if (session.source.spec)
    ::printSignature(*session.source.spec);
  else
    ::printSignature(session.plan);
}

void moec::printTimes(const Session &session, const RunResult &result,
                      const MoeRunOptions &options) {
  llvm::outs() << options.tokens << " tokens: ";
  if (options.isPackage())
    llvm::outs() << "from a package";
  else if (session.report)
    llvm::outs() << llvm::formatv("{0} in {1:f0} ms",
                                  session.report->fromCache ? "from the cache"
                                                            : "compiled",
                                  session.report->total * 1e3);
  else if (options.level == ExecutedLevel::LLVM)
    llvm::outs() << llvm::formatv("compiled in {0:f0} ms",
                                  result.compileSeconds * 1e3);
  else
    llvm::outs() << "level " << stringify(options.level.getValue())
                 << " interpreted";
  if (options.level != ExecutedLevel::Moe)
    llvm::outs() << llvm::formatv(", workspace {0:f1} MiB",
                                  double(result.workspaceBytes) / (1 << 20));
  if (session.devices.size() > 1 && options.level == ExecutedLevel::LLVM)
    llvm::outs() << llvm::formatv(", equal bits for {0} seeds",
                                  session.devices.size());
  if (!result.seconds.empty())
    llvm::outs() << llvm::formatv(
        ", {0} timed: best {1:f3} ms, median {2:f3} ms", result.seconds.size(),
        result.seconds.front() * 1e3,
        result.seconds[result.seconds.size() / 2] * 1e3);
  if (options.compare > 0)
    llvm::outs() << ", equal bits in " << options.compare << " more runs";
  llvm::outs() << "\n";
  if (!result.parts.empty())
    printPartTimes(result.parts, llvm::outs());
}
