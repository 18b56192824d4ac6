//===- Message.h - messages between processes of a group --------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// A connection carries a sequence of messages, each a head and its bytes.

#ifndef MOERT_SRC_COMM_PROCESS_MESSAGE_H
#define MOERT_SRC_COMM_PROCESS_MESSAGE_H

#include "../Request.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace moert {

enum class MessageKind : uint32_t {
  /// The rank's request, in the form of encodeRequest().
  Come = 1,
  /// A chunk of a collective's rows or of a transfer's messages.
  Rows,
  /// The rank has failed; the bytes are the reason.
  Failed,
  /// The rank's communicator ends.
  Left,
};

struct MessageHead {
  static constexpr uint32_t kMagic = 0x6d6f6563;
  /// Maximum size of a message in bytes.
  static constexpr uint32_t kMostBytes = 1 << 20;
  /// Maximum size of a chunk of rows, so that a failure can be sent in between.
  static constexpr uint32_t kRowsBytes = 1 << 16;

  uint32_t magic = kMagic;
  MessageKind kind = MessageKind::Come;
  uint32_t bytes = 0;
  uint32_t reserved = 0;
};

/// A request received from another rank.
struct DecodedRequest {
  /// Valid as long as this object, at its address.
  Request get();

  enum class Kind { Text, Collective, Transfer } kind = Kind::Text;
  Collective collective;
  std::vector<CollectivePart> parts;
  /// Sizes of all messages of the rank, without their contents.
  Transfer transfer;
  std::string subject, what;
};

std::string encodeRequest(const Request &request);
/// Nothing if the bytes are not a valid request.
std::optional<DecodedRequest> decodeRequest(const std::string &bytes);

} // namespace moert

#endif // MOERT_SRC_COMM_PROCESS_MESSAGE_H
