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

/// Success where each rank expects the messages that others send it; `all` are
/// those of each rank, by rank.
Status checkMessages(const std::vector<const Transfer *> &all);

/// What a rank sends and receives in one transfer, in host memory.
class StagedMessages {
public:
  StagedMessages(const Mesh &mesh, Device &device)
      : mesh(mesh), device(device) {}

  /// Copies what is sent, once the stream has it; onHost() is there afterwards.
  Status copyOut(Stream &stream, const Transfer &transfer);
  /// The transfer, with messages in host memory.
  const Transfer &onHost() const { return hosted; }

  /// Takes what rank `from` sends to `own`, which is this one; they agree, as
  /// checkMessages() says.
  void receive(int64_t own, int64_t from, const Transfer &sender) const;

  /// Copies what was received to where it was to go.
  Status copyIn(const Transfer &transfer) const;

private:
  const Mesh mesh;
  Device &device;
  Transfer hosted;
  std::vector<char> memory;
};

} // namespace moert

#endif // MOERT_SRC_COMM_STAGEDMESSAGES_H
