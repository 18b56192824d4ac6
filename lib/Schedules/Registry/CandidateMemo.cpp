//===- CandidateMemo.cpp - candidates that were evaluated before *- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/Schedules/CandidateMemo.h"

#include "moec/Schedules/KernelArguments.h"
#include "moec/Schedules/Schedules.h"

using namespace mlir;
using namespace moec;

CandidateMemo *CandidateMemo::find(MLIRContext *context) {
  auto *dialect = context->getLoadedDialect<tile::TileDialect>();
  return dialect ? dialect->getRegisteredInterface<CandidateMemo>() : nullptr;
}

std::string CandidateMemo::getKey(Operation *phase, const ModelsTime &schedule,
                                  const Target &target, tile::LoadAttr load,
                                  ArrayRef<int64_t> points) {
  auto kernel = phase->getParentOfType<tile::KernelOp>();
  std::string key;
  llvm::raw_string_ostream os(key);
  // Schedules and parts live as long as the process.
  os << static_cast<const void *>(&schedule) << ' ' << target.name << ' '
     << static_cast<const void *>(target.part) << ' ' << load;
  for (int64_t tokens : points)
    os << ' ' << tokens;
  Block &body = kernel.getBody().front();
  os << " phase " << std::distance(body.begin(), phase->getIterator())
     << " buffers";
  for (bool isBuffer : getWorkspaceArguments(kernel))
    os << ' ' << isBuffer;
  os << '\n';
  kernel->print(os, OpPrintingFlags().useLocalScope());
  return key;
}

std::vector<Candidate> CandidateMemo::get(StringRef key, Evaluate evaluate) {
  {
    std::lock_guard<std::mutex> lock(mutex);
    if (auto found = known.find(key); found != known.end())
      return found->second;
  }
  // Without the lock, since evaluation takes long and is parallel.
  std::vector<Candidate> candidates = evaluate();
  std::lock_guard<std::mutex> lock(mutex);
  return known.try_emplace(key, std::move(candidates)).first->second;
}

void moec::registerCandidateMemo(DialectRegistry &registry) {
  registry.addExtension(+[](MLIRContext *, tile::TileDialect *dialect) {
    dialect->addInterfaces<CandidateMemo>();
  });
}
