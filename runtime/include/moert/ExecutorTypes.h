//===- ExecutorTypes.h - what executors take and give -----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOERT_EXECUTORTYPES_H
#define MOERT_EXECUTORTYPES_H

#include "moert/DType.h"

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace moert {

/// Results of a launch that the kernel of a collective may compute instead: the
/// sums over a row's slots ahead of a sum over ranks, or the quantized rows of
/// an all-gather.
enum class Replaced : uint8_t { Sums, Quantized };

/// A tensor in device memory, not owned.
struct TensorView {
  void *data = nullptr;
  DType dtype = DType::F32;
  std::vector<int64_t> shape;
  /// In elements; empty means contiguous and row-major.
  std::vector<int64_t> strides;
};

struct ExecutorOptions {
  /// Gives every workspace tensor its own slot, so that view() finds all of
  /// them intact after a run.
  bool keepAll = false;
  /// Fills workspace and outputs with 0xFF bytes (NaN) before each run.
  bool poison = false;
  /// Lets the plan's dependent launches begin early.
  bool dependentLaunches = true;
  /// The layer as JSON (Package::spec), or empty. Identifies prepared files
  /// together with the plan, which does not contain, for example, the
  /// activation or the order of gate and up.
  std::string description;
};

/// Memory and time that prepareWeights() took.
struct PrepareReport {
  /// Bytes allocated, in addition to memory that the caller gave.
  int64_t bytes = 0;
  /// Bytes of weights that were overwritten.
  int64_t inPlaceBytes = 0;
  double seconds = 0;
};

/// Options for writing and reading a file of prepared weights.
struct PreparedFileOptions {
  /// For a plan of several ranks: the rank of these weights, if
  /// Executor::rank() does not know it, or to replace them by the weights of
  /// another rank.
  std::optional<int64_t> rank = std::nullopt;
  /// Index in the model of the decoder layer that has these weights: written,
  /// and compared with the file's where both are known.
  std::optional<int64_t> decoderLayer = std::nullopt;
  /// Whether the data read is compared with the digests in the file.
  bool verify = true;
  /// Progress callback: bytes done, bytes in all.
  std::function<void(uint64_t, uint64_t)> step = nullptr;
};

/// Bytes of a prepared file that were written or read, and the time taken.
struct PreparedFileReport {
  int64_t bytes = 0;
  double seconds = 0;
};

} // namespace moert

#endif // MOERT_EXECUTORTYPES_H
