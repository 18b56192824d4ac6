//===- Measured.h - times of a layer that were measured ---------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_TOOLS_REPORT_MEASURED_H
#define MOEC_LIB_TOOLS_REPORT_MEASURED_H

#include "mlir/Support/LLVM.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/raw_ostream.h"

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace moec::report {

/// Times at one number of tokens, in microseconds.
struct MeasuredRow {
  int64_t tokens = 0;
  /// The layer's.
  std::optional<double> us;
  /// Those of its kernels by their symbols.
  std::map<std::string, double> kernels;
};

struct Measured {
  /// Where, in words; empty where nothing was measured.
  std::string device;
  /// By tokens.
  std::vector<MeasuredRow> rows;
};

/// Reads results as moe-bench --json writes them: an object whose array `rows`
/// has objects with `tokens`, `layer`, `us`, or as --profile writes it
/// `graph_us`, and in `launches` objects with `kernel` and `us`; or, as
/// benchmarks/counters.py does, these in `kernels`. Of rows of several layers
/// those of `layer` count, and of those with another routing none. Says on `os`
/// what is wrong.
mlir::FailureOr<Measured> readMeasured(llvm::StringRef name,
                                       llvm::StringRef json,
                                       std::optional<std::string> layer,
                                       llvm::raw_ostream &os);

} // namespace moec::report

#endif // MOEC_LIB_TOOLS_REPORT_MEASURED_H
