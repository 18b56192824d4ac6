//===- Message.h - what processes of a group say ----------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// A connection carries messages one behind the other: a head, and its bytes.

#ifndef MOERT_SRC_COMM_PROCESS_MESSAGE_H
#define MOERT_SRC_COMM_PROCESS_MESSAGE_H

#include "../Request.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace moert {

enum class MessageKind : uint32_t {
  /// What the rank has come for, as encodeRequest() has it.
  Come = 1,
  /// A piece of the rows of a collective, or of what a transfer moves.
  Rows,
  /// The rank has failed; the bytes are why.
  Failed,
  /// The rank's communicator ends.
  Left,
};

struct MessageHead {
  static constexpr uint32_t kMagic = 0x6d6f6563;
  /// Of a message.
  static constexpr uint32_t kMostBytes = 1 << 20;
  /// Of one with rows: so that a failure can be told between two of them.
  static constexpr uint32_t kRowsBytes = 1 << 16;

  uint32_t magic = kMagic;
  MessageKind kind = MessageKind::Come;
  uint32_t bytes = 0;
  uint32_t reserved = 0;
};

/// A request that came from another rank.
struct DecodedRequest {
  /// Lives as long as this does, where it is.
  Request get();

  enum class Kind { Text, Collective, Transfer } kind = Kind::Text;
  Collective collective;
  std::vector<CollectivePart> parts;
  /// The sizes of all messages of the rank, without their bytes.
  Transfer transfer;
  std::string subject, what;
};

std::string encodeRequest(const Request &request);
/// Nothing where the bytes are none.
std::optional<DecodedRequest> decodeRequest(const std::string &bytes);

} // namespace moert

#endif // MOERT_SRC_COMM_PROCESS_MESSAGE_H
