//===- Measured.h - measured times of a layer -------------------*- C++ -*-===//
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

/// Times at one token count, in microseconds.
struct MeasuredRow {
  int64_t tokens = 0;
  std::optional<double> us;
  /// The times of kernels by symbol.
  std::map<std::string, double> kernels;
};

struct Measured {
  /// The device's name; empty if nothing was measured.
  std::string device;
  /// Sorted by tokens.
  std::vector<MeasuredRow> rows;
};

/// Reads results of moe-bench --json: an object whose array `rows` has objects
/// with `tokens`, `layer`, `us` (with --profile `graph_us`), and in `launches`
/// objects with `kernel` and `us`. Results of benchmarks/counters.py have these
/// in `kernels`. Ignores rows of layers other than `layer` and rows with
/// non-uniform routing. Prints errors to `os`.
mlir::FailureOr<Measured> readMeasured(llvm::StringRef name,
                                       llvm::StringRef json,
                                       std::optional<std::string> layer,
                                       llvm::raw_ostream &os);

} // namespace moec::report

#endif // MOEC_LIB_TOOLS_REPORT_MEASURED_H
