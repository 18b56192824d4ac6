//===- PreparedFile.h - files of prepared weights ---------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOERT_SRC_EXECUTOR_PREPAREDFILE_H
#define MOERT_SRC_EXECUTOR_PREPAREDFILE_H

#include "LoadedLayer.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace moert {

class Bindings;

/// A tensor of a file of prepared weights: one that runs read.
struct PreparedTensor {
  /// The plan's tensor.
  size_t index = 0;
  std::vector<int64_t> shape;
  size_t bytes = 0;
  /// On the device, as read from the file.
  std::shared_ptr<Buffer> buffer = nullptr;
};

/// Prepared weights as a file holds them.
struct PreparedWeights {
  /// The rank that wrote it; none for a layer of one rank.
  std::optional<int64_t> rank;
  std::vector<PreparedTensor> tensors;
  int64_t bytes = 0;
};

/// Writes the prepared weights of `rank`; returns the bytes. A failure leaves
/// an existing file unchanged.
Result<int64_t> writePreparedFile(const LoadedLayer &layer,
                                  const Bindings &bindings,
                                  std::optional<int64_t> rank,
                                  const std::string &path,
                                  const PreparedFileOptions &options);

/// Reads a file to the device. `rank`, if known, is the one whose weights the
/// file must have.
Result<PreparedWeights> readPreparedFile(const LoadedLayer &layer,
                                         std::optional<int64_t> rank,
                                         const std::string &path,
                                         const PreparedFileOptions &options);

} // namespace moert

#endif // MOERT_SRC_EXECUTOR_PREPAREDFILE_H
