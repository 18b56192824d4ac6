//===- Connection.h - messages to and from another process ------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOERT_SRC_COMM_PROCESS_CONNECTION_H
#define MOERT_SRC_COMM_PROCESS_CONNECTION_H

#include "Message.h"

#include <deque>

namespace moert {

struct ReceivedMessage {
  MessageKind kind = MessageKind::Come;
  std::string bytes;
};

/// A connected stream socket, of which no call waits. Owns it.
class Connection {
public:
  explicit Connection(int socket);
  ~Connection();
  Connection(const Connection &) = delete;
  Connection &operator=(const Connection &) = delete;

  int socket() const { return descriptor; }

  void queue(MessageKind kind, std::string bytes);
  /// The memory is read until it has been sent.
  void queueRows(const char *rows, size_t bytes);
  /// Takes back what has not been begun.
  void dropQueued();
  bool hasQueued() const { return !out.empty(); }
  /// Sends what goes; nothing more goes once the other one is gone. Answers
  /// whether anything did.
  bool write();

  /// Reads what is there. Answers whether anything was.
  bool read();
  /// The next message that has come whole, which stays until pop().
  const ReceivedMessage *front();
  void pop() { next.reset(); }
  /// The other process has ended, or has closed its end; what it has sent
  /// before is there.
  bool isAtEnd() const { return hasEnded && !hasWhole(); }
  /// What has come is no message.
  bool isBroken() const { return broken; }

  /// Lets the other one see the end.
  void shutDown();

private:
  /// What goes out: a head, then bytes of its own or of the caller's.
  struct Queued {
    MessageHead head;
    std::string own;
    const char *rows = nullptr;
    size_t sent = 0;
  };
  bool hasWhole() const;

  const int descriptor;
  std::deque<Queued> out;
  bool isDeaf = false;
  /// What has come, from `begin` on.
  std::string in;
  size_t begin = 0;
  std::optional<ReceivedMessage> next;
  bool hasEnded = false, broken = false;
};

} // namespace moert

#endif // MOERT_SRC_COMM_PROCESS_CONNECTION_H
