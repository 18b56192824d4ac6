//===- StagedMessages.h - messages in host memory ---------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOERT_SRC_COMM_STAGEDMESSAGES_H
#define MOERT_SRC_COMM_STAGEDMESSAGES_H

#include "moert/Communicator.h"

#include <vector>

namespace moert {

/// Success if each rank expects exactly the messages that others send it; `all`
/// has each rank's transfer, by rank.
Status checkMessages(const std::vector<const Transfer *> &all);

/// A rank's messages of one transfer, in host memory.
class StagedMessages {
public:
  StagedMessages(const Mesh &mesh, Device &device)
      : mesh(mesh), device(device) {}

  /// Copies the sends to the host after the stream's earlier work, for
  /// onHost().
  Status copyOut(Stream &stream, const Transfer &transfer);
  /// The transfer, with messages in host memory.
  const Transfer &onHost() const { return hosted; }

  /// Receives the messages from rank `from` to `own`, this rank; they must
  /// match (checkMessages()).
  void receive(int64_t own, int64_t from, const Transfer &sender) const;

  /// Copies the receives to the device.
  Status copyIn(const Transfer &transfer) const;

private:
  const Mesh mesh;
  Device &device;
  Transfer hosted;
  std::vector<char> memory;
};

} // namespace moert

#endif // MOERT_SRC_COMM_STAGEDMESSAGES_H
