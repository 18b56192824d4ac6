//===- Staging.h - rows of a collective in host memory ----------*- C++ -*-===//
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

/// Where the rows of a part begin that a rank sends to the one at a place of
/// the axis.
const char *sentTo(const Collective &collective, size_t part, int64_t place);

/// What a rank sends and receives of one collective, part by part, in host
/// memory.
class Staging {
public:
  Staging(const Mesh &mesh, Device &device) : mesh(mesh), device(device) {}

  /// Copies what is sent, once the stream has it; onHost() is there afterwards.
  Status copyOut(Stream &stream, const Collective &collective);
  /// The collective, with parts in host memory.
  const Collective &onHost() const { return hosted; }

  /// Makes what is received of a part, of what each place of the axis sent.
  void receive(size_t part, const std::vector<const void *> &sources) const;

  /// Copies what was received to where it was to go.
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
