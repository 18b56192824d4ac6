//===- ExpertLoad.h - loads of experts --------------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_TOOLS_BENCH_ROWS_EXPERTLOAD_H
#define MOEC_LIB_TOOLS_BENCH_ROWS_EXPERTLOAD_H

#include "Rows.h"

namespace moec::bench {

/// The popularity of a layer's experts, from which routings are drawn.
struct ExpertLoad {
  /// "uniform", "zipf", "hot", "half" or "one".
  llvm::StringRef kind;
  /// The kind with its parameter, such as "zipf 0.73" or "hot 2".
  std::string name;
  /// Relative popularity per expert; experts with 0 get no tokens.
  std::vector<double> popularity;
  /// An expert that takes all tokens beside their other choices; -1: none.
  int32_t one = -1;
};

/// Loads of all kinds in turn: uniform; Zipf's law with exponents from 0.5 to
/// 1.5; half of the slots for one to four hot experts; half of the experts
/// without tokens; one expert with all tokens. Equal calls give equal loads,
/// and fewer loads are the first ones of more.
std::vector<ExpertLoad> makeLoads(const BenchLayer &layer, int64_t count);

} // namespace moec::bench

#endif // MOEC_LIB_TOOLS_BENCH_ROWS_EXPERTLOAD_H
