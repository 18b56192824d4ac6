//===- Staging.h - a collective's data in host memory -----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOERT_SRC_COMM_STAGING_H
#define MOERT_SRC_COMM_STAGING_H

#include "moert/Communicator.h"

#include <vector>

namespace moert {

/// Start of the part's rows that a rank sends to the rank at `index` of
/// the axis.
const char *sentTo(const Collective &collective, size_t part, int64_t index);

/// A rank's inputs and outputs of one collective, part by part, in host memory.
class Staging {
public:
  Staging(const Mesh &mesh, Device &device) : mesh(mesh), device(device) {}

  /// Copies the inputs to the host after the stream's earlier work, for
  /// onHost().
  Status copyOut(Stream &stream, const Collective &collective);
  /// The collective, with parts in host memory.
  const Collective &onHost() const { return hosted; }

  /// Computes the output of a part from the inputs of all ranks of the axis.
  void receive(size_t part, const std::vector<const void *> &sources) const;

  /// Copies the outputs to the device.
  Status copyIn(const Collective &collective) const;

private:
  size_t sentBytes(const CollectivePart &part) const;
  size_t receivedBytes(const CollectivePart &part) const;

  const Mesh mesh;
  Device &device;
  Collective hosted;
  std::vector<CollectivePart> parts;
  std::vector<char> memory;
};

} // namespace moert

#endif // MOERT_SRC_COMM_STAGING_H
