//===- CandidateMemo.h - candidates that were evaluated before --*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_SCHEDULES_CANDIDATEMEMO_H
#define MOEC_SCHEDULES_CANDIDATEMEMO_H

#include "Cost.h"
#include "mlir/IR/DialectInterface.h"
#include "llvm/ADT/StringMap.h"

#include <mutex>

namespace moec {

/// Evaluated candidates of kernels, by all that they depend on, for the life of
/// a context. The search for few enough kernels asks for the same kernels in
/// each of its rounds. An interface of the tile dialect; without it, candidates
/// are evaluated at each call.
class CandidateMemo : public mlir::DialectInterface::Base<CandidateMemo> {
public:
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(CandidateMemo)

  CandidateMemo(mlir::Dialect *dialect) : Base(dialect) {}

  using Evaluate = llvm::function_ref<std::vector<Candidate>()>;

  /// The memo of a context; null without one.
  static CandidateMemo *find(mlir::MLIRContext *context);
  /// All that the candidates of a phase depend on, as text: its kernel, which
  /// arguments are workspace buffers, schedule, target, load and token counts.
  static std::string getKey(mlir::Operation *phase, const ModelsTime &schedule,
                            const Target &target, tile::LoadAttr load,
                            llvm::ArrayRef<int64_t> points);

  /// The candidates for a key, evaluated if the key is new. Thread-safe.
  std::vector<Candidate> get(llvm::StringRef key, Evaluate evaluate);

private:
  std::mutex mutex;
  llvm::StringMap<std::vector<Candidate>> known;
};

/// Adds a memo to the tile dialect when it is loaded.
void registerCandidateMemo(mlir::DialectRegistry &registry);

} // namespace moec

#endif // MOEC_SCHEDULES_CANDIDATEMEMO_H
